//! *What*: samples for `--compressor auto`: some evicted pages are compressed and decoded with both
//! codecs.
//!
//! *Invariants*: what a sample produces is discarded.
//! *Locking*: op → watch (tried). *Context*: signal, worker.

use crate::op::Op;
use crate::page::batch::BatchFolio;
use crate::page::{PageRange, wide};
use crate::parts::Parts;
use crate::policy::auto::Cost;
use crate::store::block::max_block_object;
use crate::store::object;
use crate::store::object::MAX_COMPRESSED;
use crate::store::object::Source;
use uzswap_sys::arch;

/// Tries both codecs on a part of the folio, if a sample is due. `stable`: nobody can write to it
/// meanwhile.
#[inline]
pub(crate) fn sample(parts: &Parts, op: &mut Op, folio: BatchFolio, stable: bool) {
    if op.denser.is_some() {
        sample_if_due(parts, op, folio, stable);
    }
}

fn sample_if_due(parts: &Parts, op: &mut Op, folio: BatchFolio, stable: bool) {
    let Some(mut watch) = parts.auto.try_watch() else {
        return;
    };
    if !watch.is_due(folio.nr) {
        return;
    }
    let block = parts.store.block_pages(&parts.pages, op, folio);
    let end = folio.first + folio.nr;
    let whole = op.batch.block_at(folio.first, end, block);
    let first = op.batch.pages.get(folio.first);
    let Some(pages) = whole.or_else(|| first.map(|place| PageRange::one(place.page))) else {
        return;
    };
    watch.took(pages.len(), parts.auto.is_denser());
    if let Some([fast, dense]) = try_both(op, pages, stable) {
        watch.add(wide(pages.len()), fast, dense);
    }
}

/// What the fast and the denser codec make of the pages, which are mapped and readable: their folio
/// is isolated.
fn try_both(op: &mut Op, pages: PageRange, stable: bool) -> Option<[Cost; 2]> {
    let max = max_block_object(pages.len()).max(MAX_COMPRESSED);
    let Op {
        compressor,
        denser: Some(denser),
        decompressor,
        load,
        store,
        ..
    } = op
    else {
        return None;
    };
    let (out, back) = (store.get_mut(..max)?, load.get_mut(..pages.bytes())?);
    let mut made = [Cost::default(); 2];
    for (compressor, made) in [compressor, denser].into_iter().zip(&mut made) {
        if compressor.max_block() < pages.bytes() {
            return None;
        }
        let began = arch::ticks();
        // SAFETY: the pages are mapped and readable: their folio is isolated by this thread. A page
        // is aligned.
        let source = unsafe { Source::new(pages.addr(), pages.bytes(), stable) };
        let size = object::pack(compressor, source, false, out);
        let object = size.ok().and_then(|size| out.get(..size));
        if let Some(object) = object {
            // A page written to meanwhile may not decode; the time counts all the same.
            let _ = object::unpack(decompressor, object, back);
        }
        made.bytes = wide(object.map_or(pages.bytes(), <[u8]>::len));
        made.ticks = arch::ticks().wrapping_sub(began);
    }
    Some(made)
}
