//! *What*: the slots read from the swap devices for the pages of one folio, and their contents.
//!
//! *Invariants*: the contents of an extent are returned only from the place it was read to.
//! *Locking*: belongs to an operation. *Context*: signal, worker.

use super::{LOAD_LEN, READ_LEN};
use crate::page::{PAGE_SIZE, PageRange};
use uzswap_io::{Extent, Fingerprint, MAX_READS, SLOT};

/// Maximum slots between two extents that one read covers, rather than issuing two reads.
const MAX_GAP_SLOTS: u64 = 2;

/// Extents of the swap devices that are read together, for the pages of one folio.
#[derive(Debug)]
pub struct ReadWindow {
    /// The contents of the extents, one after the other.
    buffer: &'static mut [u8],
    extents: [Extent; MAX_READS],
    nr_extents: usize,
    /// Pages around the faulting one; those that cost no read of their own are read along.
    pub around: Option<PageRange>,
    /// The contents belong to the entries of the folio that is held now.
    current: bool,
    /// The last eviction that overlapped a read freed nothing: the pool grew by as much.
    pub freed_nothing: bool,
    /// Ticks that reads were waited for since [`Op::begin_wait`](super::Op::begin_wait).
    pub waited: u64,
    /// Fingerprints of the copies on the device, by place in the load buffer.
    fingerprints: [Option<Fingerprint>; LOAD_LEN / PAGE_SIZE],
}

impl ReadWindow {
    /// An empty window. `buffer` is page aligned; empty without a swap device.
    #[must_use]
    pub const fn new(buffer: &'static mut [u8]) -> Self {
        Self {
            buffer,
            extents: [Extent {
                slot: 0,
                nr_slots: 0,
            }; MAX_READS],
            nr_extents: 0,
            around: None,
            current: false,
            freed_nothing: false,
            waited: 0,
            fingerprints: [None; LOAD_LEN / PAGE_SIZE],
        }
    }

    /// Notes the copy that the page at `place` of the load buffer was read from; `None`: its copy
    /// is not kept.
    pub fn note(&mut self, place: usize, fingerprint: Option<Fingerprint>) {
        if let Some(noted) = self.fingerprints.get_mut(place) {
            *noted = fingerprint;
        }
    }

    /// The fingerprint noted last for the page at `place` of the load buffer.
    #[must_use]
    pub fn noted(&self, place: usize) -> Option<Fingerprint> {
        self.fingerprints.get(place).copied().flatten()
    }

    /// Drops all extents.
    #[inline]
    pub const fn forget(&mut self) {
        self.nr_extents = 0;
        self.current = false;
    }

    /// Marks the contents, read before the folio was held, as named by its entries still.
    pub const fn set_current(&mut self) {
        self.current = true;
    }

    /// Drops what was read before the folio was held, since the slots may be another's by now,
    /// unless [`ReadWindow::set_current`] vouched for it.
    #[inline]
    pub const fn begin(&mut self) {
        if !core::mem::replace(&mut self.current, false) {
            self.forget();
        }
    }

    /// The extents to read, and the buffer for their contents.
    pub fn to_read(&mut self) -> (&[Extent], &mut [u8]) {
        let extents = self.extents.get(..self.nr_extents).unwrap_or_default();
        let len = extents.iter().map(Extent::bytes).sum();
        (extents, self.buffer.get_mut(..len).unwrap_or_default())
    }

    /// The extent that holds all of `wanted`, and its offset in the buffer.
    fn find(&self, wanted: Extent) -> Option<(usize, Extent)> {
        let mut at = 0;
        for extent in self.extents.iter().take(self.nr_extents) {
            if wanted.slot >= extent.slot && end_of(wanted) <= end_of(*extent) {
                return Some((at, *extent));
            }
            at += extent.bytes();
        }
        None
    }

