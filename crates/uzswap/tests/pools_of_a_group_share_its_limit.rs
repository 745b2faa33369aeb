//! Pools of a group share its limit: what one does not need the others have, the coldest goes first
//! whichever pool has it, and each keeps its bytes.
#![allow(
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "test data is cut to size on purpose"
)]

use std::time::{Duration, Instant};

use uzswap::{BuildError, Candidate, LimitError, Pool, PoolGroup, Ranking, Swap};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 48 * MIB;
const PAGE: usize = 4096;

fn group(limit: u64) -> PoolGroup {
    let builder = Pool::builder().limit(limit).swap(Swap::None);
    builder.build_group().unwrap()
}

/// Fills an eighth of each page with what does not compress.
fn fill(region: &mut [u8], seed: u64) {
    fill_part(region, seed, PAGE / 8);
}

/// Fills all of each page with that.
fn noise(region: &mut [u8], seed: u64) {
    fill_part(region, seed, PAGE);
}

fn fill_part(region: &mut [u8], seed: u64, len: usize) {
    for (page, number) in region.chunks_mut(PAGE).zip(0..) {
        let mut x = (seed << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for chunk in page[..len].chunks_exact_mut(8) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            chunk.copy_from_slice(&x.to_le_bytes());
        }
        page[PAGE - 8..].copy_from_slice(&(seed ^ number).to_le_bytes());
    }
}

fn check(region: &[u8], seed: u64) {
    for (page, number) in region.chunks(PAGE).zip(0..) {
        let last = page[PAGE - 8..].try_into().unwrap();
        assert_eq!(
            u64::from_le_bytes(last),
            seed ^ number,
            "page {number} of {seed}"
        );
    }
}

#[test]
fn three_pools_stay_within_one_limit() {
    let group = group(LIMIT);
    let pools = [0, 1, 2].map(|_| group.pool().build().unwrap());
    let mut regions = pools.each_ref().map(|pool| pool.map(24 << 20).unwrap());
    std::thread::scope(|scope| {
        for (region, seed) in regions.iter_mut().zip(1..) {
            let group = &group;
            scope.spawn(move || {
                for round in 0..3 {
                    fill(region, seed + round);
                    assert!(group.used() <= LIMIT, "{group:?}");
                    check(region, seed + round);
                }
            });
        }
    });
    assert!(group.used() <= LIMIT, "{group:?}");
    for (region, seed) in regions.iter().zip(1..) {
        check(region, seed + 2);
    }
    let each = pools.each_ref().map(|pool| pool.stats());
    let sum: u64 = each.iter().map(|stats| stats.used).sum();
    assert_eq!(sum, group.used(), "{each:?}");
    assert!(
        each.iter()
            .all(|stats| stats.limit == LIMIT && stats.mapped == 24 * MIB)
    );
}

#[test]
fn an_idle_pool_makes_room_for_a_busy_one() {
    let group = group(LIMIT);
    let (idle, busy) = (group.pool().build().unwrap(), group.pool().build().unwrap());
    let mut kept = idle.map(24 << 20).unwrap();
    fill(&mut kept, 1);
    let before = idle.stats().resident;
    assert!(before > 20 * MIB, "it fits");
    let mut region = busy.map(36 << 20).unwrap();
    fill(&mut region, 2);
    let began = Instant::now();
    while idle.stats().resident > before / 2 {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{:?}",
            idle.stats()
        );
        check(&region, 2);
    }
    assert!(busy.stats().resident > 28 * MIB, "{:?}", busy.stats());
    assert!(group.used() <= LIMIT);
    check(&kept, 1);
}

#[test]
fn a_pool_may_have_a_limit_of_its_own() {
    let group = group(LIMIT);
    let (small, large) = (group.pool().limit(12 * MIB), group.pool());
    let (small, large) = (small.build().unwrap(), large.build().unwrap());
    assert_eq!((small.limit(), large.limit()), (12 * MIB, LIMIT));
    let (mut a, mut b) = (small.map(24 << 20).unwrap(), large.map(24 << 20).unwrap());
    fill(&mut a, 1);
    fill(&mut b, 2);
    assert!(small.stats().used <= 12 * MIB, "{:?}", small.stats());
    assert!(large.stats().resident > 20 * MIB, "{:?}", large.stats());
    large.set_limit(20 * MIB).unwrap();
    assert!(large.stats().used <= 20 * MIB, "{:?}", large.stats());
    check(&b, 2);
    small.set_limit(2 * LIMIT).unwrap();
    assert_eq!(small.limit(), LIMIT, "the group's is less");
    check(&a, 1);
    let error = group.pool().limit(MIB).build().unwrap_err();
    assert!(matches!(error, BuildError::LimitTooLow { .. }), "{error}");
}

