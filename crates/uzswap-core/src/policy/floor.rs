//! *What*: the floor of resident memory: what a process keeps uncompressed, however full its limit
//! is. Below it nearly every access to memory faults, so data that would push resident memory under
//! it count as not fitting: they go to swap or, without any, the program has too little memory.
//!
//! The floor is for what a process evicts for its own need of memory. On request, as by
//! `uzswap reclaim`, all of it may go.
//!
//! *Invariants*: none. *Locking*: none. *Context*: any.

/// The floor is 1/32 of the limit, about 3 %.
const PART: u64 = 32;
/// But 8 MiB at least: what a small program needs at once does not shrink with its limit.
const MIN_PAGES: u64 = 2048;
/// And 1/8 of the limit at most, where that is less.
const MAX_PART: u64 = 8;

/// Pages that stay resident under a limit of `limit` pages.
fn floor(limit: u64) -> u64 {
    (limit / PART).max(MIN_PAGES).min(limit / MAX_PART)
}

/// Of `resident` pages, how many may be evicted for room under a limit of `limit` pages.
pub(crate) fn evictable(resident: u64, limit: u64) -> u64 {
    resident.saturating_sub(floor(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 256;

    #[test]
    fn a_few_per_cent_stay_resident() {
        assert_eq!(floor(1024 * MIB), 32 * MIB);
        assert_eq!(floor(256 * MIB), 8 * MIB);
        assert_eq!(floor(100 * MIB), 8 * MIB, "what a program needs at once");
        assert_eq!(
            floor(8 * MIB),
            MIB,
            "the smallest limit leaves room for a pool"
        );
        assert_eq!(floor(0), 0);
    }

    #[test]
    fn what_is_above_the_floor_may_go() {
        assert_eq!(evictable(100 * MIB, 256 * MIB), 92 * MIB);
        assert_eq!(evictable(8 * MIB, 256 * MIB), 0);
        assert_eq!(evictable(0, 256 * MIB), 0);
    }
}
