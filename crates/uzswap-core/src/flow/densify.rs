//! *What*: densify: compresses cold pages of the pool again, in blocks of 16 pages with a denser
//! codec, in the reclaimer, which takes no more than a share of a CPU for that (knob `densify`).
//!
//! It begins when something is evicted. What is still evicted [`COLD_NS`] later is cold,
//! and a *round* begins: four passes over the page table, the oldest pages first. A block is taken
//! if all of its pages are in the pool and that old. If the result is not an eighth smaller it is
//! thrown away, and the folio is not tried again until it is next evicted. A round stops while the
//! program is under pressure: when reclaim takes more than a sixteenth of the time.
//!
//! *Invariants*
//! - It neither reads nor writes arena memory and makes no page present: it works on the pool.
//! - A block's entries change under one hold of their folio's lock, which is only tried: a fault
//!   waits for one block at most. Fork, which acquires all operations, finds no block half done.
//! - The compressor is charged, and exists during a round only.
//!
//! *Locking*: op → [`Work`] → folio (tried) → pool class.
//! *Context*: the reclaimer; a test's thread.

use super::codecs::{charge_decoding, charged_compressor, retire_compressor};
use super::compact::compact;
use super::reclaim::make_room;
use super::recompress::{Outcome, RESERVE_PAGES, recompress_held};
use super::sizes::publish_sizes;
use crate::masked::Masked;
use crate::op::{self, OpGuard};
use crate::page::block::{Entries, MAX_BLOCK_ORDER};
use crate::page::folio::{RECLAIM, TRIED};
use crate::page::{Age, Entry, PAGE_SIZE, Page, PageRange, wide};
use crate::parts::Parts;
use crate::parts::densifier::Work;
use crate::store::codec::compressor_len;
use uzswap_compress::Codec;
use uzswap_group::counters::add;
use uzswap_group::knobs::is_on;
use uzswap_sync::charge::Reserve;
use uzswap_sync::primitive::Ordering;
use uzswap_sys::{arch, thread};

/// Time after eviction, in nanoseconds, after which a block that did not come back is cold.
const COLD_NS: u64 = 3_000_000_000;
/// Reclaim taking more than 1/16 of the time is pressure.
const PRESSURE_PART: u64 = 16;
/// Passes over the page table in a round.
const PASSES: u16 = 4;
/// What is tried, densest first: the first whose tables take no more than [`MAX_TABLES_PART`] of
/// the limit.
const CODECS: [Codec; 3] = [
    Codec::Zstd { level: 5 },
    Codec::Zstd { level: 3 },
    Codec::Zstd { level: 1 },
];
/// A compressor's tables may take 1/16 of the limit.
const MAX_TABLES_PART: u64 = 16;
/// log2 of the pages of the smallest block that is worth it.
pub const MIN_DENSE_ORDER: u32 = 2;
/// Time between two checks for pressure, nanoseconds.
const PRESSURE_WINDOW_NS: u64 = 50_000_000;

/// Rounds over what was evicted, one after the other, each once that is cold.
pub(crate) struct Rounds {
    /// All that was evicted before this was tried.
    tried: u64,
    due: Option<Due>,
}

/// A round to come.
struct Due {
    /// What was evicted by then, and when that was.
    evicted: u64,
    then: Age,
    /// When it is cold, nanoseconds.
    cold_ns: u64,
    before: Pressure,
}

impl Rounds {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Rounds {
            tried: 0,
            due: None,
        }
    }

    /// Does a round if one is due; `rest` passes the nanoseconds between two blocks, and `false`
    /// ends the round. Returns in how many nanoseconds to come again; `None`: once something was
    /// evicted.
    pub(crate) fn go_on(
        &mut self,
        parts: &Parts,
        masked: &Masked,
        rest: &mut dyn FnMut(u64) -> bool,
    ) -> Option<u64> {
        let clock = parts.pages.clock();
        if !is_on(&parts.account.knobs().densify) {
            (self.tried, self.due) = (clock.reading(), None);
            return None;
        }
        let now = thread::monotonic_ns();
        if let Some(due) = self.due.take_if(|due| due.cold_ns <= now) {
            if Pressure::now(parts).since(&due.before) {
                add(&parts.account.counters().densify_paused, 1);
            } else if densify_round(parts, masked, due.then, Some(rest)) {
                self.tried = due.evicted;
            }
        }
        if self.due.is_none() && clock.reading() != self.tried {
            self.due = Some(Due {
                evicted: clock.reading(),
                then: clock.now(),
                cold_ns: thread::monotonic_ns() + COLD_NS,
                before: Pressure::now(parts),
            });
        }
        let due = self.due.as_ref()?;
        Some(due.cold_ns.saturating_sub(thread::monotonic_ns()))
    }
}

/// One round, now, of all that is in the pool, whatever the knob and the pressure.
pub(crate) fn run_once(parts: &Parts, masked: &Masked) {
    densify_round(parts, masked, parts.pages.clock().now(), None);
}