#[test]
fn the_limit_of_all_can_be_lowered() {
    let group = group(LIMIT);
    let pools = [0, 1].map(|_| group.pool().build().unwrap());
    let mut regions = pools.each_ref().map(|pool| pool.map(18 << 20).unwrap());
    fill(&mut regions[0], 1);
    fill(&mut regions[1], 2);
    assert!(group.used() > 36 * MIB, "{group:?}");
    group.set_limit(32 * MIB).unwrap();
    assert!(group.used() <= 32 * MIB, "{group:?}");
    let pinned = pools[0].pin(&regions[0]).unwrap();
    let error = group.set_limit(14 * MIB).unwrap_err();
    assert!(matches!(error, LimitError::DoesNotFit { .. }), "{error}");
    assert_eq!(group.limit(), 32 * MIB, "as before");
    drop(pinned);
    check(&regions[0], 1);
    check(&regions[1], 2);
    assert!(group.used() <= 32 * MIB, "{group:?}");
}

#[test]
fn pools_come_and_go_and_leave_nothing() {
    let group = Pool::builder().limit(LIMIT).build_group().unwrap();
    let lasting = group.pool().build().unwrap();
    let mut kept = lasting.map(40 << 20).unwrap();
    fill(&mut kept, 1);
    let alone = group.used();
    for round in 0..100 {
        let pool = group.pool().build().unwrap();
        let mut region = pool.map(40 << 20).unwrap();
        if round % 20 == 0 {
            fill(&mut region, 2);
            check(&region, 2);
        }
    }
    assert!(group.used() <= alone, "{group:?}");
    check(&kept, 1);
    drop((kept, lasting));
    assert_eq!(group.used(), 0);
}

/// Ten rounds write more than the swap file has room for.
#[test]
fn a_pool_that_ends_gives_its_swap_slots_back() {
    let scratch = std::env::temp_dir().join(format!("uzswap-group.{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    let group = Pool::builder()
        .limit(LIMIT)
        .swap(Swap::Dir(scratch.clone()))
        .swap_max(160 * MIB)
        .build_group()
        .unwrap();
    std::fs::remove_dir(&scratch).unwrap();
    let lasting = group.pool().build().unwrap();
    let mut kept = lasting.map(40 << 20).unwrap();
    noise(&mut kept, 1);
    for round in 0..10 {
        let pool = group.pool().build().unwrap();
        // Left behind: nobody unmaps it.
        let (addr, len) = pool.map_raw(64 << 20).unwrap();
        // SAFETY: mapped just now, for nobody else.
        let region = unsafe { std::slice::from_raw_parts_mut(addr as *mut u8, len) };
        noise(region, round);
        check(region, round);
        assert!(pool.stats().swapped > 16 * MIB, "{:?}", pool.stats());
    }
    check(&kept, 1);
}

#[test]
fn a_fork_child_has_the_pools_and_adds_none() {
    let group = group(LIMIT);
    let pools = [0, 1].map(|_| group.pool().build().unwrap());
    let mut regions = pools.each_ref().map(|pool| pool.map(20 << 20).unwrap());
    fill(&mut regions[0], 1);
    fill(&mut regions[1], 2);
    // SAFETY: the child calls the library, as a child of a process with several threads may, and
    // ends without the test's handlers.
    match unsafe { libc::fork() } {
        -1 => panic!("{}", std::io::Error::last_os_error()),
        0 => {
            check(&regions[0], 1);
            fill(&mut regions[1], 3);
            check(&regions[1], 3);
            let is_refused = matches!(group.pool().build(), Err(BuildError::GroupOfParent))
                && group.set_limit(LIMIT) == Err(LimitError::GroupOfParent);
            // SAFETY: no destructors are wanted.
            unsafe { libc::_exit(i32::from(!is_refused)) };
        }
        child => {
            let mut status = 0;
            // SAFETY: the status is writable for the call.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
    check(&regions[0], 1);
    check(&regions[1], 2);
}

/// What lies below an address stays as long as anything else can go.
struct Keep {
    below: usize,
}

// SAFETY: it compares numbers.
unsafe impl Ranking for Keep {
    fn rank(&self, folio: &Candidate) -> u64 {
        u64::from(folio.addr < self.below)
    }
}

/// By age alone all of it would go each time: a cycle longer than what fits.
#[test]
fn a_ranking_keeps_what_the_host_needs() {
    let refaults = |below: usize| {
        let pool = Pool::builder().limit(24 * MIB).swap(Swap::None);
        let pool = pool.background_reclaim(false).ranking(Keep { below });
        let pool = pool.build().unwrap();
        // The first of a pool lies at its beginning.
        let mut index = pool.map(8 << 20).unwrap();
        fill(&mut index, 1);
        let mut table = pool.map(32 << 20).unwrap();
        fill(&mut table, 2);
        let at = index.as_ptr() as usize;
        let mut refaults = 0;
        for _ in 0..5 {
            check(&table, 2);
            let before = pool.stats().refaults;
            check(&index, 1);
            refaults += pool.stats().refaults - before;
        }
        (at, refaults)
    };
    let (at, by_age) = refaults(0);
    let (_, by_rank) = refaults(at + (8 << 20));
    println!("the index refaults {by_age} times by age, {by_rank} times if it is kept");
    assert!(by_age > 100 && by_rank < 80, "{by_rank} against {by_age}");
}
