//! *What*: dictionaries come and go: what is stored page by page with zstd is compressed by a page of what such pages of this program have in
//! common, as long as that pays (`dictionary`).
//!
//! The thread that makes cold data denser looks each time that as many pages were evicted as the limit has: at a *sample*, of pages that are
//! stored alone, spread over all of them. It *trains* a dictionary on one half of the sample, and *tries* it on the other: both ways to compress
//! a page, in what the pool would take for it. If that gains [`LEAST_GAIN`] it is made the live one. At the next look the live one is tried on a
//! fresh sample. If what it gains has fallen a new one is trained, and takes its place if it gains more. The old one's entries stay as
//! they are; with the last of them it is given back. Looks that found nothing are made more and more rarely.
//!
//! *Invariants*
//! - It reads what is in the pool and never touches the arena: see [`densify`](super::densify).
//! - A slot is held for one page at a time, and what is half done lies in [`Work`] then: a fork child finds it there and gives it back.
//! - One thread at a time trains, and only it changes which dictionaries there are.
//!
//! *Locking*: slot → [`Work`] → folio (tried). *Context*: a thread of its own, with all signals blocked.

use core::ptr::NonNull;

use super::densify::Share;
use super::dictionary::Made;
use super::{Engine, Parts};
use crate::arena::{PAGE_SIZE, Page, PageRange, wide};
use crate::masked::Masked;
use crate::slot::{SlotGuard, SlotInner};
use crate::table::{DictNr, Entry};
use uzswap_compress::{Codec, Compressor, Digest, Trainer, trainer};
use uzswap_group::counters::{add, sub};
use uzswap_group::knobs::is_on;
use uzswap_pool::Pool;
use uzswap_sync::lock::Lock;
use uzswap_sync::primitive::{AtomicBool, Ordering};

/// Pages that one is trained on, and as many that it is tried on.
const SAMPLE: usize = 128;
/// What a dictionary must gain, thousandths: less is not worth a tenth of the time that compressing takes.
const LEAST_GAIN: u64 = 25;
/// Looks that found nothing are made so many times more rarely in the end.
const RAREST: u64 = 16;
/// Share of one CPU that looking may take at least, percent.
const LEAST_SHARE: u64 = 10;

/// The training under way.
#[derive(Debug)]
pub(crate) struct Training {
    /// A thread is at it.
    busy: AtomicBool,
    work: Lock<Work>,
}

#[derive(Debug)]
struct Work {
    /// A [`Trainer`].
    trainer: Option<NonNull<u8>>,
    /// What is being tried.
    candidate: Option<Made>,
    /// The eviction clock at the last look.
    looked: u64,
    /// Times the limit that are to be evicted until the next.
    wait: u64,
    /// What the live one gained when that was last found to be enough, thousandths.
    gain: u64,
}

// SAFETY: the trainer is reached through this alone.
unsafe impl Send for Work {}

impl Training {
    /// Nothing looked at yet.
    pub(crate) const fn new() -> Self {
        Training {
            busy: AtomicBool::new(false),
            work: Lock::new(Work {
                trainer: None,
                candidate: None,
                looked: 0,
                wait: 0,
                gain: 0,
            }),
        }
    }

    /// In a fork child, where nobody is at it.
    pub(crate) fn fork_child(&self) {
        self.busy.store(false, Ordering::Relaxed);
    }
}

impl Work {
    fn trainer(&mut self) -> Option<&mut Trainer> {
        let memory = self.trainer?;
        // SAFETY: made by `begin_training` in memory of its own, and reached through `self` alone.
        Some(unsafe { memory.cast::<Trainer>().as_mut() })
    }
}

/// Bytes that what was tried takes in the pool.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    without: usize,
    with: usize,
}

impl Sizes {
    /// The part that the dictionary saves, thousandths; `None`: nothing was tried.
    fn gain(self) -> Option<u64> {
        let saved = self.without.saturating_sub(self.with);
        (saved * 1000).checked_div(self.without).map(wide)
    }
}

