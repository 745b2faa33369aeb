//! *What*: densify: what has stayed cold in the pool is compressed once more, in blocks of 16 pages and with a denser
//! codec, by a thread of its own that takes no more than its share of a CPU (`densify`).
//!
//! The thread sleeps until something is evicted. What is still out [`LOOK`] later is cold, and a *round* begins: it
//! goes over the page table four times, the oldest first. A block is taken if all of its pages are in the pool and as
//! old as that: it is decoded into the slot's buffer, compressed, and takes the place of what was there, each page with its own
//! age. If it is not an eighth smaller it is thrown away, and the folio left alone until it is evicted again. A
//! round stops while the program is under pressure: when reclaim takes more than a sixteenth of the time.
//!
//! *Invariants*
//! - The thread neither reads nor writes memory in the arena, and makes no page present: it works on what is in the pool. So a program with
//!   one thread of its own is alone for reclaim ([`Parts::is_alone`]) though this one is there, which it is for good once `running` says so.
//! - A block's entries change under one hold of their folio, from the first look to the last entry, so what was decoded
//!   is what is replaced. The folio is only tried for: nobody's fault finds it busy for longer than a block takes.
//! - What is new is allocated before what is old is freed, out of a reserve of its own, and is smaller: the pool is never
//!   larger after a block than before it. Nothing is left to be done at fork: whoever has all slots finds no block half done.
//! - Its compressor is charged, and there during a round only.
//!
//! *Locking*: slot → [`Work`] → folio (tried) → pool class. *Context*: a thread of its own, with all signals blocked.

use super::block::{MOST_BLOCK_ORDER, most_of_block};
use super::compressor::compressor_len;
use super::load::LoadError;
use super::object::{self, Source};
use super::store::Stored;
use super::{Engine, Parts};
use crate::arena::{PAGE_SIZE, Page, PageRange, wide};
use crate::folio::{RECLAIM, TRIED};
use crate::masked::Masked;
use crate::slot::{RESERVE_PAGES, SlotGuard, SlotInner};
use crate::table::{Age, Entry};
use uzswap_compress::{Codec, Compressor};
use uzswap_group::counters::add;
use uzswap_group::knobs::is_on;
use uzswap_pool::Pool;
use uzswap_sync::charge::{Charge, Reserve};
use uzswap_sync::lock::Lock;
use uzswap_sync::primitive::{AtomicBool, AtomicU32, Ordering};
use uzswap_sys::{arch, futex, thread};

/// For how long nothing of a block came back before it is cold, nanoseconds.
const LOOK: u64 = 3_000_000_000;
/// The part of the time that reclaim may take before that is pressure.
const PRESSURE: u64 = 16;
/// Passes of a round.
const PASSES: u16 = 4;
/// A block must be smaller than what was there by this part of it.
const LEAST_GAIN: usize = 8;
/// What is tried, densest first: the first whose tables take no more than that part of the limit.
const CODECS: [Codec; 3] = [
    Codec::Zstd { level: 5 },
    Codec::Zstd { level: 3 },
    Codec::Zstd { level: 1 },
];
const MOST_FOR_TABLES: u64 = 16;
/// log2 of the pages of the smallest block that is worth it.
pub const MIN_DENSE_ORDER: u32 = 2;
/// How long the program is watched before the thread says that there is pressure, nanoseconds.
const WINDOW: u64 = 50_000_000;
/// Pages set aside for what a block is stored in before what was there is freed.
const ASIDE: u64 = 24;

/// What the thread works with.
#[derive(Debug)]
pub(crate) struct Densifier {
    work: Lock<Work>,
    /// 1 while the thread sleeps until something is evicted; its futex.
    asleep: AtomicU32,
    /// The thread is there, and stays.
    running: AtomicBool,
}

#[derive(Debug)]
struct Work {
    compressor: Option<Compressor>,
    reserve: Reserve<'static>,
}

impl Densifier {
    /// Without a thread.
    pub(crate) const fn new(charge: &'static Charge) -> Self {
        Densifier {
            work: Lock::new(Work {
                compressor: None,
                reserve: Reserve::empty(charge),
            }),
            asleep: AtomicU32::new(0),
            running: AtomicBool::new(false),
        }
    }

    /// Threads of this kind in the process. Asked before all threads are counted: it never becomes less.
    pub(crate) fn nr_threads(&self) -> u64 {
        self.running.load(Ordering::Acquire).into()
    }

    /// Something was evicted.
    pub(crate) fn wake(&self) {
        if self.running.load(Ordering::Relaxed) && self.asleep.swap(0, Ordering::AcqRel) == 1 {
            let _ = futex::wake(&self.asleep, 1);
        }
    }

