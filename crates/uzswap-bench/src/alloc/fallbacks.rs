//! How often a run of 16 slots is not found.

use uzswap_slots::Run;

use super::Allocator;
use crate::random::Random;

const ORDER_OF_64K: u8 = 4;
/// Share of runs of 16 slots: one in 17, so that half of the bytes are in them.
const LARGE_ONE_IN: usize = 17;

/// Sizes of the measurement.
pub(super) struct Scale {
    pub(super) nr_slots: u32,
    /// Entries stored; they replace the content of the device about four times.
    pub(super) nr_steps: u32,
    /// Percent of the device.
    pub(super) in_use: &'static [usize],
}

/// An entry of 1 or 16 slots: one run, or several smaller ones.
struct Entry {
    runs: Vec<Run>,
    /// Whether there was no run for all of it.
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

/// The percentage of entries of 64 KiB that find no run, where half of the bytes are in such
/// entries and half in entries of 4 KiB, freed at random so that `in_use` percent of the device are
/// in use.
pub(super) fn percent(device: &dyn Allocator, in_use: usize, scale: &Scale) -> f64 {
    let mut random = Random::new(11);
    let mut held: Vec<Entry> = Vec::new();
    let (mut used, mut nr_large, mut fell_back) = (0, 0_u32, 0_u32);
    let target = scale.nr_slots as usize * in_use / 100;
    for step in 0..scale.nr_steps {
        while used + (1 << ORDER_OF_64K) > target {
            let victim = held.swap_remove(random.below(held.len()));
            used -= victim.nr_slots();
            victim.runs.into_iter().for_each(|run| device.put(run));
        }
        let large = random.below(LARGE_ONE_IN) == 0;
        let entry = Entry::alloc(device, if large { ORDER_OF_64K } else { 0 });
        if large && step > scale.nr_steps / 4 {
            nr_large += 1;
            fell_back += u32::from(entry.fell_back);
        }
        used += entry.nr_slots();
        held.push(entry);
    }
    f64::from(fell_back) / f64::from(nr_large.max(1)) * 100.0
}
