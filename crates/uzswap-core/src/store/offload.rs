//! *What*: batches of pages that [accelerators](crate::accel) compress, or decode for a load of
//! several pages.
//!
//! A batch belongs to an operation and uses its jobs. While the accelerators work, the operation
//! does in software what they did not take; then it waits, and does what they returned undone.
//!
//! *Invariants*: between operations all jobs of an operation are settled.
//! *Locking*: op. *Context*: signal, worker.

use crate::accel::{BATCH, Dispatched, Job, Outcome, Params, Spread, Task};
use crate::op::{LOAD_LEN, Op};
use crate::page::block::Entries;
use crate::page::{Age, Content, Entry, PAGE_SIZE, Page, PageRange, Pages, narrow, wide};
use crate::store::codec::BLOCK_BUFFERS;
use crate::store::object::{MAX_COMPRESSED, same_filled_word};
use crate::store::{Store, object};
use core::ops::Range;
use uzswap_compress::CodecId;
use uzswap_group::counters::add;
use uzswap_group::knobs::{MAPPED, is_on};
use uzswap_sync::primitive::Ordering::Relaxed;
use uzswap_sync::strict_assert;
use uzswap_sys::thread;

/// Pages submitted to accelerators.
#[derive(Debug, Default)]
pub(crate) struct Offload {
    /// Their places in the operation's batch.
    places: [usize; BATCH],
    nr: usize,
    dispatched: Dispatched,
    /// The codec.
    id: Option<CodecId>,
    /// Their objects are to have checksums.
    checked: bool,
}

impl Offload {
    /// Seals the `len` bytes that an accelerator made in `piece` as an object. `None`: `len` is
    /// impossible.
    pub(crate) fn seal<'a>(&self, piece: &'a mut [u8], len: usize) -> Option<&'a [u8]> {
        let fits = len <= object::body(MAX_COMPRESSED, self.checked).len();
        object::seal(self.id.filter(|_| fits)?, len, self.checked, piece)
    }

    /// Whether accelerators took that place of the operation's batch.
    pub(crate) fn has(&self, at: usize) -> bool {
        self.places
            .iter()
            .take(self.dispatched.nr)
            .any(|&place| place == at)
    }

    /// Whether accelerators took none.
    pub(crate) fn is_empty(&self) -> bool {
        self.dispatched.nr == 0
    }

    /// The places that accelerators took and, once the batch is complete, each one's outcome.
    pub(crate) fn taken(&self, jobs: &'static [Job]) -> impl Iterator<Item = (usize, Outcome)> {
        let taken = self.places.into_iter().zip(jobs).take(self.dispatched.nr);
        taken.map(|(at, job)| (at, job.outcome().unwrap_or(Outcome::Aborted)))
    }
}

impl Store {
    /// Hands the first `nr` jobs of the operation, all prepared for `task`, to the accelerators.
    pub(crate) fn dispatch(&self, op: &Op, nr: usize, task: Task) -> Dispatched {
        strict_assert!(nr <= op.jobs.len(), "a batch has more pages than jobs");
        let jobs = op.jobs.get(..nr).unwrap_or_default();
        let spread = if self.account.knobs().accel.load(Relaxed) & MAPPED == 0 {
            Spread::RoundRobin
        } else {
            Spread::Mapped {
                cpu: thread::sched_getcpu() as usize,
            }
        };
        let dispatched = self.accel.dispatch(jobs, task, spread);
        for job in jobs.iter().skip(dispatched.nr) {
            job.settle(Outcome::Aborted);
        }
        if dispatched.refused > 0 {
            add(&self.account.counters().accel_retries, dispatched.refused);
        }
        dispatched
    }

    /// Submits pages of the operation's batch, at most [`BATCH`], to the accelerators, which
    /// compress them to their pieces of the store buffer at `pieces`. Same-filled pages get their
    /// entries.
    pub(crate) fn submit_pages(
        &self,
        op: &mut Op,
        places: Range<usize>,
        pieces: *mut u8,
        age: Age,
    ) -> Offload {
        let mut offload = Offload::default();
        let task = Task::Compress(op.compressor.codec());
        let charged = self.is_charged(BLOCK_BUFFERS);
        if !charged || !self.accel.serves(task) {
            return offload;
        }
        offload.checked = is_on(&self.account.knobs().checksum);
        offload.id = Some(op.compressor.codec().id());
        let body = object::body(MAX_COMPRESSED, offload.checked);
        let look = is_on(&self.account.knobs().same_filled_pages_enabled);
        let mut nr = 0;
        for (piece, at) in places.enumerate() {
            let (Some(place), Some(job), Some(number)) = (
                op.batch.pages.get_mut(at),
                op.jobs.get(nr),
                offload.places.get_mut(nr),
            ) else {
                strict_assert!(false, "more pages than jobs, or outside the batch");
                break;
            };
            // SAFETY: the page is mapped and readable: its folio is isolated by this thread.
            if look && let Some(word) = unsafe { same_filled_word(place.page) } {
                place.entry = Entry::Filled { word, age };
                continue;
            }
            *number = at;
            nr += 1;
            // SAFETY: the page stays mapped and readable until the batch is done; the piece is
            // within the buffer, a page for each of the batch, and used for nothing else until
            // then.
            unsafe {
                job.prepare(Params {
                    task,
                    src: place.page.addr() as *const u8,
                    src_len: PAGE_SIZE,
                    dst: pieces.add(piece * PAGE_SIZE + body.start),
                    dst_len: body.len(),
                });
            }
        }
        offload.dispatched = self.dispatch(op, nr, task);
        offload.nr = nr;
        offload
    }

