//! *What*: gives other processes of the group the memory that they ask for: see
//! [`others`](super::others).
//!
//! *Invariants*: a process evicts nothing but its own memory. What it gives up it uncharges and
//! hands back to the group, where whoever needs it takes it.
//! *Locking*: as eviction. *Context*: the reclaimer; a thread of its own.

use super::others::rule;
use super::reclaim::EVICT_PAGES;
use super::{follow, reclaim};
use crate::masked::Masked;
use crate::op::RESERVE_PAGES;
use crate::page::lru::Wanted;
use crate::page::narrow;
use crate::parts::Parts;
use crate::policy::colder::Member;
use uzswap_group::ask::Wish;
use uzswap_sync::primitive::Ordering::Relaxed;
use uzswap_sys::arch;

/// Pages that a batch evicts, about.
const BATCH_PAGES: usize = 2 * EVICT_PAGES;
/// Batches in a row that free nothing before an answer ends.
const MAX_FAILURES: u32 = 2;

/// Gives others what they ask for.
pub(super) fn answer(parts: &Parts, masked: &Masked) {
    let ask = &parts.account.process().ask;
    while let Some(wish) = ask.take() {
        if give_up(parts, masked, wish) == 0 {
            ask.refused.store(arch::ticks(), Relaxed);
        }
    }
}

/// Evicts what `wish` says, as long as it is to be had of this process. Returns how many pages.
fn give_up(parts: &Parts, masked: &Masked, wish: Wish) -> u64 {
    let (account, charge) = (parts.account, parts.account.charge());
    let mut given = 0;
    let mut failures = 0;
    while given < wish.pages && failures < MAX_FAILURES && !parts.reclaimer.presence.is_stopped() {
        let own = Member {
            used: charge.used() + charge.share().shared(),
            coldest: account.process().ask.coldest.load(Relaxed),
            // Whoever asks has looked at the `low` of its groups.
            most: u64::MAX,
        };
        let surplus = rule(account).surplus(own);
        if surplus == 0 || own.coldest >= wish.before {
            break;
        }
        let target = narrow(surplus.min(wish.pages - given)).min(BATCH_PAGES);
        let mut op = parts.op(masked);
        follow::follow_knobs(parts, &mut op);
        let before = op.reserve.pages();
        let is_less =
            reclaim::reclaim_or_write_back(parts, &mut op, Wanted::about(target), failures > 0);
        // What a family shares is free once all of it have evicted it.
        let freed = op.reserve.pages().saturating_sub(before) + op.batch.nr_shared;
        op.reserve.shrink_to(RESERVE_PAGES);
        drop(op);
        charge.give_back(0);
        failures = if is_less { 0 } else { failures + 1 };
        given += freed;
    }
    given
}
