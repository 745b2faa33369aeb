//! Pools hold more than their limit of RAM, every byte as it was written, beside each other and one
//! after the other.
#![allow(
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "test data is cut to size on purpose"
)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use allocator_api2::alloc::{Allocator, Layout};
use allocator_api2::vec::Vec as PoolVec;
use uzswap::{BuildError, FaultMode, LimitError, Pool, PoolError};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 16 * MIB;
const PAGE: usize = 4096;

fn pool() -> Pool {
    Pool::builder().limit(LIMIT).build().unwrap()
}

/// Text that compresses about as real data does, different in each page.
fn fill(page: &mut [u8], number: u64) {
    let mut x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for (at, chunk) in page.chunks_exact_mut(8).enumerate() {
        if at % 16 == 0 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        let word = if at % 16 == 0 {
            x
        } else {
            number + (at as u64 & 7)
        };
        chunk.copy_from_slice(&word.to_le_bytes());
    }
}

fn check(page: &[u8], number: u64) {
    let mut expected = [0; PAGE];
    fill(&mut expected, number);
    assert!(*page == expected, "page {number} is wrong");
}

#[test]
fn four_times_the_limit_stays_within_it() {
    let pool = pool();
    let mut region = pool.map(4 * LIMIT as usize).unwrap();
    assert!(region.iter().step_by(PAGE * 64).all(|byte| *byte == 0));
    for (page, number) in region.chunks_mut(PAGE).zip(0..) {
        fill(page, number);
    }
    for (page, number) in region.chunks(PAGE).zip(0..) {
        check(page, number);
    }
    let stats = pool.stats();
    println!("{stats}");
    assert!(stats.peak <= LIMIT, "{stats:?}");
    assert_eq!(stats.mapped, 4 * LIMIT);
    assert!(stats.stored >= 3 * LIMIT, "{stats:?}");
    assert!(stats.compression_ratio() > 2.0);
}

#[test]
fn threads_share_a_pool() {
    let pool = pool();
    let mut region = pool.map(3 * LIMIT as usize).unwrap();
    let stamps: Vec<AtomicU64> = region.chunks(PAGE).map(|_| AtomicU64::new(0)).collect();
    let part = region.len() / 4;
    std::thread::scope(|scope| {
        for (pages, stamps) in region.chunks_mut(part).zip(stamps.chunks(part / PAGE)) {
            scope.spawn(move || {
                let mut x = stamps.as_ptr() as u64 | 1;
                for _ in 0..20_000 {
                    x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let n = (x >> 33) as usize % stamps.len();
                    let page = &mut pages[n * PAGE..][..PAGE];
                    match stamps[n].load(Relaxed) {
                        0 => assert!(page.iter().all(|byte| *byte == 0)),
                        stamp => check(page, stamp),
                    }
                    fill(page, x >> 1 | 1);
                    stamps[n].store(x >> 1 | 1, Relaxed);
                }
            });
        }
    });
}

