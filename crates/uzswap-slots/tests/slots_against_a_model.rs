//! The slot allocator against a plain model: an array of counts. No slot is handed out twice, none
//! is lost, and every count is what the model says, whatever is allocated, doubled, put, forked and
//! released.
#![cfg(not(loom))]
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "test arithmetic on small numbers"
)]

mod slots_support;

use slots_support::{Ground, Random, all_alive, long, seed};
use uzswap_slots::{CLUSTER_SLOTS, NR_PROCESSES, Owner, Run, Slots};

const PROCESSES: usize = 3;
/// The most that a process can count a slot.
const MOST: u8 = 254;

/// What is held: by whom, and which runs of slots once each.
struct Story<'a> {
    slots: Slots<'a>,
    owners: [Owner; PROCESSES],
    counts: [Vec<u8>; PROCESSES],
    bad: Vec<bool>,
    held: Vec<(usize, Run)>,
    discarding: Vec<Run>,
    random: Random,
}

impl<'a> Story<'a> {
    fn new(ground: &'a Ground, seed: u64) -> Self {
        let slots = ground.slots(&all_alive);
        let mut random = Random::new(seed);
        slots.set_kind(random.below(2) == 0, random.below(2) == 0);
        let nr = slots.nr_slots() as usize;
        Self {
            owners: std::array::from_fn(|index| slots.join(index)),
            counts: std::array::from_fn(|_| vec![0; nr]),
            bad: vec![false; nr],
            held: Vec::new(),
            discarding: Vec::new(),
            slots,
            random,
        }
    }

    fn total(&self, slot: usize) -> u16 {
        if self.bad[slot] {
            return u16::MAX;
        }
        self.counts
            .iter()
            .map(|counts| u16::from(counts[slot]))
            .sum()
    }

    fn is_discarding(&self, slot: usize) -> bool {
        self.discarding
            .iter()
            .any(|run| run.slots().contains(&(slot as u32)))
    }

    fn alloc(&mut self) {
        let who = self.random.below(PROCESSES as u64) as usize;
        let order = self.random.below(10).min(self.random.below(10)) as u8;
        let nr = 1 << order;
        let used = 1 + self.random.below(nr as u64) as usize;
        let counts: Vec<u8> = (0..used)
            .map(|i| {
                if i == 0 {
                    1
                } else {
                    self.random.below(3) as u8
                }
            })
            .collect();
        let cpu = self.random.below(4) as usize;
        let Some(run) = self.slots.alloc(self.owners[who], cpu, order, &counts) else {
            if order == 0 {
                let free = (0..self.bad.len())
                    .find(|&slot| self.total(slot) == 0 && !self.is_discarding(slot));
                assert_eq!(free, None, "a free slot was not found");
            }
            return;
        };
        assert_eq!(usize::from(run.nr), nr);
        assert_eq!(run.first as usize % nr, 0, "{run:?} is not aligned");
        for (slot, i) in run.slots().zip(0..) {
            assert_eq!(
                self.total(slot as usize),
                0,
                "slot {slot} was handed out twice"
            );
            assert!(
                !self.is_discarding(slot as usize),
                "slot {slot} is being discarded"
            );
            let count = counts.get(i).copied().unwrap_or(0);
            self.counts[who][slot as usize] = count;
            for _ in 0..count {
                self.held.push((who, Run { first: slot, nr: 1 }));
            }
        }
    }

    fn put(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let victim = self.random.below(self.held.len() as u64) as usize;
        let (who, run) = self.held.swap_remove(victim);
        self.slots.put(self.owners[who], run);
        for slot in run.slots() {
            self.counts[who][slot as usize] -= 1;
        }
    }

    fn dup(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let which = self.random.below(self.held.len() as u64) as usize;
        let (who, run) = self.held[which];
        let fits = run
            .slots()
            .all(|slot| self.counts[who][slot as usize] < MOST);
        assert_eq!(self.slots.dup(self.owners[who], run), fits);
        if fits {
            self.held.push((who, run));
            for slot in run.slots() {
                self.counts[who][slot as usize] += 1;
            }
        }
    }

