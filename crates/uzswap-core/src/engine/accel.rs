//! *What*: batches of pages on their way through [devices](crate::accel): of stores, and of loads that bring in several pages; and the engines,
//! devices made of threads, as the knob `accel` asks for them.
//!
//! A batch belongs to a slot, whose jobs it uses. What no device takes its asker does in software while the devices work, and
//! so what they give back; then it waits. An engine compresses with one codec: when another is asked for it leaves, gets another compressor, and
//! comes back. What is asked for is looked at when there is room to be made, so a process that never reclaims has no engines.
//!
//! *Invariants*: between operations all of a slot's jobs are settled. Engines are made once, charged, and kept; how many
//! there may be is decided at start, when the system call guard is built to know the program's last thread from ours.
//! *Locking*: slot; `following` is only tried. *Context*: init; signal, worker.

use core::ops::Range;

use super::compressor::{BLOCK_BUFFERS, compressor_len, new_compressor, unmap_compressor};
use super::object;
use super::start::reserve;
use super::store::{MOST_COMPRESSED, same_filled_word};
use super::{Engine, Parts};
use crate::accel::thread::{Contexts, EngineThread, STACK};
use crate::accel::{BATCH, Dealt, Job, Op, Outcome, Spread, Work, WorkQueue};
use crate::arena::{PAGE_SIZE, Page, PageRange, narrow, wide};
use crate::slot::{LOAD_LEN, SlotGuard, SlotInner};
use crate::table::{Age, Entry, Holds};
use uzswap_compress::{Codec, CodecId, Decompressor};
use uzswap_group::counters::add;
use uzswap_group::group::Group;
use uzswap_group::knobs::{MAPPED, MAX_WORKERS, is_on};
use uzswap_sync::lock::Lock;
use uzswap_sync::primitive::{
    AtomicPtr, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use uzswap_sys::thread;

/// What [`Engines::asked`] never is: everything is to be looked at.
const UNKNOWN: u64 = u64::MAX;

/// The engines of this process.
#[derive(Debug)]
pub(crate) struct Engines {
    threads: [AtomicPtr<EngineThread>; narrow(MAX_WORKERS)],
    /// How many of them there may be.
    most: usize,
    /// The knobs that they are set up by.
    asked: AtomicU64,
    /// Held while they are set up.
    following: Lock<()>,
}

impl Engines {
    pub(super) fn new(group: &Group) -> Self {
        Self {
            threads: [const { AtomicPtr::new(core::ptr::null_mut()) }; narrow(MAX_WORKERS)],
            most: nr_asked(group.knobs.accel.load(Relaxed)),
            asked: AtomicU64::new(UNKNOWN),
            following: Lock::new(()),
        }
    }

    fn all(&self) -> impl Iterator<Item = &'static EngineThread> {
        self.threads.iter().filter_map(|engine| {
            // Acquire: pairs with the release in `make_engine`.
            let engine = engine.load(Acquire);
            // SAFETY: null, or an engine that lives for good.
            unsafe { engine.as_ref() }
        })
    }

    /// Threads of engines in this process.
    pub(crate) fn nr_threads(&self) -> u64 {
        wide(self.all().filter(|engine| engine.is_started()).count())
    }

    /// In a fork child: there are none, until they are needed.
    pub(super) fn forget(&self) {
        self.all().for_each(EngineThread::forget);
        self.asked.store(UNKNOWN, Relaxed);
    }
}

fn nr_asked(knob: u64) -> usize {
    narrow((knob & !MAPPED).min(MAX_WORKERS))
}

impl Engine {
    /// One more device, for as long as the process lives. `false`: there are too many, or the engine has not started.
    pub fn add_queue(&self, queue: &'static dyn WorkQueue) -> bool {
        self.parts().is_some_and(|parts| {
            parts.engines.asked.store(UNKNOWN, Relaxed);
            parts.accel.add(queue)
        })
    }

    /// Whether there may be engines in this process, and how many there are now.
    #[must_use]
    pub fn engines(&self) -> (bool, u64) {
        self.parts().map_or((false, 0), |parts| {
            (parts.engines.most > 0, parts.engines.nr_threads())
        })
    }
}

impl Parts {
    /// Sets the engines up as the knobs ask for.
    #[inline]
    pub(super) fn follow_engines(&self, slot: &mut SlotGuard<'_>) {
        let knobs = &self.group.knobs;
        let asked = knobs.accel.load(Relaxed) << 32 | knobs.compressor.load(Relaxed);
        if asked != self.engines.asked.load(Relaxed) {
            self.change_engines(slot, asked);
        }
    }

