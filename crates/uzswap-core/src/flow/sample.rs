//! *What*: samples for `--compressor auto`: some evicted pages are compressed and decoded by the
//! fast and by a denser codec.
//!
//! *Invariants*: what a sample produces is discarded.
//! *Locking*: op → watch (tried). *Context*: signal, worker.

use crate::op::Op;
use crate::page::batch::BatchFolio;
use crate::page::{PAGE_SIZE, PageRange, wide};
use crate::parts::Parts;
use crate::policy::auto::Cost;
use crate::store::block::max_block_object;
use crate::store::object::{self, MAX_COMPRESSED, Source};
use uzswap_compress::{Compressor, Decompressor};
use uzswap_sys::arch;

/// Pages that are sampled together, next to each other. The first warms up the codec, as a batch of
/// evictions does, and is not counted.
const MAX_PAGES: usize = 4;

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
    if !watch.is_due(wide(folio.nr)) {
        return;
    }
    let block = parts.store.block_pages(&parts.pages, op, folio);
    let end = folio.first + folio.nr;
    let mut sampled = [PageRange { start: 0, end: 0 }; MAX_PAGES];
    let sampled: &[PageRange] = match op.batch.block_at(folio.first, end, block) {
        Some(block) => {
            sampled = [block; MAX_PAGES];
            sampled.get(..1).unwrap_or_default()
        }
        None => {
            let batch = op.batch.pages.iter().skip(folio.first).take(folio.nr);
            let mut nr = 0;
            for (sampled, place) in sampled.iter_mut().zip(batch) {
                *sampled = PageRange::one(place.page);
                nr += 1;
            }
            sampled.get(..nr).unwrap_or_default()
        }
    };
    let codecs = parts.account.knobs().denser_codecs();
    let nr: u64 = sampled.iter().map(|pages| wide(pages.len())).sum();
    let choice = watch.take_turn(nr, codecs.len());
    let codec = choice.denser().and_then(|at| codecs.get(at));
    let Some(&codec) = codec else {
        return;
    };
    let denser = op.denser.as_mut();
    if !denser.is_some_and(|denser| denser.set_codec(codec)) {
        return;
    }
    if let Some((pages, [fast, dense])) = try_both(op, sampled, stable) {
        watch.add(choice, pages, fast, dense);
    }
}

/// What the fast and the denser codec make of the pages, which are mapped and readable: their folio
/// is isolated. Says of how many.
fn try_both(op: &mut Op, sampled: &[PageRange], stable: bool) -> Option<(u64, [Cost; 2])> {
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
    // Both find them in the cache.
    for pages in sampled {
        arch::prefetch(pages.addr(), pages.bytes());
    }
    let counted = sampled.get(1..).filter(|rest| !rest.is_empty());
    let nr = counted
        .unwrap_or(sampled)
        .iter()
        .map(|p| wide(p.len()))
        .sum();
    let mut made = [Cost::default(); 2];
    for (compressor, made) in [compressor, denser].into_iter().zip(&mut made) {
        for (at, &pages) in sampled.iter().enumerate() {
            let cost = try_one(compressor, decompressor, pages, stable, store, load)?;
            if at > 0 || counted.is_none() {
                made.bytes += cost.bytes;
                made.ticks += cost.ticks;
            }
        }
    }
    Some((nr, made))
}

fn try_one(
    compressor: &mut Compressor,
    decompressor: &mut Decompressor,
    pages: PageRange,
    stable: bool,
    store: &mut [u8],
    load: &mut [u8],
) -> Option<Cost> {
    if compressor.max_block() < pages.bytes() {
        return None;
    }
    let max = match pages.bytes() {
        PAGE_SIZE => MAX_COMPRESSED,
        _ => max_block_object(pages.len()),
    };
    let (out, back) = (store.get_mut(..max)?, load.get_mut(..pages.bytes())?);
    let began = arch::ticks();
    // SAFETY: the pages are mapped and readable: their folio is isolated by this thread. A page is
    // aligned.
    let source = unsafe { Source::new(pages.addr(), pages.bytes(), stable) };
    let size = object::pack(compressor, source, false, out);
    let object = size.ok().and_then(|size| out.get(..size));
    if let Some(object) = object {
        // A page written to meanwhile may not decode; the time counts all the same.
        let _ = object::unpack(decompressor, object, back);
    }
    Some(Cost {
        bytes: wide(object.map_or(pages.bytes(), <[u8]>::len)),
        ticks: arch::ticks().wrapping_sub(began),
    })
}
