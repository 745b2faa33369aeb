//! *What*: [`Limit`]: the limit of a pool or of a group of them, and how it is changed.
//!
//! *Invariants*: while a limit is lowered, the one before is the *ceiling* that ends no access,
//! until nobody is above the new one.
//! *Locking*: the caller's: one change at a time. *Context*: threads of the host.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use uzswap_compress::Codec;
use uzswap_core::{PAGE_SIZE, min_ram};
use uzswap_group::group::Group;
use uzswap_sync::node::{Most, Path};

use crate::error::LimitError;

/// What all that counts in one node may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub group: &'static Group,
    pub path: Path,
}

/// Where a limit stands.
enum Cell {
    Root(&'static AtomicU64),
    Node(&'static Most),
}

impl Cell {
    fn load(&self) -> u64 {
        match self {
            Cell::Root(cell) => cell.load(SeqCst),
            Cell::Node(cell) => cell.load(),
        }
    }

    fn store(&self, bytes: u64) {
        match self {
            Cell::Root(cell) => cell.store(bytes, SeqCst),
            Cell::Node(cell) => cell.store(bytes),
        }
    }
}

impl Limit {
    /// Bytes: the least limit of the nodes that it lies in.
    pub(crate) fn bytes(&self) -> u64 {
        let limits = self.path.nodes().map(|node| self.group.limit_of(node));
        limits.min().unwrap_or(u64::MAX)
    }

    /// Bytes that are charged to it.
    pub(crate) fn used(&self) -> u64 {
        let held = self.group.ledger.held_on(self.path).last().held;
        held.used * PAGE_SIZE as u64
    }

    /// The limit, and its ceiling.
    fn cells(&self) -> (Cell, Cell) {
        match self.path.last() {
            Path::ROOT_NODE => (
                Cell::Root(&self.group.knobs.ram),
                Cell::Root(&self.group.config.ram_ceiling),
            ),
            node => {
                let node = self.group.ledger.node(node);
                (Cell::Node(&node.max), Cell::Node(&node.ceiling))
            }
        }
    }

    /// The least that it can be, bytes.
    pub(crate) fn least(group: &Group) -> u64 {
        min_ram(group.knobs.codec().unwrap_or(Codec::Lz4))
    }

    /// Whether so many bytes are enough.
    pub(crate) fn check(group: &Group, bytes: u64) -> Result<(), LimitError> {
        let least = Limit::least(group);
        match bytes < least {
            true => Err(LimitError::TooLow {
                limit: bytes,
                least,
            }),
            false => Ok(()),
        }
    }

    /// Sets it before anybody counts in it.
    pub(crate) fn begin(&self, bytes: u64) {
        let (limit, ceiling) = self.cells();
        ceiling.store(bytes);
        limit.store(bytes);
    }

    /// Changes it to `bytes`, whole pages; `come_down` has so many bytes evicted.
    pub(crate) fn change(
        &self,
        bytes: u64,
        mut come_down: impl FnMut(u64),
    ) -> Result<(), LimitError> {
        Limit::check(self.group, bytes)?;
        let (limit, ceiling) = self.cells();
        let before = ceiling.load();
        if bytes >= before {
            ceiling.store(bytes);
            limit.store(bytes);
            return Ok(());
        }
        limit.store(bytes);
        for _ in 0..3 {
            match self.used().saturating_sub(bytes) {
                0 => break,
                over => come_down(over),
            }
        }
        let used = self.used();
        if used <= bytes {
            ceiling.store(bytes);
            return Ok(());
        }
        ceiling.store(before);
        limit.store(before);
        Err(LimitError::DoesNotFit { limit: bytes, used })
    }
}
