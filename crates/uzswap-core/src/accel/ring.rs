//! *What*: a device's descriptors, and its coming and going: who hands jobs over, and who takes them.
//!
//! *Invariants*: a descriptor names a job or is free. Any thread fills a free one, the device alone frees it. `gate` is
//!
//! ```text
//! 0 (away) ──open──► OPEN ──close──► CLOSING ──leave──► 0
//! ```
//!
//! with the number of threads that are filling descriptors right now in the lower bits. They come in only while it is `OPEN`,
//! and the device leaves only when none is inside and no descriptor is filled: every job that is handed over is settled, also
//! when the device goes away meanwhile. Opening and closing is one thread's business at a time.
//!
//! The device sleeps on `bell`, and says so there before it looks a last time whether there is something to do;
//! whoever has filled a descriptor, or opens or closes, looks at the bell after that. With a full fence between the two on
//! either side, one of them sees the other.
//! *Locking*: none. Nobody waits here but the device for work. *Context*: signal, worker.

use super::job::{Job, Outcome, Params};
use uzswap_sync::primitive::{AtomicPtr, AtomicU32, Ordering, fence, spin_loop};
use uzswap_sync::word::Word;

/// Descriptors of a device.
pub const DEPTH: usize = if cfg!(loom) { 2 } else { 8 };
/// Rounds that an idle device looks for work before it sleeps: some microseconds, as long as a wake-up takes.
const SPINS: u32 = if cfg!(any(loom, miri)) { 0 } else { 200 };

const OPEN: u32 = 1 << 31;
const CLOSING: u32 = 1 << 30;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// The descriptors of one device.
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
    /// Of a device that is away.
    #[must_use]
    pub fn new() -> Self {
        Self {
            gate: AtomicU32::new(0),
            bell: Word::new(AWAKE),
            descriptors: core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())),
        }
    }

    /// Whether the device is there.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.gate.load(Ordering::Relaxed) & OPEN != 0
    }

    /// Whether it has left for good, so that what it works with may be changed.
    #[must_use]
    pub fn is_away(&self) -> bool {
        // Acquire: pairs with the release in `leave`: what the device did is done.
        self.gate.load(Ordering::Acquire) & (OPEN | CLOSING) == 0
    }

    /// Hands over as many of `jobs`, the first ones, as there are free descriptors. Never waits.
    pub fn submit(&self, jobs: &'static [Job]) -> usize {
        // Acquire: pairs with the release in `open`: what the device works with is there.
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
            // Release: the device sees the job's particulars.
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

    /// The device is there from now on. `false`: it is not away, or somebody is just finding out that it is.
    pub fn open(&self) -> bool {
        // Release: pairs with the acquire in `submit`, and with the device's in `serve`.
        let opened = self
            .gate
            .compare_exchange(0, OPEN, Ordering::Release, Ordering::Relaxed)
            .is_ok();
        if opened {
            self.ring();
        }
        opened
    }

    /// The device takes no more jobs, gives back those that it has not begun, and leaves.
    pub fn close(&self) {
        if self.is_open() {
            self.gate.fetch_xor(OPEN | CLOSING, Ordering::Relaxed);
            self.ring();
        }
    }

    /// In a fork child, where the device is not: forgets it.
    pub fn forget(&self) {
        self.gate.store(0, Ordering::Relaxed);
        self.bell.store(AWAKE, Ordering::Relaxed);
        for descriptor in &self.descriptors {
            descriptor.store(core::ptr::null_mut(), Ordering::Relaxed);
        }
    }

    /// The device: waits until it is there, and does what it is asked to until it has left.
    pub fn serve(&self, mut perform: impl FnMut(Params) -> Outcome) {
        // Acquire: pairs with the release in `open`: what the device works with is there.
        while self.gate.load(Ordering::Acquire) & (OPEN | CLOSING) == 0 {
            self.doze(|| !self.is_away());
        }
        loop {
            self.take(&mut perform);
            if self.leave() {
                return;
            }
            self.doze(|| self.has_work());
        }
    }

    /// Settles the jobs that are there.
    fn take(&self, perform: &mut impl FnMut(Params) -> Outcome) {
        for descriptor in &self.descriptors {
            // Acquire: pairs with the release in `submit`.
            let job = descriptor.load(Ordering::Acquire);
            // SAFETY: null, or a job that lives for good.
            let Some(job) = (unsafe { job.as_ref() }) else {
                continue;
            };
            descriptor.store(core::ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: handed over to this device, which has not settled it.
            let work = unsafe { job.work() }.filter(|_| self.is_open());
            job.settle(work.map_or(Outcome::Aborted, &mut *perform));
        }
    }

    /// Leaves if it is to and nobody can hand over anything any more.
    fn leave(&self) -> bool {
        // Acquire: pairs with the release of whoever was inside: what they filled is seen by `has_work`.
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

    /// The device sleeps until the bell is rung; it may return early.
    fn doze(&self, awaited: impl Fn() -> bool) {
        for _ in 0..SPINS {
            if awaited() {
                return;
            }
            spin_loop();
        }
        self.bell.store(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !awaited() {
            self.bell.sleep_while(ASLEEP);
        }
        self.bell.store(AWAKE, Ordering::Relaxed);
        spin_loop();
    }

    /// Wakes the device if it sleeps.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.bell.load(Ordering::Relaxed) == ASLEEP {
            self.bell.store(AWAKE, Ordering::Relaxed);
            self.bell.wake_one();
        }
    }
}
