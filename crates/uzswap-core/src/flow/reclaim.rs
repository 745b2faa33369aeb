//! *What*: makes room for a charge: evicts batch after batch down to the floor, writes back when
//! that frees nothing, waits for other processes of the group when neither frees anything, and
//! reports failure when they have none either.
//!
//! *Invariants*: freed pages stay charged, in the operation's reserve, until the caller has taken
//! its own, so no other thread can take them.
//! *Locking*: as eviction. *Context*: signal, worker.

use super::others::Patience;
use super::{compact, evict, shrink};
use crate::backing::device::MAX_RECLAIM_RETRIES;
use crate::op::{OpGuard, RESERVE_PAGES};
use crate::page::lru::Wanted;
use crate::page::narrow;
use crate::parts::Parts;
use crate::policy::floor;
use uzswap_group::counters::add;
use uzswap_sys::{arch, thread};

/// Pages that a batch evicts, about: enough to amortize one TLB flush and one system call.
pub(super) const EVICT_PAGES: usize = 64;
/// The same for a fault of a process with one thread, where nothing is flushed elsewhere.
const ALONE_PAGES: usize = 32;
/// Up to so many pages a fault takes neighbours along: bounds its time.
const MAX_FAULT_PAGES: usize = 64;

/// Reclaims until the operation has `nr` pages above its reserve, and takes them.
#[cold]
pub(crate) fn make_room(parts: &Parts, op: &mut OpGuard<'_>, nr: u64) -> bool {
    add(&parts.account.counters().pool_limit_hit, 1);
    op.window.freed_nothing = false;
    let mut failures = 0;
    let mut patience = Patience::of(parts.account, nr);
    loop {
        // The limit was lowered: freed pages first bring the charge below it. (A process that may
        // exceed its limit comes down on request, not by faults that each evict all they can.)
        if !parts.account.may_exceed() && parts.account.charge().over() > 0 {
            op.reserve.shrink_to(RESERVE_PAGES);
            parts.account.charge().settle();
        }
        // Other threads may have freed pages meanwhile.
        let missing = (RESERVE_PAGES + nr).saturating_sub(op.reserve.pages());
        if missing == 0 || op.reserve.grow(missing) {
            return op.reserve.take(nr);
        }
        let wanted = bounded_for(parts, narrow(nr));
        if reclaim_or_write_back(parts, op, wanted, failures > 0) {
            failures = 0;
            continue;
        }
        failures += 1;
        // At the floor nothing will be freed soon: who may exceed the limit does so.
        let may_exceed = parts.account.may_exceed() || parts.account.fits_alone(nr);
        let hopeless = may_exceed && evictable(parts) == 0;
        if failures < MAX_RECLAIM_RETRIES && !hopeless {
            compact_and_yield(parts, op);
            continue;
        }
        // Of this process nothing can go. Others may have more than they need.
        if patience.waits(parts.account, missing) {
            continue;
        }
        if parts.account.may_exceed() {
            parts.account.charge().charge_unchecked(nr);
            return true;
        }
        // While the limit is being lowered the old one still holds: no process ends for it.
        let config = &parts.account.group().config;
        let ceilings = (&config.ram_ceiling, &config.ram_per_process_ceiling);
        if parts
            .account
            .charge()
            .try_charge_below(nr, ceilings.0, ceilings.1)
        {
            return true;
        }
        // What is missing others have, who cannot be made to give it back: a process is not ended
        // for that.
        if parts.account.fits_alone(nr) {
            parts.account.charge_beyond_group(nr);
            return true;
        }
        // Last resort: the part of the reserve that is kept for reclaim itself.
        return op.reserve.pages() >= nr && op.reserve.take(nr);
    }
}

/// What a fault that needs `nr` pages evicts at once. Where it brings in a whole folio, that is a
/// group of four: with less, sequential access takes 5 to 10 % longer.
fn bounded_for(parts: &Parts, nr: usize) -> Wanted {
    let least = match evict::is_single_threaded(parts) {
        true => ALONE_PAGES,
        false => EVICT_PAGES,
    };
    Wanted {
        least: least.max(nr),
        most: (4 * nr).max(MAX_FAULT_PAGES),
    }
}

/// Evicts a batch, and writes a run back if that frees nothing. `false`: neither freed a page,
/// which is counted.
pub(crate) fn reclaim_or_write_back(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    wanted: Wanted,
    again: bool,
) -> bool {
    let before = op.reserve.pages();
    op.batch.clear();
    op.batch.takes_shared = again;
    // What the batch before it shared does not count again, should nothing be evicted.
    op.batch.nr_shared = 0;
    let evicted = evict_above_floor(parts, op, wanted);
    op.batch.takes_shared = false;
    // At the floor only writing helps. A large batch that freed nothing held incompressible data.
    // A small one lost its folios to other threads: worth another try before anything is written.
    let to_swap = again || evicted.is_none_or(|dropped| dropped >= EVICT_PAGES / 4);
    // Pages that others still have are free once those have evicted them too.
    let freed = op.reserve.pages() > before
        || op.batch.nr_shared > 0
        || (to_swap && shrink::write_back(parts, op).is_ok());
    if !freed {
        add(&parts.account.counters().reject_reclaim_fail, 1);
    }
    freed
}

/// Evicts a batch of up to about `target` pages, of what is resident above the floor. Returns how
/// many; `None`: nothing is above it.
pub(crate) fn evict_above_floor(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    wanted: Wanted,
) -> Option<usize> {
    match evictable(parts) {
        0 => None,
        nr => Some(evict::reclaim_batch(parts, op, wanted.at_most(nr))),
    }
}

/// Pages that are resident above the floor.
fn evictable(parts: &Parts) -> usize {
    let limit = parts.account.charge().limit();
    narrow(floor::evictable(parts.pages.nr_resident(), limit))
}

/// Between attempts that freed nothing: compacts the whole pool and yields the CPU.
pub(crate) fn compact_and_yield(parts: &Parts, op: &mut OpGuard<'_>) {
    let began = arch::ticks();
    compact::compact(parts, op, u64::MAX);
    thread::sched_yield();
    op.stalls.reclaim += arch::ticks().wrapping_sub(began);
}