    /// In a fork child, which has no such thread yet.
    pub(crate) fn fork_child(&self) {
        self.running.store(false, Ordering::Relaxed);
        self.asleep.store(0, Ordering::Relaxed);
    }
}

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Became {
    /// It is stored denser.
    Denser,
    /// It is no smaller that way, or cannot be decoded.
    Same,
    /// It is not cold, in use, or not all in the pool.
    Passed,
    /// There is no room to make it in.
    NoRoom,
}

/// Time under reclaim, to compare.
struct Pressure {
    at: u64,
    reclaimed: u64,
}

impl Pressure {
    fn now(parts: &Parts) -> Self {
        Pressure {
            at: arch::rdtsc(),
            reclaimed: parts.counters().reclaim_ticks.load(Ordering::Relaxed),
        }
    }

    /// Whether reclaim took too much of the time since `earlier`.
    const fn since(&self, earlier: &Pressure) -> bool {
        let took = self.reclaimed.wrapping_sub(earlier.reclaimed);
        took > self.at.wrapping_sub(earlier.at) / PRESSURE
    }
}

impl Engine {
    /// Makes what is cold denser for as long as the process lives, asleep while nothing is evicted.
    pub fn densify_in_background(&self, masked: &Masked) {
        let Some(parts) = self.parts() else { return };
        // Release: pairs with the acquire in `nr_threads`.
        parts.densifier.running.store(true, Ordering::Release);
        // All that was evicted before this was tried.
        let mut tried = 0;
        loop {
            parts.sleep_until_evicted(tried);
            let (evicted, then) = (parts.clock.reading(), parts.clock.now());
            let before = Pressure::now(parts);
            let _ = thread::nanosleep(LOOK);
            if !is_on(&parts.group.knobs.densify) {
                tried = evicted;
            } else if Pressure::now(parts).since(&before) {
                add(&parts.counters().densify_paused, 1);
            } else if parts.densify_round(masked, then, true) {
                tried = evicted;
            }
        }
    }

    /// One round, now, of all that is in the pool, whatever the knob and the pressure.
    pub fn densify(&self, masked: &Masked) {
        if let Some(parts) = self.parts() {
            parts.densify_round(masked, parts.clock.now(), false);
        }
    }
}

impl Parts {
    /// Sleeps until something is evicted.
    fn sleep_until_evicted(&self, tried: u64) {
        let idle = || self.clock.reading() == tried;
        while idle() {
            // Both sides swap: either this one sees what happened, or `wake` sees that it sleeps.
            self.densifier.asleep.swap(1, Ordering::AcqRel);
            if !idle() {
                self.densifier.asleep.store(0, Ordering::Relaxed);
                return;
            }
            let _ = futex::wait(&self.densifier.asleep, 1, None);
        }
    }

    /// Tries what was evicted by `then`, as far as there is room. `gently`: not beyond its share of the CPU, and not
    /// under pressure. `false`: it stopped because of that.
    fn densify_round(&self, masked: &Masked, then: Age, gently: bool) -> bool {
        let least = then.distance(self.clock.now());
        let any = self.dense_order() >= u64::from(MIN_DENSE_ORDER)
            && self.blocks().any(|block| self.is_cold(block, least));
        if !any {
            return true;
        }
        // Without room it is as if there were nothing: until something is evicted again.
        let done = !self.begin_round(masked) || self.go_over_pool(masked, then, gently);
        self.end_round(masked);
        done
    }

    fn go_over_pool(&self, masked: &Masked, then: Age, gently: bool) -> bool {
        let oldest = self
            .oldest()
            .saturating_sub(then.distance(self.clock.now()));
        let mut budget = gently.then(|| Budget::new(self));
        for pass in 1..=PASSES {
            let before = oldest / PASSES * (PASSES - pass);
            for block in self.blocks() {
                // The clock may go on.
                let least = then.distance(self.clock.now()).saturating_add(before);
                if !self.is_cold(block, least) {
                    continue;
                }
                match self.densify_block(masked, block, least) {
                    Became::NoRoom => return true,
                    Became::Passed => {}
                    Became::Denser | Became::Same => {
                        if budget.as_mut().is_some_and(|budget| !budget.rest(self)) {
                            return false;
                        }
                    }
                }
            }
        }
        true
    }

    /// log2 of the pages of a block.
    fn dense_order(&self) -> u64 {
        u64::from(self.folios.order()).min(MOST_BLOCK_ORDER)
    }

