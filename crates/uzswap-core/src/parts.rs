//! *What*: [`Parts`], what a started engine is made of: four owners of state, the policies, and the
//! operation contexts.
//!
//! *Invariants*: built whole by [`start`](crate::start), published once, never moved. Each owner
//! keeps its state private: only [`flow`](crate::flow) reaches several owners.
//! *Locking*: op → writeback → folio → LRU → pool class → pool window, region map, swap cluster.
//! *Context*: any.

pub(crate) mod densifier;
pub(crate) mod reclaimer;
pub(crate) mod writeback;

use self::densifier::Densifier;
use self::reclaimer::Reclaimer;
use self::writeback::Writeback;
use crate::account::Account;
use crate::arena::Arena;
use crate::backing::Backing;
use crate::masked::Masked;
use crate::op::{OpGuard, OpTable};
use crate::page::Pages;
use crate::page::transition::Transition;
use crate::policy::auto::Auto;
use crate::policy::pool_limit::PoolLimit;
use crate::store::Store;
use uzswap_group::group::NR_DEVICES;
use uzswap_sync::lock::Lock;
use uzswap_sync::primitive::AtomicUsize;

/// What a started engine is made of.
pub(crate) struct Parts {
    pub account: &'static Account,
    pub pages: Pages,
    pub arena: Arena,
    pub store: Store,
    /// The swap devices, if there are any.
    pub backing: Option<Backing>,
    /// Which codec `--compressor auto` is.
    pub auto: Auto,
    /// The contexts that operations take.
    pub ops: OpTable,
    /// What is written to them, one run at a time.
    pub writeback: Lock<Writeback>,
    /// Whether the pool is too large.
    pub pool_limit: PoolLimit,
    /// Makes cold pages denser.
    pub densifier: Densifier,
    /// Keeps room free.
    pub reclaimer: Reclaimer,
    /// Address of the page after whose fault the thread that serves them ends; 0: none.
    pub last_fault: AtomicUsize,
}

/// Descriptors that the engine has open at most.
pub(crate) const NR_FDS: usize = NR_DEVICES + 2;

impl Parts {
    /// The engine's descriptors in this process, -1 for those that there are not.
    pub(crate) fn descriptors(&self) -> [i32; NR_FDS] {
        let mut all = [-1; NR_FDS];
        let [mapping, reclaimer, devices @ ..] = &mut all;
        *mapping = self.arena.mapping_fd();
        *reclaimer = self.reclaimer.lifeline();
        if let Some(backing) = &self.backing {
            *devices = backing.devices().fds();
        }
        all
    }

    /// By which entries change.
    #[inline]
    pub(crate) fn transition(&self) -> Transition<'_, Pages, Store, Option<Backing>> {
        Transition {
            entries: &self.pages,
            objects: &self.store,
            slots: &self.backing,
            counters: self.account.counters(),
        }
    }

    /// Takes a context for an operation.
    #[inline]
    pub(crate) fn op(&self, _masked: &Masked) -> OpGuard<'static> {
        loop {
            // `None` only without contexts, and `start` makes at least one.
            if let Some(op) = self.ops.acquire() {
                return op;
            }
        }
    }
}
