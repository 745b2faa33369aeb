//! *What*: `high` of a group: above it whoever charges evicts as much of its own, and if that does
//! not suffice waits the longer the further the group is above. Nobody is ended for it.
//!
//! Above `high` nothing is granted ahead of need, so a charge that leaves no granted page unused is
//! the sign to look; below it there mostly are some.
//!
//! *Invariants*: none. *Locking*: as reclaim. *Context*: signal, worker.

use super::reclaim::{EVICT_PAGES, evict_above_floor};
use crate::op::{OpGuard, RESERVE_PAGES};
use crate::page::batch::BATCH_PAGES;
use crate::page::lru::Wanted;
use crate::page::narrow;
use crate::parts::Parts;
use uzswap_group::counters::add;
use uzswap_sys::{arch, thread};

/// How long a charge waits for each page that its group is above `high`, and at most, nanoseconds.
const DELAY_NS: u64 = 10_000;
const MAX_DELAY_NS: u64 = 100_000_000;

/// After a charge: evicts, and waits, if a group of this process is above its `high`.
#[inline]
pub(crate) fn slow_down(parts: &Parts, op: &mut OpGuard<'_>) {
    if parts.account.charge().slack() == 0 {
        evict_above_high(parts, op);
    }
}

#[cold]
fn evict_above_high(parts: &Parts, op: &mut OpGuard<'_>) {
    let charge = parts.account.charge();
    let above = charge.settle_below_high();
    if above == 0 {
        return;
    }
    add(&parts.account.counters().high_limit_hit, 1);
    let target = narrow(above).clamp(EVICT_PAGES, BATCH_PAGES);
    evict_above_floor(parts, op, Wanted::about(target));
    op.reserve.shrink_to(RESERVE_PAGES);
    let above = charge.settle_below_high();
    if above > 0 {
        let began = arch::ticks();
        let _ = thread::nanosleep(above.saturating_mul(DELAY_NS).min(MAX_DELAY_NS));
        op.stalls.reclaim += arch::ticks().wrapping_sub(began);
    }
}