    /// Waits for the pages that accelerators took, and counts them.
    pub(crate) fn complete(&self, op: &Op, offload: &Offload) {
        if offload.nr == 0 {
            return;
        }
        self.accel.settle(op.jobs, &offload.dispatched);
        let done = |(_, outcome)| matches!(outcome, Outcome::Done(_) | Outcome::Incompressible);
        let compressed = offload
            .taken(op.jobs)
            .map(done)
            .filter(|&done| done)
            .count();
        add(&self.account.counters().accel_compressed, wide(compressed));
        add(
            &self.account.counters().accel_fallback,
            wide(offload.nr - compressed),
        );
    }

    /// The pages from `page` on, in `range` and at most `credit`, that accelerators may decode as a
    /// batch: single pages, all of one codec that an accelerator serves.
    pub(crate) fn batch_at(
        &self,
        pages: &Pages,
        page: Page,
        range: PageRange,
        credit: u64,
    ) -> Option<PageRange> {
        if !self.accel.has_queues() {
            return None;
        }
        let most = range.end.min(page.index() + BATCH.min(narrow(credit)));
        let id = self.object_of(pages, page).and_then(object::codec_of)?;
        let same = |index: &usize| {
            let object = self.object_of(pages, Page::from_index(*index));
            object.and_then(object::codec_of) == Some(id)
        };
        let nr = (page.index()..most).take_while(same).count();
        (nr > 1 && self.accel.serves(Task::Decompress(id))).then_some(PageRange {
            start: page.index(),
            end: page.index() + nr,
        })
    }

    /// The object of a page that is stored compressed, alone, in the pool. The caller holds its
    /// folio.
    fn object_of(&self, pages: &Pages, page: Page) -> Option<&[u8]> {
        let Entry::Stored {
            loc,
            size,
            content: Content::Page,
            ..
        } = pages.get(page)
        else {
            return None;
        };
        // SAFETY: the entry names it with this size, and the caller holds the folio.
        let object = unsafe { self.object(loc, size) };
        (object.len() < PAGE_SIZE).then_some(object)
    }

    /// What is to be decoded of the [`Store::object_of`] a page, and by which codec.
    fn open_object(&self, pages: &Pages, page: Page) -> Option<(CodecId, &[u8])> {
        object::open(self.object_of(pages, page)?).ok()
    }

    /// Decodes the pages of `batch`, which [`Store::batch_at`] found, into the load buffer at byte
    /// `at`. `false`: one of them could not be decoded.
    pub(crate) fn load_batch(
        &self,
        pages: &Pages,
        op: &mut Op,
        batch: PageRange,
        at: usize,
    ) -> bool {
        if at + batch.bytes() > LOAD_LEN {
            return false;
        }
        // SAFETY: that much is within the buffer.
        let places = unsafe { op.load.as_mut_ptr().add(at) };
        let Some(task) = self.prepare_loads(pages, op, batch, places) else {
            return false;
        };
        let dispatched = self.dispatch(op, batch.len(), task);
        // SAFETY: the page's place, as in `prepare_loads`: no accelerator works on it.
        let place = |nr: usize| unsafe {
            core::slice::from_raw_parts_mut(places.add(nr * PAGE_SIZE), PAGE_SIZE)
        };
        let mut decode = |nr: usize, page: Page| {
            let (id, data) = self.open_object(pages, page)?;
            op.decompressor.decompress(id, data, place(nr)).ok()
        };
        let mut right = true;
        for (nr, page) in batch.pages().enumerate().skip(dispatched.nr) {
            right &= decode(nr, page).is_some();
        }
        self.accel.settle(op.jobs, &dispatched);
        let mut decoded = 0;
        for (nr, (page, job)) in batch.pages().zip(op.jobs).enumerate().take(dispatched.nr) {
            if job.outcome() == Some(Outcome::Done(PAGE_SIZE)) {
                decoded += 1;
            } else {
                right &= decode(nr, page).is_some();
            }
        }
        add(&self.account.counters().accel_decompressed, wide(decoded));
        add(
            &self.account.counters().accel_fallback,
            wide(batch.len() - decoded),
        );
        right
    }

    /// Prepares a job for each page of `batch`, to be decoded to its place in the load buffer, the
    /// first of which is `places`. `None`, and no job is prepared: an object is damaged.
    fn prepare_loads(
        &self,
        pages: &Pages,
        op: &Op,
        batch: PageRange,
        places: *mut u8,
    ) -> Option<Task> {
        let mut task = None;
        for (nr, (page, job)) in batch.pages().zip(op.jobs).enumerate() {
            let Some((id, data)) = self.open_object(pages, page) else {
                for job in op.jobs.iter().take(nr) {
                    job.settle(Outcome::Aborted);
                }
                return None;
            };
            task = Some(Task::Decompress(id));
            // SAFETY: the object does not change while the folio is held; the place is within the
            // buffer, as `load_batch` has checked, and used for nothing else until the batch is
            // done.
            unsafe {
                job.prepare(Params {
                    task: Task::Decompress(id),
                    src: data.as_ptr(),
                    src_len: data.len(),
                    dst: places.add(nr * PAGE_SIZE),
                    dst_len: PAGE_SIZE,
                });
            }
        }
        task
    }
}
