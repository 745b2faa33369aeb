//! *What*: threads that read pages for a time, and how long each waited.
//!
//! *Invariants*: every slot that comes holds its own number.
//! *Locking*: none. *Context*: the bench command.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use uzswap_io::opened::Opened;
use uzswap_io::{Device, Extent, MAX_READS, MAX_RUN, SLOT};

use super::reader::Reader;
use crate::random::Random;

/// Slots of one read of a stream.
const STREAM_SLOTS: u32 = 4;
const _: () = assert!(
    MAX_READS * STREAM_SLOTS as usize == MAX_RUN,
    "a run is read at once"
);

/// How the threads read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A page anywhere, then another.
    Pages,
    /// One after the other, as many at a time as a swap device takes.
    Stream,
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// How long each call took, the shortest first.
    waits: Vec<Duration>,
    /// Pages that came.
    pub pages: usize,
    /// From the first call to the last.
    pub elapsed: Duration,
}

impl Seen {
    /// The time within which so many of a thousand calls are served, µs.
    pub fn within_us(&self, per_mille: usize) -> f64 {
        let last = self.waits.len().saturating_sub(1);
        let wait = self
            .waits
            .get((self.waits.len() * per_mille / 1000).min(last));
        wait.map_or(0.0, |wait| wait.as_secs_f64() * 1e6)
    }

    /// MiB of pages in a second.
    pub fn mib_per_s(&self) -> f64 {
        (self.pages * SLOT) as f64 / f64::from(1 << 20) / self.elapsed.as_secs_f64()
    }
}

/// Memory aligned to slots, as `O_DIRECT` wants it.
struct Aligned(Vec<u8>);

impl Aligned {
    fn new(len: usize) -> Self {
        Self(vec![0; len + SLOT])
    }

    fn bytes(&mut self) -> &mut [u8] {
        let skip = self.0.as_ptr().align_offset(SLOT);
        let len = self.0.len() - SLOT;
        &mut self.0[skip..skip + len]
    }
}

/// Writes the number of each of `nr_slots` slots to it, and noise.
pub fn fill(device: &Device<Opened>, nr_slots: u64) -> Result<()> {
    let mut memory = Aligned::new(MAX_RUN * SLOT);
    let run = memory.bytes();
    let mut random = Random::new(nr_slots);
    for word in run.chunks_exact_mut(8) {
        word.copy_from_slice(&random.below(u32::MAX as usize).to_le_bytes());
    }
    for first in (0..nr_slots).step_by(MAX_RUN) {
        for (slot, number) in run.chunks_exact_mut(SLOT).zip(first..) {
            slot[..8].copy_from_slice(&number.to_le_bytes());
        }
        let wrote = device.write_at(first, run);
        wrote.map_err(|error| anyhow!("cannot write: {error:?}"))?;
    }
    Ok(())
}

/// Has each of `readers` read for `time`, in a thread of its own, from `nr_slots` slots.
///
/// # Errors
/// A read failed, or what came is not what was written.
pub fn drive(
    readers: Vec<Box<dyn Reader + '_>>,
    shape: Shape,
    nr_slots: u64,
    time: Duration,
) -> Result<Seen> {
    let began = Instant::now();
    let nr_readers = readers.len() as u64;
    let seen: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(readers)
            .map(|(nr, reader)| {
                let first = nr_slots / nr_readers * nr;
                scope.spawn(move || read(reader, shape, first, nr_slots, time))
            })
            .collect();
        threads
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect()
    });
    let mut all = Seen {
        waits: Vec::new(),
        pages: 0,
        elapsed: began.elapsed(),
    };
    for one in seen {
        let (waits, pages) = one.map_err(|_| anyhow!("a reader has panicked"))??;
        all.waits.extend(waits);
        all.pages += pages;
    }
    all.waits.sort_unstable();
    Ok(all)
}

/// What one thread does: the time of each call, and the pages that came.
fn read(
    mut reader: Box<dyn Reader + '_>,
    shape: Shape,
    first: u64,
    nr_slots: u64,
    time: Duration,
) -> Result<(Vec<Duration>, usize)> {
    let mut random = Random::new(first + 1);
    let mut memory = Aligned::new(MAX_RUN * SLOT);
    let (mut waits, mut pages) = (Vec::new(), 0);
    let step = u64::from(STREAM_SLOTS);
    let mut next = first / step * step;
    let began = Instant::now();
    while began.elapsed() < time {
        let extents: Vec<_> = match shape {
            Shape::Pages => vec![Extent {
                slot: random.below(usize::try_from(nr_slots)?) as u64,
                nr_slots: 1,
            }],
            Shape::Stream => (0..MAX_READS as u64)
                .map(|nr| Extent {
                    slot: (next + nr * step) % nr_slots,
                    nr_slots: STREAM_SLOTS,
                })
                .collect(),
        };
        next += step * MAX_READS as u64;
        let len = extents.iter().map(Extent::bytes).sum();
        let buffer = &mut memory.bytes()[..len];
        let asked = Instant::now();
        reader.read(&extents, buffer)?;
        waits.push(asked.elapsed());
        let numbers = extents
            .iter()
            .flat_map(|e| e.slot..e.slot + u64::from(e.nr_slots));
        for (slot, number) in buffer.chunks_exact(SLOT).zip(numbers) {
            ensure!(slot[..8] == number.to_le_bytes(), "slot {number} is wrong");
        }
        pages += len / SLOT;
    }
    Ok((waits, pages))
}
