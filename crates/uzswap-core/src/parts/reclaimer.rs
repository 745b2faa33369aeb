//! *What*: state of the reclaimer, a process beside this one that keeps room free: whether there is
//! one, whether it sleeps, how it is stopped.
//!
//! *Invariants*
//! - There is one at most. `starting` is set around its start and `holds` is looked at in between,
//!   so that after [`Reclaimer::hold`] there is none and none comes.
//! - While `running` it ends in two ways: by [`Reclaimer::hold`], after it cleared `running`, or
//!   killed. Killed alone it may have held any lock: the process ends.
//! - `lifeline` is the only descriptor of a pipe's write end, of which the reclaimer has the read
//!   end: by whatever death or exec it is closed, the kernel ends the reclaimer.
//!
//! *Locking*: none; futexes on `kick` and `alive`. *Context*: any.

use uzswap_sync::primitive::{
    AtomicBool, AtomicI32, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use uzswap_sys::thread::{self, Timespec};
use uzswap_sys::{Errno, file, futex};

/// It sleeps until somebody has work for it.
const IDLE: u32 = 0;
/// There is work, or it is to end.
const AT_WORK: u32 = 1;
/// There is work, and it sleeps for a time.
const PAUSED: u32 = 2;

/// Whether there is a reclaimer, and how it is woken and stopped.
pub(crate) struct Reclaimer {
    /// There may be one.
    enabled: AtomicBool,
    /// [`IDLE`], [`AT_WORK`] or [`PAUSED`]; its futex.
    kick: AtomicU32,
    /// It has begun, and has not taken its leave.
    running: AtomicBool,
    /// It is to end.
    stop: AtomicBool,
    /// Its process id, while it is there; cleared by the kernel.
    alive: core::sync::atomic::AtomicU32,
    /// A thread is starting it.
    starting: AtomicBool,
    /// Times that it was started.
    starts: AtomicU32,
    /// Threads that want none to be there.
    holds: AtomicU32,
    /// The write end of the pipe that it dies with; -1 without.
    lifeline: AtomicI32,
    /// The read end, while it starts.
    pipe: AtomicI32,
    /// Memory for its stack; 0 before the first.
    stack: AtomicUsize,
}

/// While it lives there is no reclaimer.
#[must_use]
pub struct ReclaimerHold(&'static Reclaimer);

impl Drop for ReclaimerHold {
    fn drop(&mut self) {
        self.0.kick.store(IDLE, Relaxed);
        self.0.holds.fetch_sub(1, SeqCst);
    }
}

impl Reclaimer {
    pub(crate) const fn new(enabled: bool) -> Self {
        Reclaimer {
            enabled: AtomicBool::new(enabled),
            kick: AtomicU32::new(IDLE),
            running: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            alive: core::sync::atomic::AtomicU32::new(0),
            starting: AtomicBool::new(false),
            starts: AtomicU32::new(0),
            holds: AtomicU32::new(0),
            lifeline: AtomicI32::new(-1),
            pipe: AtomicI32::new(-1),
            stack: AtomicUsize::new(0),
        }
    }

    /// Whether there may be one.
    #[inline]
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.load(Relaxed)
    }

    /// There is none from now on, unless it runs already.
    pub(crate) fn refuse(&self) {
        self.enabled.store(false, Relaxed);
    }

    /// Gives it work. `true`: it had none, and has to be woken.
    #[inline]
    pub(crate) fn kick(&self) -> bool {
        self.kick.load(Relaxed) == IDLE
            && self
                .kick
                .compare_exchange(IDLE, AT_WORK, Release, Relaxed)
                .is_ok()
    }

    /// Wakes it. `false`: it is not there.
    pub(crate) fn wake(&self) -> bool {
        let _ = futex::wake(&self.kick, 1);
        self.alive.load(Relaxed) != 0
    }

    /// Whether it was killed alone.
    pub(crate) fn was_killed(&self) -> bool {
        // All of one start: it is complete, its reclaimer is gone, and did not say so before.
        let starts = self.starts.load(SeqCst);
        !self.starting.load(SeqCst)
            && self.alive.load(SeqCst) == 0
            && self.running.load(SeqCst)
            && self.starts.load(SeqCst) == starts
    }

    /// In it: sleeps until there is work. `false`: it is to end.
    pub(crate) fn wait(&self) -> bool {
        while self.kick.swap(IDLE, Acquire) == IDLE {
            if self.is_stopped() {
                return false;
            }
            let _ = futex::wait(&self.kick, IDLE, None);
        }
        !self.is_stopped()
    }

    /// In it: sleeps for `ns` nanoseconds; work that comes in waits for it.
    pub(crate) fn pause(&self, ns: u64) {
        // SeqCst: either `hold` sees that it sleeps, or this sees that it is to end.
        self.kick.swap(PAUSED, SeqCst);
        if !self.stop.load(SeqCst) {
            let _ = futex::wait(&self.kick, PAUSED, Some(&Timespec::from_nanos(ns)));
        }
    }

    /// In it: whether it is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Acquire)
    }

    /// In it: takes its leave.
    pub(crate) fn leave(&self) {
        self.running.store(false, SeqCst);
    }

    /// Starts it by `start`, which is given the word that holds its process id while it is there,
    /// unless it is there or is not wanted. `false`: `start` failed.
    pub(crate) fn start_with(
        &self,
        start: impl FnOnce(&core::sync::atomic::AtomicU32) -> bool,
    ) -> bool {
        if self.starting.swap(true, SeqCst) {
            return true;
        }
        // SeqCst: either `hold` sees `starting`, or this sees `holds`.
        let wanted = self.holds.load(SeqCst) == 0 && self.alive.load(Acquire) == 0;
        let mut started = true;
        if wanted {
            self.starts.fetch_add(1, SeqCst);
            self.stop.store(false, Relaxed);
            self.running.store(true, SeqCst);
            started = start(&self.alive);
            if !started {
                self.running.store(false, Relaxed);
            }
        }
        self.starting.store(false, SeqCst);
        started
    }

    /// Ends it, and keeps it from being started for as long as the result lives.
    pub(crate) fn hold(&'static self) -> ReclaimerHold {
        self.holds.fetch_add(1, SeqCst);
        while self.starting.load(SeqCst) {
            thread::sched_yield();
        }
        self.stop.store(true, SeqCst);
        self.kick.swap(AT_WORK, SeqCst);
        let _ = futex::wake(&self.kick, 1);
        thread::wait_exit(&self.alive);
        ReclaimerHold(self)
    }

    /// The write end of the pipe that it dies with; -1 without.
    pub(crate) fn lifeline(&self) -> i32 {
        self.lifeline.load(Relaxed)
    }

    /// The read end, for the one that starts.
    pub(crate) fn pipe(&self) -> i32 {
        self.pipe.load(Relaxed)
    }

    /// A new pipe for the one that starts.
    pub(crate) fn set_pipe(&self, read: i32, write: i32) {
        self.pipe.store(read, Relaxed);
        self.set_lifeline(write);
    }

    /// Memory for its stack, from `reserve` the first time.
    pub(crate) fn stack(
        &self,
        reserve: impl FnOnce() -> Result<*mut u8, Errno>,
    ) -> Result<usize, Errno> {
        let at = self.stack.load(Relaxed);
        if at != 0 {
            return Ok(at);
        }
        let at = reserve()?.addr();
        self.stack.store(at, Relaxed);
        Ok(at)
    }

    /// Sets the write end, and closes the one before.
    fn set_lifeline(&self, fd: i32) {
        let old = self.lifeline.swap(fd, Relaxed);
        if old >= 0 {
            let _ = file::close(old);
        }
    }

    /// In a fork child, which has none yet, nor a thread that wants or starts one.
    pub(crate) fn fork_child(&self) {
        self.set_lifeline(-1);
        self.alive.store(0, Relaxed);
        self.running.store(false, Relaxed);
        self.starting.store(false, Relaxed);
        self.holds.store(0, Relaxed);
        self.stop.store(false, Relaxed);
        self.kick.store(IDLE, Relaxed);
    }
}
