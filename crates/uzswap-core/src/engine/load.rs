//! *What*: load: bringing pages into the arena, by decompressing (or zero-filling) into the slot's
//! buffer and copying whole runs in with one call.
//!
//! *Invariants*: a page's entry becomes resident only after its copy succeeded, and its pool object
//! is freed only after that, so a failed load loses nothing. What was decoded stays in the load buffer until it is
//! copied in.
//! *Locking*: the folio is held by the caller. *Context*: signal, worker.

use super::Parts;
use super::clock::tick_shift;
use super::fault::Fault;
use super::object::{Undecodable, unpack_page};
use crate::arena::{PAGE_SIZE, Page, PageRange, narrow, wide};
use crate::folio::FolioGuard;
use crate::slot::{LOAD_LEN, SlotGuard, SlotInner};
use crate::table::Entry;
use uzswap_compress::same_filled;
use uzswap_group::counters::add;
use uzswap_group::group::FailureReason;
use uzswap_pool::Loc;
use uzswap_sync::primitive::Ordering::Relaxed;
use uzswap_sys::Errno;
use uzswap_sys::fmt::write_line;

/// Why pages could not be brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadError {
    /// The stored data of this page, or of the block that begins here, cannot be read from the device.
    Unreadable(Page),
    /// They do not decode, or are not what was stored.
    Damaged(Page),
    /// The kernel refused the copy.
    Kernel(Errno),
}

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
    fn goes_on(&self, source: Source, page: Page, at: usize) -> bool {
        self.source == source
            && self.start + self.nr == page.index()
            && self.nr * PAGE_SIZE < LOAD_LEN
            && (source == Source::Zeroes || self.end_in_buffer() == at)
    }
}

impl Parts {
    /// Brings in what `range` (within the folio of `guard`) has evicted, and with `zero_fill` also what was
    /// never touched, as far as `credit`, the caller's charged pages, goes.
    pub(crate) fn bring_in(
        &self,
        slot: &mut SlotGuard<'_>,
        guard: &FolioGuard<'_>,
        range: PageRange,
        zero_fill: bool,
        credit: &mut u64,
    ) -> Result<Brought, LoadError> {
        let mut brought = Brought::default();
        let mut run: Option<Run> = None;
        // Decoded, a block or a batch, in the load buffer from byte `ready_at` on.
        let mut ready = PageRange { start: 0, end: 0 };
        let (mut ready_at, mut ready_block) = (0, false);
        slot.swap_in.begin();
        for page in range.pages() {
            let entry = self.table.get(page);
            if entry.in_block() && page.index() >= ready.end {
                let next = self.block_of(page);
                let whole = range.start <= next.start && next.end <= range.end;
                if !whole || *credit < self.contents_of(next) {
                    continue;
                }
                ready_at = self.room_in_buffer(slot, guard, &mut run, next.len(), &mut brought)?;
                if let Err(error) = self.load_block(slot, next, next.len(), ready_at) {
                    self.flush(slot, guard, &mut run, &mut brought)?;
                    return Err(error);
                }
                (ready, ready_block) = (next, true);
            }
            if page.index() >= ready.end
                && let Some(next) = self.batch_at(page, range, *credit)
            {
                let at = self.room_in_buffer(slot, guard, &mut run, next.len(), &mut brought)?;
                // If not, each is on its own below.
                if self.load_batch(slot, next, at) {
                    (ready, ready_at, ready_block) = (next, at, false);
                }
            }
            if entry.is_dropped() && page.index() < ready.end {
                self.table.set(page, Entry::None);
                self.forget(entry);
                continue;
            }
            let source = match entry {
                Entry::None if zero_fill => Source::Zeroes,
                entry if entry.is_evicted() => Source::Loaded,
                _ => continue,
            };
            if *credit == 0 {
                break;
            }
            let at = match source {
                Source::Zeroes => 0,
                Source::Loaded if page.index() < ready.end => {
                    ready_at + (page.index() - ready.start) * PAGE_SIZE
                }
                Source::Loaded => self.room_in_buffer(slot, guard, &mut run, 1, &mut brought)?,
            };
            if !run
                .as_ref()
                .is_some_and(|run| run.goes_on(source, page, at))
            {
                self.flush(slot, guard, &mut run, &mut brought)?;
            }
            self.prefetch_stored(page, range);
            // Of a page that left its block, the block has what it was.
            let is_ready = page.index() < ready.end && entry.in_block() == ready_block;
            if source == Source::Loaded
                && !is_ready
                && let Err(error) = self.decode(slot, page, entry, range, at)
            {
                self.flush(slot, guard, &mut run, &mut brought)?;
                return Err(error);
            }
            *credit -= 1;
            match &mut run {
                Some(run) => run.nr += 1,
                None => {
                    run = Some(Run {
                        start: page.index(),
                        nr: 1,
                        source,
                        at,
                    });
                }
            }
        }
        self.flush(slot, guard, &mut run, &mut brought)?;
        Ok(brought)
    }

