//! A process dies between any two stores of any call; the others go on, and nothing is lost or
//! shared.
//!
//! A death is a panic out of [`crash_point`] after which the guards free no locks. Loops over the
//! number of steps before it visit every place.

use crate::{CLUSTER_SLOTS, IsAlive, Owner, Run, Slots};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static STEPS_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    static DEAD: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn crash_point() {
    let left = STEPS_LEFT.get();
    if left == Some(0) {
        STEPS_LEFT.set(None);
        DEAD.set(true);
        std::panic::resume_unwind(Box::new(()));
    }
    STEPS_LEFT.set(left.map(|left| left - 1));
}

pub(crate) fn has_crashed() -> bool {
    DEAD.get()
}

/// Lets `life` end after `steps`; whether it did before its natural end.
fn dies_after(steps: u32, life: impl FnOnce()) -> bool {
    STEPS_LEFT.set(Some(steps));
    let has_crashed = catch_unwind(AssertUnwindSafe(life)).is_err();
    STEPS_LEFT.set(None);
    DEAD.set(false);
    has_crashed
}

#[repr(align(4096))]
#[derive(Clone, Copy)]
struct Page(#[expect(dead_code, reason = "only its size and zeroes matter")] [u8; 4096]);

/// Zeroed memory for a device of so many clusters.
fn memory(nr_clusters: u32) -> Vec<Page> {
    let len = Slots::memory_len(nr_clusters * CLUSTER_SLOTS);
    vec![Page([0; 4096]); len / 4096]
}

/// The device whose zeroed memory that is.
fn attach<'m>(memory: &'m mut [Page], nr_clusters: u32, is_alive: IsAlive<'m>) -> Slots<'m> {
    let nr_slots = nr_clusters * CLUSTER_SLOTS;
    // SAFETY: zeroed, aligned, long enough, and used for nothing else.
    unsafe { Slots::attach(memory.as_mut_ptr().cast(), nr_slots, is_alive) }
}

const SURVIVOR: usize = 0;
const VICTIM: usize = 1;
/// The child of the victim, or another dead process that the victim was releasing.
const BYSTANDER: usize = 2;
const NR_CLUSTERS: u32 = 3;

/// It is asked only when somebody has waited for long.
fn only_the_survivor_lives(index: usize) -> bool {
    index == SURVIVOR
}

/// Lets the victim die at each place of `life`, which `before` prepares, and checks the survivor's
/// world.
fn at_every_step(
    discard: bool,
    before: impl Fn(&Slots<'_>, Owner, Owner) -> Vec<Run>,
    life: impl Fn(&Slots<'_>, Owner, &[Run]),
) {
    let (first, apart) = if cfg!(miri) { (3, 25) } else { (0, 1) };
    for steps in (first..if cfg!(miri) { 80 } else { 2000 }).step_by(apart) {
        let mut memory = memory(NR_CLUSTERS);
        let slots = attach(&mut memory, NR_CLUSTERS, &only_the_survivor_lives);
        let nr_slots = slots.nr_slots();
        slots.set_kind(false, discard);
        let (survivor, victim) = (slots.join(SURVIVOR), slots.join(VICTIM));
        // The survivor's own, in the same cluster.
        let kept = slots.alloc(survivor, 0, 2, &[3, 1, 2, 1]).unwrap();
        let runs = before(&slots, survivor, victim);
        let has_crashed = dies_after(steps, || life(&slots, victim, &runs));
        // It goes on before anybody has noticed, through whatever lock was held at the death,
        let meanwhile = slots.alloc(survivor, 0, 1, &[1, 1]);
        // and after.
        slots.release(survivor, VICTIM);
        slots.release(survivor, BYSTANDER);
        let counts: Vec<_> = kept.slots().map(|slot| slots.count(slot)).collect();
        assert_eq!(counts, [3, 1, 2, 1], "after {steps} steps");
        for slot in (0..nr_slots).step_by(if cfg!(miri) { 97 } else { 1 }) {
            let owned = slots.count_of(SURVIVOR, slot);
            assert_eq!(
                slots.count(slot),
                owned.into(),
                "slot {slot} after {steps} steps"
            );
        }
        let meanwhile = meanwhile.unwrap_or(Run { first: 0, nr: 0 });
        let held = 4 + u64::from(meanwhile.nr);
        assert_eq!(slots.used(), held, "after {steps} steps");
        // All the rest can be had; too many for an interpreter.
        if !cfg!(miri) {
            let rest = std::iter::from_fn(|| slots.alloc(survivor, 5, 0, &[1]));
            assert_eq!(
                rest.count() as u64,
                u64::from(nr_slots) - held,
                "lost at {steps} steps"
            );
        }
        if !has_crashed {
            return;
        }
    }
    if !cfg!(miri) {
        panic!("the story never ended");
    }
}

#[test]
fn a_process_dies_while_it_allocates() {
    at_every_step(
        false,
        |_, _, _| Vec::new(),
        |slots, victim, _| {
            for cpu in [0, 0, 1] {
                let _ = slots.alloc(victim, cpu, 2, &[1, 2, 1, 1]);
                let _ = slots.alloc(victim, cpu, 9, &[1; 3]);
            }
        },
    );
}

#[test]
fn a_process_dies_while_it_exhausts_its_cluster() {
    at_every_step(
        true,
        |slots, _, victim| {
            let fill = slots.alloc(victim, 0, 8, &[1; 256]).unwrap();
            let more = slots.alloc(victim, 0, 8, &[1; 256]).unwrap();
            vec![fill, more]
        },
        |slots, victim, runs| {
            let _ = slots.alloc(victim, 0, 8, &[1]);
            for &run in runs {
                slots.put(victim, Run { nr: 3, ..run });
            }
            let _ = slots.alloc(victim, 0, 0, &[1]);
        },
    );
}

#[test]
fn a_process_dies_while_it_doubles_and_puts() {
    at_every_step(
        true,
        |slots, _, victim| vec![slots.alloc(victim, 0, 3, &[2; 8]).unwrap()],
        |slots, victim, runs| {
            for &run in runs {
                assert!(slots.dup(victim, run));
                for _ in 0..3 {
                    slots.put(victim, run);
                }
            }
        },
    );
}

#[test]
fn a_process_dies_while_it_empties_and_discards_clusters() {
    at_every_step(
        true,
        |slots, _, victim| {
            let one = slots.alloc(victim, 0, 9, &[1]).unwrap();
            let other = slots.alloc(victim, 0, 9, &[1]).unwrap();
            // No longer its current cluster.
            assert_eq!(slots.alloc(victim, 0, 9, &[1]), None);
            vec![one, other]
        },
        |slots, victim, runs| {
            for &run in runs {
                slots.put(victim, Run { nr: 1, ..run });
            }
            if let Some(run) = slots.take_discard(victim) {
                slots.discarded(victim, run);
            }
            let _ = slots.take_discard(victim);
        },
    );
}

/// Nothing is free but in the survivor's cluster.
#[test]
fn a_process_dies_as_a_guest() {
    at_every_step(
        false,
        |slots, _, victim| {
            (0..2)
                .map(|_| slots.alloc(victim, 0, 9, &[1; 512]).unwrap())
                .collect()
        },
        |slots, victim, _| {
            let guests = [(0, 1), (4, 16)]
                .map(|(order, nr)| slots.alloc(victim, 0, order, &[1; 16][..nr]).unwrap());
            for run in guests {
                assert!(slots.dup(victim, run));
                slots.put(victim, run);
                slots.put(victim, run);
            }
        },
    );
}

/// Whoever waits long for a lock takes it from a holder whose life is over.
#[test]
fn a_fork_child_is_no_dead_process() {
    let mut memory = memory(NR_CLUSTERS);
    let slots = attach(&mut memory, NR_CLUSTERS, &|_| true);
    let parent = slots.join(SURVIVOR);
    let first = slots.fork(parent, BYSTANDER);
    assert!(!slots.table.is_dead(parent.stamp()) && !slots.table.is_dead(first.stamp()));
    slots.release(parent, BYSTANDER);
    let second = slots.fork(parent, BYSTANDER);
    assert!(slots.table.is_dead(first.stamp()) && !slots.table.is_dead(second.stamp()));
}

#[test]
fn a_process_dies_while_it_forks() {
    at_every_step(
        false,
        |slots, _, victim| vec![slots.alloc(victim, 0, 3, &[2; 8]).unwrap()],
        |slots, victim, _| {
            let child = slots.fork(victim, BYSTANDER);
            // The child that was never born.
            slots.release(victim, child.index());
            slots.fork(victim, BYSTANDER);
            slots.release(victim, child.index());
        },
    );
}

#[test]
fn a_process_dies_while_it_releases_another() {
    at_every_step(
        true,
        |slots, _, victim| {
            let gone = slots.join(BYSTANDER);
            vec![
                slots.alloc(gone, 0, 3, &[2; 8]).unwrap(),
                slots.alloc(victim, 0, 9, &[1]).unwrap(),
            ]
        },
        |slots, victim, _| slots.release(victim, BYSTANDER),
    );
}

/// Else its room on the device would stay occupied, and it would go to no other order before the
/// device is full.
#[test]
fn whoever_puts_the_last_run_of_a_cluster_frees_it() {
    // Single slots are too many for an interpreter.
    let orders: &[u8] = if cfg!(miri) { &[8] } else { &[0, 1, 3, 4, 8] };
    for &order in orders {
        let mut memory = memory(NR_CLUSTERS);
        let slots = attach(&mut memory, NR_CLUSTERS, &|_| true);
        slots.set_kind(false, true);
        let owner = slots.join(0);
        let counts = [1; 256];
        let runs: Vec<_> =
            std::iter::from_fn(|| slots.alloc(owner, 0, order, &counts[..1 << order])).collect();
        // Each second one first: there are runs free in each cluster for long before it is empty.
        for first in [0, 1] {
            for &run in runs.iter().skip(first).step_by(2) {
                slots.put(owner, run);
            }
        }
        assert_eq!(slots.in_use(), 0, "order {order}");
        let discards = std::iter::from_fn(|| slots.take_discard(owner));
        assert_eq!(discards.count(), NR_CLUSTERS as usize, "order {order}");
    }
}

#[test]
fn a_lock_of_an_earlier_life_is_taken_over_though_the_index_lives() {
    let mut memory = memory(1);
    let slots = attach(&mut memory, 1, &|_| true);
    let before = slots.join(4);
    let run = slots.alloc(before, 0, 3, &[1; 8]).unwrap();
    // What others count, too, is put under the lock.
    let child = slots.fork(before, 5);
    assert!(dies_after(0, || slots.put(before, run)));
    // The same process after exec, say.
    let after = slots.join(4);
    slots.release(after, child.index());
    assert_eq!(slots.used(), 0);
    assert!(slots.alloc(after, 0, 9, &[1]).is_some());
}
