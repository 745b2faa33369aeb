//! *What*: [`PoolGroup`]: several pools under one limit; [`Shared`]: what they have in common,
//! which a pool that is built alone has for itself.
//!
//! *Invariants*
//! - A pool of a group counts in a node of its own, so that it may have a limit of its own, and has
//!   a run of its own: its [`Seat`]. Another pool gets that when nobody counts in it any more: a
//!   fork child may do so after the pool has ended here.
//! - Seats are given by the process that made the group alone: its fork children share the group's
//!   memory, but not the list of seats.
//!
//! *Locking*: `changes`, a pool's request lock, the other lists; never taken in a fork child.
//! *Context*: threads of the host.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use uzswap_core::PAGE_SIZE;
use uzswap_group::group::{Group, Run};
use uzswap_group::request::RequestKind;
use uzswap_sync::node::{Most, Path};

use crate::builder::{MemberBuilder, Settings};
use crate::error::{BuildError, LimitError};
use crate::group::GroupMemory;
use crate::limit::Limit;
use crate::pool::{Inner, Pool};
use crate::swap::SwapFile;

/// Where a pool counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub run: usize,
    pub path: Path,
}

impl Seat {
    /// That of a pool which is alone.
    pub(crate) const ALONE: Seat = Seat {
        run: 0,
        path: Path::ROOT,
    };
}

/// What the pools of a group have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub memory: GroupMemory,
    pub settings: Settings,
    /// Held open.
    _swap: SwapFile,
    /// Process id of who made it.
    owner: u32,
    /// Those that pools have left.
    seats: Mutex<Vec<Seat>>,
    pools: Mutex<Vec<Weak<Inner>>>,
    changes: Mutex<()>,
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(memory: GroupMemory, swap: SwapFile, settings: Settings) -> Self {
        Shared {
            memory,
            settings,
            _swap: swap,
            owner: std::process::id(),
            seats: Mutex::default(),
            pools: Mutex::default(),
            changes: Mutex::default(),
        }
    }

    pub(crate) fn group(&self) -> &'static Group {
        self.memory.group()
    }

    fn is_own(&self) -> bool {
        self.owner == std::process::id()
    }

    /// A seat for one more pool.
    fn take_seat(&self) -> Result<Seat, BuildError> {
        if !self.is_own() {
            return Err(BuildError::GroupOfParent);
        }
        let group = self.group();
        let mut left = locked(&self.seats);
        if let Some(at) = left.iter().position(|seat| !group.has_records(seat.run)) {
            return Ok(left.swap_remove(at));
        }
        let is_free = |run: &Run| run.supervisor.load(Relaxed) == 0;
        let seat = group.add_node(Path::ROOT, "").and_then(|path| {
            let run = group.begin_run(path, self.owner, 0, is_free)?;
            Some(Seat { run, path })
        });
        let most = group.nr_nodes() - 1;
        let seat = seat.ok_or(BuildError::TooManyPools { most })?;
        group.run(seat.run).share_devices(group.run(0));
        Ok(seat)
    }

    /// A pool has left its seat.
    pub(crate) fn leave(&self, seat: Seat) {
        if seat != Seat::ALONE && self.is_own() {
            locked(&self.seats).push(seat);
        }
    }

    pub(crate) fn join(&self, pool: &Arc<Inner>) {
        let mut pools = locked(&self.pools);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(pool));
    }

    fn pools(&self) -> Vec<Pool> {
        let pools = locked(&self.pools);
        let alive = pools.iter().filter_map(Weak::upgrade);
        alive.map(Pool::of).collect()
    }
}

/// Several pools under one limit: what one of them does not use the others may, and when it is
/// reached the coldest memory goes first, whichever pool has it.
///
/// The pools have one swap file and one compressor. Each may have a limit of its own besides, and
/// ends by itself; the group lasts as long as any of them.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let group = uzswap::Pool::builder().limit(64 << 20).build_group()?;
/// let rows = group.pool().build()?;
/// let index = group.pool().limit(32 << 20).build()?; // at most half of it
/// let (mut a, mut b) = (rows.map(128 << 20)?, index.map(64 << 20)?);
/// a.fill(1);
/// b.fill(2);
/// assert!(group.used() <= 64 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PoolGroup(pub(crate) Arc<Shared>);

impl PoolGroup {
    /// One more pool of the group.
    pub fn pool(&self) -> MemberBuilder {
        MemberBuilder::of(self.clone())
    }

    pub(crate) fn take_seat(&self, limit: Option<u64>) -> Result<Seat, BuildError> {
        let group = self.0.group();
        if let Some(limit) = limit {
            Limit::check(group, limit).map_err(|_| BuildError::LimitTooLow {
                limit,
                least: Limit::least(group),
            })?;
        }
        let seat = self.0.take_seat()?;
        let own = Limit {
            group,
            path: seat.path,
        };
        own.begin(limit.map_or(Most::NONE, |bytes| bytes & !(PAGE_SIZE as u64 - 1)));
        Ok(seat)
    }

    fn own_limit(&self) -> Limit {
        Limit {
            group: self.0.group(),
            path: Path::ROOT,
        }
    }

    /// The limit of all pools together, bytes of RAM.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.own_limit().bytes()
    }

    /// Bytes of RAM that all pools together have charged to it, with those of fork children.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.own_limit().used()
    }

    /// Changes the limit of all pools together to `bytes`. Returns when they are within it.
    ///
    /// # Errors
    /// [`LimitError`]; the limit is as before then.
    pub fn set_limit(&self, bytes: u64) -> Result<(), LimitError> {
        if !self.0.is_own() {
            return Err(LimitError::GroupOfParent);
        }
        let _one = locked(&self.0.changes);
        let limit = self.own_limit();
        let bytes = bytes & !(PAGE_SIZE as u64 - 1);
        limit.change(bytes, |_| {
            // The largest first: from it least is asked for what it has.
            let mut pools = self.0.pools();
            pools.sort_by_key(|pool| std::cmp::Reverse(pool.stats().used));
            for pool in pools {
                match limit.used().saturating_sub(bytes) {
                    0 => break,
                    over => pool.request(RequestKind::ComeDown, over),
                };
            }
        })
    }
}

impl fmt::Debug for PoolGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolGroup")
            .field("limit", &self.limit())
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}
