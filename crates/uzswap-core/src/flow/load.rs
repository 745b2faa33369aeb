//! *What*: load: decodes (or zero-fills) pages into the operation's buffer and copies whole runs
//! into the arena with one call.
//!
//! Each page has a [`Step`], planned when its turn comes; neighbours whose steps agree form one
//! [`Run`].
//!
//! *Invariants*: an entry becomes resident only after its copy succeeded, and its pool object is
//! freed only after that, so a failed load loses nothing. Decoded data stay in the load buffer
//! until they are copied in.
//! *Locking*: the caller holds the folio. *Context*: signal, worker.

use super::decode::{LoadError, decode, load_block};
use super::share::count_new;
use super::sizes::count_resident;
use crate::op::{LOAD_LEN, OpGuard};
use crate::page::block::Entries;
use crate::page::folio::FolioGuard;
use crate::page::{Entry, PAGE_SIZE, Page, PageRange, wide};
use crate::parts::Parts;
use uzswap_group::counters::add;
use uzswap_sync::strict_assert;
use uzswap_sys::Errno;

/// What a call brought in, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Brought {
    pub loaded: usize,
    /// Of `loaded`, those that came from the swap device.
    pub swapped: usize,
    pub zeroed: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Zeroes,
    Loaded,
}

/// Pages next to each other that one copy brings in.
pub(super) struct Run {
    pub start: usize,
    pub nr: usize,
    pub source: Source,
    /// Where they are in the load buffer, if that is their source.
    pub at: usize,
}

impl Run {
    fn end_in_buffer(&self) -> usize {
        match self.source {
            Source::Zeroes => 0,
            Source::Loaded => self.at + self.nr * PAGE_SIZE,
        }
    }

    /// Whether `page`, at byte `at` of the load buffer, can be copied in with it.
    fn continues(&self, source: Source, page: Page, at: usize) -> bool {
        self.source == source
            && self.start + self.nr == page.index()
            && self.nr * PAGE_SIZE < LOAD_LEN
            && (source == Source::Zeroes || self.end_in_buffer() == at)
    }
}

/// What is to be done about one page.
enum Step {
    /// Nothing: it is in, or was never touched, or its block does not come in whole.
    Skip,
    /// No charged page is left for it, nor for those behind it.
    Stop,
    /// Its block comes in, and it has no contents any more: it is fresh.
    Forget,
    /// It is copied in, from byte `at` of the load buffer if it is loaded; if `decode`, it is
    /// decoded to there first.
    Copy {
        source: Source,
        at: usize,
        decode: bool,
    },
}

/// Pages that were decoded together, a block or an accelerator's batch, and lie in the load buffer.
struct Decoded {
    pages: PageRange,
    /// Where the first of them is in the load buffer.
    at: usize,
    is_block: bool,
}

/// A load under way.
struct Load<'a> {
    parts: &'a Parts,
    guard: &'a FolioGuard<'a>,
    range: PageRange,
    zero_fill: bool,
    /// What waits to be copied in.
    run: Option<Run>,
    decoded: Decoded,
    brought: Brought,
}

/// Brings in what `range` (within the folio of `guard`) has evicted, and with `zero_fill` also what
/// was never touched, as far as `credit`, the caller's charged pages, goes.
pub(crate) fn bring_in(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    guard: &FolioGuard<'_>,
    range: PageRange,
    zero_fill: bool,
    credit: &mut u64,
) -> Result<Brought, LoadError> {
    op.window.begin();
    let mut load = Load {
        parts,
        guard,
        range,
        zero_fill,
        run: None,
        decoded: Decoded {
            pages: PageRange { start: 0, end: 0 },
            at: 0,
            is_block: false,
        },
        brought: Brought::default(),
    };
    let done = load.load_pages(op, credit);
    // What was loaded before something failed is in all the same.
    load.flush(op)?;
    done.map(|()| load.brought)
}

