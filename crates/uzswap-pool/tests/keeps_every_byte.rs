//! Whatever is stored comes back byte by byte, after any sequence of allocations,
//! frees, compactions and trims, compared with a plain map; and what the pool
//! charged is what the kernel made resident.
#![cfg(not(loom))]
#![allow(
    clippy::cast_possible_truncation,
    reason = "test arithmetic on small numbers"
)]

mod pool_support;

use pool_support::{Random, Table, TestPool, fill, is_intact};
use uzswap_pool::{Loc, PoolError, Relocate};
use uzswap_sync::charge::Reserve;
use uzswap_sync::primitive::Ordering::Relaxed;

#[derive(Clone, Copy, Debug)]
enum Op {
    Store {
        owner: u32,
        size: usize,
    },
    Drop {
        owner: u32,
    },
    Compact {
        max_pages: u64,
    },
    Trim,
    Limit {
        pages: u64,
    },
    /// A child begins with all that there is.
    Fork,
    /// All children end.
    Alone,
}

/// With one thread every object that compaction finds is published and free to
/// move: a refusal would mean that it mistook a free slot for an object.
struct Alone<'a>(&'a Table);

impl<'a> Relocate for Alone<'a> {
    type Held = <&'a Table as Relocate>::Held;

    fn try_hold(&mut self, owner: u32, old: Loc) -> Option<Self::Held> {
        Some(self.0.try_hold(owner, old).expect("not an object"))
    }

    fn publish(&mut self, held: Self::Held, new: Loc) {
        self.0.publish(held, new);
    }
}

const OWNERS: u32 = if cfg!(miri) { 24 } else { 600 };
const DATA_LEN: usize = if cfg!(miri) { 1 << 20 } else { 32 << 20 };

fn run(ops: &[Op]) {
    let test = TestPool::new(DATA_LEN, 400);
    let (pool, charge) = (&test.pool, &test.charge);
    let table = Table::new(OWNERS);
    let mut at_fork = Vec::new();
    for (version, &op) in ops.iter().enumerate() {
        let version = version as u32;
        match op {
            Op::Store { owner, size } => {
                let mut entry = table.hold(owner);
                test.clear(&mut entry);
                match test.store(&mut entry, size, owner, version) {
                    Ok(()) => {}
                    Err(PoolError::NoRoom { pages_needed }) => {
                        assert!(charge.room() < pages_needed, "{op:?}");
                    }
                    Err(error) => panic!("{op:?}: {error:?}"),
                }
            }
            Op::Drop { owner } => {
                test.clear(&mut table.hold(owner));
            }
            Op::Compact { max_pages } => {
                let before = charge.used();
                let freed = pool.compact(charge, max_pages, &mut Alone(&table));
                assert_eq!(before - charge.used(), freed);
                if max_pages > 400 {
                    assert_eq!(pool.fragmentation(), 0);
                }
            }
            Op::Trim => {
                pool.trim(charge);
                assert_eq!(pool.idle_pages(), 0);
            }
            Op::Limit { pages } => test.limit.store(pages << 12, Relaxed),
            Op::Fork => {
                test.fork();
                at_fork = test.pages();
            }
            Op::Alone => {
                test.end_child();
                pool.own_shared(charge, &mut &table);
                let huge = table.count(|stored| stored.size > 3000);
                assert!(pool.shared_pages() <= huge, "with nobody else");
                at_fork = test.pages();
            }
        }
        if ops.len() < 40 || version.is_multiple_of(61) {
            check(&test, &table);
            let now = test.pages();
            let kept = at_fork
                .iter()
                .filter(|page| now.binary_search(page).is_ok());
            assert!(
                kept.count() as u64 >= pool.shared_pages(),
                "a shared page was written to"
            );
        }
    }
    check(&test, &table);
    for owner in 0..OWNERS {
        test.clear(&mut table.hold(owner));
    }
    pool.trim(charge);
    assert_eq!((pool.nr_objects(), pool.shared_pages()), (0, 0));
    assert_eq!(pool.total_pages(), pool.metadata_pages());
    test.assert_charged_is_resident();
}

