//! *What*: which codec pages are stored with, and its change while the program runs.
//!
//! A knob says which codec is asked for. Each slot has a compressor of its own, and
//! takes up another one by itself, when it next makes room; no operation of another slot stops for
//! it. An object's first byte says which codec made it, so what was stored before stays readable, in the pool
//! and on the device, for as long as it is there. The old compressor's memory goes at once; what decoding
//! needs, a tenth of it or less, stays.
//!
//! *Invariants*: a slot compresses with a codec only when the memory to decode it is charged for every slot:
//! whichever meets such an object can decode it. A slot always has a compressor: one for which there is
//! no room is not taken up.
//! *Locking*: slot. *Context*: init; signal, worker.

use super::Parts;
use super::start::{StartError, StartStep, failed, reserve};
use crate::arena::{PAGE_SIZE, wide};
use crate::primitive::Ordering;
use crate::slot::SlotGuard;
use uzswap_compress::{Codec, CodecId, Compressor, Decompressor};
use uzswap_sys::{Errno, mem};

/// Bytes that a slot's compressor takes, whole pages.
pub(super) fn compressor_len(codec: Codec) -> usize {
    Compressor::required_size(codec, PAGE_SIZE).next_multiple_of(PAGE_SIZE)
}

/// Pages that a compressor takes.
fn compressor_pages(codec: Codec) -> u64 {
    wide(compressor_len(codec) / PAGE_SIZE)
}

/// A compressor in memory of its own, for which the caller has charged.
pub(super) fn new_compressor(codec: Codec) -> Result<Compressor, StartError> {
    let len = compressor_len(codec);
    let memory = reserve(len)?;
    // SAFETY: a fresh mapping of that length, used by nobody else until `unmap_compressor`.
    unsafe { Compressor::init(memory, len, codec, PAGE_SIZE) }
        .map_err(|_| failed(StartStep::Workspace, Errno::EINVAL))
}

/// Gives back the memory of what [`new_compressor`] made. Returns the pages.
///
/// # Safety
/// The compressor is not used any more.
unsafe fn unmap_compressor(compressor: &Compressor) -> u64 {
    let (memory, len) = (compressor.memory(), compressor_len(compressor.codec()));
    // SAFETY: the mapping that `new_compressor` made; by the caller's promise nobody uses what is in it.
    match unsafe { mem::munmap(memory.addr().get(), len) } {
        Ok(()) => wide(len / PAGE_SIZE),
        // It stays, and stays charged.
        Err(_) => 0,
    }
}

/// The bit of [`Parts::decoders`] that stands for a codec.
pub(super) const fn decoder_bit(id: CodecId) -> u32 {
    1 << id.as_u8()
}

impl Parts {
    /// Takes up the codec that the group asks for, if there is room for its compressor.
    #[inline]
    pub(crate) fn follow_compressor(&self, slot: &mut SlotGuard<'_>) {
        let asked = self.group.knobs.compressor.load(Ordering::Relaxed);
        if asked != slot.asked {
            // Asked once: a program that has no room for it may be in trouble enough.
            slot.asked = asked;
            if let Some(codec) = self.group.knobs.codec() {
                self.change_compressor(slot, codec);
            }
        }
    }

    #[cold]
    fn change_compressor(&self, slot: &mut SlotGuard<'_>, codec: Codec) {
        let pages = compressor_pages(codec);
        if codec == slot.compressor.codec()
            || !self.charge_decoders(slot, codec.id())
            || !self.make_room(slot, pages)
        {
            return;
        }
        let Ok(new) = new_compressor(codec) else {
            self.unreserve_pages(slot, pages);
            return;
        };
        let old = core::mem::replace(&mut slot.compressor, new);
        // SAFETY: it is the slot's no more.
        let freed = unsafe { unmap_compressor(&old) };
        self.metadata.fetch_add(pages, Ordering::Relaxed);
        self.metadata.fetch_sub(freed, Ordering::Relaxed);
        self.unreserve_pages(slot, freed);
    }

    /// Charges what decoding objects of a codec takes in all slots, unless that is done.
    fn charge_decoders(&self, slot: &mut SlotGuard<'_>, id: CodecId) -> bool {
        let bit = decoder_bit(id);
        if self.decoders.load(Ordering::Relaxed) & bit != 0 {
            return true;
        }
        let pages = wide(self.slots.all().len() * Decompressor::part_size(id) / PAGE_SIZE);
        if !self.make_room(slot, pages) {
            return false;
        }
        if self.decoders.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            self.metadata.fetch_add(pages, Ordering::Relaxed);
        } else {
            // Another thread was first.
            self.unreserve_pages(slot, pages);
        }
        true
    }
}
