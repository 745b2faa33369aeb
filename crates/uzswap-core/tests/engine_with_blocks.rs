//! The engine on the real kernel, with 16 pages compressed as one wherever they are evicted
//! together: threads work on four times the memory that the limit allows, and every byte is what
//! they wrote.

mod engine_support;

use std::sync::atomic::Ordering::Relaxed;

use engine_support::{ENGINE, check, fill, map, page};
use uzswap_core::{FaultMode, Masked, PAGE_SIZE};
use uzswap_group::group::Group;

#[test]
fn the_engine_tells_its_stories() {
    if let Some(group) = engine_support::start(FaultMode::Signal, 4, false) {
        group.knobs.block.store(4, Relaxed);
        pages_leave_their_block_until_half_is_left(group);
        no_block_is_made_within_another(group);
        engine_support::tell_all(group);
        println!("{:?}", group.processes[0].counters);
    }
}

/// Page by page, no two of them neighbours; each is changed, and evicted again with others of the
/// block still out.
fn pages_leave_their_block_until_half_is_left(group: &Group) {
    const NR: usize = 32;
    const LEN: usize = NR * PAGE_SIZE;
    let in_blocks = || group.processes[0].counters.block_pages.load(Relaxed);
    let before = in_blocks();
    let left = || usize::try_from(in_blocks() - before).unwrap();
    let out = |base| Masked::block(|m| ENGINE.pageout(m, base, LEN)).unwrap();
    let base = map(LEN);
    let mut stamps = [1; NR];
    for n in 0..NR {
        fill(page(base, n), n as u64, 1);
    }
    out(base);
    assert_eq!(left(), NR, "all are in blocks");
    for (nr, n) in [4, 14, 0, 8, 2, 12, 6, 10].into_iter().enumerate() {
        check(page(base, n), n as u64, 1);
        assert_eq!(left(), NR - 1 - nr, "page {n} alone");
        stamps[n] = 2;
        fill(page(base, n), n as u64, 2);
        if nr % 2 == 1 {
            out(base);
            assert_eq!(
                left(),
                NR - 1 - nr,
                "stored again, it is no part of a block"
            );
        }
    }
    check(page(base, 5), 5, 1);
    assert_eq!(left(), NR / 2, "the rest of its block, and no other");
    // What is dropped of the other has all of its pieces, until a page leaves it, and keeps them.
    check(page(base, 25), 25, 1);
    Masked::block(|m| ENGINE.discard(m, base + LEN / 2, 4 * PAGE_SIZE)).unwrap();
    assert_eq!(left(), NR / 2 - 5);
    check(page(base, 29), 29, 1);
    assert_eq!(left(), NR / 2 - 6);
    for (n, stamp) in stamps.into_iter().enumerate() {
        if (16..20).contains(&n) {
            assert!(page(base, n).iter().all(|&word| word == 0));
        } else {
            check(page(base, n), n as u64, stamp);
        }
    }
    assert_eq!(left(), 0);
    Masked::block(|m| ENGINE.unmap(m, base, LEN)).unwrap();
}

/// Four neighbours leave their block, and would be a smaller one.
fn no_block_is_made_within_another(group: &Group) {
    const LEN: usize = 16 * PAGE_SIZE;
    let in_blocks = || group.processes[0].counters.block_pages.load(Relaxed);
    let before = in_blocks();
    let [base, other] = [map(LEN), map(LEN)];
    for base in [base, other] {
        for n in 0..16 {
            fill(page(base, n), n as u64, 1);
        }
        Masked::block(|m| ENGINE.pageout(m, base, LEN)).unwrap();
    }
    // Those in between make that those of the last line come alone as well.
    for (base, pages) in [
        (base, [4, 6].as_slice()),
        (other, &[1, 3, 5, 7, 9, 11, 13, 15]),
        (base, &[5, 7]),
    ] {
        for &n in pages {
            check(page(base, n), n as u64, 1);
        }
    }
    assert_eq!(in_blocks() - before, 12 + 8);
    group.knobs.block.store(2, Relaxed);
    Masked::block(|m| ENGINE.pageout(m, base, LEN)).unwrap();
    group.knobs.block.store(4, Relaxed);
    assert_eq!(in_blocks() - before, 12 + 8);
    for base in [base, other] {
        for n in 0..16 {
            check(page(base, n), n as u64, 1);
        }
        Masked::block(|m| ENGINE.unmap(m, base, LEN)).unwrap();
    }
}
