//! Records of the group: who claims one while a fork fails beside it, and children that never
//! began.
#![cfg(not(loom))]
#![allow(clippy::indexing_slicing, reason = "a failed index fails the test")]

use std::cell::{Cell, RefCell};
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

/// A way to find out whose process is dead.
type Look = fn(&Group, &dyn Fn(u32) -> bool);

fn process(pid: u32) -> Identity {
    Identity {
        pid,
        ..Identity::default()
    }
}

/// The record that process `pid` claims.
fn claimed(group: &Group, pid: u32) -> &Process {
    group.claim(0, process(pid), |_| true)
}

/// What `reap`, called by a process without a record, releases when only the `living` live.
fn reaped(group: &Group, living: &[u32]) -> Vec<usize> {
    released(group, |pid| living.contains(&pid))
}

/// As [`reaped`], when only `dead` does not live.
fn reaped_but(group: &Group, dead: u32) -> Vec<usize> {
    released(group, |pid| pid != dead)
}

fn released(group: &Group, is_alive: impl Fn(u32) -> bool) -> Vec<usize> {
    let released = RefCell::new(Vec::new());
    let release = |number| released.borrow_mut().push(number);
    group.reap(&group.runs[0].ended, 1, is_alive, release);
    released.into_inner()
}

#[test]
fn who_claims_a_record_while_a_fork_fails_is_seen_ever_after() {
    let group = group();
    claimed(&group, PARENT);
    let reserved = group.reserve(&group.processes[0], PARENT).unwrap();
    let other = claimed(&group, OTHER);
    other.swap_user.store(SwapUser::Yes, Ordering::Relaxed);
    reserved.give_back();
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
    reserved.born(CHILD);
    assert_eq!(reaped(&group, &[PARENT, CHILD]), []);
    assert_eq!(reaped(&group, &[PARENT]), [1]);
    let record = reserved.record;
    assert_eq!(record.state.load(Ordering::Relaxed), ProcessState::Free);
    let next = group.reserve(&group.processes[0], PARENT).unwrap();
    assert!(std::ptr::eq(record, next.record));
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
    let begun = reserved.begin(process(2)).unwrap();
    reserved.born(CHILD);
    assert!(begun.is_live());
    assert_eq!(begun.pid.load(Ordering::Relaxed), 2);
}

#[test]
fn a_record_that_another_parent_reserved_meanwhile_is_left_alone() {
    let group = group();
    let parent = claimed(&group, PARENT);
    let given_back = group.reserve(parent, PARENT).unwrap();
    given_back.give_back();
    let reserved = group.reserve(parent, OTHER).unwrap();
    assert!(std::ptr::eq(given_back.record, reserved.record));
    given_back.born(CHILD);
    assert_eq!(reaped(&group, &[PARENT, OTHER]), []);
}

/// Its parent was killed in the middle of a fork, and for so long nobody saw the child that its
/// record was taken back.
#[test]
fn a_child_whose_record_is_another_s_by_now_does_not_begin() {
    let group = group();
    let parent = claimed(&group, PARENT);
    let lost = group.reserve(parent, PARENT).unwrap();
    lost.born(PARENT);
    assert_eq!(reaped(&group, &[]), [1]);
    assert!(lost.begin(process(CHILD)).is_none(), "it is free");
    let next = group.reserve(parent, PARENT).unwrap();
    assert!(std::ptr::eq(lost.record, next.record));
    assert!(lost.begin(process(CHILD)).is_none(), "reserved for another");
    let state = next.record.state.load(Ordering::Relaxed);
    assert_eq!(state, ProcessState::Reserved { parent: PARENT });
    assert!(next.begin(process(OTHER)).is_some());
    assert!(lost.begin(process(CHILD)).is_none(), "another's");
}

