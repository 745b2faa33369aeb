//! *What*: the descriptors of a worker, and its coming and going.
//!
//! *Invariants*
//! - A descriptor names a job or is free. Any thread fills a free one; only the worker frees it.
//! - The upper bits of `gate` are the state; the lower bits count the threads that are filling
//!   descriptors. One thread at a time opens and closes:
//!
//! ```text
//! 0 (away) ──open──► OPEN ──close──► CLOSING ──leave──► 0
//! ```
//!
//! - Threads enter only while it is `OPEN`, and the worker leaves only when none is inside and no
//!   descriptor is filled. So every submitted job is settled, even when the worker is closed
//!   meanwhile.
//! - The worker sets `bell` to `ASLEEP` before its last check for work; whoever fills a descriptor,
//!   opens or closes reads the bell afterwards. With a full fence between the two on either side,
//!   one of them sees the other.
//!
//! *Locking*: none; only the worker waits, for work. *Context*: signal, worker.

use super::job::{Job, Outcome, Params};
use uzswap_sync::primitive::{AtomicPtr, AtomicU32, Ordering, fence, spin_loop};
use uzswap_sync::word::Word;

/// Descriptors of a worker.
pub const DEPTH: usize = if cfg!(loom) { 2 } else { 8 };
/// Rounds that an idle worker polls before it sleeps: some microseconds, the cost of a wake-up.
const SPINS: u32 = if cfg!(any(loom, miri)) { 0 } else { 200 };

const OPEN: u32 = 1 << 31;
const CLOSING: u32 = 1 << 30;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// The descriptors of one worker.
#[derive(Debug)]
pub struct Ring {
    gate: AtomicU32,
    bell: Word,
    descriptors: [AtomicPtr<Job>; DEPTH],
}

impl Default for Ring {
    fn default() -> Self {
        Self::new()
    }
}

impl Ring {
    /// The ring of a worker that is away.
    #[must_use]
    pub fn new() -> Self {
        Self {
            gate: AtomicU32::new(0),
            bell: Word::new(AWAKE),
            descriptors: core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())),
        }
    }

    /// Whether the worker is present.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.gate.load(Ordering::Relaxed) & OPEN != 0
    }

    /// Whether the worker has left, so that its contexts may be changed.
    #[must_use]
    pub fn is_away(&self) -> bool {
        // Acquire: pairs with the release in `leave`: the worker's accesses are over.
        self.gate.load(Ordering::Acquire) & (OPEN | CLOSING) == 0
    }

    /// Submits as many of `jobs`, from the first on, as there are free descriptors, and returns how
    /// many. Never waits.
    pub fn submit(&self, jobs: &'static [Job]) -> usize {
        // Acquire: pairs with the release in `open`: the worker's contexts are set.
        if self.gate.fetch_add(1, Ordering::Acquire) & OPEN == 0 {
            self.gate.fetch_sub(1, Ordering::Relaxed);
            return 0;
        }
        let mut jobs_left = jobs.iter();
        let mut next = jobs_left.next();
        for descriptor in &self.descriptors {
            let Some(job) = next else { break };
            let job = core::ptr::from_ref(job).cast_mut();
            let null = core::ptr::null_mut();
            // Release: pairs with the acquire in `take`, which sees the job's parameters.
            let filled =
                descriptor.compare_exchange(null, job, Ordering::Release, Ordering::Relaxed);
            if filled.is_ok() {
                next = jobs_left.next();
            }
        }
        // Release: pairs with the acquire in `leave`, which sees what was filled.
        self.gate.fetch_sub(1, Ordering::Release);
        let taken = jobs.len() - jobs_left.len() - usize::from(next.is_some());
        if taken > 0 {
            self.ring();
        }
        taken
    }

    /// Lets the worker take jobs. `false`: it is not away, or a thread is inside for a moment.
    pub fn open(&self) -> bool {
        // Release: pairs with the acquire in `submit`, and with the worker's in `serve`.
        let opened = self
            .gate
            .compare_exchange(0, OPEN, Ordering::Release, Ordering::Relaxed)
            .is_ok();
        if opened {
            self.ring();
        }
        opened
    }

    /// Makes the worker take no more jobs, abort those not begun, and leave.
    pub fn close(&self) {
        if self.is_open() {
            self.gate.fetch_xor(OPEN | CLOSING, Ordering::Relaxed);
            self.ring();
        }
    }

    /// Resets the ring in a fork child, where the worker does not exist.
    pub fn forget(&self) {
        self.gate.store(0, Ordering::Relaxed);
        self.bell.store(AWAKE, Ordering::Relaxed);
        for descriptor in &self.descriptors {
            descriptor.store(core::ptr::null_mut(), Ordering::Relaxed);
        }
    }

    /// The worker's loop: waits for [`Ring::open`], and performs jobs until it has left.
    pub fn serve(&self, mut perform: impl FnMut(Params) -> Outcome) {
        // Acquire: pairs with the release in `open`: the worker's contexts are set.
        while self.gate.load(Ordering::Acquire) & (OPEN | CLOSING) == 0 {
            self.sleep(|| !self.is_away());
        }
        loop {
            self.take(&mut perform);
            if self.leave() {
                return;
            }
            self.sleep(|| self.has_work());
        }
    }

    /// Performs and settles the submitted jobs; aborts them when closed.
    fn take(&self, perform: &mut impl FnMut(Params) -> Outcome) {
        for descriptor in &self.descriptors {
            // Acquire: pairs with the release in `submit`.
            let job = descriptor.load(Ordering::Acquire);
            // SAFETY: null, or a job that is never freed.
            let Some(job) = (unsafe { job.as_ref() }) else {
                continue;
            };
            descriptor.store(core::ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: submitted to this worker, which has not settled it.
            let params = unsafe { job.params() }.filter(|_| self.is_open());
            job.settle(params.map_or(Outcome::Aborted, &mut *perform));
        }
    }

    /// Leaves if it is closing, no thread is inside and no descriptor is filled.
    fn leave(&self) -> bool {
        // Acquire: pairs with the release in `submit`: `is_filled` sees every descriptor.
        if self.gate.load(Ordering::Acquire) != CLOSING || self.is_filled() {
            return false;
        }
        // Release: pairs with the acquire in `is_away`.
        self.gate
            .compare_exchange(CLOSING, 0, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    fn is_filled(&self) -> bool {
        let mut descriptors = self.descriptors.iter();
        descriptors.any(|descriptor| !descriptor.load(Ordering::Relaxed).is_null())
    }

    fn has_work(&self) -> bool {
        self.gate.load(Ordering::Relaxed) & CLOSING != 0 || self.is_filled()
    }

    /// Sleeps until the bell is rung; may return early.
    fn sleep(&self, is_ready: impl Fn() -> bool) {
        for _ in 0..SPINS {
            if is_ready() {
                return;
            }
            spin_loop();
        }
        self.bell.store(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !is_ready() {
            self.bell.sleep_while(ASLEEP);
        }
        self.bell.store(AWAKE, Ordering::Relaxed);
        spin_loop();
    }

    /// Wakes the worker if it sleeps.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.bell.load(Ordering::Relaxed) == ASLEEP {
            self.bell.store(AWAKE, Ordering::Relaxed);
            self.bell.wake_one();
        }
    }
}
