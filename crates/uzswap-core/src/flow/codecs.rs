//! *What*: changes the codec, and the largest block size, that operations store with while the
//! program runs.
//!
//! Two knobs ask for them; [`crate::policy::auto`] decides what `auto` means, and an operation has
//! a second, denser compressor while that needs one. Each operation switches by itself when it next
//! makes room; no other operation stops for it. An object's first byte names its codec, so older
//! objects stay readable, in the pool and on the device. The old compressor's memory is freed at
//! once; the memory to decode its objects, a tenth of that or less, stays.
//!
//! *Invariants*: an operation compresses with a codec, or in blocks, only when the memory to decode
//! the result is charged for every operation: whichever meets such an object can decode it. An
//! operation always has a compressor: without room for the new one it keeps the old.
//! *Locking*: op. *Context*: init; signal, worker.

use super::reclaim;
use crate::op::{OpGuard, STORE_LEN};
use crate::page::block::MAX_BLOCK_ORDER;
use crate::page::{PAGE_SIZE, wide};
use crate::parts::Parts;
use crate::store::codec::{
    BLOCK_BUFFERS, BLOCKS, compressor_len, decoder_bit, new_compressor, unmap_compressor,
};
use uzswap_compress::{Codec, CodecId, Compressor, Decompressor};
use uzswap_sync::primitive::Ordering;

/// The part of the limit that compressors for blocks may take, in all operations together: they are
/// made for smaller blocks where that is not enough.
const MAX_BLOCKS_PART: u64 = 32;

/// Takes up the codec and the size of blocks that the group asks for, if there is room for the
/// compressor.
#[inline]
pub(crate) fn follow_compressor(parts: &Parts, op: &mut OpGuard<'_>) {
    let knobs = parts.account.knobs();
    let asked = (
        knobs.compressor.load(Ordering::Relaxed),
        knobs.block.load(Ordering::Relaxed),
        parts.auto.denser_compressor(knobs),
    );
    if asked != op.seen_knobs {
        // Asked once: a program that has no room for it may be in trouble enough.
        op.seen_knobs = asked;
        if let Some(codec) = knobs.codec() {
            change_compressor(parts, op, codec, max_block(parts, codec, asked.1));
        }
        change_denser(parts, op, asked.2, asked.1);
    }
}

/// Bytes of the largest block that is made where blocks of `order` are asked for.
pub(crate) fn max_block(parts: &Parts, codec: Codec, order: u64) -> usize {
    let order = order.min(u64::from(parts.pages.order()).min(MAX_BLOCK_ORDER));
    let mut len = PAGE_SIZE << order;
    let max = parts.account.limit_bytes() / MAX_BLOCKS_PART;
    while len > PAGE_SIZE && wide(parts.ops.nr() * compressor_len(codec, len)) > max {
        len /= 4;
    }
    len.max(PAGE_SIZE)
}

#[cold]
fn change_compressor(parts: &Parts, op: &mut OpGuard<'_>, codec: Codec, max_block: usize) {
    if codec == op.compressor.codec() && max_block == op.compressor.max_block() {
        return;
    }
    if !charge_decoding(parts, op, codec.id(), max_block) {
        return;
    }
    let Some(new) = charged_compressor(parts, op, codec, max_block) else {
        return;
    };
    let old = core::mem::replace(&mut op.compressor, new);
    retire_compressor(parts, op, old);
}

/// Takes up the denser codec, or none, with blocks of up to `block` as that is asked for.
fn change_denser(parts: &Parts, op: &mut OpGuard<'_>, codec: Option<Codec>, block: u64) {
    let wanted = codec.map(|codec| (codec, max_block(parts, codec, block)));
    let denser = op.denser.as_ref();
    if denser.map(|denser| (denser.codec().id(), denser.max_block()))
        == wanted.map(|(codec, max_block)| (codec.id(), max_block))
    {
        return;
    }
    if let Some(old) = op.denser.take() {
        retire_compressor(parts, op, old);
    }
    if let Some((codec, max_block)) = wanted
        && charge_decoding(parts, op, codec.id(), max_block)
    {
        op.denser = charged_compressor(parts, op, codec, max_block);
    }
}

/// A compressor, charged, if there is room for it.
pub(crate) fn charged_compressor(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    codec: Codec,
    max_block: usize,
) -> Option<Compressor> {
    let pages = wide(compressor_len(codec, max_block) / PAGE_SIZE);
    if !reclaim::make_room(parts, op, pages) {
        return None;
    }
    let new = new_compressor(parts.account, codec, max_block).ok();
    match &new {
        Some(_) => parts.account.add_metadata(pages),
        None => op.unreserve(pages),
    }
    new
}

/// Gives back the memory of a compressor that nobody uses any more.
pub(crate) fn retire_compressor(parts: &Parts, op: &mut OpGuard<'_>, old: Compressor) {
    // SAFETY: it is owned here, and gone after this.
    let freed = unsafe { unmap_compressor(parts.account, &old) };
    parts.account.sub_metadata(freed);
    op.unreserve(freed);
}

/// Charges every operation's memory to decode objects of that codec, in blocks of up to that size,
/// unless that is done.
pub(crate) fn charge_decoding(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    id: CodecId,
    max_block: usize,
) -> bool {
    let for_pages = Decompressor::part_size(id, PAGE_SIZE);
    let for_blocks = Decompressor::part_size(id, max_block) - for_pages;
    charge_part(parts, op, decoder_bit(id), for_pages)
        && (max_block <= PAGE_SIZE
            || charge_part(parts, op, BLOCK_BUFFERS, STORE_LEN - PAGE_SIZE)
                && charge_part(parts, op, decoder_bit(id) << BLOCKS, for_blocks))
}

/// Charges a part of every operation's memory, of `len` bytes, unless that is done.
pub(crate) fn charge_part(parts: &Parts, op: &mut OpGuard<'_>, bit: u32, len: usize) -> bool {
    if parts.store.is_charged(bit) {
        return true;
    }
    let pages = wide(parts.ops.nr() * len / PAGE_SIZE);
    if !reclaim::make_room(parts, op, pages) {
        return false;
    }
    if parts.store.set_charged(bit) {
        parts.account.add_metadata(pages);
    } else {
        // Another thread was first.
        op.unreserve(pages);
    }
    true
}