fn check(test: &TestPool, table: &Table) {
    let pool = &test.pool;
    let mut ranges = Vec::new();
    for owner in 0..OWNERS {
        let Some(stored) = *table.hold(owner) else {
            continue;
        };
        let data = pool.data_ptr(stored.loc);
        // SAFETY: the object is stored and nobody else uses the pool.
        unsafe {
            assert_eq!(pool.owner(stored.loc), owner);
            assert!(
                is_intact(data, stored.size, owner, stored.version),
                "{stored:?}"
            );
        }
        ranges.push((data.addr(), data.addr() + stored.size));
    }
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "objects overlap: {pair:x?}");
    }
    if pool.shared_pages() == 0 {
        assert_eq!(pool.nr_objects(), ranges.len() as u64);
    }
    let zspages: u64 = pool
        .class_stats()
        .map(|stat| {
            assert!(stat.nr_objects <= stat.nr_zspages * u64::from(stat.objects_per_zspage));
            stat.nr_zspages * u64::from(stat.chain)
        })
        .sum();
    assert_eq!(
        pool.total_pages(),
        zspages + pool.shared_pages() + pool.idle_pages() + pool.metadata_pages()
    );
    test.assert_charged_is_resident();
}

fn random_op(random: &mut Random) -> Op {
    let owner = random.below(u64::from(OWNERS)) as u32;
    match random.below(100) {
        0..60 => Op::Store {
            owner,
            size: match random.below(10) {
                0 => 1 + random.below(64) as usize,
                1 => 4096 - random.below(600) as usize,
                _ => random.compressed_size(),
            },
        },
        60..94 => Op::Drop { owner },
        94..97 => Op::Compact {
            max_pages: if random.below(2) == 0 { u64::MAX } else { 3 },
        },
        97 => Op::Trim,
        98 if random.below(4) == 0 => Op::Fork,
        98 => Op::Alone,
        _ => Op::Limit {
            pages: 20 + random.below(400),
        },
    }
}

#[test]
fn long_random_histories_agree_with_a_map() {
    let (seeds, len) = if cfg!(miri) { (2, 30) } else { (40, 4000) };
    for seed in 1..=seeds {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let ops: Vec<Op> = (0..len).map(|_| random_op(&mut random)).collect();
        run(&ops);
    }
}

#[test]
fn every_size_comes_back() {
    let test = TestPool::new(DATA_LEN, u64::MAX);
    let pool = &test.pool;
    let step = if cfg!(miri) { 499 } else { 1 };
    let mut stored = Vec::new();
    for size in (1..=4096).step_by(step) {
        let owner = size as u32;
        let loc = test.alloc(size, owner).unwrap();
        // SAFETY: `size` bytes at `loc` are this object's.
        unsafe { fill(pool.data_ptr(loc), size, owner, 7) };
        stored.push((loc, size));
    }
    for &(loc, size) in &stored {
        // SAFETY: stored above and not freed.
        unsafe {
            assert!(
                is_intact(pool.data_ptr(loc), size, size as u32, 7),
                "{size}"
            );
            assert_eq!(pool.owner(loc), size as u32);
            pool.free(loc, &test.charge);
        }
    }
    assert_eq!(test.alloc(0, 1), Err(PoolError::BadSize { size: 0 }));
    assert_eq!(test.alloc(4097, 1), Err(PoolError::BadSize { size: 4097 }));
    pool.trim(&test.charge);
    test.assert_charged_is_resident();
}

#[test]
fn a_reserve_is_enough_when_the_limit_is_reached() {
    let test = TestPool::new(DATA_LEN, 64);
    let (pool, charge) = (&test.pool, &test.charge);
    let mut reserve = Reserve::charged(charge, 10).unwrap();
    // Something else of the process takes the rest.
    charge.charge_unchecked(charge.room() + 5);
    assert!(matches!(test.alloc(1000, 1), Err(PoolError::NoRoom { .. })));
    let loc = pool.alloc(1000, 1, &mut reserve).unwrap();
    assert_eq!(reserve.pages() + pool.total_pages(), 10);
    // The next one of the same class needs none of it.
    let left = reserve.pages();
    let next = pool.alloc(1000, 2, &mut reserve).unwrap();
    assert_eq!(reserve.pages(), left);
    // A class that has no zspage, and a reserve too small for one: the object
    // goes where a larger one would.
    reserve.shrink_to(0);
    charge.charge_unchecked(charge.room());
    let small = pool.alloc(700, 3, &mut reserve).unwrap();
    assert_eq!(reserve.pages(), 0);
    let used = charge.used();
    for loc in [loc, next, small] {
        // SAFETY: allocated above, freed once.
        unsafe { pool.free(loc, charge) };
    }
    // The cache of empty zspages of one length serves another length.
    assert!(pool.idle_pages() > 0);
    assert_eq!(charge.used(), used);
    let huge = pool.alloc(4096, 4, &mut reserve).unwrap();
    assert!(charge.used() <= used);
    // SAFETY: allocated above, freed once.
    unsafe { pool.free(huge, charge) };
}
