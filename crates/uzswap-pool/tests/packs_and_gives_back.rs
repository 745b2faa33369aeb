//! Memory is not wasted: a filled pool holds little more than its objects, and
//! after most of them are gone compaction returns the memory.
#![cfg(not(any(loom, miri)))]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "test arithmetic on small numbers"
)]

mod pool_support;

use pool_support::{Random, Table, TestPool, is_intact};

const SEED: u64 = 20_260_101;
const OWNERS: u32 = 40_000;

fn fill_pool(test: &TestPool, table: &Table, random: &mut Random) -> u64 {
    let mut bytes = 0;
    for owner in 0..OWNERS {
        let size = random.compressed_size();
        test.store(&mut table.hold(owner), size, owner, 0).unwrap();
        bytes += size as u64;
    }
    bytes
}

fn waste(test: &TestPool, bytes: u64) -> f64 {
    (test.pool.total_pages() * 4096) as f64 / bytes as f64 - 1.0
}

#[test]
fn a_filled_pool_wastes_at_most_eight_percent() {
    println!("seed {SEED}");
    let test = TestPool::new(1 << 30, u64::MAX);
    let table = Table::new(OWNERS);
    let bytes = fill_pool(&test, &table, &mut Random::new(SEED));
    let waste = waste(&test, bytes);
    let mean = bytes / u64::from(OWNERS);
    println!("mean {mean} B, waste {:.2} %", waste * 100.0);
    assert!((1000..1500).contains(&mean));
    assert!(waste <= 0.08, "{waste}");
    // Owners and descriptors, by the stored page.
    let zspages: u64 = test.pool.class_stats().map(|stat| stat.nr_zspages).sum();
    let metadata = 4.0 + (zspages * 16) as f64 / f64::from(OWNERS);
    println!("metadata {metadata:.2} B a stored page");
    assert!(metadata <= 8.0, "{metadata}");
    let pages = test.pool.metadata_pages() * 4096;
    assert!(pages <= u64::from(OWNERS) * 4, "{pages} B of descriptors");
    test.assert_charged_is_resident();
}

#[test]
fn compaction_returns_what_random_frees_left_behind() {
    println!("seed {SEED}");
    let test = TestPool::new(1 << 30, u64::MAX);
    let pool = &test.pool;
    let table = Table::new(OWNERS);
    let mut random = Random::new(SEED);
    fill_pool(&test, &table, &mut random);
    let full = pool.total_pages();
    let mut left = 0;
    for owner in 0..OWNERS {
        let mut entry = table.hold(owner);
        if random.below(10) == 0 {
            left += entry.unwrap().size as u64;
            continue;
        }
        test.clear(&mut entry);
    }
    let scattered = pool.total_pages();
    let freed = pool.compact(&test.charge, u64::MAX, &mut &table);
    pool.trim(&test.charge);
    let packed = pool.total_pages();
    println!(
        "{full} pages full, {scattered} after freeing 90 %, {packed} after compaction ({freed} by it); waste {:.2} %",
        waste(&test, left) * 100.0
    );
    assert!(full - packed >= full * 80 / 100);
    assert_eq!(pool.fragmentation(), 0);
    test.assert_charged_is_resident();
    for owner in 0..OWNERS {
        if let Some(stored) = *table.hold(owner) {
            // SAFETY: stored, and nobody else uses the pool.
            assert!(unsafe { is_intact(pool.data_ptr(stored.loc), stored.size, owner, 0) });
        }
    }
}

#[test]
fn a_pool_that_breathes_stays_packed() {
    println!("seed {SEED}");
    let test = TestPool::new(1 << 30, u64::MAX);
    let table = Table::new(OWNERS);
    let mut random = Random::new(SEED);
    let mut bytes = fill_pool(&test, &table, &mut random);
    // Ten generations of random replacement, without compaction.
    for _ in 0..OWNERS * 10 {
        let owner = random.below(u64::from(OWNERS)) as u32;
        let mut entry = table.hold(owner);
        let old = test.clear(&mut entry).unwrap();
        let size = random.compressed_size();
        test.store(&mut entry, size, owner, 0).unwrap();
        bytes = bytes - old.size as u64 + size as u64;
    }
    let waste = waste(&test, bytes);
    println!("waste {:.2} %", waste * 100.0);
    assert!(waste <= 0.105, "{waste}");
    test.assert_charged_is_resident();
}