/// Random histories of allocations, against a plain model. `UZSWAP_SEED` repeats one.
#[test]
fn random_allocations_agree_with_a_model() {
    let seed = std::env::var("UZSWAP_SEED").map_or_else(
        |_| u64::from(std::process::id()),
        |seed| seed.parse().expect("UZSWAP_SEED is a number"),
    );
    println!("UZSWAP_SEED={seed}");
    let pool = Pool::builder().limit(8 * MIB).build().unwrap();
    let mut x = seed * 2 + 1;
    let mut random = move |below: usize| {
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as usize % below
    };
    let mut model: BTreeMap<usize, (Layout, u8)> = BTreeMap::new();
    let mut total = 0;
    let bytes = |at: usize, len: usize| {
        // SAFETY: a block that this test has allocated.
        unsafe { std::slice::from_raw_parts_mut(at as *mut u8, len) }
    };
    for step in 0..60_000_usize {
        let stamp = u8::try_from(step % 251 + 1).unwrap();
        let pick = random(model.len().max(1));
        let nth = model.iter().nth(pick).map(|(at, block)| (*at, *block));
        let sizes = [64, 600, 5000, 40_000, 300_000];
        let up_to = sizes[random(sizes.len())];
        let size = 1 + random(up_to);
        match (random(8), nth) {
            (0..=3, _) if total < 24 << 20 => {
                let layout = Layout::from_size_align(size, 1 << random(13)).unwrap();
                let zeroed = random(2) == 0;
                let block = match zeroed {
                    true => pool.allocate_zeroed(layout),
                    false => pool.allocate(layout),
                };
                let at = block.unwrap().cast::<u8>().as_ptr() as usize;
                assert!(at.is_multiple_of(layout.align()), "{at:#x} for {layout:?}");
                let next = model.range(at..).next();
                assert!(
                    next.is_none_or(|(next, _)| at + size <= *next),
                    "it overlaps the next"
                );
                let before = model.range(..at).next_back();
                assert!(before.is_none_or(|(before, (l, _))| before + l.size() <= at));
                assert!(!zeroed || bytes(at, size).iter().all(|byte| *byte == 0));
                bytes(at, size).fill(stamp);
                model.insert(at, (layout, stamp));
                total += size;
            }
            (4..=5, Some((at, (layout, old)))) => {
                assert!(
                    bytes(at, layout.size()).iter().all(|byte| *byte == old),
                    "at {step}"
                );
                let new = Layout::from_size_align(size, layout.align()).unwrap();
                let pointer = std::ptr::NonNull::new(at as *mut u8).unwrap();
                // SAFETY: a block of this test's, with its layout.
                let moved = unsafe {
                    if size >= layout.size() {
                        pool.grow_zeroed(pointer, layout, new)
                    } else {
                        pool.shrink(pointer, layout, new)
                    }
                };
                let to = moved.unwrap().cast::<u8>().as_ptr() as usize;
                let kept = layout.size().min(size);
                assert!(bytes(to, kept).iter().all(|byte| *byte == old));
                assert!(bytes(to, size)[kept..].iter().all(|byte| *byte == 0));
                bytes(to, size).fill(stamp);
                model.remove(&at);
                model.insert(to, (new, stamp));
                total = total + size - layout.size();
            }
            (_, Some((at, (layout, old)))) => {
                assert!(
                    bytes(at, layout.size()).iter().all(|byte| *byte == old),
                    "at {step}"
                );
                let pointer = std::ptr::NonNull::new(at as *mut u8).unwrap();
                // SAFETY: as above.
                unsafe { pool.deallocate(pointer, layout) };
                model.remove(&at);
                total -= layout.size();
            }
            _ => {}
        }
    }
    for (at, (layout, stamp)) in model {
        assert!(bytes(at, layout.size()).iter().all(|byte| *byte == stamp));
        let pointer = std::ptr::NonNull::new(at as *mut u8).unwrap();
        // SAFETY: as above.
        unsafe { pool.deallocate(pointer, layout) };
    }
    let stats = pool.stats();
    assert!(stats.peak <= 8 * MIB && stats.evicted > 0, "{stats:?}");
    // Each list keeps one span, and of that little.
    assert!(stats.used < 4 * MIB, "{stats:?}");
}

#[test]
fn collections_live_in_pools() {
    let pool = pool();
    let mut map =
        hashbrown::HashMap::<u64, PoolVec<u8, &Pool>, hashbrown::DefaultHashBuilder, &Pool>::new_in(
            &pool,
        );
    for key in 0..20_000 {
        let mut value = PoolVec::new_in(&pool);
        value.resize(1000 + key as usize % 3000, u8::try_from(key % 256).unwrap());
        map.insert(key, value);
    }
    for key in (0..20_000).step_by(7) {
        let value = &map[&key];
        assert_eq!(value.len(), 1000 + key as usize % 3000);
        assert!(value.iter().all(|byte| u64::from(*byte) == key % 256));
    }
    assert!(pool.contains(map[&3].as_ptr()));
    assert!(!pool.contains(&raw const map));
    let stats = pool.stats();
    assert!(stats.mapped > 2 * LIMIT && stats.peak <= LIMIT, "{stats:?}");
}

#[test]
fn pools_come_and_go_and_give_all_back() {
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
        pages * PAGE as u64
    };
    let mappings = || {
        std::fs::read_to_string("/proc/self/maps")
            .unwrap()
            .lines()
            .count()
    };
    let mut before = None;
    for round in 0..40 {
        let pool = Pool::builder().limit(LIMIT).build().unwrap();
        let mut region = pool.map(2 * LIMIT as usize).unwrap();
        for (page, number) in region.chunks_mut(PAGE).zip(0..) {
            fill(page, number + round);
        }
        let kept = pool.clone();
        drop(pool);
        check(&region[..PAGE], round);
        drop(region);
        assert!(kept.stats().used < LIMIT / 2, "{:?}", kept.stats());
        drop(kept);
        if round == 9 {
            before = Some((resident(), mappings()));
        }
    }
    let (bytes, lines) = before.unwrap();
    // Other tests run beside this one.
    println!(
        "{bytes} bytes resident after 10 rounds, {} after 40",
        resident()
    );
    println!("{lines} mappings after 10 rounds, {} after 40", mappings());
    assert!(mappings() < lines + 400, "each pool has about 60 mappings");
}

