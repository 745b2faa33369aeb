//! *What*: state of the reclaimer, a process beside this one that keeps room free.
//!
//! *Invariants*
//! - As [`Presence`]. Killed alone it may have held any lock: the process ends.
//! - `lifeline` is the only descriptor of a pipe's write end, of which the reclaimer has the read
//!   end: by whatever death or exec it is closed, the kernel ends the reclaimer.
//!
//! *Locking*: none. *Context*: any.

use uzswap_sync::presence::{Kick, Presence};
use uzswap_sync::primitive::{AtomicBool, AtomicI32, AtomicUsize, Ordering::Relaxed};
use uzswap_sys::{Errno, file, process};

/// The reclaimer.
pub(crate) struct Reclaimer {
    /// There is work for one.
    enabled: bool,
    /// One may be started.
    may_start: AtomicBool,
    /// Whether it keeps room free.
    pub evicts: bool,
    /// The program's room is low.
    room_wanted: AtomicBool,
    /// Whether it is there.
    pub presence: Presence,
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
        self.0.presence.release();
    }
}

impl Reclaimer {
    /// One that `evicts`, or is there to densify.
    pub(crate) const fn new(evicts: bool, densifies: bool) -> Self {
        Reclaimer {
            enabled: evicts || densifies,
            may_start: AtomicBool::new(true),
            evicts,
            room_wanted: AtomicBool::new(false),
            presence: Presence::new(),
            lifeline: AtomicI32::new(-1),
            pipe: AtomicI32::new(-1),
            stack: AtomicUsize::new(0),
        }
    }

    /// Whether there is work for one.
    #[inline]
    pub(crate) const fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// The program's room is low.
    #[inline]
    pub(crate) fn want_room(&self) {
        // Looking first keeps the line where it is.
        if !self.room_wanted.load(Relaxed) {
            self.room_wanted.store(true, Relaxed);
        }
    }

    /// In it: whether the program's room was low, which it sees to.
    pub(crate) fn takes_want(&self) -> bool {
        self.room_wanted.swap(false, Relaxed)
    }

    /// Whether one may be started.
    pub(crate) fn may_start(&self) -> bool {
        self.may_start.load(Relaxed)
    }

    /// None is started any more; one that runs goes on.
    pub(crate) fn refuse(&self) {
        self.may_start.store(false, Relaxed);
    }

    /// Ends it, and keeps it from being started for as long as the result lives.
    pub(crate) fn hold(&'static self) -> ReclaimerHold {
        process::reap_beside(self.presence.hold());
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

    /// A new pipe for the one that starts. Closes the write end of the one before.
    pub(crate) fn set_pipe(&self, read: i32, write: i32) {
        self.pipe.store(read, Relaxed);
        let old = self.lifeline.swap(write, Relaxed);
        if old >= 0 {
            let _ = file::close(old);
        }
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

    /// In a fork child, which has none yet, and is given work by `kick`.
    pub(crate) fn fork_child(&self, kick: Option<&'static Kick>) {
        self.set_pipe(-1, -1);
        self.presence.reset(kick);
    }
}
