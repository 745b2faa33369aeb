//! *What*: stores blocks: several pages compressed as one object, cut into pieces of at most a
//! page. See [`crate::page::block`].
//!
//! *Invariants*: a block's entries are made all or none.
//! *Locking*: pool class. *Context*: signal, worker.

use crate::op::Op;
use crate::page::batch::BatchFolio;
use crate::page::block::MAX_BLOCK;
use crate::page::folio::{RUNS_OF_4, RUNS_OF_16};
use crate::page::{Age, Content, Entry, PAGE_SIZE, Page, PageRange, Pages};
use crate::store::Store;
use crate::store::codec::pick_compressor;
use crate::store::object::same_filled_word;
use crate::store::page::StoreMode;
use uzswap_group::knobs::{BLOCK_AUTO, is_on};
use uzswap_sync::charge::Reserve;
use uzswap_sync::primitive::Ordering::Relaxed;
use uzswap_sync::strict_assert;

/// Bytes that `nr` pages are stored as a block in, at most: else they stay apart.
pub(crate) const fn max_block_object(nr: usize) -> usize {
    // Whole pages, so that the last page never has a piece.
    nr * 3 / 4 * PAGE_SIZE
}

impl Store {
    /// Pages of the blocks in which the folio is stored now; 1: none.
    pub(crate) fn block_pages(&self, pages: &Pages, op: &Op, folio: BatchFolio) -> usize {
        let compressor = match &op.denser {
            Some(denser) if folio.denser => denser,
            _ => &op.compressor,
        };
        let bits = pages.folio(folio.index);
        let order = match self.account.knobs().block.load(Relaxed) {
            BLOCK_AUTO if bits.has(RUNS_OF_16) => 4,
            BLOCK_AUTO if bits.has(RUNS_OF_4) => 2,
            BLOCK_AUTO => 0,
            order => u32::try_from(order).unwrap_or(0),
        };
        let max = (compressor.max_block() / PAGE_SIZE).ilog2();
        1 << order.min(max).min(pages.order())
    }

    /// Stores `block`, the pages of the operation's batch from `at` on. `false`: they are better
    /// stored one by one.
    pub(crate) fn store_block(
        &self,
        pages: &Pages,
        op: &mut Op,
        at: usize,
        block: PageRange,
        mode: StoreMode,
    ) -> bool {
        let look = is_on(&self.account.knobs().same_filled_pages_enabled);
        // SAFETY: its pages are mapped and readable: their folio is isolated by this thread.
        let is_filled = |page| unsafe { same_filled_word(page) }.is_some();
        // Entries can hold them: then they take no room at all.
        if look && block.pages().all(is_filled) {
            return false;
        }
        let Some(room) = op.store.get_mut(..max_block_object(block.len())) else {
            strict_assert!(false, "a block larger than the store buffer");
            return false;
        };
        let compressor = pick_compressor(&mut op.compressor, &mut op.denser, mode.denser);
        // SAFETY: as above.
        let size = unsafe { self.make_object(compressor, block, room, mode.stable) };
        let Ok(size) = size else { return false };
        let object = op.store.as_ptr();
        // SAFETY: the bytes just made, of the store buffer, which verifying leaves as it is.
        let object = unsafe { core::slice::from_raw_parts(object, size) };
        if !self.is_right(pages, op, at, block.len(), object) {
            return false;
        }
        let Op {
            store,
            batch,
            reserve,
            ..
        } = op;
        let (Some(object), Some(places)) =
            (store.get(..size), batch.pages.get_mut(at..at + block.len()))
        else {
            strict_assert!(false, "a block outside the store buffer, or the batch");
            return false;
        };
        let Some(entries) = self.cut(reserve, object, block, |_| mode.age) else {
            return false;
        };
        for (place, entry) in places.iter_mut().zip(entries) {
            place.entry = entry;
        }
        true
    }

    /// Cuts `object` into the pieces of `block`, if there is room for them. The entries are not
    /// published.
    pub(crate) fn cut(
        &self,
        reserve: &mut Reserve<'static>,
        object: &[u8],
        block: PageRange,
        age_of: impl Fn(Page) -> Age,
    ) -> Option<[Entry; MAX_BLOCK]> {
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_BLOCK_ORDER")]
        let order = block.len().ilog2() as u8;
        let mut pieces = object.chunks(PAGE_SIZE);
        let mut entries = [Entry::None; MAX_BLOCK];
        for (page, place) in block.pages().zip(&mut entries) {
            let age = age_of(page);
            let entry = match pieces.next() {
                Some(piece) => self.put_page(reserve, page, piece, age, Content::BlockPiece),
                None => Some(Entry::Block {
                    order,
                    age,
                    dropped: false,
                }),
            };
            if let Some(entry) = entry {
                *place = entry;
            } else {
                for entry in entries {
                    self.forget_unpublished(entry);
                }
                return None;
            }
        }
        Some(entries)
    }
}