    #[cold]
    fn change_engines(&self, slot: &mut SlotGuard<'_>, asked: u64) {
        let wanted = nr_asked(self.group.knobs.accel.load(Relaxed)).min(self.engines.most);
        let Some(codec) = self.group.knobs.codec() else {
            return;
        };
        // A vfork child has no business to start threads here.
        if thread::getpid() != self.pid.load(Relaxed) {
            return;
        }
        let Some(_following) = self.engines.following.try_lock() else {
            return;
        };
        let mut done = true;
        if wanted > 0 || self.accel.has_queues() {
            self.charge_part(slot, BLOCK_BUFFERS, crate::slot::STORE_LEN - PAGE_SIZE);
        }
        for at in 0..self.engines.threads.len() {
            if at < wanted {
                done &= self.bring_up(slot, at, codec);
            } else if let Some(engine) = self.engines.all().nth(at) {
                engine.close();
            }
        }
        if done {
            self.engines.asked.store(asked, Relaxed);
        }
    }

    /// Engine `at` is there, and compresses with `codec`. `false`: not yet. If there is no room for it, or the process may
    /// have no more threads, there is none, and it is not tried again.
    fn bring_up(&self, slot: &mut SlotGuard<'_>, at: usize, codec: Codec) -> bool {
        let engine = self.engines.all().nth(at);
        let Some(engine) = engine.or_else(|| self.make_engine(slot, at, codec)) else {
            return true;
        };
        if engine.codec() != Some(codec) {
            engine.close();
            if !engine.is_away() {
                return false;
            }
            if !self.change_engine(slot, engine, codec) {
                return true;
            }
        }
        // SAFETY: whoever holds a slot has all signals blocked; we hold `following`, and are no vfork child.
        !unsafe { engine.start() } || engine.open()
    }

