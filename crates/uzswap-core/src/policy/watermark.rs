//! *What*: the watermarks of room below the limit. Below `low` the reclaimer wakes, at `high` it
//! sleeps again; at zero whoever needs memory reclaims for itself.
//!
//! *Invariants*: none. *Locking*: none. *Context*: any.

/// Pages of room below which the reclaimer wakes.
pub(crate) const fn low(limit: u64) -> u64 {
    limit / 64
}

/// Pages of room at which it sleeps.
pub(crate) const fn high(limit: u64) -> u64 {
    low(limit) * 2
}
