//! *What*: recompression: a stored object is compressed again, denser, and replaced.
//!
//! Three triggers:
//! - before the pool is written back ([`recompress_before_write`]): pages that less dense codecs
//!   of `--compressor auto` made, while samples say that much is gained. A page that is written
//!   must be read again, at many times the cost of recompressing it;
//! - when `auto` went over to a denser codec so that more stays resident: the same pages, in the
//!   reclaimer's time ([`recompress_some`]);
//! - when pages have stayed cold ([`super::densify`]): whole blocks, in the reclaimer.
//!
//! *Invariants*: the folio is locked from decoding the old object to publishing the new one, so
//! what was decoded is what is replaced. The entry keeps its age, and with it its place in
//! writeback order. The new object is allocated, from pages set aside, before the old one is freed,
//! and is smaller: the pool never grows.
//! *Locking*: op → sweep (tried) → folio (tried) → pool class. *Context*: signal, worker.

use super::access::{is_workingset, was_stored_before};
use super::compact::{compact, compact_if_fragmented};
use super::decode::{self, LoadError};
use crate::op::{Op, OpGuard};
use crate::page::block::{Entries, MAX_BLOCK};
use crate::page::{Entry, PAGE_SIZE, Page, PageRange, wide};
use crate::parts::Parts;
use crate::store::block::max_block_object;
use crate::store::object::MAX_COMPRESSED;
use crate::store::object::{self, Source};
use uzswap_compress::{CodecId, Compressor};
use uzswap_group::counters::add;
use uzswap_group::knobs::is_on;
use uzswap_pool::Pool;
use uzswap_sync::charge::Reserve;
use uzswap_sync::strict_assert;

/// Pages recompressed in one step: takes about as long as writing a run.
const STEP_PAGES: usize = 32;
/// Pages that a step scanned at, at most.
const MAX_SCANNED_PAGES: usize = 4096;
/// Pages set aside for the new objects, allocated before the old ones are freed.
pub(super) const RESERVE_PAGES: u64 = 24;
/// A new object must be smaller than the old by at least 1/8.
const MIN_GAIN_PART: usize = 8;

/// Outcome of a recompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// They take so many bytes less.
    Denser { saved: usize },
    /// They are no smaller that way, or cannot be decoded.
    Same,
    /// They are in use, or not what was looked for.
    Skipped,
    /// There is no room to store them in.
    NoRoom,
}

/// Before a run is written: recompresses some pages of the pool, or leaves it to another thread
/// that is at it. `false`: no page became denser.
pub(super) fn recompress_before_write(parts: &Parts, op: &mut OpGuard<'_>) -> bool {
    // Another thread is recompressing: what it frees need not be written.
    recompress_some(parts, op).is_none_or(|nr| nr > 0)
}

/// Recompresses some pages of the pool, and says how many became denser; `None`: another thread is
/// at it.
pub(super) fn recompress_some(parts: &Parts, op: &mut OpGuard<'_>) -> Option<usize> {
    if op.denser.is_none() {
        return Some(0);
    }
    let mut sweep = parts.auto.sweep().try_lock()?;
    let since = parts.auto.denser_since();
    if sweep.rests(parts.pages.clock(), parts.account.charge().limit(), since) {
        return Some(0);
    }
    if op.spare() < RESERVE_PAGES {
        compact(parts, op, RESERVE_PAGES);
    }
    let mut room = Reserve::empty(parts.account.charge());
    op.lend_spare(&mut room, u64::MAX);
    let mut denser = op.denser.take()?;
    // Another one would be as right, should it have changed meanwhile.
    if let Some(codec) = parts.auto.denser_codec(parts.account.knobs()) {
        denser.set_codec(codec);
    }
    let (mut nr, mut scanned) = (0, 0);
    let what = Wanted {
        fast: op.compressor.codec().id(),
        before: sweep.is_first_since(since).then_some(since),
    };
    sweep.advance(&parts.pages, |page| {
        if nr == STEP_PAGES || scanned == MAX_SCANNED_PAGES || room.pages() == 0 {
            return false;
        }
        if is_recompressible(parts, parts.pages.get(page)) {
            scanned += 1;
            let outcome = recompress_page(parts, op, &mut denser, &mut room, page, what);
            nr += usize::from(matches!(outcome, Outcome::Denser { .. }));
        }
        true
    });
    op.denser = Some(denser);
    op.take_back(&mut room);
    add(&parts.account.counters().recompressed_pages, wide(nr));
    compact_if_fragmented(parts, op, 0);
    Some(nr)
}

/// Whether the page is in the pool, compressed alone, was not used for as long as the resident set
/// takes to turn over (what is younger may come back before it is worth it), and nobody writes it
/// back. Without its folio, a hint.
fn is_recompressible(parts: &Parts, entry: Entry) -> bool {
    let Entry::Stored {
        size,
        writing: false,
        content,
        ..
    } = entry
    else {
        return false;
    };
    content.is_page() && usize::from(size) < PAGE_SIZE && !is_workingset(parts, entry)
}