    /// Adds `wanted` to the extents to read. `false`: there is no room.
    pub fn add(&mut self, wanted: Extent) -> bool {
        if self.find(wanted).is_some() {
            return true;
        }
        let read = self.extents.get(..self.nr_extents).unwrap_or_default();
        let left = self.buffer.len() - read.iter().map(Extent::bytes).sum::<usize>();
        if let Some(last) = self.extents.get_mut(self.nr_extents.wrapping_sub(1))
            && (last.slot..=end_of(*last) + MAX_GAP_SLOTS).contains(&wanted.slot)
            && let Ok(more) = u32::try_from(end_of(wanted) - end_of(*last))
            && more as usize * SLOT <= left
        {
            last.nr_slots += more;
            return true;
        }
        match self.extents.get_mut(self.nr_extents) {
            Some(place) if wanted.bytes() <= left => {
                *place = wanted;
                self.nr_extents += 1;
                true
            }
            _ => false,
        }
    }

    /// One extent that covers both, if a single read can.
    #[must_use]
    pub fn joined(one: Extent, other: Extent) -> Option<Extent> {
        let (low, high) = if one.slot <= other.slot {
            (one, other)
        } else {
            (other, one)
        };
        let end = end_of(low).max(end_of(high));
        let nr_slots = u32::try_from(end - low.slot).ok()?;
        let fits = nr_slots as usize * SLOT <= READ_LEN;
        (high.slot <= end_of(low) + MAX_GAP_SLOTS && fits).then_some(Extent {
            slot: low.slot,
            nr_slots,
        })
    }

    /// Drops every extent but `wanted`. `false`: it was the only one.
    pub fn only(&mut self, wanted: Extent) -> bool {
        let (extents, _) = self.to_read();
        let alone = extents == [wanted];
        self.forget();
        self.add(wanted) && !alone
    }

    /// The contents of the extent around `wanted`, and the number of its first slot; `None`:
    /// `wanted` was not read.
    pub fn read(&mut self, wanted: Extent) -> Option<(u64, &mut [u8])> {
        let (at, extent) = self.find(wanted)?;
        let slots = self.buffer.get_mut(at..at + extent.bytes())?;
        Some((extent.slot, slots))
    }
}

const fn end_of(extent: Extent) -> u64 {
    extent.slot + extent.nr_slots as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random requests in any order: each extent that was added is found in its own slots, and the
    /// buffer is never exceeded.
    #[test]
    fn what_is_to_be_read_is_found_in_its_place() {
        let mut x = 0x2545_f491_4f6c_dd1d_u64;
        let mut window = ReadWindow::new(Box::leak(vec![0; READ_LEN].into_boxed_slice()));
        let (mut asked, mut refused) = (0, 0);
        for _ in 0..2000 {
            window.forget();
            let mut added = Vec::new();
            for _ in 0..x % 24 {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let wanted = Extent {
                    slot: 1000 + (x >> 8) % 64,
                    nr_slots: (x >> 40) as u32 % 2 + 1,
                };
                asked += 1;
                if window.add(wanted) {
                    added.push(wanted);
                } else {
                    refused += 1;
                }
            }
            let (extents, buffer) = window.to_read();
            // Filled as the device would: every slot with its number.
            let slots = extents.iter().flat_map(|e| e.slot..end_of(*e));
            let mut filled = 0;
            for (slot, bytes) in slots.zip(buffer.chunks_mut(SLOT)) {
                bytes.fill(slot as u8);
                filled += SLOT;
            }
            assert_eq!(filled, buffer.len());
            for wanted in added {
                let (first, slots) = window.read(wanted).expect("it was added");
                let at = (wanted.slot - first) as usize * SLOT;
                for (nr, bytes) in slots[at..at + wanted.bytes()].chunks(SLOT).enumerate() {
                    assert_eq!(bytes[0], (wanted.slot + nr as u64) as u8, "{wanted:?}");
                }
            }
        }
        assert!(refused > 0 && refused < asked / 2, "{refused} of {asked}");
    }
}
