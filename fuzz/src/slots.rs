//! *What*: the swap slot allocator against an array of counts: no slot is handed out twice, none is
//! lost, and every count is the model's, whatever is allocated, doubled, put, forked and released.

use std::cell::RefCell;

use uzswap_slots::{CLUSTER_SLOTS, Owner, Run, Slots};

use crate::bytes::Bytes;
use crate::fresh::Fresh;

const PROCESSES: usize = 3;
const CLUSTERS: u32 = 3;
const NR_SLOTS: u32 = CLUSTERS * CLUSTER_SLOTS;
/// The most that a process can count a slot.
const MAX_COUNT: u8 = 254;

thread_local! {
    static MEMORY: RefCell<Fresh> = RefCell::new(Fresh::new(Slots::memory_len(NR_SLOTS)));
}

/// See the head.
pub fn count_as_the_model(input: &[u8]) {
    MEMORY.with_borrow_mut(|memory| {
        // SAFETY: zeroed, of that length, aligned to a page, and used by nothing but the slots,
        // which are gone before it is borrowed again.
        let slots = unsafe { Slots::attach(memory.zeroed(), NR_SLOTS, &|_| true) };
        let mut input = Bytes::new(input);
        slots.set_kind(input.flag(), false);
        let mut story = Story {
            owners: std::array::from_fn(|index| slots.join(index)),
            counts: std::array::from_fn(|_| vec![0; NR_SLOTS as usize]),
            slots: &slots,
        };
        while !input.is_empty() {
            story.step(&mut input);
        }
        story.compare();
    });
}

struct Story<'a> {
    slots: &'a Slots<'a>,
    owners: [Owner; PROCESSES],
    counts: [Vec<u8>; PROCESSES],
}

impl Story<'_> {
    fn step(&mut self, input: &mut Bytes<'_>) {
        let who = input.below(PROCESSES);
        match input.byte() {
            0..0x70 => self.alloc(who, input),
            0x70..0xc0 => self.put(who, input),
            0xc0..0xe8 => self.dup(who, input),
            0xe8..0xf4 => {
                let child = (who + 1) % PROCESSES;
                self.owners[child] = self.slots.fork(self.owners[who], child);
                self.counts[child] = self.counts[who].clone();
            }
            0xf4..0xff => {
                let by = (who + 1) % PROCESSES;
                self.slots.release(self.owners[by], who);
                self.owners[who] = self.slots.join(who);
                self.counts[who].fill(0);
            }
            0xff => self.compare(),
        }
    }

    fn is_free(&self, slot: u32) -> bool {
        self.counts.iter().all(|counts| counts[slot as usize] == 0)
    }

    fn alloc(&mut self, who: usize, input: &mut Bytes<'_>) {
        let (order, cpu) = (input.byte() % 11, input.below(4));
        let counts = input.slice(1 + usize::from(order));
        let run = self.slots.alloc(self.owners[who], cpu, order, counts);
        let most = counts.iter().copied().max().unwrap_or(0);
        let Some(run) = run else {
            let could = most != 0 && most <= MAX_COUNT && order == 0;
            let free = (0..NR_SLOTS).any(|slot| self.is_free(slot));
            assert!(!could || !free, "a free slot was not found");
            return;
        };
        assert_eq!(u32::from(run.nr), 1 << order);
        assert_eq!(run.first % u32::from(run.nr), 0, "{run:?} is not aligned");
        assert!(run.slots().end <= NR_SLOTS, "{run:?} is beyond the device");
        for (at, slot) in run.slots().enumerate() {
            assert!(self.is_free(slot), "slot {slot} was handed out twice");
            self.counts[who][slot as usize] = counts.get(at).copied().unwrap_or(0);
        }
    }

    /// Some slots of one cluster that a process counts, from the first one behind a place on.
    fn counted(&self, who: usize, input: &mut Bytes<'_>) -> Option<Run> {
        let (from, most) = (input.u16() as u32 % NR_SLOTS, 1 + u32::from(input.byte()));
        let counts = &self.counts[who];
        let first = (from..NR_SLOTS).find(|slot| counts[*slot as usize] > 0)?;
        let end = (first / CLUSTER_SLOTS + 1) * CLUSTER_SLOTS;
        let run = (first..end.min(first + most)).take_while(|slot| counts[*slot as usize] > 0);
        Some(Run {
            first,
            nr: run.count() as u16,
        })
    }

    fn put(&mut self, who: usize, input: &mut Bytes<'_>) {
        let Some(run) = self.counted(who, input) else {
            return;
        };
        self.slots.put(self.owners[who], run);
        for slot in run.slots() {
            self.counts[who][slot as usize] -= 1;
        }
    }

    fn dup(&mut self, who: usize, input: &mut Bytes<'_>) {
        let Some(run) = self.counted(who, input) else {
            return;
        };
        let counts = &mut self.counts[who];
        let fits = run.slots().all(|slot| counts[slot as usize] < MAX_COUNT);
        assert_eq!(self.slots.dup(self.owners[who], run), fits, "{run:?}");
        for slot in run.slots().filter(|_| fits) {
            counts[slot as usize] += 1;
        }
    }

    fn compare(&self) {
        for slot in 0..NR_SLOTS {
            for (who, counts) in self.counts.iter().enumerate() {
                let counted = self.slots.count_of(who, slot);
                assert_eq!(counted, counts[slot as usize], "slot {slot} of {who}");
            }
        }
        let used = (0..NR_SLOTS).filter(|slot| !self.is_free(*slot)).count();
        assert_eq!(self.slots.used(), used as u64);
    }
}
