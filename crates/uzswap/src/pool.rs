//! *What*: [`Pool`]: memory that may hold more than its limit of RAM.
//!
//! *Invariants*
//! - The engine runs from [`Inner::begin`] until the last [`Pool`] is dropped; regions, pins and
//!   allocators each keep one, so nobody has memory of a pool that has stopped.
//! - `mapped` is the sum of the lengths of all regions, and at most `max_size`.
//!
//! *Locking*: the place's request lock; outside the engine's.
//! *Context*: threads of the host, which have a stack of 64 KiB or more left.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use uzswap_core::{Engine, Masked, PAGE_SIZE, Pin, Ranking, RemapTo};
use uzswap_group::request::{Request, RequestKind};
use uzswap_sys::mem;

use crate::builder::{Builder, FaultMode, Own, Started};
use crate::engines::Place;
use crate::error::{BuildError, LimitError, PoolError};
use crate::heap::Heap;
use crate::limit::Limit;
use crate::pool_group::{Seat, Shared};
use crate::region::Region;
use crate::stats::Stats;
use crate::{fork, server};

/// A pool of memory. Cloning it gives another handle of the same pool, which lasts until all
/// handles, regions, pins and allocations with a handle of their own are gone.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use allocator_api2::vec::Vec;
/// let pool = uzswap::Pool::builder().limit(32 << 20).build()?;
/// let mut rows: Vec<u64, &uzswap::Pool> = Vec::new_in(&pool);
/// rows.extend(0..8 << 20); // 64 MiB
/// assert_eq!(rows[12345], 12345);
/// assert!(pool.stats().used <= 32 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

/// What all handles share.
pub(crate) struct Inner {
    /// `None` once it is given back.
    place: Option<Place>,
    shared: Arc<Shared>,
    seat: Seat,
    mode: uzswap_core::FaultMode,
    heap: Heap,
    mapped: AtomicU64,
    max_size: u64,
    /// What the engine looks at as long as it runs.
    _ranking: Option<Box<Ranked>>,
}

/// A host's ranking, in a place of its own.
struct Ranked {
    /// Into `owner`.
    ranking: &'static dyn Ranking,
    _owner: Arc<dyn Ranking + Send>,
}

impl Ranked {
    fn new(owner: Arc<dyn Ranking + Send>) -> Box<Self> {
        let ranking: *const dyn Ranking = &*owner;
        Box::new(Ranked {
            // SAFETY: it lives as long as `owner`, and nobody has the reference but the engine,
            // which stops before either goes.
            ranking: unsafe { &*ranking },
            _owner: owner,
        })
    }
}

impl Inner {
    /// The pool of an engine that has started.
    pub(crate) fn begin(
        shared: Arc<Shared>,
        seat: Seat,
        Started { place, mode }: Started,
        Own { max_size, ranking }: Own,
    ) -> Result<Inner, BuildError> {
        let heap = Heap::new(&place);
        fork::set_inherited(place.number(), false);
        let ranking = ranking.map(Ranked::new);
        if let Some(ranked) = &ranking {
            let place_of_it: *const &'static dyn Ranking = &raw const ranked.ranking;
            // SAFETY: in a box that goes when the engine has stopped.
            place.engine().rank_by(unsafe { &*place_of_it });
        }
        let mut inner = Inner {
            place: Some(place),
            shared,
            seat,
            mode,
            heap: Heap::default(),
            mapped: AtomicU64::new(0),
            max_size,
            _ranking: ranking,
        };
        let system = |what| move |error| BuildError::System { what, error };
        inner.heap = heap.map_err(system("reserve the heap's tables"))?;
        if mode == uzswap_core::FaultMode::Thread {
            Masked::block(|m| server::start(m, inner.place()))
                .map_err(system("start the thread that serves faults"))?;
        }
        Ok(inner)
    }

    fn place(&self) -> &Place {
        // `None` only while it is dropped.
        self.place.as_ref().unwrap_or_else(|| std::process::abort())
    }

    pub(crate) fn engine(&self) -> &'static Engine {
        self.place().engine()
    }

    /// What limits it.
    fn limit(&self) -> Limit {
        Limit {
            group: self.shared.group(),
            path: self.seat.path,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else {
            return;
        };
        let engine = place.engine();
        if fork::is_lost(&place) {
            // The engine is the parent's, copied half-way: its place is never used again.
            return;
        }
        if self.mode == uzswap_core::FaultMode::Thread {
            server::end(&place);
        }
        let process = engine.process();
        // SAFETY: this was the last handle, and whatever has memory of the pool has one.
        Masked::block(|m| unsafe { engine.stop(m) });
        if let Some(process) = process {
            // The rest of the group goes on: other pools, and those of other processes of a fork.
            self.shared.memory.leave(process);
        }
        place.give_back();
        self.shared.leave(self.seat);
    }
}