#[test]
fn limits_are_refused_and_changed() {
    let too_low = Pool::builder().limit(MIB).build().unwrap_err();
    assert!(
        matches!(too_low, BuildError::LimitTooLow { limit: MIB, .. }),
        "{too_low}"
    );
    let unknown = Pool::builder().compressor("gzip").build().unwrap_err();
    assert!(unknown.to_string().contains("'gzip'"), "{unknown}");
    let pool = Pool::builder().limit(4 * LIMIT).build().unwrap();
    let mut region = pool.map(3 * LIMIT as usize).unwrap();
    for (page, number) in region.chunks_mut(PAGE).zip(0..) {
        fill(page, number);
    }
    assert!(pool.stats().used > 2 * LIMIT);
    pool.set_limit(LIMIT).unwrap();
    let stats = pool.stats();
    assert!(stats.used <= LIMIT && stats.limit == LIMIT, "{stats:?}");
    for (page, number) in region.chunks(PAGE).zip(0..) {
        check(page, number);
    }
    assert!(pool.stats().used <= LIMIT);
    let low = pool.set_limit(MIB).unwrap_err();
    assert!(matches!(low, LimitError::TooLow { .. }), "{low}");
    let pinned = pool.pin(&region[..LIMIT as usize / 2]).unwrap();
    let does_not_fit = pool.set_limit(8 * MIB).unwrap_err();
    assert!(
        matches!(does_not_fit, LimitError::DoesNotFit { .. }),
        "{does_not_fit}"
    );
    assert_eq!(pool.limit(), LIMIT, "as before");
    drop(pinned);
    pool.set_limit(2 * LIMIT).unwrap();
    assert_eq!(pool.limit(), 2 * LIMIT);
    let resident = pool.stats().resident;
    let evicted = pool.reclaim(4 * MIB);
    assert!(evicted >= 4 * MIB, "{evicted}");
    assert!(pool.stats().resident < resident, "{resident} before");
}

#[test]
fn hints_do_what_they_say() {
    let pool = pool();
    let mut region = pool.map(4 << 20).unwrap();
    for (page, number) in region.chunks_mut(PAGE).zip(0..) {
        fill(page, number);
    }
    let resident = || pool.stats().resident;
    let all = resident();
    pool.evict(&region[..2 << 20]).unwrap();
    assert!(resident() <= all - (2 << 20), "{} of {all}", resident());
    pool.prefetch(&region[..1 << 20]).unwrap();
    assert!(resident() >= all - (1 << 20));
    pool.cold(&region).unwrap();
    let pinned = pool.pin(&region[..PAGE]).unwrap();
    assert_eq!(pinned.len(), PAGE);
    pool.evict(&region).unwrap();
    assert!(resident() >= PAGE as u64);
    drop(pinned);
    check(&region[..PAGE], 0);
    let foreign = [0_u8; 64];
    assert_eq!(pool.pin(&foreign).unwrap_err(), PoolError::NotOurs);
    assert_eq!(pool.evict(&foreign).unwrap_err(), PoolError::NotOurs);
}

#[test]
fn what_does_not_fit_is_refused_with_its_figures() {
    let pool = Pool::builder()
        .limit(LIMIT)
        .max_size(64 * MIB)
        .build()
        .unwrap();
    let region = pool.map(60 << 20).unwrap();
    let refused = pool.map(8 << 20).unwrap_err();
    assert_eq!(
        refused,
        PoolError::TooLarge {
            wanted: 8 * MIB,
            used: 60 * MIB,
            most: 64 * MIB
        },
    );
    assert!(
        pool.allocate(Layout::from_size_align(8 << 20, 16).unwrap())
            .is_err()
    );
    drop(region);
    pool.map(8 << 20).unwrap();
    let no_space = pool.map(usize::MAX / 2).unwrap_err();
    assert!(matches!(no_space, PoolError::TooLarge { .. }), "{no_space}");
    let whole = Pool::builder().limit(LIMIT).build().unwrap();
    let no_space = whole.map(1 << 40).unwrap_err();
    assert!(matches!(no_space, PoolError::NoSpace { .. }), "{no_space}");
    let pinned = whole.map(32 << 20).unwrap();
    let over = whole.pin(&pinned).unwrap_err();
    assert!(matches!(over, PoolError::OverLimit { .. }), "{over}");
}

#[test]
fn every_fault_mode_serves() {
    for mode in [FaultMode::Signal, FaultMode::Thread, FaultMode::Segv] {
        let built = Pool::builder().limit(LIMIT).fault_mode(mode).build();
        let pool = match built {
            Ok(pool) => pool,
            Err(error @ BuildError::Start { .. }) => {
                println!("skipped: {mode:?} is not granted here: {error}");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(pool.fault_mode(), mode);
        let mut region = pool.map(2 * LIMIT as usize).unwrap();
        for (page, number) in region.chunks_mut(PAGE).zip(0..) {
            fill(page, number);
        }
        for (page, number) in region.chunks(PAGE).zip(0..) {
            check(page, number);
        }
        assert!(pool.stats().peak <= LIMIT, "{mode:?}: {:?}", pool.stats());
    }
}
