//! *What*: a job: what a device does for one page, and how it reports that it is done.
//!
//! *Invariants*: `status` tells who owns the job. The submitter owns a settled job; the device owns
//! it from being prepared until it settles it. Nobody else reads `params` or touches what that
//! points to:
//!
//! ```text
//! settled ──prepare──► PENDING ──sleep──► WAITED
//!    ▲                    └────────┬────────┘
//!    └─────────────settle──────────┘
//! ```
//!
//! A submitter settles a job itself that no device took. Zeroed memory is a settled job.
//! *Locking*: none: `status`. *Context*: signal, worker, init.

use uzswap_compress::{Codec, CodecId};
use uzswap_sync::primitive::{Ordering, UnsafeCell};
use uzswap_sync::word::Word;

/// The task of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Compress a page.
    Compress(Codec),
    /// Decompress a page.
    Decompress(CodecId),
}

/// The parameters of a job.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// The task.
    pub task: Task,
    /// The source; a page is page aligned.
    pub src: *const u8,
    /// Bytes of the source.
    pub src_len: usize,
    /// The destination.
    pub dst: *mut u8,
    /// Bytes of the destination: room for a compressed page, or exactly a page.
    pub dst_len: usize,
}

/// The outcome of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done: so many bytes were written.
    Done(usize),
    /// The result does not fit the destination.
    Incompressible,
    /// The device failed.
    Failed,
    /// The device did not try, because it goes away or has another codec. The data are fine.
    Aborted,
}

const ABORTED: u32 = 0;
const PENDING: u32 = 1;
const WAITED: u32 = 2;
const FAILED: u32 = 3;
const INCOMPRESSIBLE: u32 = 4;
/// The other bits hold the number of bytes.
const DONE: u32 = 1 << 31;

/// A job.
#[derive(Debug)]
pub struct Job {
    status: Word,
    params: UnsafeCell<Option<Params>>,
}

// SAFETY: only the owner by `status` uses `params`; its pointers are valid on any thread, by the
// promise of `prepare`.
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
            params: UnsafeCell::new(None),
        }
    }

    /// Sets the parameters. The caller then submits the job to one device, or [`Job::settle`]s it.
    ///
    /// # Safety
    /// The job is settled and the caller owns it. Until it is settled again, the source is readable
    /// and changes only in ways that [`uzswap_compress::Compressor::compress`] tolerates, and
    /// nobody else uses the destination.
    pub unsafe fn prepare(&self, params: Params) {
        self.params.get_mut().with(|cell| {
            // SAFETY: the caller owns the job, as promised.
            unsafe { *cell = Some(params) }
        });
        // Relaxed: the release with which the job is submitted publishes it.
        self.status.store(PENDING, Ordering::Relaxed);
    }

    /// What is to be done.
    ///
    /// # Safety
    /// The caller is the one device that took the job and has not settled it.
    #[must_use]
    pub unsafe fn params(&self) -> Option<Params> {
        // SAFETY: the device owns the job, as promised.
        self.params.get_mut().with(|cell| unsafe { *cell })
    }

    /// Returns the job to its submitter. Called once, by the device that took it, or by the
    /// submitter if none did.
    pub fn settle(&self, outcome: Outcome) {
        let status = match outcome {
            // A page is far smaller than `DONE`.
            Outcome::Done(len) => DONE | u32::try_from(len).unwrap_or(0),
            Outcome::Incompressible => INCOMPRESSIBLE,
            Outcome::Failed => FAILED,
            Outcome::Aborted => ABORTED,
        };
        // Release: pairs with the acquire in `outcome`, which publishes the result. After this the
        // job may have been prepared anew; a spurious wake-up does no harm.
        if self.status.swap(status, Ordering::Release) == WAITED {
            self.status.wake_one();
        }
    }

    /// The outcome; `None` while it is not settled.
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
            // Relaxed: no data passes by this change.
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if matches!(waited, Ok(_) | Err(WAITED)) {
            self.status.sleep_while(WAITED);
        }
    }
}