/// What is tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tried {
    Live,
    Candidate,
}

/// Whether a live dictionary gains too little `now`, one that gained `before`.
const fn has_fallen(now: u64, before: u64) -> bool {
    now < LEAST_GAIN || now * 4 < before * 3
}

/// Whether a dictionary is to take the place of a live one, if there is one.
fn is_better(gain: u64, live: Option<u64>) -> bool {
    gain >= LEAST_GAIN && live.is_none_or(|live| gain > live + live / 8)
}

impl Engine {
    /// Looks at the dictionaries now, whatever was evicted since the last time.
    pub fn tend_dictionaries(&self, masked: &Masked) {
        if let Some(parts) = self.parts() {
            parts.tend_dictionaries(masked, true);
        }
    }
}

impl Parts {
    /// Gives back the dictionaries that nobody needs, and looks whether there is a better one, if it is time for that or `now`.
    pub(super) fn tend_dictionaries(&self, masked: &Masked, now: bool) {
        if self.training.busy.swap(true, Ordering::Acquire) {
            return;
        }
        let knobs = &self.group.knobs;
        let codec = knobs
            .codec()
            .filter(|codec| is_on(&knobs.dictionary) && Digest::required_size(*codec).is_some());
        self.leave_training(masked);
        {
            let _slot = self.slot(masked);
            let serves = codec.is_some_and(|codec| self.live_dictionary(codec).is_some());
            if !serves {
                self.dictionaries.retire();
            }
        }
        if let Some(codec) = codec
            && (now || self.is_time_to_look(masked))
        {
            let share = if now {
                100
            } else {
                knobs.densify.load(Ordering::Relaxed).max(LEAST_SHARE)
            };
            self.look(masked, codec, share);
            self.leave_training(masked);
        }
        self.drop_unused(masked);
        self.publish_sizes();
        self.training.busy.store(false, Ordering::Release);
    }

    fn is_time_to_look(&self, masked: &Masked) -> bool {
        let _slot = self.slot(masked);
        let work = self.training.work.lock();
        let limit = self.charge.limit();
        self.clock.pages_since(work.looked, limit) >= work.wait * limit
    }

    fn look(&self, masked: &Masked, codec: Codec, share: u64) {
        let stride = self.nr_alone() / SAMPLE;
        if stride < 2 {
            return;
        }
        let sample = Sample {
            parts: self,
            masked,
            stride,
            share,
        };
        let live = match self.dictionaries.live() {
            Some(_) => sample.try_out(Tried::Live),
            None => None,
        };
        let before = {
            let _slot = self.slot(masked);
            let mut work = self.training.work.lock();
            work.looked = self.clock.reading();
            work.gain
        };
        let found = match live {
            Some(now) if !has_fallen(now, before) => None,
            _ => Some(
                sample
                    .train(codec)
                    .and_then(|()| sample.try_out(Tried::Candidate)),
            ),
        };
        self.conclude(masked, live, found);
    }

    /// Goes over to the candidate if that is better, or leaves the live one if that gains too little. `live`: what that gains, if there is one;
    /// `found`: what the candidate does, if one was to be had; none was looked for while the live one is good.
    fn conclude(&self, masked: &Masked, live: Option<u64>, found: Option<Option<u64>>) {
        let mut slot = self.slot(masked);
        let mut work = self.training.work.lock();
        let Some(candidate) = found else {
            work.wait = 1;
            return;
        };
        match (candidate, work.candidate.take()) {
            (Some(gain), Some(made)) if is_better(gain, live) => {
                let bytes = made.bytes();
                self.dictionaries.retire();
                match self.dictionaries.publish(made) {
                    Ok(_) => {
                        add(&self.counters().dictionary_trained, 1);
                        add(&self.counters().dictionary_bytes, bytes);
                    }
                    // There is a place: that was seen before it was trained.
                    Err(made) => self.give_back_dictionary(&mut slot, made),
                }
                (work.gain, work.wait) = (gain, 1);
            }
            (_, made) => {
                if let Some(made) = made {
                    add(&self.counters().reject_dictionary_poor, 1);
                    self.give_back_dictionary(&mut slot, made);
                }
                match live {
                    Some(now) if now >= LEAST_GAIN => work.gain = now,
                    _ => self.dictionaries.retire(),
                }
                work.wait = (work.wait * 2).clamp(1, RAREST);
            }
        }
    }

