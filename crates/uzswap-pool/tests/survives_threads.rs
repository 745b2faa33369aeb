//! Threads store, load, replace, compact and trim at once under a tight limit;
//! every load checks every byte, and at the end nothing is left over.
#![cfg(not(loom))]
#![allow(
    clippy::cast_possible_truncation,
    reason = "test arithmetic on small numbers"
)]

mod pool_support;

use pool_support::{Random, Stored, Table, TestPool, fill, is_intact};
use std::sync::atomic::{AtomicU64, Ordering};
use uzswap_pool::PoolError;
use uzswap_sync::charge::Reserve;

const OWNERS: u32 = if cfg!(miri) { 12 } else { 2000 };
const STEPS: u32 = if cfg!(miri) { 40 } else { 60_000 };
const DATA_LEN: usize = if cfg!(miri) { 4 << 20 } else { 32 << 20 };
/// Less than the objects need, so that stores fail and memory moves between
/// windows.
const LIMIT: u64 = if cfg!(miri) { 30 } else { 400 };

fn stress(threads: u32, seed: u64) {
    println!("{threads} threads, seed {seed}");
    let test = &TestPool::new(DATA_LEN, LIMIT);
    let table = &Table::new(OWNERS);
    let (pool, charge) = (&test.pool, &test.charge);
    let moved = &AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut random = Random::new(seed * 1000 + u64::from(thread) + 1);
                for step in 0..STEPS {
                    assert!(charge.used() <= LIMIT);
                    let owner = random.below(u64::from(OWNERS)) as u32;
                    match random.below(200) {
                        0 => {
                            moved.fetch_add(
                                pool.compact(charge, 1 + random.below(20), &mut &*table),
                                Ordering::Relaxed,
                            );
                        }
                        1 => {
                            pool.trim(charge);
                        }
                        2..120 => store(test, table, owner, step, &mut random),
                        _ => load(test, table, owner, random.below(2) == 0),
                    }
                }
            });
        }
    });
    assert!(charge.peak() <= LIMIT);
    test.assert_charged_is_resident();
    let mut left = 0;
    for owner in 0..OWNERS {
        left += u64::from(table.hold(owner).is_some());
    }
    assert_eq!(pool.nr_objects(), left);
    println!(
        "{left} objects left, {} pages compacted away",
        moved.load(Ordering::Relaxed)
    );
    for owner in 0..OWNERS {
        load(test, table, owner, true);
    }
    pool.trim(charge);
    assert_eq!(pool.total_pages(), pool.metadata_pages());
    test.assert_charged_is_resident();
}

fn store(test: &TestPool, table: &Table, owner: u32, version: u32, random: &mut Random) {
    let size = random.compressed_size();
    let mut entry = table.hold(owner);
    test.clear(&mut entry);
    let mut reserve = Reserve::empty(&test.charge);
    let _ = reserve.grow(random.below(12));
    match test.pool.alloc(size, owner, &mut reserve) {
        Ok(loc) => {
            // Not published yet: compaction may look at it, and must let it be.
            // SAFETY: `size` bytes at `loc` are this object's.
            unsafe { fill(test.pool.data_ptr(loc), size, owner, version) };
            *entry = Some(Stored { loc, size, version });
        }
        Err(PoolError::NoRoom { .. }) => {}
        Err(error) => panic!("{error:?}"),
    }
}

fn load(test: &TestPool, table: &Table, owner: u32, drop: bool) {
    let mut entry = table.hold(owner);
    let Some(stored) = *entry else { return };
    let data = test.pool.data_ptr(stored.loc);
    // SAFETY: the entry is held, so the object neither moves nor goes; freed, its
    // entry is empty.
    unsafe {
        assert_eq!(test.pool.owner(stored.loc), owner);
        assert!(
            is_intact(data, stored.size, owner, stored.version),
            "{stored:?}"
        );
        if drop {
            *entry = None;
            test.pool.free(stored.loc, &test.charge);
        }
    }
}

#[test]
fn two_threads_at_the_limit() {
    for seed in 1..=if cfg!(miri) { 2 } else { 6 } {
        stress(2, seed);
    }
}

#[test]
#[cfg_attr(miri, ignore = "two threads show Miri what eight would")]
fn eight_threads_at_the_limit() {
    for seed in 11..=14 {
        stress(8, seed);
    }
}
