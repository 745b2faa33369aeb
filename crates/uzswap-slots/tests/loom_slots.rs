//! The slot allocator in every interleaving that loom knows, on clusters of four slots and orders 0
//! to 2.
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release -p uzswap-slots --test loom_slots
//!
//! A slot that two threads hold shows as a count of two, a count that was lost as one of none;
//! after all is put, the device must be empty and every slot to be had. Two who have a lock at a
//! time, or who have it one after the other without seeing what the other did, the model finds by
//! itself.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread::{self, JoinHandle};
use uzswap_slots::{CLUSTER_SLOTS, Model, Owner, Run, Slots};

fn explore(bound: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.max_branches = 20_000;
    builder.check(model);
}

fn all_alive(_: usize) -> bool {
    true
}

fn only_the_first_lives(index: usize) -> bool {
    index == 0
}

/// A thread that works on the same device.
fn beside<T: 'static>(
    model: &Arc<Model>,
    work: impl FnOnce(&Slots<'_>) -> T + 'static,
) -> JoinHandle<T> {
    let model = model.clone();
    thread::spawn(move || work(&model.slots(&all_alive)))
}

fn alone(slots: &Slots<'_>, run: Run) {
    for slot in run.slots() {
        assert_eq!(slots.count(slot), 1, "slot {slot} was handed out twice");
    }
}

/// Puts what nobody else was handed.
fn put_own(slots: &Slots<'_>, owner: Owner, run: Run) {
    alone(slots, run);
    slots.put(owner, run);
}

/// Nothing is taken, nothing is lost: every cluster can be had as a whole.
fn nothing_is_left(slots: &Slots<'_>, owner: Owner, nr_clusters: u32) {
    assert_eq!(slots.used(), 0);
    for _ in 0..nr_clusters * CLUSTER_SLOTS {
        assert!(slots.alloc(owner, 0, 0, &[1]).is_some(), "a slot was lost");
    }
    assert_eq!(slots.alloc(owner, 0, 0, &[1]), None);
}

