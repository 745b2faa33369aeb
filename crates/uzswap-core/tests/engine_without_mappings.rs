//! The process has as many mappings as the kernel allows: a move that needs one fails, and all is
//! as it was.

mod engine_support;

use engine_support::{ENGINE, check, fill, map, page};
use uzswap_core::{FaultMode, MapError, Masked, PAGE_SIZE, RemapTo};
use uzswap_sys::Errno;
use uzswap_sys::mem::{self, MAP_ANONYMOUS, MAP_SHARED, PROT_NONE, PROT_READ};

const LEN: usize = 1 << 20;
const STAMP: u64 = 7;

#[test]
fn a_move_that_fails_changes_nothing() {
    if engine_support::start(FaultMode::Signal, 4, false).is_none() {
        return;
    }
    let most = max_mappings();
    if most > 1 << 18 {
        println!("skipped: {most} mappings are too many to use up");
        return;
    }
    // With another protection than its neighbours' the new place takes mappings of its own.
    let (old, new) = (map(LEN), map(3 * LEN) + LEN);
    for n in 0..LEN / PAGE_SIZE {
        fill(page(old, n), n as u64, STAMP);
    }
    let protect = |prot: i32| {
        Masked::block(|m| ENGINE.protect(m, old, LEN, prot.unsigned_abs())).unwrap();
    };
    protect(PROT_READ);
    let remap = || Masked::block(|m| ENGINE.remap(m, old, LEN, LEN, RemapTo::Fixed(new)));

    let wall = use_up(most);
    assert_eq!(remap(), Err(MapError::Kernel(Errno::ENOMEM)));
    assert!(ENGINE.region(new).is_none(), "natively, too, it is gone");
    for n in 0..LEN / PAGE_SIZE {
        check(page(old, n), n as u64, STAMP);
    }
    // SAFETY: the wall is this test's.
    unsafe { mem::munmap(wall, most * PAGE_SIZE) }.unwrap();
    assert_eq!(remap(), Ok(new));
    for n in 0..LEN / PAGE_SIZE {
        check(page(new, n), n as u64, STAMP);
    }
}

fn max_mappings() -> usize {
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    most.trim().parse().unwrap()
}

/// Makes mappings until the kernel allows no more. They lie at the address that is returned.
fn use_up(most: usize) -> usize {
    let flags = MAP_SHARED | MAP_ANONYMOUS;
    // SAFETY: fresh mappings where the kernel likes, and protections of them.
    unsafe {
        let wall = mem::mmap(0, most * PAGE_SIZE, PROT_NONE, flags, -1, 0).unwrap();
        let every_second = (wall..wall + most * PAGE_SIZE).step_by(2 * PAGE_SIZE);
        let refused = every_second
            .map(|at| mem::mprotect(at, PAGE_SIZE, PROT_READ))
            .find(Result::is_err);
        assert_eq!(refused, Some(Err(Errno::ENOMEM)));
        // What is left is less than such a page takes.
        while mem::mmap(0, PAGE_SIZE, PROT_NONE, flags, -1, 0).is_ok() {}
        wall
    }
}