/// Passes nanoseconds between two blocks; `false`: the round is to end.
type Rest<'a> = &'a mut dyn FnMut(u64) -> bool;

/// Tries what was evicted by `then`, as far as there is room. With `rest` not beyond its share of
/// the CPU, and not under pressure. `false`: it stopped because of that.
fn densify_round(parts: &Parts, masked: &Masked, then: Age, rest: Option<Rest<'_>>) -> bool {
    let min_age = then.distance(parts.pages.clock().now());
    let any = dense_order(parts) >= u64::from(MIN_DENSE_ORDER)
        && blocks(parts).any(|block| is_cold(parts, block, min_age));
    if !any {
        return true;
    }
    // Without room it is as if there were nothing: until something is evicted again.
    let done = !begin_round(parts, masked) || densify_pool(parts, masked, then, rest);
    end_round(parts, masked);
    done
}

fn densify_pool(parts: &Parts, masked: &Masked, then: Age, rest: Option<Rest<'_>>) -> bool {
    let clock = parts.pages.clock();
    let oldest = max_age(parts).saturating_sub(then.distance(clock.now()));
    let mut budget = rest.map(|rest| Budget::new(parts, rest));
    for pass in 1..=PASSES {
        let before = oldest / PASSES * (PASSES - pass);
        for block in blocks(parts) {
            // The clock may go on.
            let min_age = then.distance(clock.now()).saturating_add(before);
            if !is_cold(parts, block, min_age) {
                continue;
            }
            match densify_block(parts, masked, block, min_age) {
                Outcome::NoRoom => return true,
                Outcome::Skipped => {}
                Outcome::Denser { .. } | Outcome::Same => {
                    if budget.as_mut().is_some_and(|budget| !budget.rest(parts)) {
                        return false;
                    }
                }
            }
        }
    }
    true
}

/// log2 of the pages of a block.
fn dense_order(parts: &Parts) -> u64 {
    u64::from(parts.pages.order()).min(MAX_BLOCK_ORDER)
}

/// Every block of the page table that may have been touched.
fn blocks(parts: &Parts) -> impl Iterator<Item = PageRange> {
    let nr = 1 << dense_order(parts);
    let mut next = 0;
    core::iter::from_fn(move || {
        let start = parts.pages.next_ready(next)? & !(nr - 1);
        next = start + nr;
        Some(PageRange { start, end: next })
    })
}

/// Ticks since the oldest of what is out was evicted.
fn max_age(parts: &Parts) -> u16 {
    let now = parts.pages.clock().now();
    let ages = blocks(parts)
        .flat_map(PageRange::pages)
        .filter_map(|page| parts.pages.get(page).age());
    ages.map(|age| age.distance(now)).max().unwrap_or(0)
}

/// Whether the block is all in the pool, was `min_age` ticks ago, and was not tried. Without its
/// folio, a hint.
fn is_cold(parts: &Parts, block: PageRange, min_age: u16) -> bool {
    let pages = &parts.pages;
    let now = pages.clock().now();
    let first = Page::from_index(block.start);
    let mut stored = false;
    let cold = block.pages().all(|page| {
        let entry = pages.get(page);
        stored |= matches!(entry, Entry::Stored { .. });
        let in_pool = match entry {
            Entry::Stored { writing, .. } => !writing,
            Entry::Filled { .. } | Entry::Block { .. } => true,
            Entry::None | Entry::Resident | Entry::Swapped { .. } => false,
        };
        let age = entry.age().map_or(0, |age| age.distance(now));
        in_pool && !entry.is_dropped() && age >= min_age
    });
    // Of a large folio nobody remembers which of its blocks were tried: those that became one stay
    // so.
    let large = pages.folio_pages() > block.len();
    cold && stored
        && !pages.folio_of(first).has(TRIED)
        && !(large && pages.block_of(first) == block && pages.pages_in(block).eq(block.pages()))
}

/// Whether there is a compressor and room to work in; the round before may have left them at fork.
fn begin_round(parts: &Parts, masked: &Masked) -> bool {
    let len = PAGE_SIZE << dense_order(parts);
    let max = parts.account.limit_bytes() / MAX_TABLES_PART;
    let fits = |codec: &&Codec| wide(compressor_len(**codec, len)) <= max;
    let Some(&codec) = CODECS.iter().find(fits) else {
        return false;
    };
    let mut op = parts.op(masked);
    let mut work = parts.densifier.work();
    if work.compressor.is_some() {
        return true;
    }
    if !charge_decoding(parts, &mut op, codec.id(), len)
        || !make_room(parts, &mut op, RESERVE_PAGES)
    {
        return false;
    }
    work.reserve.put(RESERVE_PAGES);
    work.compressor = charged_compressor(parts, &mut op, codec, len);
    work.compressor.is_some()
}