    /// Every block of the page table that may have been touched.
    fn blocks(&self) -> impl Iterator<Item = PageRange> {
        let nr = 1 << self.dense_order();
        let mut next = 0;
        core::iter::from_fn(move || {
            let start = self.table.next_ready(next)? & !(nr - 1);
            next = start + nr;
            Some(PageRange { start, end: next })
        })
    }

    /// Ticks since the oldest of what is out was evicted.
    fn oldest(&self) -> u16 {
        let now = self.clock.now();
        let ages = self
            .blocks()
            .flat_map(PageRange::pages)
            .filter_map(|page| self.table.get(page).age());
        ages.map(|age| age.distance(now)).max().unwrap_or(0)
    }

    /// Whether the block is all in the pool, was `least` ticks ago, and was not tried. Without its folio, a hint.
    fn is_cold(&self, block: PageRange, least: u16) -> bool {
        let now = self.clock.now();
        let first = Page::from_index(block.start);
        let mut stored = false;
        let cold = block.pages().all(|page| {
            let entry = self.table.get(page);
            stored |= matches!(entry, Entry::Stored { .. });
            let in_pool = match entry {
                Entry::Stored { writing, .. } => !writing,
                Entry::Filled { .. } | Entry::Block { .. } => true,
                Entry::None | Entry::Resident | Entry::Swapped { .. } => false,
            };
            let age = entry.age().map_or(0, |age| age.distance(now));
            in_pool && !entry.is_dropped() && age >= least
        });
        // Of a large folio nobody remembers which of its blocks were tried: those that became one stay so.
        let large = self.folios.nr_pages() > block.len();
        cold && stored
            && !self.folios.of(first).has(TRIED)
            && !(large && self.block_of(first) == block && self.pages_in(block).eq(block.pages()))
    }

    /// Whether there is a compressor and room to work in; the round before may have left them at fork.
    fn begin_round(&self, masked: &Masked) -> bool {
        let len = PAGE_SIZE << self.dense_order();
        let most = self.limit_bytes() / MOST_FOR_TABLES;
        let fits = |codec: &&Codec| wide(compressor_len(**codec, len)) <= most;
        let Some(&codec) = CODECS.iter().find(fits) else {
            return false;
        };
        let mut slot = self.slot(masked);
        let mut work = self.densifier.work.lock();
        if work.compressor.is_some() {
            return true;
        }
        if !self.charge_decoding(&mut slot, codec.id(), len) || !self.make_room(&mut slot, ASIDE) {
            return false;
        }
        work.reserve.put(ASIDE);
        work.compressor = self.charged_compressor(&mut slot, codec, len);
        work.compressor.is_some()
    }

    /// Gives back what the round worked with, and of the pool what it left empty.
    fn end_round(&self, masked: &Masked) {
        let mut slot = self.slot(masked);
        let mut work = self.densifier.work.lock();
        if let Some(compressor) = work.compressor.take() {
            self.retire_compressor(&mut slot, compressor);
        }
        work.reserve.shrink_to(0);
        self.make_pool_smaller(&mut slot, self.pool.fragmentation());
        slot.reserve.shrink_to(RESERVE_PAGES);
        self.publish_sizes();
    }

    /// Makes a block denser, if it is cold and nobody uses it.
    fn densify_block(&self, masked: &Masked, block: PageRange, least: u16) -> Became {
        let began = arch::rdtsc();
        let mut slot = self.slot(masked);
        let mut work = self.densifier.work.lock();
        if !self.refill(&mut slot, &mut work) {
            return Became::NoRoom;
        }
        let became = {
            let folio = self.folios.of(Page::from_index(block.start));
            let Some(guard) = folio.try_lock() else {
                return Became::Passed;
            };
            if guard.has(RECLAIM) || !self.is_cold(block, least) {
                return Became::Passed;
            }
            let became = self.densify_held(&mut slot, &mut work, block);
            if became != Became::NoRoom && self.folios.nr_pages() == block.len() {
                guard.set(TRIED);
            }
            became
        };
        self.publish_sizes();
        let counters = self.counters();
        if became == Became::Same {
            add(&counters.reject_densify_poor, wide(block.len()));
        }
        add(&counters.densify_ticks, arch::rdtsc().wrapping_sub(began));
        became
    }

    /// Sees that there is room for what a block is stored in: first of what earlier ones left in pieces.
    fn refill(&self, slot: &mut SlotGuard<'_>, work: &mut Work) -> bool {
        let missing = ASIDE.saturating_sub(work.reserve.pages());
        if missing == 0 {
            return true;
        }
        self.make_pool_smaller(slot, missing);
        let spare = slot.reserve.pages().saturating_sub(RESERVE_PAGES);
        let taken = spare.min(missing);
        if slot.reserve.take(taken) {
            work.reserve.put(taken);
        }
        slot.reserve.shrink_to(RESERVE_PAGES);
        taken == missing || work.reserve.grow(missing - taken)
    }

