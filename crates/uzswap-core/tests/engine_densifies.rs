//! Cold pages are made denser while threads read and write all of them, and across fork; afterwards
//! the pool is smaller, and every byte is what was written.

mod engine_support;

use std::sync::atomic::Ordering::Relaxed;

use engine_support::{ENGINE, RAM, check, fill, map, page};
use uzswap_core::{FaultMode, Masked, PAGE_SIZE};
use uzswap_group::knobs::ON;

const LEN: usize = 48 << 20;

#[test]
fn the_engine_tells_its_stories() {
    let Some(group) = engine_support::start(FaultMode::Signal, 4, false) else {
        return;
    };
    let counters = &group.processes[0].counters;
    let densify = || {
        Masked::block(|m| ENGINE.densify(m));
        std::thread::yield_now();
    };
    engine_support::beside(densify, || engine_support::tell_all(group));
    assert!(counters.densified_pages.load(Relaxed) > 1000);
    println!("{counters:?}");

    // And now with nobody else about, and each block decoded again before it is kept.
    group.knobs.verify_compress.store(ON, Relaxed);
    let base = map(LEN);
    for n in 0..LEN / PAGE_SIZE {
        fill(page(base, n), n as u64, 3);
    }
    Masked::block(|m| ENGINE.pageout(m, base, LEN)).unwrap();
    let pool = || counters.pool_total_size.load(Relaxed);
    let (before, saved) = (pool(), counters.densified_bytes.load(Relaxed));
    Masked::block(|m| ENGINE.densify(m));
    let (after, saved) = (pool(), counters.densified_bytes.load(Relaxed) - saved);
    println!("pool {before} bytes, {after} afterwards, {saved} saved");
    // About a quarter of it, after which it is as small as it gets.
    assert!(saved > before / 8, "{saved} of {before} saved");
    assert_eq!(counters.verify_compress_fail.load(Relaxed), 0);
    assert!(
        after < before - saved / 2,
        "{before} bytes, {after} afterwards"
    );
    let tried = counters.densified_pages.load(Relaxed) + counters.reject_densify_poor.load(Relaxed);
    let metadata = counters.metadata.load(Relaxed);
    Masked::block(|m| ENGINE.densify(m));
    let again = counters.densified_pages.load(Relaxed) + counters.reject_densify_poor.load(Relaxed);
    assert_eq!(again, tried, "what was tried is left alone");
    assert_eq!(
        counters.metadata.load(Relaxed),
        metadata,
        "its tables are gone"
    );
    for n in 0..LEN / PAGE_SIZE {
        check(page(base, n), n as u64, 3);
    }
    assert!(counters.ram_peak.load(Relaxed) <= 2 * RAM);
}
