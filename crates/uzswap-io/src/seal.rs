//! *What*: an object's protection on the device: AES-256-GCM with a key that lives and dies with
//! the process, or, with encryption off, a checksum.
//!
//! *Invariants*:
//! - A key never leaves the memory that it was made in, which the caller locks and keeps out of
//!   core dumps; it is never written anywhere.
//! - No nonce is used twice under one key. A nonce is the next number of a [`Sequence`]; processes
//!   that share a key (by fork) share its sequence, in memory mapped shared. So fork needs no
//!   action, and no process can repeat another's number.
//! - Opening changes nothing if the object is not what was sealed under the same [`Label`].
//!
//! *Locking*: none. *Context*: any; [`Key::generate`] in init.

use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use uzswap_sys::{Errno, file};

use crate::crc::Crc32c;

/// Bytes of a key before it is expanded.
pub const KEY_LEN: usize = 32;
const SEQUENCE_LEN: usize = 8;
const TAG_LEN: usize = 16;
const CRC_LEN: usize = 4;

/// Whose data an object is. It is not stored: the reader must know it, so that an object of another
/// page, or of an earlier time, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The page's number.
    pub page: u64,
    /// What its entry remembers of this time of storing, such as the eviction age; 0 if nothing.
    pub generation: u32,
    /// The number of the write that brings it to the device, which the device's slots remember; 0
    /// where they do not.
    pub write: u32,
}

impl Label {
    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let (page, rest) = bytes.split_at_mut(8);
        let (generation, write) = rest.split_at_mut(4);
        page.copy_from_slice(&self.page.to_le_bytes());
        generation.copy_from_slice(&self.generation.to_le_bytes());
        write.copy_from_slice(&self.write.to_le_bytes());
        bytes
    }
}

/// Numbers that are given out once. Zeroed memory is a valid new one.
///
/// Belongs in memory mapped shared by all processes that share the key: a private copy after fork
/// would repeat numbers, which with AES-GCM reveals both texts.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Sequence(AtomicU64);

impl Sequence {
    /// A new one.
    #[must_use]
    pub const fn new() -> Self {
        Sequence(AtomicU64::new(0))
    }

    /// The next number.
    fn next(&self) -> u64 {
        // Relaxed: all that matters is that no two calls get the same number.
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// An ephemeral AES-256-GCM key, expanded. See the module's head for where it may lie.
#[repr(transparent)]
pub struct Key(Aes256Gcm);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// Makes a random key in `memory`. What this leaves on the stack is wiped.
    ///
    /// # Errors
    /// As getrandom(2).
    pub fn generate(memory: &mut MaybeUninit<Key>) -> Result<&mut Key, Errno> {
        let mut bytes = [0; KEY_LEN];
        file::getrandom(&mut bytes)?;
        Ok(Self::from_bytes(memory, &mut bytes))
    }

    /// Expands a key in `memory`; wipes `bytes` and what this leaves on the stack.
    pub fn from_bytes<'a>(
        memory: &'a mut MaybeUninit<Key>,
        bytes: &mut [u8; KEY_LEN],
    ) -> &'a mut Key {
        let key = Self::expand(memory, bytes);
        wipe(bytes);
        wipe_stack();
        key
    }

    /// In a frame of its own, so that its copies of the key lie below [`Key::from_bytes`]'s frame.
    #[inline(never)]
    fn expand<'a>(memory: &'a mut MaybeUninit<Key>, bytes: &[u8; KEY_LEN]) -> &'a mut Key {
        memory.write(Key(Aes256Gcm::new(bytes.into())))
    }

    /// Identifies a page's stored form: another `body` or `page` has another fingerprint, except
    /// with a probability of 2^-120 over all keys.
    #[must_use]
    pub fn fingerprint(&self, page: u64, body: &[u8]) -> Fingerprint {
        // The authentication tag of AES-GCM over text that is not encrypted. Its nonces repeat,
        // which reveals nothing: tags never leave this process, and objects have other nonces.
        let mut nonce = nonce(page);
        if let Some(last) = nonce.last_mut() {
            *last = 1;
        }
        let tag = self
            .0
            .encrypt_inout_detached(&nonce, body, (&mut [][..]).into());
        // No page is too long for it.
        Fingerprint(tag.map_or([0; TAG_LEN], Into::into))
    }

    fn encrypt(&self, sequence: u64, label: Label, body: &mut [u8]) -> Option<[u8; TAG_LEN]> {
        let tag = self
            .0
            .encrypt_inout_detached(&nonce(sequence), &label.bytes(), body.into());
        tag.ok().map(Into::into)
    }

    fn decrypt(&self, sequence: u64, label: Label, body: &mut [u8], tag: [u8; TAG_LEN]) -> bool {
        let (nonce, tag) = (nonce(sequence), Tag::from(tag));
        self.0
            .decrypt_inout_detached(&nonce, &label.bytes(), body.into(), &tag)
            .is_ok()
    }
}

