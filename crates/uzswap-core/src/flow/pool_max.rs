//! *What*: `zswap.max`: the most that the pools of a group may take, and what is left of it.
//!
//! *Invariants*: none. *Locking*: none. *Context*: signal, worker.

use crate::page::PAGE_SHIFT;
use crate::parts::Parts;
use uzswap_sync::ledger::{Level, Levels};

/// The most pages that the pools of a node may take.
pub(super) fn pool_max(parts: &Parts, level: &Level) -> u64 {
    let node = parts.account.group().ledger.node(level.node);
    node.pool_max.load() >> PAGE_SHIFT
}

/// Pages by which the pool may grow: `u64::MAX` where no group has a `zswap.max`, `None` where one
/// is above it.
pub(super) fn pool_room(parts: &Parts) -> Option<u64> {
    let charge = parts.account.charge();
    let ledger = &parts.account.group().ledger;
    if !ledger.is_limited(charge.share().path(), |node| &node.pool_max) {
        return Some(u64::MAX);
    }
    charge.share().set_pool(parts.store.pool_pages());
    let levels = charge.levels();
    let rooms = levels.iter().flat_map(Levels::iter);
    rooms
        .map(|level| pool_max(parts, level).checked_sub(level.held.pool))
        .try_fold(u64::MAX, |least, room| Some(least.min(room?)))
}