    fn make_engine(
        &self,
        slot: &mut SlotGuard<'_>,
        at: usize,
        codec: Codec,
    ) -> Option<&'static EngineThread> {
        const CONTEXT_AT: usize = size_of::<EngineThread>().next_multiple_of(PAGE_SIZE);
        let decoder = Decompressor::required_size();
        let stack_at = CONTEXT_AT + decoder.next_multiple_of(PAGE_SIZE);
        // Of the stack as little is counted as of the program's own.
        let pages = wide((stack_at + compressor_len(codec, PAGE_SIZE)) / PAGE_SIZE);
        if !self.make_room(slot, pages) {
            return None;
        }
        let made = reserve(stack_at + STACK)
            .ok()
            .zip(new_compressor(codec, PAGE_SIZE).ok());
        let Some((memory, compressor)) = made else {
            self.unreserve_pages(slot, pages);
            return None;
        };
        // SAFETY: the parts of `memory` do not overlap, live for good, and are aligned to pages.
        let engine = unsafe {
            let decompressor = Decompressor::init(memory.add(CONTEXT_AT), decoder).ok()?;
            let contexts = Contexts {
                compressor,
                decompressor,
            };
            let engine = memory.cast::<EngineThread>();
            engine.write(EngineThread::new(
                contexts,
                memory.addr() + stack_at + STACK,
            ));
            &*engine
        };
        self.metadata.fetch_add(pages, Relaxed);
        let place = self.engines.threads.get(at)?;
        // Release: pairs with the acquire in `Engines::all`.
        place.store(core::ptr::from_ref(engine).cast_mut(), Release);
        self.accel.add(engine).then_some(engine)
    }

    /// Gives `engine`, which is away, another compressor. `false`: there is no room for it.
    fn change_engine(&self, slot: &mut SlotGuard<'_>, engine: &EngineThread, codec: Codec) -> bool {
        let pages = wide(compressor_len(codec, PAGE_SIZE) / PAGE_SIZE);
        if !self.make_room(slot, pages) {
            return false;
        }
        let Ok(new) = new_compressor(codec, PAGE_SIZE) else {
            self.unreserve_pages(slot, pages);
            return false;
        };
        // SAFETY: we hold `following`, without which nobody opens it either; what comes back nobody uses any more.
        let freed = unsafe { unmap_compressor(&engine.replace(new)) };
        self.metadata.fetch_add(pages, Relaxed);
        self.metadata.fetch_sub(freed, Relaxed);
        self.unreserve_pages(slot, freed);
        true
    }

    /// Hands the first `nr` jobs of the slot, all asked to do `op`, to the devices.
    fn deal(&self, slot: &SlotInner, nr: usize, op: Op) -> Dealt {
        let jobs = slot.jobs.get(..nr).unwrap_or_default();
        let spread = if self.group.knobs.accel.load(Relaxed) & MAPPED == 0 {
            Spread::RoundRobin
        } else {
            Spread::Mapped {
                cpu: thread::sched_getcpu() as usize,
            }
        };
        let dealt = self.accel.deal(jobs, op, spread);
        for job in jobs.iter().skip(dealt.nr) {
            job.settle(Outcome::Aborted);
        }
        if dealt.refused > 0 {
            add(&self.counters().accel_retries, dealt.refused);
        }
        dealt
    }

    /// Hands pages of the slot's batch, at most [`BATCH`], to the devices, to be compressed to their pieces of the store buffer
    /// at `pieces`; those that repeat one word have their entries then.
    pub(super) fn offer_pages(
        &self,
        slot: &mut SlotInner,
        places: Range<usize>,
        pieces: *mut u8,
        age: Age,
    ) -> Offered {
        let mut offered = Offered::default();
        let op = Op::Compress(slot.compressor.codec());
        let charged = self.charged_parts.load(Relaxed) & BLOCK_BUFFERS != 0;
        if !charged || !self.accel.serves(op) {
            return offered;
        }
        offered.checked = is_on(&self.group.knobs.checksum);
        offered.id = Some(slot.compressor.codec().id());
        let body = object::body(MOST_COMPRESSED, offered.checked);
        let look = is_on(&self.group.knobs.same_filled_pages_enabled);
        let mut nr = 0;
        for (piece, at) in places.enumerate() {
            let (Some(place), Some(job), Some(number)) = (
                slot.batch.pages.get_mut(at),
                slot.jobs.get(nr),
                offered.places.get_mut(nr),
            ) else {
                break;
            };
            // SAFETY: the page is mapped and readable: its folio is isolated by this thread.
            if look && let Some(word) = unsafe { same_filled_word(place.page) } {
                place.entry = Entry::Filled { word, age };
                continue;
            }
            *number = at;
            nr += 1;
            // SAFETY: the page stays mapped and readable until the batch is done; the piece is within the buffer, a page for each
            // of the batch, and used for nothing else until then.
            unsafe {
                job.ask(Work {
                    op,
                    src: place.page.addr() as *const u8,
                    src_len: PAGE_SIZE,
                    dst: pieces.add(piece * PAGE_SIZE + body.start),
                    dst_len: body.len(),
                });
            }
        }
        offered.dealt = self.deal(slot, nr, op);
        offered.nr = nr;
        offered
    }

    /// Waits for what the devices took.
    pub(super) fn settle(&self, slot: &SlotInner, offered: &Offered) {
        if offered.nr == 0 {
            return;
        }
        self.accel.settle(slot.jobs, &offered.dealt);
        let done = |(_, outcome)| matches!(outcome, Outcome::Made(_) | Outcome::Poor);
        let compressed = offered
            .taken(slot.jobs)
            .map(done)
            .filter(|&done| done)
            .count();
        add(&self.counters().accel_compressed, wide(compressed));
        add(
            &self.counters().accel_fallback,
            wide(offered.nr - compressed),
        );
    }

    /// The pages from `page` on, in `range` and at most `credit`, that devices may decode as a batch: each an object of its own, all of one
    /// codec that a device serves.
    pub(super) fn batch_at(&self, page: Page, range: PageRange, credit: u64) -> Option<PageRange> {
        if !self.accel.has_queues() {
            return None;
        }
        let most = range.end.min(page.index() + BATCH.min(narrow(credit)));
        let id = self.object_of(page).and_then(object::codec_of)?;
        let same = |index: &usize| {
            let object = self.object_of(Page::from_index(*index));
            object.and_then(object::codec_of) == Some(id)
        };
        let nr = (page.index()..most).take_while(same).count();
        (nr > 1 && self.accel.serves(Op::Decompress(id))).then_some(PageRange {
            start: page.index(),
            end: page.index() + nr,
        })
    }

    /// The object of a page that is stored compressed, alone, in the pool. The caller holds its folio.
    fn object_of(&self, page: Page) -> Option<&[u8]> {
        let Entry::Stored {
            loc,
            size,
            holds: Holds::Page,
            ..
        } = self.table.get(page)
        else {
            return None;
        };
        let size = usize::from(size);
        // SAFETY: the object lives and does not move while the folio is held; it has `size` bytes.
        let object = unsafe { core::slice::from_raw_parts(self.pool.data_ptr(loc), size) };
        (size < PAGE_SIZE).then_some(object)
    }

    /// Decodes the pages of `batch`, which [`Parts::batch_at`] found, into the load buffer at byte `at`. `false`: one of them
    /// could not be decoded.
    pub(super) fn load_batch(&self, slot: &mut SlotInner, batch: PageRange, at: usize) -> bool {
        if at + batch.bytes() > LOAD_LEN {
            return false;
        }
        let buffer = slot.load.as_mut_ptr();
        let object = |page: Page| object::open(self.object_of(page)?).ok();
        let mut op = None;
        for (nr, (page, job)) in batch.pages().zip(slot.jobs).enumerate() {
            let Some((id, data)) = object(page) else {
                for job in slot.jobs.iter().take(nr) {
                    job.settle(Outcome::Aborted);
                }
                return false;
            };
            op = Some(Op::Decompress(id));
            // SAFETY: the object does not change while the folio is held; the place is within the buffer, as just checked, and used for
            // nothing else until the batch is done.
            unsafe {
                job.ask(Work {
                    op: Op::Decompress(id),
                    src: data.as_ptr(),
                    src_len: data.len(),
                    dst: buffer.add(at + nr * PAGE_SIZE),
                    dst_len: PAGE_SIZE,
                });
            }
        }
        let Some(op) = op else { return false };
        let dealt = self.deal(slot, batch.len(), op);
        // SAFETY: as above: this place is nobody's who works on another job.
        let place = |nr: usize| unsafe {
            core::slice::from_raw_parts_mut(buffer.add(at + nr * PAGE_SIZE), PAGE_SIZE)
        };
        let mut decode = |nr: usize, page: Page| {
            let (id, data) = object(page)?;
            slot.decompressor.decompress(id, data, place(nr)).ok()
        };
        let mut right = true;
        for (nr, page) in batch.pages().enumerate().skip(dealt.nr) {
            right &= decode(nr, page).is_some();
        }
        self.accel.settle(slot.jobs, &dealt);
        let mut decoded = 0;
        for (nr, (page, job)) in batch.pages().zip(slot.jobs).enumerate().take(dealt.nr) {
            if job.outcome() == Some(Outcome::Made(PAGE_SIZE)) {
                decoded += 1;
            } else {
                right &= decode(nr, page).is_some();
            }
        }
        add(&self.counters().accel_decompressed, wide(decoded));
        add(&self.counters().accel_fallback, wide(batch.len() - decoded));
        right
    }
}