/// Between the question whether a process is dead and the answer somebody else frees its record,
/// and another process takes it.
#[test]
fn a_record_that_changes_hands_while_it_is_looked_at_is_left_alone() {
    let look: [(&str, Look); 3] = [
        ("reap", |group, is_alive| {
            group.reap(&group.runs[0].ended, 1, is_alive, |number| {
                panic!("slots of {number} released")
            });
        }),
        ("expire", |group, is_alive| group.expire_dead(1, is_alive)),
        ("claim", |group, is_alive| {
            // Records are short.
            let last = u32::try_from(group.processes.len()).unwrap();
            for pid in 1000..1000 + last - 1 {
                claimed(group, pid);
            }
            group.claim(0, process(999), is_alive);
        }),
    ];
    for (name, look) in look {
        let group = group();
        let dead = claimed(&group, PARENT);
        let uses_swap = match name {
            "claim" => SwapUser::No,
            _ => SwapUser::Yes,
        };
        dead.swap_user.store(uses_swap, Ordering::Relaxed);
        group.share_of(dead).charge_unchecked(3);
        let changed = Cell::new(false);
        look(&group, &|pid| {
            if pid == PARENT && !changed.replace(true) {
                dead.swap_user.store(SwapUser::Yes, Ordering::Relaxed);
                assert_eq!(reaped_but(&group, PARENT), [0]);
                assert!(std::ptr::eq(claimed(&group, OTHER), dead));
                dead.swap_user.store(uses_swap, Ordering::Relaxed);
                group.share_of(dead).charge_unchecked(5);
            }
            pid != PARENT
        });
        assert!(changed.get(), "{name} asks");
        assert!(dead.is_live(), "{name}");
        assert_eq!(dead.pid.load(Ordering::Relaxed), OTHER, "{name}");
        assert_eq!(group.share_of(dead).used(), 5, "{name}");
    }
}

/// Whoever frees a record is killed before it is done.
#[test]
fn a_record_whose_work_was_left_undone_is_freed_by_the_next() {
    let group = group();
    let dead = claimed(&group, PARENT);
    let state = ProcessState::Busy { by: OTHER };
    dead.state.store(state, Ordering::Relaxed);
    group.share_of(dead).charge_unchecked(3);
    group.expire_dead(1, |pid| pid == OTHER);
    assert_eq!(group.share_of(dead).used(), 3, "it is being worked on");
    group.expire_dead(1, |_| false);
    assert_eq!(group.share_of(dead).used(), 0);
    assert_eq!(dead.state.load(Ordering::Relaxed), state);
    assert_eq!(reaped(&group, &[OTHER]), []);
    assert_eq!(reaped(&group, &[]), [0]);
    assert_eq!(dead.state.load(Ordering::Relaxed), ProcessState::Free);
}

/// The parent was killed in the middle of a fork, and the child before it had the processor once:
/// that there is none can be told at the end of the run only, when nobody is left.
#[test]
fn a_child_that_never_began_holds_nothing_once_its_run_is_over() {
    let group = group();
    let parent = claimed(&group, PARENT);
    let elsewhere = group.claim(1, process(OTHER), |_| true);
    let child = group.reserve(parent, PARENT).unwrap().record;
    for record in [parent, child, elsewhere] {
        group.share_of(record).charge_unchecked(3);
    }
    let held = || [parent, child, elsewhere].map(|record| group.share_of(record).used());
    group.expire_dead(1, |pid| pid == OTHER);
    assert_eq!(held(), [0, 3, 3], "it may be about to begin");
    group.expire_run(0, 1);
    assert_eq!(held(), [0, 0, 3], "of its run alone");
}

/// Each of a process's engines has a record.
#[test]
fn a_process_may_have_several_records_and_leave_each() {
    let group = group();
    group.config.several_records.store(1, Ordering::Relaxed);
    let who = process(PARENT);
    let (first, second) = (claimed(&group, PARENT), claimed(&group, PARENT));
    assert!(!std::ptr::eq(first, second));
    for record in [first, second] {
        record.swap_user.store(SwapUser::Yes, Ordering::Relaxed);
        group.share_of(record).charge_unchecked(3);
    }
    group.reap(
        first,
        PARENT,
        |_| true,
        |number| panic!("slots of {number} released"),
    );
    assert!(first.is_live() && second.is_live());
    group.leave(second, who, |_| true);
    assert!(first.is_live() && !second.is_live());
    let used = [first, second].map(|record| group.share_of(record).used());
    assert_eq!(used, [3, 0]);
    assert!(std::ptr::eq(claimed(&group, PARENT), second), "it is free");
}