    /// Where in the load buffer `nr` more pages go: behind what waits there to be copied in, or, that
    /// being done, at its beginning.
    fn room_in_buffer(
        &self,
        slot: &mut SlotGuard<'_>,
        guard: &FolioGuard<'_>,
        run: &mut Option<Run>,
        nr: usize,
        brought: &mut Brought,
    ) -> Result<usize, LoadError> {
        let at = run.as_ref().map_or(0, Run::end_in_buffer);
        if at + nr * PAGE_SIZE <= LOAD_LEN {
            return Ok(at);
        }
        self.flush(slot, guard, run, brought)?;
        Ok(0)
    }

    /// Copies in what waits for it.
    fn flush(
        &self,
        slot: &mut SlotGuard<'_>,
        guard: &FolioGuard<'_>,
        run: &mut Option<Run>,
        brought: &mut Brought,
    ) -> Result<(), LoadError> {
        match run.take() {
            Some(done) => self.copy_in(slot, guard, &done, brought),
            None => Ok(()),
        }
    }

    /// Fetches what is stored of the page after `page`, if it is in `range`.
    fn prefetch_stored(&self, page: Page, range: PageRange) {
        let next = page.index() + 1;
        if next < range.end
            && let Entry::Stored { loc, size, .. } = self.table.get(Page::from_index(next))
        {
            self.pool.prefetch(loc, usize::from(size));
        }
    }

    /// Decodes `page` of `range` into the slot's load buffer at byte `at`.
    pub(super) fn decode(
        &self,
        slot: &mut SlotGuard<'_>,
        page: Page,
        entry: Entry,
        range: PageRange,
        at: usize,
    ) -> Result<(), LoadError> {
        let (unreadable, damaged) = (LoadError::Unreadable(page), LoadError::Damaged(page));
        let SlotInner {
            decompressor,
            load,
            swap_in,
            ..
        } = &mut **slot;
        let out = load.get_mut(at..at + PAGE_SIZE).ok_or(damaged)?;
        match entry {
            Entry::Filled { word, .. } => {
                same_filled::fill(out, word);
                Ok(())
            }
            Entry::Stored { loc, size, .. } => {
                let data = self.pool.data_ptr(loc);
                // SAFETY: the object lives and does not move while the folio is held, and has at
                // least `size` bytes: that is what it was allocated for.
                let data = unsafe { core::slice::from_raw_parts(data, usize::from(size)) };
                // SAFETY: as above.
                let note = unsafe { self.note(loc, size) };
                self.told(unpack_page(decompressor, data, note, out))
            }
            Entry::Swapped { .. } => {
                let read = self.swap_in(swap_in, page, range, |data, fingerprint| {
                    // A page stored as it is was checked when it was written, and its seal just now.
                    let unpacked = self.told(unpack_page(decompressor, data, 0, out));
                    (unpacked, fingerprint)
                });
                let (unpacked, fingerprint) = read.ok_or(unreadable)?;
                swap_in.note(at / PAGE_SIZE, fingerprint);
                unpacked
            }
            Entry::None | Entry::Resident | Entry::Block { .. } => Ok(()),
        }
        .map_err(|Undecodable| damaged)
    }

    /// What was noted of an object beside it; 0 if nothing was.
    ///
    /// # Safety
    /// It lives, and has that size.
    pub(super) unsafe fn note(&self, loc: Loc, size: u16) -> u32 {
        if usize::from(size) == PAGE_SIZE {
            // SAFETY: the caller's promise.
            unsafe { self.pool.note(loc) }
        } else {
            0
        }
    }

    /// A page's contents cannot be had back: the program gets SIGBUS for the access. The first time
    /// is told, of what the device lost and of what the pool did.
    pub(crate) fn lost(&self, error: LoadError) -> Fault {
        match error {
            LoadError::Unreadable(page) => self.tell_unreadable(page),
            LoadError::Damaged(page) => self.tell_damaged(page),
            LoadError::Kernel(errno) => {
                self.die(FailureReason::Internal, errno.0.unsigned_abs(), 0)
            }
        }
        Fault::Corrupt
    }

    fn tell_damaged(&self, page: Page) {
        if !self.told_damaged.swap(true, Relaxed) {
            let _ = write_line(
                2,
                format_args!(
                    "uzswap: memory at {:#x} is lost, because what the compressed pool held of it was \
                     damaged: the program gets SIGBUS where it uses it",
                    page.addr(),
                ),
            );
        }
    }