    /// The same with the block's folio held, by whom it was found cold.
    fn densify_held(&self, slot: &mut SlotGuard<'_>, work: &mut Work, block: PageRange) -> Became {
        if self.decode_all(slot, block).is_err() {
            return Became::Same;
        }
        let old = self.bytes_of(block);
        let most = (old - old / LEAST_GAIN).min(most_of_block(block.len()));
        let SlotInner {
            decompressor,
            load,
            store,
            ..
        } = &mut **slot;
        let Some(load) = load.get_mut(..block.bytes()) else {
            return Became::Same;
        };
        let Work {
            compressor: Some(compressor),
            reserve,
        } = work
        else {
            return Became::NoRoom;
        };
        // SAFETY: the slot's buffer, which holds that much and is read by nobody else.
        let source = unsafe { Source::new(load.as_ptr().addr(), block.bytes(), true) };
        let checked = is_on(&self.group.knobs.checksum);
        let object = store
            .get_mut(..most)
            .and_then(|out| object::pack(compressor, source, checked, out).ok())
            .and_then(|size| store.get(..size));
        let object = object.filter(|object| self.is_right_in(decompressor, object, load));
        let Some(object) = object else {
            return Became::Same;
        };
        let new: usize = object
            .chunks(PAGE_SIZE)
            .map(|piece| Pool::takes(piece.len()))
            .sum();
        if new >= old {
            return Became::Same;
        }
        let age_of = |page| self.table.get(page).age().unwrap_or(self.clock.now());
        let Some(entries) = self.cut(reserve, object, block, age_of) else {
            return Became::NoRoom;
        };
        let mut stored = Stored::default();
        for (page, entry) in block.pages().zip(entries) {
            let old = self.table.get(page);
            self.table.set(page, entry);
            self.forget(old);
            stored.add(entry);
        }
        self.count_stored(&stored);
        add(&self.counters().densified_pages, wide(block.len()));
        add(&self.counters().densified_bytes, wide(old - new));
        Became::Denser
    }

    /// Decodes the whole block into the slot's load buffer. Its folio is held, and it is all in the pool.
    fn decode_all(&self, slot: &mut SlotGuard<'_>, block: PageRange) -> Result<(), LoadError> {
        let place = |index: usize| (index - block.start) * PAGE_SIZE;
        let mut next = block.start;
        for page in self.pages_in(block) {
            if page.index() >= next {
                let part = self.block_of(page);
                self.load_block(slot, part, part.len(), place(part.start))?;
                next = part.end;
            }
        }
        // Those that left their block lie where it has what they were.
        for page in block.pages() {
            let entry = self.table.get(page);
            if !entry.in_block() {
                self.decode(slot, page, entry, block, place(page.index()))?;
            }
        }
        Ok(())
    }

    /// Bytes that the block takes in the pool.
    fn bytes_of(&self, block: PageRange) -> usize {
        let sizes = block.pages().filter_map(|page| match self.table.get(page) {
            Entry::Stored { size, .. } => Some(Pool::takes(size.into())),
            _ => None,
        });
        sizes.sum()
    }
}

/// The share of a CPU that the thread may take, and whether the program needs it more.
struct Budget {
    /// CPU time of this thread when it last began to work.
    cpu: u64,
    looked: u64,
    pressure: Pressure,
}

impl Budget {
    fn new(parts: &Parts) -> Self {
        Budget {
            cpu: thread::thread_cpu_ns(),
            looked: thread::monotonic_ns(),
            pressure: Pressure::now(parts),
        }
    }

    /// Sleeps as long as the work since the last time asks for. `false`: the round is to stop.
    fn rest(&mut self, parts: &Parts) -> bool {
        let percent = parts.group.knobs.densify.load(Ordering::Relaxed).min(100);
        if percent == 0 {
            return false;
        }
        let worked = thread::thread_cpu_ns().saturating_sub(self.cpu);
        let nap = worked * (100 - percent) / percent;
        if nap > 0 {
            let _ = thread::nanosleep(nap);
        }
        self.cpu = thread::thread_cpu_ns();
        let now = thread::monotonic_ns();
        if now.saturating_sub(self.looked) < WINDOW {
            return true;
        }
        let pressure = Pressure::now(parts);
        let calm = !pressure.since(&self.pressure);
        self.looked = now;
        self.pressure = pressure;
        if !calm {
            add(&parts.counters().densify_paused, 1);
        }
        calm
    }
}