/// Gives back what the round worked with, and of the pool what it left empty.
fn end_round(parts: &Parts, masked: &Masked) {
    let mut op = parts.op(masked);
    let mut work = parts.densifier.work();
    if let Some(compressor) = work.compressor.take() {
        retire_compressor(parts, &mut op, compressor);
    }
    work.reserve.shrink_to(0);
    compact(parts, &mut op, parts.store.fragmentation());
    op.reserve.shrink_to(op::RESERVE_PAGES);
    publish_sizes(parts);
}

/// Makes a block denser, if it is cold and nobody uses it.
fn densify_block(parts: &Parts, masked: &Masked, block: PageRange, min_age: u16) -> Outcome {
    let began = arch::ticks();
    let mut op = parts.op(masked);
    let mut work = parts.densifier.work();
    if !refill(parts, &mut op, &mut work.reserve) {
        return Outcome::NoRoom;
    }
    let Work {
        compressor: Some(compressor),
        reserve,
    } = &mut *work
    else {
        return Outcome::NoRoom;
    };
    let outcome = {
        let Some(guard) = parts
            .pages
            .folio_of(Page::from_index(block.start))
            .try_lock()
        else {
            return Outcome::Skipped;
        };
        if guard.has(RECLAIM) || !is_cold(parts, block, min_age) {
            return Outcome::Skipped;
        }
        let outcome = recompress_held(parts, &mut op, compressor, reserve, block);
        if outcome != Outcome::NoRoom && parts.pages.folio_pages() == block.len() {
            guard.set(TRIED);
        }
        outcome
    };
    publish_sizes(parts);
    let counters = parts.account.counters();
    match outcome {
        Outcome::Denser { saved } => {
            add(&counters.densified_pages, wide(block.len()));
            add(&counters.densified_bytes, wide(saved));
        }
        Outcome::Same => add(&counters.reject_densify_poor, wide(block.len())),
        Outcome::Skipped | Outcome::NoRoom => {}
    }
    add(&counters.densify_ticks, arch::ticks().wrapping_sub(began));
    outcome
}

/// Sees that there is room for what a block is stored in: first of what earlier ones left in
/// pieces.
fn refill(parts: &Parts, op: &mut OpGuard<'_>, reserve: &mut Reserve<'static>) -> bool {
    let missing = RESERVE_PAGES.saturating_sub(reserve.pages());
    if missing == 0 {
        return true;
    }
    compact(parts, op, missing);
    let taken = op.spare().min(missing);
    if op.take_spare(taken) {
        reserve.put(taken);
    }
    op.reserve.shrink_to(op::RESERVE_PAGES);
    taken == missing || reserve.grow(missing - taken)
}

/// Time under reclaim, to compare.
struct Pressure {
    at: u64,
    reclaimed: u64,
}

impl Pressure {
    fn now(parts: &Parts) -> Self {
        let reclaimed = &parts.account.counters().reclaim_ticks;
        Pressure {
            at: arch::ticks(),
            reclaimed: reclaimed.load(Ordering::Relaxed),
        }
    }

    /// Whether reclaim took too much of the time since `earlier`.
    const fn since(&self, earlier: &Pressure) -> bool {
        let took = self.reclaimed.wrapping_sub(earlier.reclaimed);
        took > self.at.wrapping_sub(earlier.at) / PRESSURE_PART
    }
}

/// The share of a CPU that a round may take, and whether the program needs it more.
struct Budget<'a> {
    rest: Rest<'a>,
    /// CPU time of this thread when it last began to work, nanoseconds.
    cpu: u64,
    last_check_ns: u64,
    pressure: Pressure,
}

impl<'a> Budget<'a> {
    fn new(parts: &Parts, rest: Rest<'a>) -> Self {
        Budget {
            rest,
            cpu: thread::thread_cpu_ns(),
            last_check_ns: thread::monotonic_ns(),
            pressure: Pressure::now(parts),
        }
    }

    /// Sleeps as long as the work since the last time asks for. `false`: the round is to stop.
    fn rest(&mut self, parts: &Parts) -> bool {
        let share = parts.account.knobs().densify.load(Ordering::Relaxed);
        if share == 0 {
            return false;
        }
        if !self.sleep(share.min(100)) {
            return false;
        }
        let now = thread::monotonic_ns();
        if now.saturating_sub(self.last_check_ns) < PRESSURE_WINDOW_NS {
            return true;
        }
        let pressure = Pressure::now(parts);
        let calm = !pressure.since(&self.pressure);
        self.last_check_ns = now;
        self.pressure = pressure;
        if !calm {
            add(&parts.account.counters().densify_paused, 1);
        }
        calm
    }

    /// Rests so that the work since the last time took `percent` of a CPU, 1 to 100.
    fn sleep(&mut self, percent: u64) -> bool {
        let worked = thread::thread_cpu_ns().saturating_sub(self.cpu);
        let goes_on = (self.rest)(worked * (100 - percent) / percent);
        self.cpu = thread::thread_cpu_ns();
        goes_on
    }
}
