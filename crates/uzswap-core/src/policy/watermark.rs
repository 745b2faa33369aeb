//! *What*: the watermarks of room below the limit. Below `low` the reclaimer wakes, at `high` it
//! sleeps again; at zero whoever needs memory reclaims for itself.
//!
//! *Invariants*: none. *Locking*: none. *Context*: any.

/// Bounds of [`low`]: what a program fills while the reclaimer wakes up, and 16 MiB, which is
/// enough for any.
const MIN_PAGES: u64 = 32;
const MAX_PAGES: u64 = 4096;

/// Pages of room below which the reclaimer wakes.
pub(crate) fn low(limit: u64) -> u64 {
    (limit / 256).clamp(MIN_PAGES, MAX_PAGES)
}

/// Pages of room at which it sleeps.
pub(crate) fn high(limit: u64) -> u64 {
    low(limit) * 2
}
