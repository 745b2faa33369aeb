//! *What*: [`Keys`]: how this process and its fork children seal objects on the swap devices, and
//! make fingerprints of them.
//!
//! *Invariants*: no number of the sequence is used twice, by whichever process of the family.
//! *Locking*: none. *Context*: init (`new`); signal, worker.

use core::mem::MaybeUninit;

use crate::account::Account;
use crate::page::{Age, PAGE_SIZE, Page, wide};
use uzswap_io::{Fingerprint, Key, Label, Seal, Sequence};
use uzswap_sync::primitive::{AtomicU32, Ordering::Relaxed};
use uzswap_sys::mem;

/// Pages of key and sequence.
pub(crate) const KEY_PAGES: u64 = 2;

/// What seals objects.
pub(super) struct Keys {
    /// Encrypts objects, unless that is off, and makes fingerprints.
    key: &'static Key,
    encrypts: bool,
    numbers: &'static Numbers,
}

/// What parent and fork children count together.
#[derive(Debug)]
#[repr(C)]
struct Numbers {
    sequence: Sequence,
    /// Runs written.
    writes: AtomicU32,
}

impl Keys {
    /// A fresh key. `encrypts`: objects are encrypted, not only checksummed.
    pub(super) fn new(account: &Account, encrypts: bool) -> Option<Keys> {
        Some(Keys {
            key: new_key(account)?,
            encrypts,
            numbers: new_numbers(account)?,
        })
    }

    /// How objects are sealed.
    pub(super) fn seal(&self) -> Seal<'static> {
        if self.encrypts {
            Seal::Encrypted {
                key: self.key,
                sequence: &self.numbers.sequence,
            }
        } else {
            Seal::Checksummed
        }
    }

    /// The number of a write, never 0. It comes again after 2^32 writes, which is more than a
    /// hundred terabytes.
    pub(super) fn next_write(&self) -> u32 {
        // Relaxed: all that matters is that no two writes have the same number.
        match self.numbers.writes.fetch_add(1, Relaxed).wrapping_add(1) {
            0 => self.next_write(),
            number => number,
        }
    }

    /// The fingerprint of `body`, the stored form of `page`.
    pub(super) fn fingerprint(&self, page: Page, body: &[u8]) -> Fingerprint {
        self.key.fingerprint(wide(page.index()), body)
    }

    /// In a fork child, which does not inherit memory locks.
    pub(super) fn lock_again(&self) {
        let _ = mem::mlock(core::ptr::from_ref(self.key).addr(), size_of::<Key>());
    }
}

/// A key in a page of its own: locked, and in no core dump. Fork children inherit it.
fn new_key(account: &Account) -> Option<&'static Key> {
    let memory = account.memory().reserve(PAGE_SIZE).ok()?;
    // The lock is best effort: RLIMIT_MEMLOCK must not turn encryption off.
    let _ = mem::mlock(memory.addr(), PAGE_SIZE);
    // SAFETY: a fresh page, never unmapped, used by nobody else.
    let memory = unsafe { &mut *memory.cast::<MaybeUninit<Key>>() };
    Key::generate(memory).ok().map(|key| &*key)
}

/// Numbers in shared memory, so that parent and fork children never reuse one.
fn new_numbers(account: &Account) -> Option<&'static Numbers> {
    let prot = mem::PROT_READ | mem::PROT_WRITE;
    let flags = mem::MAP_SHARED | mem::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let addr = unsafe { mem::mmap(0, PAGE_SIZE, prot, flags, -1, 0) }.ok()?;
    if !account.memory().adopt(addr, PAGE_SIZE) {
        return None;
    }
    // SAFETY: zeroed memory, there as long as the engine, is numbers at their beginning.
    Some(unsafe { &*(addr as *const Numbers) })
}

/// The label that an object of `page` is sealed with, to be written by write number `write`.
pub(crate) fn label(page: Page, age: Age, write: u32) -> Label {
    Label {
        page: wide(page.index()),
        generation: age.0.into(),
        write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_locked_and_in_no_core_dump() {
        let account = Account::new();
        let keys = Keys::new(&account, true).unwrap();
        let start = core::ptr::from_ref(keys.key).addr();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let head = format!("{start:x}-{:x} ", start + PAGE_SIZE);
        let (_, mapping) = smaps.split_once(&head).expect("a mapping of its own");
        let flags = mapping.lines().find(|line| line.starts_with("VmFlags:"));
        let flags: Vec<_> = flags.expect("has flags").split(' ').collect();
        assert!(flags.contains(&"dd"), "{flags:?}");
        // Nothing is locked where nothing may be.
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let locked = limits.lines().find(|line| line.starts_with("Max locked"));
        if locked.is_some_and(|line| line.split_whitespace().nth(3) != Some("0")) {
            assert!(flags.contains(&"lo"), "{flags:?}");
        }
    }
}