impl Load<'_> {
    fn load_pages(&mut self, op: &mut OpGuard<'_>, credit: &mut u64) -> Result<(), LoadError> {
        for page in self.range.pages() {
            match self.plan(op, page, *credit)? {
                Step::Skip => {}
                Step::Stop => break,
                Step::Forget => self.parts.transition().forget_dropped(page),
                Step::Copy { source, at, decode } => {
                    self.add(op, page, source, at, decode)?;
                    *credit -= 1;
                }
            }
        }
        Ok(())
    }

    /// What is to be done about `page`. Decodes the block or batch that begins with it.
    fn plan(&mut self, op: &mut OpGuard<'_>, page: Page, credit: u64) -> Result<Step, LoadError> {
        let entry = self.parts.pages.get(page);
        if !self.is_decoded(page) {
            if entry.in_block() {
                if !self.decode_block(op, page, credit)? {
                    return Ok(Step::Skip);
                }
            } else {
                self.decode_batch(op, page, credit)?;
            }
        }
        let decoded = self.is_decoded(page);
        let step = match entry {
            entry if entry.is_dropped() && decoded => Step::Forget,
            Entry::None if !self.zero_fill => Step::Skip,
            entry if entry != Entry::None && !entry.is_evicted() => Step::Skip,
            _ if credit == 0 => Step::Stop,
            Entry::None => Step::Copy {
                source: Source::Zeroes,
                at: 0,
                decode: false,
            },
            entry if decoded => Step::Copy {
                source: Source::Loaded,
                at: self.decoded.at + (page.index() - self.decoded.pages.start) * PAGE_SIZE,
                // A page that left its block lies where the block has what it was.
                decode: entry.in_block() != self.decoded.is_block,
            },
            _ => Step::Copy {
                source: Source::Loaded,
                at: self.room_in_buffer(op, 1)?,
                decode: true,
            },
        };
        Ok(step)
    }

    fn is_decoded(&self, page: Page) -> bool {
        page.index() < self.decoded.pages.end
    }

    /// Decodes the block that `page` is the first of in the range. `false`: it does not come in
    /// whole.
    fn decode_block(
        &mut self,
        op: &mut OpGuard<'_>,
        page: Page,
        credit: u64,
    ) -> Result<bool, LoadError> {
        let block = self.parts.pages.block_of(page);
        let whole = self.range.and(block) == block;
        if !whole || credit < self.parts.pages.contents_of(block) {
            return Ok(false);
        }
        let at = self.room_in_buffer(op, block.len())?;
        load_block(self.parts, op, block, block.len(), at)?;
        self.decoded = Decoded {
            pages: block,
            at,
            is_block: true,
        };
        Ok(true)
    }

    /// Has accelerators decode the pages from `page` on, if there are any, and if it is several.
    /// What they fail to decode is decoded page by page.
    fn decode_batch(
        &mut self,
        op: &mut OpGuard<'_>,
        page: Page,
        credit: u64,
    ) -> Result<(), LoadError> {
        let Parts { pages, store, .. } = self.parts;
        let Some(batch) = store.batch_at(pages, page, self.range, credit) else {
            return Ok(());
        };
        let at = self.room_in_buffer(op, batch.len())?;
        if store.load_batch(pages, op, batch, at) {
            self.decoded = Decoded {
                pages: batch,
                at,
                is_block: false,
            };
        }
        Ok(())
    }

    /// Adds `page` to the run, or begins another with it.
    fn add(
        &mut self,
        op: &mut OpGuard<'_>,
        page: Page,
        source: Source,
        at: usize,
        decodes: bool,
    ) -> Result<(), LoadError> {
        let continues = |run: &Run| run.continues(source, page, at);
        if !self.run.as_ref().is_some_and(continues) {
            self.flush(op)?;
        }
        self.prefetch_next(page);
        if decodes {
            let entry = self.parts.pages.get(page);
            decode(self.parts, op, page, entry, self.range, at)?;
        }
        match &mut self.run {
            Some(run) => run.nr += 1,
            None => {
                self.run = Some(Run {
                    start: page.index(),
                    nr: 1,
                    source,
                    at,
                });
            }
        }
        Ok(())
    }

    /// Fetches what is stored of the page after `page`, if it is in the range.
    fn prefetch_next(&self, page: Page) {
        let next = page.index() + 1;
        if next < self.range.end
            && let Entry::Stored { loc, size, .. } = self.parts.pages.get(Page::from_index(next))
        {
            self.parts.store.prefetch(loc, size);
        }
    }

    /// Where in the load buffer `nr` more pages go: behind what waits there to be copied in, or,
    /// that being done, at its beginning.
    fn room_in_buffer(&mut self, op: &mut OpGuard<'_>, nr: usize) -> Result<usize, LoadError> {
        let at = self.run.as_ref().map_or(0, Run::end_in_buffer);
        if at + nr * PAGE_SIZE <= LOAD_LEN {
            return Ok(at);
        }
        self.flush(op)?;
        Ok(0)
    }

    /// Copies in what waits for it.
    fn flush(&mut self, op: &mut OpGuard<'_>) -> Result<(), LoadError> {
        match self.run.take() {
            Some(run) => copy_in(self.parts, op, self.guard, &run, &mut self.brought),
            None => Ok(()),
        }
    }
}

