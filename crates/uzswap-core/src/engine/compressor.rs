//! *What*: which codec pages are stored with, in blocks of up to what size, and their change while the program runs.
//!
//! Two knobs say what is asked for; what `auto` is says [`auto`](super::auto), and a slot has a second compressor as long as that needs one.
//! Each slot has a compressor of its own, and
//! takes up another one by itself, when it next makes room; no operation of another slot stops for
//! it. An object's first byte says which codec made it, so what was stored before stays readable, in the pool
//! and on the device, for as long as it is there. The old compressor's memory goes at once; what decoding
//! needs, a tenth of it or less, stays.
//!
//! *Invariants*: a slot compresses with a codec, or in blocks, only when the memory to decode that is charged for every
//! slot: whichever meets such an object can decode it. A slot always has a compressor: one for which there is
//! no room is not taken up.
//! *Locking*: slot. *Context*: init; signal, worker.

use super::Parts;
use super::block::MOST_BLOCK_ORDER;
use super::start::{StartError, StartStep, failed, reserve};
use crate::arena::{PAGE_SIZE, wide};
use crate::slot::{STORE_LEN, SlotGuard};
use core::ptr::NonNull;
use uzswap_compress::{Codec, CodecId, Compressor, Decompressor};
use uzswap_sync::primitive::Ordering;
use uzswap_sys::{Errno, mem};

/// The part of the limit that compressors for blocks may take, in all slots together: they are made for smaller
/// blocks where that is not enough.
const MOST_FOR_BLOCKS: u64 = 32;
/// The bit of `charged_parts` that stands for the buffers that blocks are put together in, and batches.
pub(super) const BLOCK_BUFFERS: u32 = 1;
/// So many bits above a codec's [`decoder_bit`] is that for what decoding its blocks takes beside.
const BLOCKS: u32 = 16;

/// Bytes that a slot's compressor takes, whole pages.
pub(super) fn compressor_len(codec: Codec, max_block: usize) -> usize {
    Compressor::required_size(codec, max_block).next_multiple_of(PAGE_SIZE)
}

/// A compressor in memory of its own, for which the caller has charged.
pub(super) fn new_compressor(codec: Codec, max_block: usize) -> Result<Compressor, StartError> {
    let len = compressor_len(codec, max_block);
    let memory = reserve(len)?;
    // SAFETY: a fresh mapping of that length, used by nobody else until `unmap_compressor`.
    unsafe { Compressor::init(memory, len, codec, max_block) }
        .map_err(|_| failed(StartStep::Workspace, Errno::EINVAL))
}

/// Gives back the memory of what [`new_compressor`] made. Returns its pages.
///
/// # Safety
/// The compressor is not used any more.
pub(super) unsafe fn unmap_compressor(compressor: &Compressor) -> u64 {
    let memory = compressor.memory();
    let len = compressor_len(compressor.codec(), compressor.max_block());
    // SAFETY: the mapping that `new_compressor` made; by the caller's promise nobody uses what is in it.
    match unsafe { mem::munmap(memory.addr().get(), len) } {
        Ok(()) => wide(len / PAGE_SIZE),
        // It stays, and stays charged.
        Err(_) => 0,
    }
}

/// The bit of `charged_parts` that stands for what decoding a codec's single pages takes.
pub(super) const fn decoder_bit(id: CodecId) -> u32 {
    1 << id.as_u8()
}

impl Parts {
    /// Takes up the codec and the size of blocks that the group asks for, if there is room for the compressor.
    #[inline]
    pub(crate) fn follow_compressor(&self, slot: &mut SlotGuard<'_>) {
        let knobs = &self.group.knobs;
        let asked = (
            knobs.compressor.load(Ordering::Relaxed),
            knobs.block.load(Ordering::Relaxed),
            self.denser_codec(),
        );
        if asked != slot.asked {
            // Asked once: a program that has no room for it may be in trouble enough.
            slot.asked = asked;
            if let Some(codec) = knobs.codec() {
                self.change_compressor(slot, codec, self.max_block(codec, asked.1));
            }
            self.change_denser(slot, asked.2, asked.1);
        }
        self.follow_engines(slot);
    }

    /// Bytes of the largest block that is made where blocks of `order` are asked for.
    fn max_block(&self, codec: Codec, order: u64) -> usize {
        let order = order.min(u64::from(self.folios.order()).min(MOST_BLOCK_ORDER));
        let mut len = PAGE_SIZE << order;
        let most = self.limit_bytes() / MOST_FOR_BLOCKS;
        while len > PAGE_SIZE && wide(self.slots.all().len() * compressor_len(codec, len)) > most {
            len /= 4;
        }
        len.max(PAGE_SIZE)
    }

