//! *What*: the store: evicted pages, compressed, in the pool.
//!
//! - `page`: pages compressed one by one; `block`: several as one object
//! - `object`: an object's bytes; `codec`: compressors and the memory to decode
//! - `offload`: batches of pages compressed and decoded by accelerators; `workers`: those that are
//!   threads
//!
//! *Invariants*: an object belongs to the entry that names it; whoever replaces that entry frees
//! it.
//! *Locking*: pool class. *Context*: signal, worker, init.

pub(crate) mod block;
pub(crate) mod codec;
pub(crate) mod object;
pub(crate) mod offload;
pub(crate) mod page;
pub(crate) mod workers;

use self::workers::Workers;
use crate::accel::thread::WorkerThread;
use crate::accel::{Accel, WorkQueue};
use crate::account::Account;
use crate::page::transition::Objects;
use crate::page::{PAGE_SIZE, Page};
use uzswap_compress::Codec;
use uzswap_group::knobs::is_on;
use uzswap_pool::{Loc, Pool, Relocate};
use uzswap_sync::charge::Reserve;
use uzswap_sync::primitive::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// The compressed pool and what fills it.
pub(crate) struct Store {
    account: &'static Account,
    pool: Pool,
    accel: Accel,
    workers: Workers,
    /// Buffers that are charged beyond what every operation uses: a bit for each.
    charged_parts: AtomicU32,
    /// A page that the pool held damaged has been reported.
    reported_damaged: AtomicBool,
    /// How objects in the pool are damaged on purpose.
    #[cfg(feature = "fault-injection")]
    pool_injector: uzswap_io::inject::Injector,
}

impl Store {
    /// An empty store; `codec` is what every operation compresses with.
    pub(crate) fn new(account: &'static Account, pool: Pool, codec: Codec) -> Self {
        Store {
            account,
            pool,
            accel: Accel::new(),
            workers: Workers::new(account.knobs()),
            charged_parts: AtomicU32::new(codec::decoder_bit(codec.id())),
            reported_damaged: AtomicBool::new(false),
            #[cfg(feature = "fault-injection")]
            pool_injector: pool_injector(account.group()),
        }
    }

    /// Pages of the pool, all of them charged, but for those that are shared.
    pub(crate) fn pool_pages(&self) -> u64 {
        self.pool.total_pages()
    }

    /// Whether it holds nothing: what it takes then, it keeps for what comes.
    pub(crate) fn is_empty(&self) -> bool {
        self.pool.nr_objects() == 0
    }

    /// Pages that compaction could free.
    pub(crate) fn fragmentation(&self) -> u64 {
        self.pool.fragmentation()
    }

    /// Compacts the pool by about `nr` pages, which go into `reserve`. Returns how many were freed.
    pub(crate) fn compact(
        &self,
        nr: u64,
        relocate: &mut impl Relocate,
        reserve: &mut Reserve<'static>,
    ) -> u64 {
        let freed = self.pool.compact(self.account.charge(), nr, relocate);
        self.pool.trim_into(reserve);
        freed
    }

    /// Before a fork: the objects are parent's and child's in common from now on. Returns how many
    /// pages of them were charged.
    ///
    /// # Safety
    /// No operation is under way.
    pub(crate) unsafe fn share(&self) -> u64 {
        // SAFETY: the pool is used by operations alone.
        unsafe { self.pool.share(self.account.charge()) }
    }

    /// Of the pool's pages those of objects.
    pub(crate) fn object_pages(&self) -> u64 {
        self.pool.total_pages() - self.pool.metadata_pages()
    }

    /// Pages of objects that this process may have in common with others.
    pub(crate) fn shared_pages(&self) -> u64 {
        self.pool.shared_pages()
    }

    /// Makes shared objects this process's own, as nobody else has them any more.
    pub(crate) fn own_shared(&self, relocate: &mut impl Relocate) {
        self.pool.own_shared(self.account.charge(), relocate);
    }

    /// The bytes of an object.
    ///
    /// # Safety
    /// An entry names it with that size, and its folio is held for as long as they are used.
    #[inline]
    pub(crate) unsafe fn object(&self, loc: Loc, size: u16) -> &[u8] {
        // SAFETY: by the caller's promise it lives, does not move, and has at least `size` bytes.
        unsafe { core::slice::from_raw_parts(self.pool.data_ptr(loc), usize::from(size)) }
    }

    /// The checksum noted beside a page that is stored as it is; 0 if none was.
    ///
    /// # Safety
    /// As [`Store::object`].
    #[inline]
    pub(crate) unsafe fn note(&self, loc: Loc, size: u16) -> u32 {
        if usize::from(size) != PAGE_SIZE {
            return 0;
        }
        // SAFETY: the caller's promise.
        unsafe { self.pool.note(loc) }
    }

    /// Notes the checksum of `data` beside the new object `loc` that holds it, if it is a page as
    /// it is and checksums are asked for.
    pub(crate) fn note_raw(&self, loc: Loc, data: &[u8]) {
        if data.len() == PAGE_SIZE && is_on(&self.account.knobs().checksum) {
            // SAFETY: an object of a page, made by the caller and not published yet.
            unsafe { self.pool.set_note(loc, object::note_of(data)) };
        }
    }

    /// Asks for an object to be brought into the cache.
    #[inline]
    pub(crate) fn prefetch(&self, loc: Loc, size: u16) {
        self.pool.prefetch(loc, usize::from(size));
    }

    /// Whether nobody has reported a damaged page before.
    pub(crate) fn is_first_damage(&self) -> bool {
        !self.reported_damaged.swap(true, Relaxed)
    }

    /// Whether the part of every operation's buffers that `bit` stands for is charged.
    pub(crate) fn is_charged(&self, bit: u32) -> bool {
        self.charged_parts.load(Relaxed) & bit != 0
    }

    /// That part is charged now. `false`: another thread was first.
    pub(crate) fn set_charged(&self, bit: u32) -> bool {
        self.charged_parts.fetch_or(bit, Relaxed) & bit == 0
    }

    /// The accelerators that are threads.
    pub(crate) const fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Whether there are accelerators.
    pub(crate) fn has_queues(&self) -> bool {
        self.accel.has_queues()
    }

    /// One more accelerator. `false`: there are too many.
    pub(crate) fn add_queue(&self, queue: &'static dyn WorkQueue) -> bool {
        self.workers.set_asked(workers::UNKNOWN);
        self.accel.add(queue)
    }

    /// Worker number `at` is an accelerator from now on. `false`: there are too many.
    pub(crate) fn add_worker(&self, at: usize, worker: &'static WorkerThread) -> bool {
        self.workers.put(at, worker) && self.accel.add(worker)
    }
}

impl Objects for Store {
    fn free(&self, loc: Loc) {
        // SAFETY: no entry names it any more, and the folio of the one that did is held.
        unsafe { self.pool.free(loc, self.account.charge()) };
    }

    fn set_owner(&self, loc: Loc, page: Page) {
        // SAFETY: the object lives, and the one entry that said whose it is was just changed.
        unsafe { self.pool.set_owner(loc, page.owner()) };
    }
}

/// How objects are damaged, as the configuration of the first swap device tells it, be there a
/// device or not.
#[cfg(feature = "fault-injection")]
fn pool_injector(group: &uzswap_group::group::Group) -> uzswap_io::inject::Injector {
    let mut text = [0; uzswap_group::group::Text::LEN];
    let [first, ..] = &group.config.swap.devices;
    let plan = uzswap_io::inject::Plan::parse(first.failure_plan.get(&mut text));
    uzswap_io::inject::Injector::new(plan.unwrap_or_default())
}
