//! *What*: makes the pool smaller: recompresses or writes back while it is over its limit, and
//! writes back ahead of need where that is asked for.
//!
//! Once the pool exceeds its limit, and until it is down to its accept threshold, each batch of
//! evictions writes a few runs. The thread that needs memory does this work: the kernel queues it
//! for a worker, here it is a flag ([`crate::policy::pool_limit`]). A run whose objects were all in
//! use is retried with others, [`MAX_RECLAIM_RETRIES`] times in a row; any other failure ends the
//! attempt.
//!
//! *Invariants*: nothing is written while the knob `writeback` is off, or the `zswap.writeback` of
//! a group that the process is in. Every chosen entry that was not written, and every attempt that
//! wrote nothing, counts in `reject_reclaim_fail`.
//! *Locking*: op → writeback. *Context*: signal, worker.

use super::compact::compact_if_fragmented;
use super::pool_max::{pool_max, pool_room};
use super::recompress::recompress_before_write;
use super::writeback::{WritebackError, WrittenBack, write_run};
use crate::backing::device::MAX_RECLAIM_RETRIES;
use crate::op::OpGuard;
use crate::page::{narrow, wide};
use crate::parts::Parts;
use crate::policy::pool_limit::Decision;
use crate::policy::shrinker::cold_age;
use uzswap_group::counters::add;
use uzswap_group::knobs::{is_on, percent};
use uzswap_sync::ledger::Levels;
use uzswap_sys::arch;

/// Pages for which it is worth to begin a batch of evictions while the pool has little room.
const MIN_BATCH: usize = 64;
/// Runs that are written for one batch of evictions, at most: bounds the time of a single fault.
const MAX_RUNS: u32 = 4;

/// While the pool is above its limit, and until it is down to what it accepts, makes it smaller: as
/// much as goes with one batch of evictions.
pub(crate) fn shrink(parts: &Parts, op: &mut OpGuard<'_>) {
    if parts.backing.is_none() {
        return;
    }
    if decide(parts) == Decision::Keep {
        return shrink_cold(parts, op);
    }
    if parts.store.is_empty() {
        return;
    }
    let mut failures = 0;
    let mut runs = 0;
    while runs < MAX_RUNS && failures < MAX_RECLAIM_RETRIES {
        match decide(parts) {
            Decision::Keep => return,
            Decision::Recompress if recompress_before_write(parts, op) => runs += 1,
            Decision::Recompress | Decision::WriteBack => match write_back(parts, op) {
                Ok(_) => {
                    runs += 1;
                    failures = 0;
                }
                // The folios were in use: try others.
                Err(WritebackError::Raced) => failures += 1,
                Err(_) => return,
            },
        }
    }
}

fn decide(parts: &Parts) -> Decision {
    let charge = parts.account.charge();
    charge.share().set_pool(parts.store.pool_pages());
    let (levels, knobs) = (charge.levels(), parts.account.knobs());
    let levels = levels.iter().flat_map(Levels::iter);
    let pools = levels.map(|level| {
        let share = percent(level.limit, &knobs.max_pool_percent);
        (level.held.pool, share.min(pool_max(parts, level)))
    });
    let recompresses = parts.auto.recompresses();
    parts.pool_limit.decide(pools, knobs, recompresses)
}

/// Of `target` pages that are to be evicted, how many may enter the pool: what they compress to is
/// known only afterwards, so there must be room for them as they are. Where what is stored goes on
/// to swap the pool is a passage: all of them, once no group is above its `zswap.max`, or that is
/// not for what this process has in it. `None`: too few to begin a batch.
pub(super) fn make_pool_room(parts: &Parts, op: &mut OpGuard<'_>, target: usize) -> Option<usize> {
    let room = pool_room(parts);
    if room.is_some_and(|room| room >= wide(target)) {
        return Some(target);
    }
    if parts.backing.is_some() && may_write_back(parts) {
        shrink(parts, op);
        if pool_room(parts).is_some() || parts.store.is_empty() {
            return Some(target);
        }
    }
    room.map(narrow).filter(|room| *room >= MIN_BATCH)
}

/// Whether the knob and every group of this process let it write.
fn may_write_back(parts: &Parts) -> bool {
    let account = parts.account;
    let path = account.charge().share().path();
    is_on(&account.knobs().writeback) && account.group().ledger.may_write_back(path)
}

/// Writes one run back. Returns what left the pool.
pub(crate) fn write_back(
    parts: &Parts,
    op: &mut OpGuard<'_>,
) -> Result<WrittenBack, WritebackError> {
    let backing = parts.backing.as_ref().ok_or(WritebackError::Nothing)?;
    let counters = parts.account.counters();
    if !may_write_back(parts) {
        add(&counters.reject_writeback_off, 1);
        return Err(WritebackError::Nothing);
    }
    let began = arch::ticks();
    let done = write_run(parts, backing, &mut parts.writeback.lock(), 0);
    op.stalls.write += arch::ticks().wrapping_sub(began);
    match done {
        Ok(moved) => count_written_back(parts, op, moved),
        // Its entries are already counted.
        Err(WritebackError::Raced) => {}
        Err(error) => {
            add(&counters.reject_reclaim_fail, 1);
            if error == WritebackError::Full {
                add(&counters.swap_full, 1);
            }
        }
    }
    done
}

fn count_written_back(parts: &Parts, op: &mut OpGuard<'_>, moved: WrittenBack) {
    let counters = parts.account.counters();
    add(&counters.written_back_pages, moved.pages);
    add(&counters.zswpwb, moved.pages);
    compact_if_fragmented(parts, op, 0);
}

/// If the knob `shrinker_enabled` is on: writes one run of what has been cold for long, if there
/// is.
fn shrink_cold(parts: &Parts, op: &mut OpGuard<'_>) {
    let Some(backing) = &parts.backing else {
        return;
    };
    let account = parts.account;
    if !is_on(&account.knobs().shrinker_enabled) || !may_write_back(parts) {
        return;
    }
    // Whoever holds it writes back as well.
    let Some(mut writeback) = parts.writeback.try_lock() else {
        return;
    };
    let pool = parts.store.pool_pages();
    let this = &mut *writeback;
    if !this
        .shrinker
        .wants(account, &parts.pages, &mut this.ages, pool)
    {
        return;
    }
    let age = cold_age(account.charge().limit());
    let began = arch::ticks();
    let done = write_run(parts, backing, this, age);
    op.stalls.write += arch::ticks().wrapping_sub(began);
    this.shrinker.wrote(done.map(|moved| moved.pages).ok());
    drop(writeback);
    if let Ok(moved) = done {
        add(&account.counters().shrinker_written_back, moved.pages);
        count_written_back(parts, op, moved);
    }
}