    /// Counts what could not be decoded.
    pub(super) fn told<T>(&self, unpacked: Result<T, Undecodable>) -> Result<T, Undecodable> {
        if unpacked.is_err() {
            add(&self.counters().decompress_fail, 1);
        }
        unpacked
    }

    /// Copies a run in and makes its entries resident.
    pub(super) fn copy_in(
        &self,
        slot: &mut SlotGuard<'_>,
        guard: &FolioGuard<'_>,
        run: &Run,
        brought: &mut Brought,
    ) -> Result<(), LoadError> {
        let source = match run.source {
            Source::Zeroes => None,
            Source::Loaded => Some(slot.load.get(run.at..).unwrap_or_default().as_ptr()),
        };
        let mut done = 0;
        let mut most = run.nr;
        while done < run.nr {
            let dst = Page::from_index(run.start + done).addr();
            let len = (run.nr - done).min(most) * PAGE_SIZE;
            // SAFETY: the destination is arena memory that no entry calls resident, so nothing is
            // overwritten; the source is readable for `len` bytes: a run is at most LOAD_LEN.
            let result = unsafe {
                let source = source.map(|source| source.add(done * PAGE_SIZE));
                self.install(guard, dst, source, len)
            };
            let copied = match result {
                Ok(copied) => copied,
                Err(error) if error.copied > 0 => error.copied,
                Err(error) if error.errno == Errno::EAGAIN => 0,
                // The run crosses from one mapping into another (mprotect has split them), which no
                // single copy may.
                Err(error) if error.errno == Errno::ENOENT && most > 1 => {
                    most = 1;
                    0
                }
                // Present though never touched: something else wrote to it (a debugger). It stays.
                Err(error) if error.errno == Errno::EEXIST && run.source == Source::Zeroes => {
                    PAGE_SIZE
                }
                Err(error) => return Err(LoadError::Kernel(error.errno)),
            };
            let nr = copied / PAGE_SIZE;
            for place in done..done + nr {
                let page = Page::from_index(run.start + place);
                let place = run.at / PAGE_SIZE + place;
                brought.swapped += usize::from(self.make_resident(slot, page, place));
            }
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a folio has 512 pages at most"
            )]
            guard.add_resident(nr as u16);
            self.count_resident(nr);
            match run.source {
                Source::Zeroes => brought.zeroed += nr,
                Source::Loaded => brought.loaded += nr,
            }
            done += nr;
        }
        Ok(())
    }

    /// Counts pages that came back, by where from.
    pub(crate) fn count_loaded(&self, brought: Brought) {
        let counters = self.counters();
        add(&counters.zswpin, wide(brought.loaded - brought.swapped));
        add(&counters.pswpin, wide(brought.swapped));
    }

    /// The page, at `place` of the load buffer, is in: its entry says so, and what was stored of it goes,
    /// unless that is a copy on the swap device worth keeping. Says whether it was on the device.
    fn make_resident(&self, slot: &mut SlotGuard<'_>, page: Page, place: usize) -> bool {
        let old = self.table.get(page);
        self.table.set(page, Entry::Resident);
        let swapped = matches!(old, Entry::Swapped { .. });
        let fingerprint = slot.swap_in.noted(place);
        if !swapped || old.in_block() || !self.keep_copy(slot, page, old, fingerprint) {
            self.forget(old);
        }
        swapped
    }

    /// Frees what an entry that is no longer in the table held.
    pub(crate) fn forget(&self, old: Entry) {
        self.uncount(old);
        match old {
            // SAFETY: the entry was the object's only holder, and the folio is held.
            Entry::Stored { loc, .. } => unsafe { self.pool.free(loc, self.charge) },
            Entry::Swapped { location, size, .. } => {
                if let Some(swap) = &self.swap {
                    swap.put(location, size);
                }
            }
            Entry::Filled { .. } | Entry::Block { .. } | Entry::None | Entry::Resident => {}
        }
    }

    /// Whether a page evicted at `age` came back sooner than the resident set would have turned
    /// over: had its folio been on the active list, it would still be in.
    pub(crate) fn is_workingset(&self, entry: Entry) -> bool {
        let Some(age) = entry.age() else { return false };
        let ticks = u64::from(age.distance(self.clock.now()));
        let distance = ticks << tick_shift(self.charge.limit());
        distance <= self.resident.load(Relaxed)
    }

    /// The limit in bytes.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.charge.limit() * wide(PAGE_SIZE)
    }

    /// Most pages that one operation brings in at once: a fraction of the limit.
    pub(crate) fn window_limit(&self) -> usize {
        narrow(self.charge.limit() / 32).max(1)
    }
}
