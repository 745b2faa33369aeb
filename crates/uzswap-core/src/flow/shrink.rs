//! *What*: makes the pool smaller: recompresses or writes back while it is over its limit, and
//! writes back ahead of need where that is asked for.
//!
//! Once the pool exceeds its limit, and until it is down to its accept threshold, each batch of
//! evictions writes a few runs. The thread that needs memory does this work: the kernel queues it
//! for a worker, here it is a flag ([`crate::policy::pool_limit`]). A run whose objects were all in
//! use is retried with others, [`MAX_RECLAIM_RETRIES`] times in a row; any other failure ends the
//! attempt.
//!
//! *Invariants*: nothing is written while the knob `writeback` is off. Every chosen entry that was
//! not written, and every attempt that wrote nothing, counts in `reject_reclaim_fail`.
//! *Locking*: op → writeback. *Context*: signal, worker.

use super::compact::compact_if_fragmented;
use super::recompress::recompress_before_write;
use super::writeback::{WritebackError, WrittenBack, write_run};
use crate::backing::device::MAX_RECLAIM_RETRIES;
use crate::op::OpGuard;
use crate::parts::Parts;
use crate::policy::pool_limit::Decision;
use crate::policy::shrinker::cold_age;
use uzswap_group::counters::add;
use uzswap_group::knobs::is_on;
use uzswap_sys::arch;

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
    let (held, limit) = charge.group();
    parts.pool_limit.decide(
        held.pool,
        limit,
        parts.account.knobs(),
        parts.auto.recompresses(),
    )
}

fn may_write_back(parts: &Parts) -> bool {
    is_on(&parts.account.knobs().writeback)
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