/// A device of so many clusters; at the end of `story` nothing is left.
fn story(
    bound: usize,
    nr_clusters: u32,
    discard: bool,
    story: impl Fn(&Arc<Model>, &Slots<'_>, Owner) + Sync + Send + 'static,
) {
    explore(bound, move || {
        let model = Arc::new(Model::new(nr_clusters as usize));
        let slots = model.slots(&all_alive);
        if discard {
            slots.set_kind(false, true);
        }
        let owner = slots.join(0);
        story(&model, &slots, owner);
        nothing_is_left(&slots, owner, nr_clusters);
    });
}

#[test]
fn two_cpus_never_get_the_same_slot_and_lose_none() {
    story(3, 2, false, |model, _, owner| {
        let threads: Vec<_> = (0..2)
            .map(|cpu| {
                beside(model, move |slots| {
                    let run = slots.alloc(owner, cpu, 1, &[1, 1]).unwrap();
                    put_own(slots, owner, run);
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn two_threads_in_one_seat_exhaust_it_together() {
    story(3, 2, false, |model, slots, owner| {
        let other = beside(model, move |slots| {
            let run = slots.alloc(owner, 0, 2, &[1; 4]).unwrap();
            put_own(slots, owner, run);
        });
        let run = slots.alloc(owner, 0, 2, &[1; 4]).unwrap();
        put_own(slots, owner, run);
        other.join().unwrap();
    });
}

/// The full cluster becomes free under the hands of the one who looks for room.
#[test]
fn what_one_puts_the_other_gets() {
    story(3, 1, true, |model, slots, owner| {
        let all = slots.alloc(owner, 0, 2, &[1; 4]).unwrap();
        let other = beside(model, move |slots| slots.put(owner, all));
        if let Some(run) = slots.alloc(owner, 1, 0, &[1]) {
            put_own(slots, owner, run);
        }
        other.join().unwrap();
    });
}

/// One holds the cluster's lock for a put, while the other, with the device locked, only tries it.
#[test]
fn who_tries_a_lock_in_vain_leaves_it_alone() {
    story(3, 1, false, |model, slots, owner| {
        let [first, second, third, last] =
            [(); 4].map(|()| slots.alloc(owner, 0, 0, &[1]).unwrap());
        // Out of its seat, and then on a list.
        assert_eq!(slots.alloc(owner, 0, 0, &[1]), None);
        slots.put(owner, first);
        let other = beside(model, move |slots| slots.put(owner, second));
        let run = slots.alloc(owner, 1, 0, &[1]).unwrap();
        other.join().unwrap();
        alone(slots, run);
        assert_eq!(slots.used(), 3);
        for run in [third, last, run] {
            slots.put(owner, run);
        }
    });
}

#[test]
fn three_share_a_cluster() {
    story(3, 1, false, |model, slots, owner| {
        let [first, second, third, last] =
            [(); 4].map(|()| slots.alloc(owner, 0, 0, &[1]).unwrap());
        let put = |run| beside(model, move |slots| slots.put(owner, run));
        let others = [put(first), put(second)];
        if let Some(run) = slots.alloc(owner, 1, 0, &[1]) {
            put_own(slots, owner, run);
        }
        for other in others {
            other.join().unwrap();
        }
        for run in [third, last] {
            put_own(slots, owner, run);
        }
    });
}

#[test]
fn a_cluster_that_is_being_discarded_is_nobodys() {
    story(3, 1, true, |model, slots, owner| {
        // Full, so that the cluster is in no seat when it becomes empty.
        let all = slots.alloc(owner, 0, 2, &[1; 4]).unwrap();
        assert_eq!(slots.alloc(owner, 0, 0, &[1]), None);
        assert_eq!(slots.alloc(owner, 0, 2, &[1; 4]), None);
        slots.put(owner, all);
        let other = beside(model, move |slots| {
            if let Some(run) = slots.take_discard(owner) {
                for slot in run.slots() {
                    assert_eq!(slots.count(slot), 0);
                }
                slots.discarded(owner, run);
            }
        });
        if let Some(run) = slots.alloc(owner, 1, 0, &[1]) {
            put_own(slots, owner, run);
        }
        other.join().unwrap();
    });
}

/// A thread that saw a cluster in its seat finds it on its way back to the device.
#[test]
fn nothing_is_taken_of_a_cluster_that_has_left_its_seat() {
    story(2, 1, true, |model, slots, owner| {
        let alloc = |slots: &Slots<'_>| slots.alloc(owner, 0, 0, &[1]);
        for first in 1..CLUSTER_SLOTS {
            assert!(alloc(slots).is_some_and(|run| run.first == first - 1));
        }
        let other = beside(model, move |slots| slots.alloc(owner, 0, 0, &[1]));
        let last = alloc(slots);
        assert!(last.is_none() || alloc(slots).is_none());
        let nr = if last.is_some() { 4 } else { 3 };
        slots.put(owner, Run { first: 0, nr });
        let discards = slots.take_discard(owner);
        let taken = other.join().unwrap();
        assert!(discards.is_none() || taken.is_none(), "{taken:?}");
        if let Some(run) = discards {
            slots.discarded(owner, run);
        }
        if let Some(run) = taken {
            slots.put(owner, run);
        }
    });
}

/// Both survivors find out at once, while the first of them allocates.
#[test]
fn two_release_the_dead_at_once() {
    explore(3, || {
        let model = Arc::new(Model::new(1));
        let slots = model.slots(&only_the_first_lives);
        let (living, dead) = (slots.join(0), slots.join(1));
        slots.alloc(dead, 0, 1, &[1, 1]).unwrap();
        let other = {
            let model = model.clone();
            thread::spawn(move || model.slots(&only_the_first_lives).release(living, 1))
        };
        slots.release(living, 1);
        let run = slots.alloc(living, 0, 2, &[1; 4]).unwrap();
        other.join().unwrap();
        put_own(&slots, living, run);
        nothing_is_left(&slots, living, 1);
    });
}

/// One needs no lock in the cluster, the other does.
#[test]
fn a_guest_takes_what_the_home_leaves() {
    story(3, 1, false, |model, slots, home| {
        let guest = slots.join(1);
        let first = slots.alloc(home, 0, 1, &[1, 1]).unwrap();
        let other = beside(model, move |slots| {
            let run = slots.alloc(guest, 1, 0, &[1]).unwrap();
            put_own(slots, guest, run);
        });
        let run = slots.alloc(home, 0, 0, &[1]).unwrap();
        alone(slots, run);
        slots.put(home, first);
        slots.put(home, run);
        other.join().unwrap();
    });
}

/// The last free slot is in a CPU's current cluster while the full ones are scanned, and in a full
/// one while the current ones are.
#[test]
fn a_slot_is_found_while_its_cluster_becomes_full() {
    story(3, 1, false, |model, slots, owner| {
        let pair = slots.alloc(owner, 0, 1, &[1, 1]).unwrap();
        // Its second slot stays free.
        let half = Run {
            nr: 1,
            ..slots.alloc(owner, 0, 1, &[1]).unwrap()
        };
        let other = beside(model, move |slots| {
            assert_eq!(slots.alloc(owner, 0, 1, &[1, 1]), None);
        });
        let last = slots.alloc(owner, 1, 0, &[1]).expect("a slot is free");
        alone(slots, last);
        other.join().unwrap();
        for run in [pair, half, last] {
            slots.put(owner, run);
        }
    });
}

#[test]
fn parent_and_child_put_the_same_slots_at_once() {
    story(3, 1, false, |model, slots, parent| {
        let run = slots.alloc(parent, 0, 1, &[1, 1]).unwrap();
        let child = slots.fork(parent, 1);
        let other = beside(model, move |slots| slots.put(child, run));
        if let Some(run) = slots.alloc(parent, 0, 0, &[1]) {
            put_own(slots, parent, run);
        }
        slots.put(parent, run);
        other.join().unwrap();
    });
}