/// Which objects are recompressed.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// Those of this codec.
    fast: CodecId,
    /// And those of the denser codec, whose level they do not name, that were stored before it
    /// became denser.
    before: Option<u64>,
}

fn recompress_page(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    denser: &mut Compressor,
    room: &mut Reserve<'static>,
    page: Page,
    wanted: Wanted,
) -> Outcome {
    let Some(_guard) = parts.pages.folio_of(page).try_lock() else {
        return Outcome::Skipped;
    };
    let entry = parts.pages.get(page);
    let Entry::Stored { loc, size, .. } = entry else {
        return Outcome::Skipped;
    };
    // SAFETY: the entry names it, and the folio is held.
    let object = unsafe { parts.store.object(loc, size) };
    let by = object::codec_of(object);
    let is_older = |since| was_stored_before(parts, entry, since);
    let is_wanted = by == Some(wanted.fast)
        || by == Some(denser.codec().id()) && wanted.before.is_some_and(is_older);
    if !is_wanted || !is_recompressible(parts, entry) {
        return Outcome::Skipped;
    }
    recompress_held(parts, op, denser, room, PageRange::one(page))
}

/// Compresses `range` once more by `compressor`: a page as such, several as a block. Its folio is
/// held, and it is all in the pool. What is new is allocated out of `room`.
pub(super) fn recompress_held(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    compressor: &mut Compressor,
    room: &mut Reserve<'static>,
    range: PageRange,
) -> Outcome {
    if decode_all(parts, op, range).is_err() {
        return Outcome::Same;
    }
    let old = bytes_of(parts, range);
    let max = match range.len() {
        1 => MAX_COMPRESSED,
        nr => max_block_object(nr),
    };
    let Op {
        decompressor,
        load,
        store,
        ..
    } = &mut **op;
    let Some(load) = load.get_mut(..range.bytes()) else {
        strict_assert!(false, "more pages than the load buffer holds");
        return Outcome::Same;
    };
    // SAFETY: the operation's buffer, which holds that much and is used by nobody else.
    let source = unsafe { Source::new(load.as_ptr().addr(), range.bytes(), true) };
    let checked = is_on(&parts.account.knobs().checksum);
    let object = store
        .get_mut(..max.min(old - old / MIN_GAIN_PART))
        .and_then(|out| object::pack(compressor, source, checked, out).ok())
        .and_then(|size| store.get(..size));
    let object = object.filter(|object| parts.store.is_right_in(decompressor, object, load));
    let Some(object) = object else {
        return Outcome::Same;
    };
    let new: usize = object
        .chunks(PAGE_SIZE)
        .map(|piece| Pool::takes(piece.len()))
        .sum();
    if new >= old {
        return Outcome::Same;
    }
    let entries = match parts.pages.get(Page::from_index(range.start)) {
        Entry::Stored { age, content, .. } if range.len() == 1 => {
            let page = Page::from_index(range.start);
            let entry = parts.store.put_page(room, page, object, age, content);
            entry.map(|entry| [entry; MAX_BLOCK])
        }
        _ => {
            let now = parts.pages.clock().now();
            let age_of = |page| parts.pages.get(page).age().unwrap_or(now);
            parts.store.cut(room, object, range, age_of)
        }
    };
    let Some(entries) = entries else {
        return Outcome::NoRoom;
    };
    parts.transition().replace(range, &entries);
    Outcome::Denser { saved: old - new }
}

/// Decodes all of `range` into the operation's load buffer. Its folio is held, and it is all in the
/// pool.
fn decode_all(parts: &Parts, op: &mut OpGuard<'_>, range: PageRange) -> Result<(), LoadError> {
    let place = |index: usize| (index - range.start) * PAGE_SIZE;
    let mut next = range.start;
    for page in parts.pages.pages_in(range) {
        if page.index() >= next {
            let block = parts.pages.block_of(page);
            decode::load_block(parts, op, block, block.len(), place(block.start))?;
            next = block.end;
        }
    }
    // Those that left their block lie where it has what they were.
    for page in range.pages() {
        let entry = parts.pages.get(page);
        if !entry.in_block() {
            decode::decode(parts, op, page, entry, range, place(page.index()))?;
        }
    }
    Ok(())
}

/// Bytes that `range` takes in the pool.
fn bytes_of(parts: &Parts, range: PageRange) -> usize {
    let sizes = range
        .pages()
        .filter_map(|page| match parts.pages.get(page) {
            Entry::Stored { size, .. } => Some(Pool::takes(size.into())),
            _ => None,
        });
    sizes.sum()
}
