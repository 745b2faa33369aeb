//! How often a run of 16 slots is not found.

use uzswap_slots::Run;

use super::Allocator;
use super::random::Random;

const ORDER_OF_64K: u8 = 4;
/// Half of the bytes are in runs of 16 slots: there are 16 single ones to each.
const ONE_IN: usize = 17;

/// How much of it.
pub(super) struct Scale {
    pub(super) nr_slots: u32,
    /// Entries that are stored; what is on the device is replaced some four times by them.
    pub(super) nr_steps: u32,
    /// Percent.
    pub(super) in_use: &'static [usize],
}

/// An entry of 1 or 16 slots: one run, or what it fell apart into.
struct Entry {
    runs: Vec<Run>,
    /// Whether its first choice was not to be had.
    fell_back: bool,
}

impl Entry {
    fn alloc(device: &dyn Allocator, mut order: u8) -> Self {
        let mut left: u16 = 1 << order;
        let mut entry = Entry {
            runs: Vec::new(),
            fell_back: false,
        };
        while left > 0 {
            match device.alloc(0, order) {
                Some(run) => {
                    left -= run.nr;
                    entry.runs.push(run);
                }
                None if order == 0 => break,
                None => {
                    entry.fell_back = true;
                    order -= 1;
                }
            }
            while left > 0 && 1 << order > left {
                order -= 1;
            }
        }
        entry
    }

    fn nr_slots(&self) -> usize {
        self.runs.iter().map(|run| usize::from(run.nr)).sum()
    }
}

/// Half of what is stored is 64 KiB, half 4 KiB, freed at random with `in_use` percent in use; in how many of 100 cases the former finds no run.
pub(super) fn percent(device: &dyn Allocator, in_use: usize, scale: &Scale) -> f64 {
    let mut random = Random::new(11);
    let mut held: Vec<Entry> = Vec::new();
    let (mut used, mut asked, mut fell_back) = (0, 0_u32, 0_u32);
    let target = scale.nr_slots as usize * in_use / 100;
    for step in 0..scale.nr_steps {
        while used + (1 << ORDER_OF_64K) > target {
            let victim = held.swap_remove(random.below(held.len()));
            used -= victim.nr_slots();
            victim.runs.into_iter().for_each(|run| device.put(run));
        }
        let large = random.below(ONE_IN) == 0;
        let entry = Entry::alloc(device, if large { ORDER_OF_64K } else { 0 });
        if large && step > scale.nr_steps / 4 {
            asked += 1;
            fell_back += u32::from(entry.fell_back);
        }
        used += entry.nr_slots();
        held.push(entry);
    }
    f64::from(fell_back) / f64::from(asked.max(1)) * 100.0
}