    fn fork(&mut self) {
        let parent = self.random.below(PROCESSES as u64) as usize;
        let child = (parent + 1) % PROCESSES;
        if child == 0 {
            // A new life: what the old one was discarding is back on its list.
            self.discarding.clear();
        }
        self.owners[child] = self.slots.fork(self.owners[parent], child);
        self.counts[child] = self.counts[parent].clone();
        self.held.retain(|&(who, _)| who != child);
        let copies: Vec<_> = self
            .held
            .iter()
            .filter(|&&(who, _)| who == parent)
            .collect();
        let copies: Vec<_> = copies.into_iter().map(|&(_, run)| (child, run)).collect();
        self.held.extend(copies);
    }

    fn release(&mut self) {
        let gone = self.random.below(PROCESSES as u64) as usize;
        let by = (gone + 1) % PROCESSES;
        self.slots.release(self.owners[by], gone);
        if gone == 0 {
            self.discarding.clear();
        }
        self.counts[gone].fill(0);
        self.held.retain(|&(who, _)| who != gone);
        self.owners[gone] = self.slots.join(gone);
    }

    fn retire(&mut self) {
        let Some(&(who, run)) = self.held.first() else {
            return;
        };
        self.slots.retire(self.owners[who], run);
        for slot in run.slots() {
            self.bad[slot as usize] = true;
            self.counts[who][slot as usize] = 0;
        }
        self.held.retain(|&(other, held)| {
            who != other || held.slots().all(|slot| !run.slots().contains(&slot))
        });
    }

    fn discard(&mut self) {
        if let Some(run) = self.discarding.pop() {
            self.slots.discarded(self.owners[0], run);
        } else if let Some(run) = self.slots.take_discard(self.owners[0]) {
            assert!(run.slots().all(|slot| self.total(slot as usize) == 0));
            self.discarding.push(run);
        }
    }

    fn step(&mut self) {
        match self.random.below(1000) {
            0..420 => self.alloc(),
            420..900 => self.put(),
            900..970 => self.dup(),
            970..975 => self.fork(),
            975..980 => self.release(),
            980..981 => self.retire(),
            981..983 => {
                if let Some(run) = self.slots.next_full(self.owners[1]) {
                    assert!(run.slots().all(|slot| self.total(slot as usize) > 0));
                }
            }
            _ => self.discard(),
        }
    }

    fn compare(&self) {
        let mut used = 0;
        for slot in 0..self.bad.len() {
            let total = self.total(slot);
            assert_eq!(self.slots.count(slot as u32), total, "slot {slot}");
            used += u64::from(total > 0);
            for who in 0..PROCESSES {
                assert_eq!(
                    self.slots.count_of(who, slot as u32),
                    self.counts[who][slot]
                );
            }
        }
        assert_eq!(self.slots.used(), used);
        let nonempty = (0..self.bad.len())
            .step_by(CLUSTER_SLOTS as usize)
            .filter(|&first| {
                (first..first + CLUSTER_SLOTS as usize).any(|slot| self.total(slot) > 0)
            });
        assert!(self.slots.in_use() >= nonempty.count() as u64 * u64::from(CLUSTER_SLOTS));
        for who in 0..PROCESSES {
            let mut walked = vec![0; self.bad.len()];
            self.slots
                .for_each_owned(who, |slot, count| walked[slot as usize] = count);
            let holds = walked.iter().any(|&count| count > 0);
            assert_eq!(self.slots.holds(who), holds, "process {who}");
            assert_eq!(walked, self.counts[who]);
        }
    }
}

#[test]
fn whatever_is_done_the_counts_are_the_models() {
    let seed = seed();
    let (stories, steps) = match (cfg!(miri), long()) {
        (true, _) => (1, 100),
        (false, true) => (400, 20_000),
        (false, false) => (20, 4_000),
    };
    for story in 0..stories {
        let nr_clusters = 1 + (story as u32 * 3) % 11;
        let ground = Ground::new(nr_clusters * CLUSTER_SLOTS);
        let mut story = Story::new(&ground, seed + story);
        for step in 0..steps {
            story.step();
            if step % 500 == 0 && !cfg!(miri) {
                story.compare();
            }
        }
        story.compare();
        // Every slot that is not bad can be had again.
        for (who, run) in std::mem::take(&mut story.held) {
            story.slots.put(story.owners[who], run);
        }
        for run in std::mem::take(&mut story.discarding) {
            story.slots.discarded(story.owners[0], run);
        }
        let good = story.bad.iter().filter(|&&bad| !bad).count();
        let one_by_one = std::iter::from_fn(|| story.slots.alloc(story.owners[0], 0, 0, &[1]));
        assert_eq!(one_by_one.count(), good, "slots were lost");
    }
}

