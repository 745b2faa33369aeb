//! *What*: what a round of densifying works with.
//!
//! *Invariants*: as [`crate::flow::densify`].
//! *Locking*: op → [`Work`] → folio. *Context*: the reclaimer.

use uzswap_compress::Compressor;
use uzswap_sync::charge::{Charge, Reserve};
use uzswap_sync::lock::{Lock, LockGuard};

/// Works on cold pages of the pool.
#[derive(Debug)]
pub(crate) struct Densifier {
    work: Lock<Work>,
}

/// What a round works with.
#[derive(Debug)]
pub(crate) struct Work {
    pub compressor: Option<Compressor>,
    pub reserve: Reserve<'static>,
}

impl Densifier {
    /// Without a round.
    pub(crate) const fn new(charge: &'static Charge) -> Self {
        Densifier {
            work: Lock::new(Work {
                compressor: None,
                reserve: Reserve::empty(charge),
            }),
        }
    }

    /// What a round works with.
    pub(crate) fn work(&self) -> LockGuard<'_, Work> {
        self.work.lock()
    }
}