    /// Pages that a sample may be taken of.
    fn nr_alone(&self) -> usize {
        self.alone().count()
    }

    /// The pages that are stored in the pool, compressed, each by itself. Without their folios, hints.
    fn alone(&self) -> impl Iterator<Item = Page> {
        self.table
            .ready_chunks(0)
            .flatten()
            .map(Page::from_index)
            .filter(|page| is_alone(self.table.get(*page)))
    }

    /// Memory for a trainer, charged, if there is room for it, and a place for what it makes.
    fn begin_training(&self, masked: &Masked) -> Option<()> {
        self.dictionaries.free()?;
        let mut slot = self.slot(masked);
        let memory = self.charged_memory(&mut slot, size_of::<Trainer>())?;
        // SAFETY: fresh memory for one, that nobody else uses until it is given back.
        unsafe { Trainer::init(memory) };
        self.training.work.lock().trainer = Some(memory);
        Some(())
    }

    /// Gives back what training took, now or before a fork.
    fn leave_training(&self, masked: &Masked) {
        let mut slot = self.slot(masked);
        let mut work = self.training.work.lock();
        if let Some(memory) = work.trainer.take() {
            // SAFETY: it is reached through `work` alone.
            unsafe { self.give_back_memory(&mut slot, memory, size_of::<Trainer>()) };
        }
        if let Some(made) = work.candidate.take() {
            self.give_back_dictionary(&mut slot, made);
        }
    }

    /// Gives back what is retired and named by no entry.
    fn drop_unused(&self, masked: &Masked) {
        let unused = DictNr::ALL.map(|nr| self.dictionaries.is_unused(nr));
        if !unused.contains(&true) {
            return;
        }
        // Whoever began before it was unused ends.
        for slot in self.slots.all() {
            drop(slot.acquire());
        }
        let mut slot = self.slot(masked);
        for (nr, was_unused) in DictNr::ALL.into_iter().zip(unused) {
            if was_unused && self.dictionaries.is_unused(nr) {
                // SAFETY: it was unused before each slot was free, and is; only this thread retires and publishes.
                if let Some(made) = unsafe { self.dictionaries.take(nr) } {
                    add(&self.counters().dictionary_dropped, 1);
                    sub(&self.counters().dictionary_bytes, made.bytes());
                    self.give_back_dictionary(&mut slot, made);
                }
            }
        }
    }
}

fn is_alone(entry: Entry) -> bool {
    matches!(entry, Entry::Stored { size, holds, .. } if holds.is_page() && usize::from(size) < PAGE_SIZE)
}

/// Every so many pages that are stored alone, and the share of a CPU that it takes to look at them.
struct Sample<'a> {
    parts: &'a Parts,
    masked: &'a Masked,
    stride: usize,
    share: u64,
}