/// Pages that were offered to devices.
#[derive(Debug, Default)]
pub(super) struct Offered {
    /// Their places in the slot's batch.
    places: [usize; BATCH],
    nr: usize,
    dealt: Dealt,
    /// The codec.
    id: Option<CodecId>,
    /// Their objects are to have checksums.
    checked: bool,
}

impl Offered {
    /// The object of which a device made `len` bytes in `piece`; `None`: it cannot have.
    pub(super) fn seal<'a>(&self, piece: &'a mut [u8], len: usize) -> Option<&'a [u8]> {
        let fits = len <= object::body(MOST_COMPRESSED, self.checked).len();
        object::seal(self.id.filter(|_| fits)?, len, self.checked, piece)
    }

    /// Whether the devices have that place of the slot's batch.
    pub(super) fn has(&self, at: usize) -> bool {
        self.places
            .iter()
            .take(self.dealt.nr)
            .any(|&place| place == at)
    }

    /// Whether the devices have any.
    pub(super) fn is_empty(&self) -> bool {
        self.dealt.nr == 0
    }

    /// The places that devices took, and, once the batch is settled, what became of each.
    pub(super) fn taken(&self, jobs: &'static [Job]) -> impl Iterator<Item = (usize, Outcome)> {
        let taken = self.places.into_iter().zip(jobs).take(self.dealt.nr);
        taken.map(|(at, job)| (at, job.outcome().unwrap_or(Outcome::Aborted)))
    }
}