    #[cold]
    fn change_compressor(&self, slot: &mut SlotGuard<'_>, codec: Codec, max_block: usize) {
        if codec == slot.compressor.codec() && max_block == slot.compressor.max_block() {
            return;
        }
        if !self.charge_decoding(slot, codec.id(), max_block) {
            return;
        }
        let Some(new) = self.charged_compressor(slot, codec, max_block) else {
            return;
        };
        let old = core::mem::replace(&mut slot.compressor, new);
        self.retire_compressor(slot, old);
    }

    /// Takes up the denser codec, or none, with blocks of up to `block` as that is asked for.
    fn change_denser(&self, slot: &mut SlotGuard<'_>, codec: Option<Codec>, block: u64) {
        let wanted = codec.map(|codec| (codec, self.max_block(codec, block)));
        let denser = slot.denser.as_ref();
        if denser.map(|denser| (denser.codec(), denser.max_block())) == wanted {
            return;
        }
        if let Some(old) = slot.denser.take() {
            self.retire_compressor(slot, old);
        }
        if let Some((codec, max_block)) = wanted
            && self.charge_decoding(slot, codec.id(), max_block)
        {
            slot.denser = self.charged_compressor(slot, codec, max_block);
        }
    }

    /// A compressor, charged, if there is room for it.
    pub(super) fn charged_compressor(
        &self,
        slot: &mut SlotGuard<'_>,
        codec: Codec,
        max_block: usize,
    ) -> Option<Compressor> {
        let len = compressor_len(codec, max_block);
        let memory = self.charged_memory(slot, len)?;
        // SAFETY: a fresh mapping of that length, used by nobody else until `retire_compressor`.
        let new = unsafe { Compressor::init(memory.as_ptr(), len, codec, max_block) };
        if new.is_err() {
            // SAFETY: nothing was made in it.
            unsafe { self.give_back_memory(slot, memory, len) };
        }
        new.ok()
    }

    /// `len` bytes of memory of its own, zeroed and page aligned, charged, if there is room for it.
    pub(super) fn charged_memory(
        &self,
        slot: &mut SlotGuard<'_>,
        len: usize,
    ) -> Option<NonNull<u8>> {
        let pages = wide(len.div_ceil(PAGE_SIZE));
        if !self.make_room(slot, pages) {
            return None;
        }
        let memory = reserve(len).ok().and_then(NonNull::new);
        match memory {
            Some(_) => self.metadata.fetch_add(pages, Ordering::Relaxed),
            None => {
                self.unreserve_pages(slot, pages);
                0
            }
        };
        memory
    }

    /// Gives back what [`Parts::charged_memory`] gave.
    ///
    /// # Safety
    /// Nobody uses what is in it any more.
    pub(super) unsafe fn give_back_memory(
        &self,
        slot: &mut SlotGuard<'_>,
        memory: NonNull<u8>,
        len: usize,
    ) {
        let len = len.next_multiple_of(PAGE_SIZE);
        // SAFETY: the mapping that was made for this; by the caller's promise nobody uses what is in it. If it stays, it stays charged.
        if unsafe { mem::munmap(memory.addr().get(), len) }.is_ok() {
            let pages = wide(len / PAGE_SIZE);
            self.metadata.fetch_sub(pages, Ordering::Relaxed);
            self.unreserve_pages(slot, pages);
        }
    }

    /// Gives back the memory of a compressor that nobody uses any more.
    pub(super) fn retire_compressor(&self, slot: &mut SlotGuard<'_>, old: Compressor) {
        let len = compressor_len(old.codec(), old.max_block());
        // SAFETY: it is owned here, and gone after this.
        unsafe { self.give_back_memory(slot, old.memory(), len) };
    }

    /// Charges every slot's memory to decode objects of that codec, in blocks of up to that size, unless that is done.
    pub(super) fn charge_decoding(
        &self,
        slot: &mut SlotGuard<'_>,
        id: CodecId,
        max_block: usize,
    ) -> bool {
        let for_pages = Decompressor::part_size(id, PAGE_SIZE);
        let for_blocks = Decompressor::part_size(id, max_block) - for_pages;
        self.charge_part(slot, decoder_bit(id), for_pages)
            && (max_block <= PAGE_SIZE
                || self.charge_part(slot, BLOCK_BUFFERS, STORE_LEN - PAGE_SIZE)
                    && self.charge_part(slot, decoder_bit(id) << BLOCKS, for_blocks))
    }

    /// Charges a part of every slot's memory, of `len` bytes, unless that is done.
    pub(super) fn charge_part(&self, slot: &mut SlotGuard<'_>, bit: u32, len: usize) -> bool {
        if self.charged_parts.load(Ordering::Relaxed) & bit != 0 {
            return true;
        }
        let pages = wide(self.slots.all().len() * len / PAGE_SIZE);
        if !self.make_room(slot, pages) {
            return false;
        }
        if self.charged_parts.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            self.metadata.fetch_add(pages, Ordering::Relaxed);
        } else {
            // Another thread was first.
            self.unreserve_pages(slot, pages);
        }
        true
    }
}