/// Copies a run in and makes its entries resident.
pub(crate) fn copy_in(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    guard: &FolioGuard<'_>,
    run: &Run,
    brought: &mut Brought,
) -> Result<(), LoadError> {
    let mut done = 0;
    // Pages that one copy may bring in.
    let mut most = run.nr;
    while done < run.nr {
        let nr = match install(parts, op, guard, run, done, most) {
            Ok(nr) => nr,
            // The run crosses from one mapping into another (mprotect has split them), which no
            // single copy may.
            Err(Errno::ENOENT) if most > 1 => {
                most = 1;
                continue;
            }
            Err(errno) => return Err(LoadError::Kernel(errno)),
        };
        for place in done..done + nr {
            let page = Page::from_index(run.start + place);
            let place = run.at / PAGE_SIZE + place;
            brought.swapped += usize::from(make_resident(parts, op, page, place));
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a folio has 512 pages at most"
        )]
        guard.add_resident(nr as u16);
        count_resident(parts, nr);
        let start = run.start + done;
        let end = start + nr;
        count_new(parts, guard, PageRange { start, end });
        match run.source {
            Source::Zeroes => brought.zeroed += nr,
            Source::Loaded => brought.loaded += nr,
        }
        done += nr;
    }
    Ok(())
}

/// Makes up to `most` pages of the run, behind the first `done`, present. Returns how many.
fn install(
    parts: &Parts,
    op: &OpGuard<'_>,
    guard: &FolioGuard<'_>,
    run: &Run,
    done: usize,
    most: usize,
) -> Result<usize, Errno> {
    let dst = Page::from_index(run.start + done).addr();
    let len = (run.nr - done).min(most) * PAGE_SIZE;
    let source = match run.source {
        Source::Zeroes => None,
        Source::Loaded => {
            let at = run.at + done * PAGE_SIZE;
            let source = op.load.get(at..at + len);
            strict_assert!(source.is_some(), "a run outside the load buffer");
            Some(source.ok_or(Errno::EFAULT)?.as_ptr())
        }
    };
    // SAFETY: the destination is arena memory that no entry calls resident, so nothing is
    // overwritten; the source is `len` bytes of the load buffer.
    match unsafe { parts.arena.install(guard, dst, source, len) } {
        Ok(copied) => Ok(copied / PAGE_SIZE),
        Err(error) if error.copied > 0 => Ok(error.copied / PAGE_SIZE),
        Err(error) => match error.errno {
            Errno::EAGAIN => Ok(0),
            // Present though never touched: something else wrote to it (a debugger). It stays.
            Errno::EEXIST if run.source == Source::Zeroes => Ok(1),
            errno => Err(errno),
        },
    }
}

/// Counts pages that came back, by where from.
pub(crate) fn count_loaded(parts: &Parts, brought: Brought) {
    let counters = parts.account.counters();
    add(&counters.zswpin, wide(brought.loaded - brought.swapped));
    add(&counters.pswpin, wide(brought.swapped));
}

/// The page, at `place` of the load buffer, is in: its entry says so, and what was stored of it
/// goes, unless that is a copy on the swap device worth keeping. Says whether it was on the device.
fn make_resident(parts: &Parts, op: &mut OpGuard<'_>, page: Page, place: usize) -> bool {
    let fingerprint = op.window.noted(place);
    let keeps = |old: Entry| {
        matches!(old, Entry::Swapped { .. })
            && !old.in_block()
            && (parts.backing.as_ref().zip(fingerprint))
                .is_some_and(|(backing, fingerprint)| backing.keep_copy(op, page, old, fingerprint))
    };
    let old = parts.transition().make_resident(page, keeps);
    matches!(old, Entry::Swapped { .. })
}