impl Pool {
    /// What a pool is to be like.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn of(inner: Arc<Inner>) -> Self {
        Pool(inner)
    }

    pub(crate) fn heap(&self) -> &Heap {
        &self.0.heap
    }

    pub(crate) fn engine(&self) -> &'static Engine {
        self.0.engine()
    }

    /// Bytes of addresses that a pool has: what can be in it at most.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.0.place().partition().len() as u64
    }

    fn present(&self) -> Result<(), PoolError> {
        if fork::is_lost(self.0.place()) {
            return Err(PoolError::LostInFork);
        }
        Ok(())
    }

    /// Maps `len` bytes of fresh memory, all zero, rounded up to pages of 4 KiB. RAM is taken when
    /// it is touched.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`], [`PoolError::TooLarge`].
    pub fn map(&self, len: usize) -> Result<Region, PoolError> {
        let (addr, len) = self.map_raw(len)?;
        // SAFETY: mapped just now, for the region alone.
        Ok(unsafe { Region::new(self.clone(), addr, len) })
    }

    /// Maps memory for an allocator, which unmaps it: like [`Pool::map`] without an owner. Returns its
    /// address, which is a multiple of 4 KiB, and its length.
    ///
    /// # Errors
    /// As [`Pool::map`].
    pub fn map_raw(&self, len: usize) -> Result<(usize, usize), PoolError> {
        self.present()?;
        let engine = self.engine();
        let len = round_up(len).ok_or(self.no_space(len))?;
        self.charge_size(len)?;
        let prot = (mem::PROT_READ | mem::PROT_WRITE).cast_unsigned();
        let mapped = Masked::block(|m| engine.map(m, len, 0, prot));
        match mapped {
            Ok(addr) => Ok((addr, len)),
            Err(error) => {
                self.0.mapped.fetch_sub(len as u64, Relaxed);
                let capacity = self.0.place().partition().len();
                Err(PoolError::of_map(error, len, capacity))
            }
        }
    }

    fn no_space(&self, wanted: usize) -> PoolError {
        PoolError::NoSpace {
            wanted: wanted as u64,
            capacity: self.capacity(),
        }
    }

    fn charge_size(&self, len: usize) -> Result<(), PoolError> {
        let (len, most) = (len as u64, self.0.max_size);
        let fits = |used: u64| used.checked_add(len).filter(|sum| *sum <= most);
        let charged = self.0.mapped.fetch_update(Relaxed, Relaxed, fits);
        charged.map(drop).map_err(|used| PoolError::TooLarge {
            wanted: len,
            used,
            most,
        })
    }

    /// Gives back what [`Pool::map_raw`] mapped, or whole pages of it.
    ///
    /// # Safety
    /// It was mapped so, of this pool, and nobody uses it any more.
    pub unsafe fn unmap_raw(&self, addr: usize, len: usize) {
        if self.present().is_err() {
            return;
        }
        let engine = self.engine();
        // Fails only where the region map has no room to split: it stays mapped, and counted.
        if Masked::block(|m| engine.unmap(m, addr, len)).is_ok() {
            self.0.mapped.fetch_sub(len as u64, Relaxed);
        }
    }

    /// Makes what [`Pool::map_raw`] mapped `new_len` bytes long, moving it if need be. Returns its
    /// address and length.
    ///
    /// # Safety
    /// It was mapped so, and nobody uses it meanwhile.
    pub(crate) unsafe fn remap_raw(
        &self,
        addr: usize,
        len: usize,
        new_len: usize,
    ) -> Result<(usize, usize), PoolError> {
        self.present()?;
        let new_len = round_up(new_len).ok_or(self.no_space(new_len))?;
        if new_len > len {
            self.charge_size(new_len - len)?;
        }
        let engine = self.engine();
        let moved = Masked::block(|m| engine.remap(m, addr, len, new_len, RemapTo::MayMove));
        let (gone, result) = match moved {
            Ok(at) => (len.saturating_sub(new_len), Ok((at, new_len))),
            Err(error) => {
                let capacity = self.0.place().partition().len();
                let error = PoolError::of_map(error, new_len, capacity);
                (new_len.saturating_sub(len), Err(error))
            }
        };
        self.0.mapped.fetch_sub(gone as u64, Relaxed);
        result
    }

    /// Makes pages read as zero, and frees what they took.
    ///
    /// # Safety
    /// They were mapped by [`Pool::map_raw`], of this pool, and nobody needs what is in them.
    pub unsafe fn discard_raw(&self, addr: usize, len: usize) {
        let engine = self.engine();
        let _ = Masked::block(|m| engine.discard(m, addr, len));
    }

    /// Whether `pointer` is to memory of this pool.
    #[must_use]
    pub fn contains<T: ?Sized>(&self, pointer: *const T) -> bool {
        let addr = pointer.cast::<u8>() as usize;
        let partition = self.0.place().partition();
        (partition.start()..partition.end()).contains(&addr)
    }

    fn own_range<T>(&self, memory: &[T]) -> Result<(usize, usize), PoolError> {
        self.present()?;
        let (addr, len) = (memory.as_ptr() as usize, size_of_val(memory));
        let start = addr & !(PAGE_SIZE - 1);
        let end = (addr + len).next_multiple_of(PAGE_SIZE);
        let partition = self.0.place().partition();
        if partition.start() <= start && end <= partition.end() {
            Ok((start, end - start))
        } else {
            Err(PoolError::NotOurs)
        }
    }

    /// Makes memory the next to be evicted: it will not be used for some time.
    ///
    /// # Errors
    /// [`PoolError::NotOurs`].
    pub fn cold<T>(&self, memory: &[T]) -> Result<(), PoolError> {
        let (addr, len) = self.own_range(memory)?;
        let engine = self.engine();
        Masked::block(|m| engine.cold(m, addr, len)).map_err(|_| PoolError::NotOurs)
    }

    /// Evicts memory now: compresses it, with what shares its pages.
    ///
    /// # Errors
    /// [`PoolError::NotOurs`].
    pub fn evict<T>(&self, memory: &[T]) -> Result<(), PoolError> {
        let (addr, len) = self.own_range(memory)?;
        let engine = self.engine();
        Masked::block(|m| engine.pageout(m, addr, len)).map_err(|_| PoolError::NotOurs)
    }

    /// Brings memory in, before it is used.
    ///
    /// # Errors
    /// [`PoolError::OverLimit`]: not all of it fits at once. [`PoolError::Lost`],
    /// [`PoolError::NotOurs`].
    pub fn prefetch<T>(&self, memory: &[T]) -> Result<(), PoolError> {
        let (addr, len) = self.own_range(memory)?;
        let engine = self.engine();
        Masked::block(|m| engine.populate(m, addr, len)).map_err(PoolError::of_fault)
    }

    /// Brings memory in and keeps it in until the result is dropped: for system calls that no
    /// [guard](Builder::guard) serves (io_uring, other processes' accesses), for threads that
    /// block SIGBUS, and where the time of an access must be known.
    ///
    /// # Errors
    /// [`PoolError::OverLimit`]: it does not fit. [`PoolError::Lost`], [`PoolError::NotOurs`].
    pub fn pin<'a, T>(&self, memory: &'a [T]) -> Result<Pinned<'a>, PoolError> {
        let (addr, len) = self.own_range(memory)?;
        let engine = self.engine();
        let pin = Masked::block(|m| engine.pin(m, addr, len)).map_err(PoolError::of_fault)?;
        Ok(Pinned {
            pool: self.clone(),
            pin,
            _memory: PhantomData,
        })
    }

    /// The limit, bytes of RAM: its own, or, if that is less, its group's.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit().bytes()
    }

    /// Changes the limit, that of this pool alone if it is in a group, to `bytes`. Returns when the
    /// pool is within it.
    ///
    /// # Errors
    /// [`LimitError`]; the limit is as before then.
    pub fn set_limit(&self, bytes: u64) -> Result<(), LimitError> {
        self.present().map_err(|_| LimitError::LostInFork)?;
        let _request = self.0.place().request();
        let bytes = bytes & !(PAGE_SIZE as u64 - 1);
        self.0.limit().change(bytes, |over| {
            self.ask(RequestKind::ComeDown, over);
        })
    }

    /// Evicts `bytes` of what is resident, the coldest first. Returns how many it were.
    pub fn reclaim(&self, bytes: u64) -> u64 {
        self.request(RequestKind::Evict, bytes)
    }

    /// Has the engine do what `uzswap run` asks of processes.
    pub(crate) fn request(&self, what: RequestKind, wanted: u64) -> u64 {
        let _request = self.0.place().request();
        self.ask(what, wanted)
    }

    /// As [`Pool::request`], for who holds the request lock.
    fn ask(&self, what: RequestKind, wanted: u64) -> u64 {
        let engine = self.engine();
        let Some(process) = engine.process().filter(|_| self.present().is_ok()) else {
            return 0;
        };
        let request = &process.request;
        request.ask(what, wanted, Request::ANY_TIME);
        Masked::block(|m| engine.serve_request(m));
        request.done.load(Relaxed)
    }

    /// What the pool has, and what it has done. Of fork children, which share the limit, `used`
    /// alone is counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mapped = self.0.mapped.load(Relaxed);
        Stats::of(&self.0.limit(), self.engine().process(), mapped)
    }

    /// How faults come in this pool.
    #[must_use]
    pub fn fault_mode(&self) -> FaultMode {
        self.0.mode.into()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("limit", &self.limit())
            .field("fault_mode", &self.fault_mode())
            .finish_non_exhaustive()
    }
}

/// `len` in whole pages, at least one; `None`: more than there are addresses.
fn round_up(len: usize) -> Option<usize> {
    len.max(1).checked_next_multiple_of(PAGE_SIZE)
}

/// Memory that stays in RAM until this is dropped.
#[derive(Debug)]
#[must_use = "it stays in only until this is dropped"]
pub struct Pinned<'a> {
    pool: Pool,
    pin: Pin,
    _memory: PhantomData<&'a [u8]>,
}

impl Pinned<'_> {
    /// Bytes that are kept in: whole pages.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.pin.len()
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let (engine, pin) = (self.pool.engine(), self.pin);
        if self.pool.present().is_ok() {
            Masked::block(|m| engine.unpin(m, pin));
        }
    }
}
