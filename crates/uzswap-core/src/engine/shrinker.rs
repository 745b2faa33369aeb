//! *What*: when the pool is written back, and how much of it.
//!
//! - Over its limit, and from then on until it is down to what it accepts, each batch of evictions writes a
//!   few runs. The thread that needs memory does it, so what the kernel queues for a worker is a flag
//!   here. A run whose objects were all in use is tried again with others, [`MAX_RECLAIM_RETRIES`] times in
//!   a row; any other failure ends the attempt.
//! - The proactive shrinker (`shrinker_enabled`) writes what has not been used for [`LONG`] turnovers of the
//!   resident set, before there is need. As in the kernel, every page that comes back from the device keeps one
//!   in the pool, and the better the pool compresses the less is worth writing.
//!
//! *Invariants*: nothing is written while the knob `writeback` is off. Every entry that was to go and did not, and
//! every attempt that got nowhere, counts in `reject_reclaim_fail`.
//! *Locking*: slot → writeback. *Context*: signal, worker.

use super::Parts;
use super::clock::tick_shift;
use super::reclaim::MAX_RECLAIM_RETRIES;
use super::writeback::{Moved, Stuck, Writeback};
use crate::slot::SlotGuard;
use uzswap_group::counters::add;
use uzswap_group::knobs::{is_on, percent};
use uzswap_sync::primitive::Ordering::Relaxed;

/// Runs that are written for one batch of evictions, at most: bounds the time of a single fault.
const MOST_RUNS: u32 = 4;
/// Turnovers of the resident set after which what did not come back is cold.
const LONG: u64 = 2;
/// Looks of the shrinker in one turnover: each counts the ages of everything stored.
const LOOKS: u64 = 16;

/// What the proactive shrinker keeps in mind.
#[derive(Debug)]
pub(crate) struct Shrinker {
    /// Pages to write before it looks again.
    budget: u64,
    /// The eviction clock at the last look.
    looked: u64,
    /// Pages that had come back from the device by then.
    swapped_in: u64,
    /// Pages that came back lately; half of them are forgotten with every look.
    recent: u64,
}

impl Shrinker {
    /// At rest.
    pub(crate) const fn new() -> Self {
        Shrinker {
            budget: 0,
            looked: 0,
            swapped_in: 0,
            recent: 0,
        }
    }
}

impl Parts {
    /// Whether anything may be written, now.
    fn may_write_back(&self) -> bool {
        is_on(&self.group.knobs.writeback)
    }

    /// While the pool is above its limit, and until it is down to what it accepts, writes back: as much
    /// as goes with one batch of evictions.
    pub(crate) fn shrink(&self, slot: &mut SlotGuard<'_>) {
        let Some(swap) = &self.swap else { return };
        let knobs = &self.group.knobs;
        let max_pool = percent(self.charge.limit(), &knobs.max_pool_percent);
        let accept = percent(max_pool, &knobs.accept_threshold_percent);
        if self.pool.total_pages() > max_pool {
            swap.shrinking.store(true, Relaxed);
        } else if !swap.shrinking.load(Relaxed) {
            return self.shrink_cold(slot);
        }
        let mut failures = 0;
        let mut runs = 0;
        while runs < MOST_RUNS && failures < MAX_RECLAIM_RETRIES {
            if self.pool.total_pages() <= accept {
                swap.shrinking.store(false, Relaxed);
                return;
            }
            if self.recompress(slot) {
                runs += 1;
                continue;
            }
            match self.write_back(slot) {
                Ok(_) => {
                    runs += 1;
                    failures = 0;
                }
                // Another entry may be had.
                Err(Stuck::Raced) => failures += 1,
                Err(_) => return,
            }
        }
    }

    /// Writes one run back. Returns what left the pool.
    pub(crate) fn write_back(&self, slot: &mut SlotGuard<'_>) -> Result<Moved, Stuck> {
        let swap = self.swap.as_ref().ok_or(Stuck::Nothing)?;
        if !self.may_write_back() {
            add(&self.counters().reject_writeback_off, 1);
            return Err(Stuck::Nothing);
        }
        let mut writeback = swap.writeback.lock();
        let done = self.write_run(swap, &mut writeback, 0);
        drop(writeback);
        match done {
            Ok(moved) => self.count_written_back(slot, moved),
            // Its entries are counted.
            Err(Stuck::Raced) => {}
            Err(stuck) => {
                add(&self.counters().reject_reclaim_fail, 1);
                if stuck == Stuck::Full {
                    add(&self.counters().swap_full, 1);
                }
            }
        }
        done
    }

    fn count_written_back(&self, slot: &mut SlotGuard<'_>, moved: Moved) {
        let counters = self.counters();
        add(&counters.written_back_pages, moved.pages);
        add(&counters.zswpwb, moved.pages);
        self.compact_if_worth(slot, 0);
    }

    /// If the knob `shrinker_enabled` is on: writes one run of what has been cold for long, if there is.
    fn shrink_cold(&self, slot: &mut SlotGuard<'_>) {
        let Some(swap) = &self.swap else { return };
        if !is_on(&self.group.knobs.shrinker_enabled) || !self.may_write_back() {
            return;
        }
        // Whoever is at it does no less.
        let Some(mut writeback) = swap.writeback.try_lock() else {
            return;
        };
        if writeback.shrinker.budget == 0 && !self.look_for_cold(&mut writeback) {
            return;
        }
        let done = self.write_run(swap, &mut writeback, self.long_ago());
        let shrinker = &mut writeback.shrinker;
        // What cannot go now is looked for anew.
        let pages = done.map_or(u64::MAX, |moved| moved.pages);
        shrinker.budget = shrinker.budget.saturating_sub(pages);
        drop(writeback);
        if let Ok(moved) = done {
            add(&self.counters().shrinker_written_back, moved.pages);
            self.count_written_back(slot, moved);
        }
    }

    /// Now and then: tells how many pages of those that are cold are to go. `false`: none.
    fn look_for_cold(&self, writeback: &mut Writeback) -> bool {
        let (now, limit) = (self.clock.reading(), self.charge.limit());
        if self.clock.pages_since(writeback.shrinker.looked, limit) < (limit / LOOKS).max(1) {
            return false;
        }
        let stored = self.count_ages(writeback);
        let cold = writeback.nr_older(self.long_ago());
        let swapped_in = self.counters().pswpin.load(Relaxed);
        let shrinker = &mut writeback.shrinker;
        shrinker.looked = now;
        shrinker.recent = shrinker.recent / 2 + swapped_in.saturating_sub(shrinker.swapped_in);
        shrinker.swapped_in = swapped_in;
        let kept = shrinker.recent.min(cold);
        let backing = self.pool.total_pages().min(stored);
        shrinker.budget = ((cold - kept) * backing).checked_div(stored).unwrap_or(0);
        add(&self.counters().shrinker_protected, kept);
        shrinker.budget > 0
    }

    /// The age, in ticks, from which on a page has been cold for long.
    fn long_ago(&self) -> u16 {
        let limit = self.charge.limit();
        let ticks = (limit * LONG) >> tick_shift(limit);
        u16::try_from(ticks).unwrap_or(u16::MAX)
    }
}
