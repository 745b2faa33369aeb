//! *What*: the dictionaries of this process: by which a page is stored, by which one is loaded, and what they take. Which there are, and how
//! long: [`crate::dictionary`]. How they come and go: [`training`](super::training).
//!
//! A dictionary is a page of bytes with zstd's tables of it behind them, in memory of its own, which is charged.
//!
//! *Invariants*: an object that a dictionary made says so in its first byte, and its entry says so too. What decodes goes by
//! the entry, so that a damaged object leads nowhere.
//! *Locking*: slot; the folio of the entry. *Context*: signal, worker.

use core::ptr::NonNull;

use super::Parts;
use crate::arena::{PAGE_SIZE, wide};
use crate::slot::SlotGuard;
use crate::table::{DictNr, Entry};
use uzswap_compress::{Codec, DICTIONARY_LEN, Digest};
use uzswap_group::counters::{add, sub};
use uzswap_group::knobs::is_on;

/// What a dictionary is made of.
#[derive(Debug)]
pub(crate) struct Made {
    /// Its bytes, and the digest.
    memory: NonNull<u8>,
    len: usize,
    pub digest: Digest,
}

// SAFETY: what the pointer leads to is only read once it is made.
unsafe impl Send for Made {}
// SAFETY: as above.
unsafe impl Sync for Made {}

impl Made {
    /// Bytes of memory for one; `None`: `codec` uses none.
    fn len_for(codec: Codec) -> Option<usize> {
        Some(DICTIONARY_LEN + Digest::required_size(codec)?)
    }

    /// Makes one of these bytes for `codec`.
    ///
    /// # Safety
    /// `memory` is [`Made::len_for`] bytes that nobody else uses until it is given back, page aligned.
    unsafe fn make(
        memory: NonNull<u8>,
        codec: Codec,
        content: &[u8; DICTIONARY_LEN],
    ) -> Option<Made> {
        let len = Self::len_for(codec)?;
        // SAFETY: the caller's promise.
        let digest = unsafe {
            let bytes = memory.cast::<[u8; DICTIONARY_LEN]>();
            bytes.write(*content);
            let behind = memory.as_ptr().add(DICTIONARY_LEN);
            Digest::init(behind, len - DICTIONARY_LEN, codec, bytes.as_ref())
        };
        Some(Made {
            memory,
            len,
            digest: digest.ok()?,
        })
    }

    /// One in memory that stays.
    #[cfg(test)]
    pub fn for_good(codec: Codec, content: &[u8; DICTIONARY_LEN]) -> Self {
        let memory = super::start::reserve(Self::len_for(codec).unwrap()).unwrap();
        // SAFETY: a fresh mapping of that length, for good.
        unsafe { Self::make(NonNull::new(memory).unwrap(), codec, content).unwrap() }
    }

    /// What it takes of the limit.
    pub fn bytes(&self) -> u64 {
        wide(self.len.next_multiple_of(PAGE_SIZE))
    }

    /// Its bytes.
    pub fn content(&self) -> &[u8; DICTIONARY_LEN] {
        // SAFETY: the memory begins with them, and lives as long as this.
        unsafe { self.memory.cast().as_ref() }
    }
}

/// A dictionary, as objects name it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dictionary<'a> {
    pub nr: DictNr,
    pub made: &'a Made,
}

impl Parts {
    /// By which dictionary `codec` makes objects of single pages now. The caller holds a slot as long as it uses it.
    #[inline]
    pub(super) fn live_dictionary(&self, codec: Codec) -> Option<Dictionary<'_>> {
        let nr = self.dictionaries.live()?;
        let found = self.dictionary(nr)?;
        (found.made.digest.serves(codec, PAGE_SIZE) && is_on(&self.group.knobs.dictionary))
            .then_some(found)
    }

    /// The dictionary of that number, which is live, or named by an entry whose folio is held. The caller holds a slot as long as
    /// it uses it.
    pub(super) fn dictionary(&self, nr: DictNr) -> Option<Dictionary<'_>> {
        // SAFETY: the caller's slot and folio, as above.
        let made = unsafe { self.dictionaries.get(nr) }?;
        Some(Dictionary { nr, made })
    }

    /// The dictionary that the object of `entry` was made by.
    #[inline]
    pub(super) fn dictionary_of(&self, entry: Entry) -> Option<Dictionary<'_>> {
        entry.dictionary().and_then(|nr| self.dictionary(nr))
    }

    /// The entry is in the table, and names the dictionary that it may need. Its folio is held.
    #[inline]
    pub(crate) fn need_dictionary(&self, entry: Entry) {
        if let Some(nr) = entry.dictionary() {
            self.dictionaries.add(nr);
            add(&self.counters().dictionary_pages, 1);
        }
    }

    /// The entry is in the table no more. Its folio is held.
    #[inline]
    pub(crate) fn leave_dictionary(&self, entry: Entry) {
        if let Some(nr) = entry.dictionary() {
            sub(&self.counters().dictionary_pages, 1);
            if self.dictionaries.sub(nr) {
                self.densifier.wake();
            }
        }
    }

    /// A dictionary of these bytes for `codec`, charged, if there is room for it.
    pub(super) fn make_dictionary(
        &self,
        slot: &mut SlotGuard<'_>,
        codec: Codec,
        content: &[u8; DICTIONARY_LEN],
    ) -> Option<Made> {
        let len = Made::len_for(codec)?;
        let memory = self.charged_memory(slot, len)?;
        // SAFETY: fresh memory of that length.
        let made = unsafe { Made::make(memory, codec, content) };
        if made.is_none() {
            // SAFETY: nothing refers to it.
            unsafe { self.give_back_memory(slot, memory, len) };
        }
        made
    }

    /// Gives back what a dictionary takes.
    pub(super) fn give_back_dictionary(&self, slot: &mut SlotGuard<'_>, made: Made) {
        let Made { memory, len, .. } = made;
        // SAFETY: it is owned here, and gone after this.
        unsafe { self.give_back_memory(slot, memory, len) };
    }
}