impl Sample<'_> {
    /// Decodes half of the sample, that which begins with page `first`, and shows each to `to`.
    fn show(&self, first: usize, mut to: impl FnMut(&mut SlotGuard<'_>, &mut Work)) {
        let mut share = Share::new();
        let pages = self.parts.alone().skip(first).step_by(self.stride);
        for page in pages.take(SAMPLE) {
            let mut slot = self.parts.slot(self.masked);
            let mut work = self.parts.training.work.lock();
            if self.parts.decode_alone(&mut slot, page) {
                to(&mut slot, &mut work);
            }
            drop((work, slot));
            share.rest(self.share);
        }
    }

    /// Trains a candidate. `None`: there is no room for that.
    fn train(&self, codec: Codec) -> Option<()> {
        self.parts.begin_training(self.masked)?;
        self.show(0, |slot, work| {
            if let Some((trainer, page)) = work.trainer().zip(slot.load.get(..PAGE_SIZE)) {
                trainer.count(page);
            }
        });
        let mut nr = 0;
        self.show(0, |slot, work| {
            if let Some((trainer, page)) = work.trainer().zip(slot.load.get(..PAGE_SIZE)) {
                trainer.look(page);
                nr += 1;
                if nr % (SAMPLE / trainer::PIECES) == 0 {
                    trainer.take();
                }
            }
        });
        let mut slot = self.parts.slot(self.masked);
        let mut work = self.parts.training.work.lock();
        let content = work.trainer()?.finish();
        let made = self.parts.make_dictionary(&mut slot, codec, content)?;
        work.candidate = Some(made);
        Some(())
    }

    /// What the live one or the candidate gains with the other half of the sample, thousandths.
    fn try_out(&self, tried: Tried) -> Option<u64> {
        let mut sizes = Sizes::default();
        self.show(self.stride / 2, |slot, work| {
            let codec = slot.compressor.codec();
            let live = self.parts.live_dictionary(codec).map(|live| live.made);
            let made = match tried {
                Tried::Live => live,
                Tried::Candidate => work.candidate.as_ref(),
            };
            // The slot may not have taken the codec up yet.
            if let Some(made) = made.filter(|made| made.digest.serves(codec, PAGE_SIZE)) {
                sizes.add(slot, &made.digest);
            }
        });
        sizes.gain()
    }
}

impl Sizes {
    /// Compresses the page in the slot's load buffer with and without the dictionary.
    fn add(&mut self, slot: &mut SlotInner, digest: &Digest) {
        let SlotInner {
            compressor,
            load,
            store,
            ..
        } = slot;
        let (Some(page), Some(out)) = (load.get(..PAGE_SIZE), store.get_mut(..PAGE_SIZE)) else {
            return;
        };
        let mut takes = |digest| takes(compressor, digest, page, out);
        self.without += takes(None);
        self.with += takes(Some(digest));
    }
}

/// Bytes that the pool takes for what is made of `page`.
fn takes(
    compressor: &mut Compressor,
    digest: Option<&Digest>,
    page: &[u8],
    out: &mut [u8],
) -> usize {
    let made = compressor.compress_stable_by(digest, page, out);
    made.map_or(PAGE_SIZE, |size| Pool::takes(size + 1).min(PAGE_SIZE))
}

impl Parts {
    /// Decodes a page that is stored alone to the slot's load buffer. `false`: it is in use, or not what it was, or damaged.
    fn decode_alone(&self, slot: &mut SlotGuard<'_>, page: Page) -> bool {
        let Some(_guard) = self.folios.of(page).try_lock() else {
            return false;
        };
        let entry = self.table.get(page);
        is_alone(entry)
            && self
                .decode(slot, page, entry, PageRange::one(page), 0)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_is_replaced_by_one_that_gains_more_and_only_when_it_gains_less_than_before() {
        assert!(!is_better(LEAST_GAIN - 1, None));
        assert!(is_better(LEAST_GAIN, None));
        // One that fell from 80 to 40: as good as that is not enough.
        assert!(has_fallen(40, 80) && !has_fallen(60, 80) && !has_fallen(90, 80));
        assert!(!is_better(42, Some(40)) && is_better(50, Some(40)));
        assert!(has_fallen(LEAST_GAIN - 1, LEAST_GAIN));
    }

    #[test]
    fn what_was_not_tried_gains_nothing_to_compare() {
        assert_eq!(Sizes::default().gain(), None);
        let sizes = |without, with| Sizes { without, with };
        assert_eq!(sizes(1000, 940).gain(), Some(60));
        assert_eq!(sizes(1000, 1100).gain(), Some(0));
    }
}