#[test]
fn on_a_disk_that_turns_all_cpus_write_in_one_place() {
    let firsts = |rotational| {
        let ground = Ground::new(4 * CLUSTER_SLOTS);
        let slots = ground.slots(&all_alive);
        slots.set_kind(rotational, false);
        let owner = slots.join(0);
        [0, 1, 2].map(|cpu| slots.alloc(owner, cpu, 0, &[1]).unwrap().first)
    };
    assert_eq!(firsts(true), [0, 1, 2]);
    assert_eq!(firsts(false), [0, CLUSTER_SLOTS, 2 * CLUSTER_SLOTS]);
}

#[test]
fn a_closed_device_hands_out_nothing_and_takes_back() {
    let ground = Ground::new(CLUSTER_SLOTS);
    let slots = ground.slots(&all_alive);
    let owner = slots.join(7);
    let run = slots.alloc(owner, 0, 2, &[1, 2, 3, 4]).unwrap();
    slots.close();
    assert_eq!(slots.alloc(owner, 0, 0, &[1]), None);
    let mut walked = Vec::new();
    slots.for_each_owned(7, |slot, count| walked.push((slot, count)));
    assert_eq!(walked, [(0, 1), (1, 2), (2, 3), (3, 4)]);
    for (slot, count) in walked {
        (0..count).for_each(|_| slots.put(owner, Run { first: slot, nr: 1 }));
    }
    assert_eq!((slots.used(), slots.in_use()), (0, CLUSTER_SLOTS.into()));
    slots.open();
    assert_eq!(slots.alloc(owner, 0, 2, &[1]), Some(run));
}

#[test]
fn a_slot_is_shared_by_254_objects_and_no_more() {
    let ground = Ground::new(CLUSTER_SLOTS);
    let slots = ground.slots(&all_alive);
    let owner = slots.join(0);
    assert_eq!(slots.alloc(owner, 0, 0, &[MOST + 1]), None);
    let run = slots.alloc(owner, 0, 0, &[MOST - 1]).unwrap();
    assert!(slots.dup(owner, run));
    assert!(!slots.dup(owner, run));
    let child = slots.fork(owner, 1);
    assert_eq!(slots.count(run.first), 2 * u16::from(MOST));
    for _ in 0..MOST {
        slots.put(owner, run);
        assert_eq!(slots.used(), 1);
        slots.put(child, run);
    }
    assert_eq!(slots.used(), 0);
}

#[test]
fn the_metadata_is_less_than_a_byte_a_slot_beyond_the_counts() {
    let nr_slots: u32 = 1 << 20;
    let counts = nr_slots as usize * (NR_PROCESSES + 1);
    // A bit for each process and cluster, which is memory only where there are so many processes.
    let users = nr_slots as usize / CLUSTER_SLOTS as usize * (NR_PROCESSES + 1) / 8;
    let beyond = Slots::memory_len(nr_slots) - counts - users;
    assert!(beyond < nr_slots as usize, "{beyond}");
    assert!(users <= nr_slots as usize, "{users}");
}

/// Processes of the first group of 64, of another, and of the last.
#[test]
#[cfg(not(miri))]
fn thousands_of_processes_share_slots() {
    let ground = Ground::new(4 * CLUSTER_SLOTS);
    let slots = ground.slots(&all_alive);
    let parent = slots.join(0);
    let run = slots.alloc(parent, 0, 3, &[1; 8]).unwrap();
    let numbers = [1, 63, 64, 600, 4000, NR_PROCESSES - 1];
    let children = numbers.map(|number| slots.fork(parent, number));
    assert_eq!(slots.count(run.first), 7);
    for (child, number) in children.into_iter().zip(numbers) {
        assert!(slots.holds(number), "{number}");
        slots.put(child, run);
        assert!(!slots.holds(number), "{number}");
    }
    let again = slots.fork(parent, 4000);
    slots.put(parent, run);
    assert_eq!(
        (slots.count(run.first), slots.used()),
        (1, 8),
        "the child's"
    );
    slots.release(parent, again.index());
    assert_eq!(slots.used(), 0, "it is gone");
}