/// Identifies a page's stored form: see [`Key::fingerprint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; TAG_LEN]);

impl Fingerprint {
    /// All zeroes, to fill memory with.
    pub const ZERO: Self = Fingerprint([0; TAG_LEN]);
}

/// Eight bytes of sequence, four of zero.
fn nonce(sequence: u64) -> Nonce<aes_gcm::aead::consts::U12> {
    let mut nonce = [0; 12];
    let (number, _) = nonce.split_at_mut(SEQUENCE_LEN);
    number.copy_from_slice(&sequence.to_le_bytes());
    nonce.into()
}

/// Zeroes `bytes` by volatile stores, which the compiler does not remove.
fn wipe(bytes: &mut [u8]) {
    for byte in bytes {
        // SAFETY: a reference is valid to write through.
        unsafe { core::ptr::from_mut(byte).write_volatile(0) };
    }
}

/// Overwrites the stack below the caller's frame, as far down as expanding a key reaches.
#[inline(never)]
fn wipe_stack() {
    wipe(&mut [0xff; 4096]);
}

/// How objects are protected.
#[derive(Clone, Copy, Debug)]
pub enum Seal<'a> {
    /// Encrypted and authenticated.
    Encrypted {
        /// The key; processes that share it share the sequence too.
        key: &'a Key,
        /// The source of its nonces.
        sequence: &'a Sequence,
    },
    /// In the clear, with a CRC-32C over label and body: errors are found, tampering is not.
    Checksummed,
}

/// An object could not be sealed: it has no room for a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsealed;

impl Seal<'_> {
    /// Bytes of an object's header.
    #[must_use]
    pub const fn overhead(self) -> usize {
        match self {
            Seal::Encrypted { .. } => SEQUENCE_LEN + TAG_LEN,
            Seal::Checksummed => CRC_LEN,
        }
    }

    /// Seals the body that follows [`Seal::overhead`] bytes of header in `object`, in place, and
    /// fills in the header.
    pub(crate) fn seal(self, label: Label, object: &mut [u8]) -> Result<(), Unsealed> {
        match self {
            Seal::Encrypted { key, sequence } => {
                let (number, rest) = object
                    .split_first_chunk_mut::<SEQUENCE_LEN>()
                    .ok_or(Unsealed)?;
                let (tag, body) = rest.split_first_chunk_mut::<TAG_LEN>().ok_or(Unsealed)?;
                let next = sequence.next();
                *number = next.to_le_bytes();
                *tag = key.encrypt(next, label, body).ok_or(Unsealed)?;
            }
            Seal::Checksummed => {
                let (crc, body) = object.split_first_chunk_mut::<CRC_LEN>().ok_or(Unsealed)?;
                *crc = checksum(label, body);
            }
        }
        Ok(())
    }

    /// Checks and decrypts a sealed `object` in place; returns its body. `None`: it is not what was
    /// sealed under `label`.
    pub(crate) fn open(self, label: Label, object: &mut [u8]) -> Option<&mut [u8]> {
        match self {
            Seal::Encrypted { key, .. } => {
                let (number, rest) = object.split_first_chunk_mut::<SEQUENCE_LEN>()?;
                let (tag, body) = rest.split_first_chunk_mut::<TAG_LEN>()?;
                let number = u64::from_le_bytes(*number);
                key.decrypt(number, label, body, *tag).then_some(body)
            }
            Seal::Checksummed => {
                let (crc, body) = object.split_first_chunk_mut::<CRC_LEN>()?;
                (*crc == checksum(label, body)).then_some(body)
            }
        }
    }
}

fn checksum(label: Label, body: &[u8]) -> [u8; CRC_LEN] {
    let crc = Crc32c::new().with(&label.bytes()).with(body);
    crc.value().to_le_bytes()
}
