//! fork(3): the child has all that is in the pools, changes it for itself, and shares the limit.
#![allow(
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "test data is cut to size on purpose"
)]

use std::sync::{Mutex, PoisonError};

use uzswap::{FaultMode, Pool};

const LIMIT: u64 = 32 << 20;
const PAGE: usize = 4096;
/// What a child ends with that found everything as it must be.
const CONTENT: i32 = 42;

/// One story at a time: forks wait for it otherwise, and children see half of another's.
static STORY: Mutex<()> = Mutex::new(());

fn fill(region: &mut [u8], stamp: usize) {
    for (n, page) in region.chunks_mut(PAGE).enumerate() {
        for (at, word) in page.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&(n * stamp + at % 50).to_le_bytes());
        }
    }
}

fn is_filled(region: &[u8], stamp: usize) -> bool {
    region.chunks(PAGE).enumerate().all(|(n, page)| {
        let words = page.chunks_exact(8).enumerate();
        words
            .into_iter()
            .all(|(at, word)| *word == (n * stamp + at % 50).to_le_bytes())
    })
}

/// Runs `what` in a child, which ends content if it says so.
fn in_child(what: impl FnOnce() -> bool) {
    // SAFETY: the child uses pools and ends, without what other threads hold.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let status = if what() { CONTENT } else { 1 };
        // SAFETY: ends the child.
        unsafe { libc::_exit(status) };
    }
    wait_for(pid);
}

fn wait_for(pid: i32) {
    let mut status = 0;
    // SAFETY: waits for a child of ours.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == CONTENT,
        "{status:#x}"
    );
}

fn stories_of(mode: FaultMode) {
    let _story = STORY.lock().unwrap_or_else(PoisonError::into_inner);
    // Each fault waits for a thread: on a busy machine that takes milliseconds.
    let scale = if mode == FaultMode::Thread { 4 } else { 1 };
    let limit = LIMIT / scale as u64;
    let build = || Pool::builder().limit(limit).fault_mode(mode).build();
    let (pool, other) = match (build(), build()) {
        (Ok(pool), Ok(other)) => (pool, other),
        (Err(error), _) | (_, Err(error)) if mode == FaultMode::Thread => {
            println!("skipped: thread mode is not granted here: {error}");
            return;
        }
        (Err(error), _) | (_, Err(error)) => panic!("{error}"),
    };
    let mut region = pool.map((48 << 20) / scale).unwrap();
    let mut second = other.map((40 << 20) / scale).unwrap();
    fill(&mut region, 1);
    fill(&mut second, 2);
    for _ in 0..3 {
        in_child(|| {
            let as_before = is_filled(&region, 1) && is_filled(&second, 2);
            fill(&mut region, 7);
            let changed = is_filled(&region, 7);
            let mut more = pool.map((8 << 20) / scale).unwrap();
            fill(&mut more, 3);
            let fits = pool.stats().used <= limit + limit / 8;
            as_before && changed && is_filled(&more, 3) && fits
        });
        assert!(is_filled(&region, 1) && is_filled(&second, 2));
    }
    // A grandchild, and a child that drops its pool.
    in_child(|| {
        in_child(|| is_filled(&region, 1));
        drop(region);
        drop(pool);
        let pool = build().unwrap();
        let mut region = pool.map((48 << 20) / scale).unwrap();
        fill(&mut region, 9);
        is_filled(&region, 9)
    });
}

#[test]
fn by_signal() {
    stories_of(FaultMode::Signal);
}

#[test]
fn by_thread() {
    stories_of(FaultMode::Thread);
}

#[test]
fn by_protection() {
    stories_of(FaultMode::Segv);
}

/// While other threads use the pool.
#[test]
fn threads_go_on_meanwhile() {
    let _story = STORY.lock().unwrap_or_else(PoisonError::into_inner);
    let pool = Pool::builder().limit(LIMIT).build().unwrap();
    let mut region = pool.map(48 << 20).unwrap();
    fill(&mut region, 1);
    std::thread::scope(|scope| {
        let workers = [0_u8, 1].map(|seed| {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..20 {
                    let mut vec = allocator_api2::vec::Vec::new_in(pool);
                    vec.resize(4 << 20, seed * 20 + round);
                    assert!(vec.iter().all(|byte| *byte == seed * 20 + round));
                }
            })
        });
        while workers.iter().any(|worker| !worker.is_finished()) {
            in_child(|| is_filled(&region, 1));
        }
    });
}

/// A clone behind the C library's back gets nothing of a pool rather than zeroes.
#[test]
fn a_bare_clone_ends_at_the_first_access() {
    let _story = STORY.lock().unwrap_or_else(PoisonError::into_inner);
    let pool = Pool::builder().limit(LIMIT).build().unwrap();
    let mut region = pool.map(48 << 20).unwrap();
    fill(&mut region, 1);
    // SAFETY: the child accesses memory and ends.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if pid == 0 {
        let sum: u64 = region
            .iter()
            .step_by(PAGE)
            .map(|byte| u64::from(*byte))
            .sum();
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(sum > 0)) };
    }
    let mut status = 0;
    // SAFETY: waits for a child of ours.
    unsafe { libc::waitpid(i32::try_from(pid).unwrap(), &raw mut status, 0) };
    assert!(
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV,
        "{status:#x}"
    );
}
