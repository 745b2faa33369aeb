//! *What*: a job: what a device is asked to do for one page, and where it says that it is done.
//!
//! *Invariants*: `status` says whose the job is. It is its asker's while it is settled, the device's from being asked
//! for until the device settles it, with no one else looking at `work` or touching what that points to:
//!
//! ```text
//! settled ──ask──► PENDING ──sleep──► WAITED
//!    ▲               └───────┬────────┘
//!    └────────────settle─────┘
//! ```
//!
//! An asker whose job no device took calls it settled itself. Memory that is all zeroes is a settled job.
//! *Locking*: none: `status`. *Context*: signal, worker, init.

use uzswap_compress::{Codec, CodecId};
use uzswap_sync::primitive::{Ordering, UnsafeCell};
use uzswap_sync::word::Word;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Compress a page.
    Compress(Codec),
    /// Bring one back.
    Decompress(CodecId),
}

/// A job's particulars.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// What is to be done.
    pub op: Task,
    /// Where from; a page is aligned to itself.
    pub src: *const u8,
    /// Bytes there.
    pub src_len: usize,
    /// Where to.
    pub dst: *mut u8,
    /// Bytes there: the most for a compressed page, exactly a page for a decompressed one.
    pub dst_len: usize,
}

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So many bytes were made.
    Done(usize),
    /// It does not fit the destination.
    Incompressible,
    /// The device could not do it.
    Failed,
    /// The device did not do it, as it goes away or is set up otherwise: nothing is wrong with the data.
    Aborted,
}

const ABORTED: u32 = 0;
const PENDING: u32 = 1;
const WAITED: u32 = 2;
const FAILED: u32 = 3;
const INCOMPRESSIBLE: u32 = 4;
/// The bytes are in the other bits.
const DONE: u32 = 1 << 31;

/// A job.
#[derive(Debug)]
pub struct Job {
    status: Word,
    work: UnsafeCell<Option<Params>>,
}

// SAFETY: `work` is used by whom `status` says; the pointers in it are good for any thread by the promise of `prepare`.
unsafe impl Sync for Job {}
// SAFETY: nothing in it is tied to a thread.
unsafe impl Send for Job {}

impl Default for Job {
    fn default() -> Self {
        Self::new()
    }
}

impl Job {
    /// A settled job.
    #[must_use]
    pub fn new() -> Self {
        Self {
            status: Word::new(ABORTED),
            work: UnsafeCell::new(None),
        }
    }

    /// The job is `work` from now on. Then it is for one device, or for [`Job::settle`].
    ///
    /// # Safety
    /// The job is settled and its asker's alone. Until it is settled again the source is readable and may only be
    /// changed in ways that [`uzswap_compress::Compressor::compress`] bears, and the destination is nobody else's.
    pub unsafe fn prepare(&self, work: Params) {
        self.work.get_mut().with(|cell| {
            // SAFETY: the asker's alone, as promised.
            unsafe { *cell = Some(work) }
        });
        // The device sees it by the release with which it is handed over.
        self.status.store(PENDING, Ordering::Relaxed);
    }

    /// What is to be done.
    ///
    /// # Safety
    /// For the one device that took the job, before it settles it.
    #[must_use]
    pub unsafe fn work(&self) -> Option<Params> {
        // SAFETY: the device's alone, as promised.
        self.work.get_mut().with(|cell| unsafe { *cell })
    }

    /// Gives the job back to its asker. For the device that took it, once; and for the asker if none did.
    pub fn settle(&self, outcome: Outcome) {
        let status = match outcome {
            // A page and its object are far smaller than that bit.
            Outcome::Done(len) => DONE | u32::try_from(len).unwrap_or(0),
            Outcome::Incompressible => INCOMPRESSIBLE,
            Outcome::Failed => FAILED,
            Outcome::Aborted => ABORTED,
        };
        // Release: pairs with the acquire in `outcome`; what was made is there. After this the job may be another one
        // already, whom a wake-up for nothing does not harm.
        if self.status.swap(status, Ordering::Release) == WAITED {
            self.status.wake_one();
        }
    }

    /// What became of it; `None` while it is not settled.
    #[inline]
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        // Acquire: pairs with the release in `settle`.
        match self.status.load(Ordering::Acquire) {
            PENDING | WAITED => None,
            FAILED => Some(Outcome::Failed),
            INCOMPRESSIBLE => Some(Outcome::Incompressible),
            ABORTED => Some(Outcome::Aborted),
            made => Some(Outcome::Done((made & !DONE) as usize)),
        }
    }

    /// Sleeps until it is settled; may return early.
    pub fn sleep(&self) {
        let waited = self.status.compare_exchange(
            PENDING,
            WAITED,
            // No data goes with it.
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if matches!(waited, Ok(_) | Err(WAITED)) {
            self.status.sleep_while(WAITED);
        }
    }
}
