//! Records of the group: who claims one while a fork fails beside it, and children that never
//! began.
#![cfg(not(loom))]
#![allow(clippy::indexing_slicing, reason = "a failed index fails the test")]

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use uzswap_group::group::{Group, Identity, Process, ProcessState, SwapUser};
use uzswap_group::request::Door;

fn group() -> Box<Group> {
    let layout = std::alloc::Layout::new::<Group>();
    // SAFETY: a group file begins as zeroes, as it consists of atomics; the box frees it as it was
    // allocated.
    unsafe { Box::from_raw(std::alloc::alloc_zeroed(layout).cast()) }
}

const PARENT: u32 = 100;
const CHILD: u32 = 101;
const OTHER: u32 = 102;

/// The record that process `pid` claims.
fn claimed(group: &Group, pid: u32) -> &Process {
    let identity = Identity {
        pid,
        ..Identity::default()
    };
    group.claim(0, identity, |_| true)
}

/// What `reap`, called by a process without a record, releases when only the `living` live.
fn reaped(group: &Group, living: &[u32]) -> Vec<usize> {
    let released = RefCell::new(Vec::new());
    group.reap(
        &group.runs[0].ended,
        1,
        |pid| living.contains(&pid),
        |number| released.borrow_mut().push(number),
    );
    released.into_inner()
}

#[test]
fn who_claims_a_record_while_a_fork_fails_is_seen_ever_after() {
    let group = group();
    claimed(&group, PARENT);
    let reserved = group.reserve(&group.processes[0], PARENT).unwrap();
    let other = claimed(&group, OTHER);
    other.swap_user.store(SwapUser::Yes, Ordering::Relaxed);
    group.give_back(reserved);
    assert!(group.used().iter().any(|p| std::ptr::eq(p, other)));
    // So that what it counted is released when it dies.
    assert_eq!(reaped(&group, &[PARENT]), [2]);
    assert_eq!(other.state.load(Ordering::Relaxed), ProcessState::Free);
}

#[test]
fn a_child_that_was_killed_before_it_began_gives_its_record_back() {
    let group = group();
    claimed(&group, PARENT);
    let reserved = group.reserve(&group.processes[0], PARENT).unwrap();
    // Nobody knows its number yet, and it may be about to begin.
    assert_eq!(reaped(&group, &[PARENT]), []);
    assert_eq!(reaped(&group, &[]), []);
    group.born(reserved, PARENT, CHILD);
    assert_eq!(reaped(&group, &[PARENT, CHILD]), []);
    assert_eq!(reaped(&group, &[PARENT]), [1]);
    assert_eq!(reserved.state.load(Ordering::Relaxed), ProcessState::Free);
    assert!(std::ptr::eq(
        reserved,
        group.reserve(&group.processes[0], PARENT).unwrap()
    ));
}

/// Whoever rings reads whose door it is, and signals that process: the record stays the dead one's
/// until then.
#[test]
fn a_record_is_not_another_s_while_somebody_rings() {
    let group = group();
    let record = claimed(&group, PARENT);
    record.request.open();
    record.request.ring(OTHER).unwrap();
    record.swap_user.store(SwapUser::Yes, Ordering::Relaxed);
    assert_eq!(reaped(&group, &[OTHER]), [], "it may be about to signal");
    record.swap_user.store(SwapUser::No, Ordering::Relaxed);
    let executed = claimed(&group, PARENT);
    assert!(!std::ptr::eq(executed, record));
    assert_eq!(record.pid.load(Ordering::Relaxed), PARENT);
    record.request.take_back(OTHER);
    record.swap_user.store(SwapUser::Yes, Ordering::Relaxed);
    assert_eq!(reaped(&group, &[OTHER]), [0]);
    assert_eq!(record.request.ring(OTHER), Err(Door::Shut));
}

#[test]
fn a_child_that_began_first_is_not_told_who_it_is() {
    let group = group();
    claimed(&group, PARENT);
    let reserved = group.reserve(&group.processes[0], PARENT).unwrap();
    // In a pid namespace of its own, say.
    reserved.begin(Identity {
        pid: 2,
        ..Identity::default()
    });
    group.born(reserved, PARENT, CHILD);
    assert_eq!(reserved.state.load(Ordering::Relaxed), ProcessState::Live);
    assert_eq!(reserved.pid.load(Ordering::Relaxed), 2);
}

#[test]
fn a_record_that_another_parent_reserved_meanwhile_is_left_alone() {
    let group = group();
    let reserved = group.reserve(&group.processes[0], OTHER).unwrap();
    group.born(reserved, PARENT, CHILD);
    assert_eq!(reaped(&group, &[PARENT, OTHER]), []);
}
