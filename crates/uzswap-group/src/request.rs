//! A request to a managed process from outside: `uzswap reclaim` asks it to evict or to write back,
//! `uzswap set` to come down to a lower limit, `uzswap swapoff` to bring back what is on a swap device.
//!
//! *What*: one word in the process's slot, the *door*, and what is asked behind it. An idle program
//! has nobody in the engine, and a thread that waited for requests would be seen by it, so the
//! request is announced by a SIGSYS, which every managed process handles and none can block. Whoever
//! handles it starts a thread that does the work and ends.
//!
//! *Invariants*
//! - SIGSYS ends a process that does not handle it. It is sent only by whoever has turned the door
//!   from [`OPEN`] to [`ringing`], and a process whose door is open has the handler until it shuts
//!   the door: before it executes another program, when it waits for a ring under way.
//! - What is asked is written by whoever rings, before the signal; the answer by the process, before
//!   it opens the door again.
//!
//! *Locking*: none; the door's states are passed on by compare-and-swap; modelled in `tests/shuttle_door.rs`. *Context*: the process's side
//! signal and worker; the other side `uzswap reclaim`.

use uzswap_sync::primitive::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// The process takes no requests: it starts, executes another program, or is none of ours.
pub const SHUT: u32 = 0;
/// It takes one.
pub const OPEN: u32 = 1;
/// It works on one.
pub const WORKING: u32 = 2;
/// Whoever rang is not there any more; the signal is still to come.
pub const ABANDONED: u32 = 3;
/// What says that process `pid` rings: it has sent the signal or is about to.
#[must_use]
pub const fn ringing(pid: u32) -> u32 {
    pid | RINGING
}
const RINGING: u32 = 1 << 31;

/// The signal's value, by which the process knows it from others.
pub const VALUE: i32 = 0x757a_7377;

/// [`Request::what`]: evict so many bytes of resident memory.
pub const EVICT: u32 = 0;
/// [`Request::what`]: write so many bytes of compressed memory to swap.
pub const WRITE_BACK: u32 = 1;
/// [`Request::what`]: come down to a limit that was lowered.
pub const COME_DOWN: u32 = 2;
/// [`Request::what`]: bring back what is on the swap device of that number.
pub const SWAP_OFF: u32 = 3;

/// The door, what is asked and what came of it.
#[derive(Debug)]
#[repr(C)]
pub struct Request {
    /// Its state; a futex, shared.
    pub door: AtomicU32,
    /// [`EVICT`], [`WRITE_BACK`], [`COME_DOWN`] or [`SWAP_OFF`].
    pub what: AtomicU32,
    /// Bytes that are asked for, or the device's number.
    pub wanted: AtomicU64,
    /// Bytes of it that were evicted, written back or brought back.
    pub done: AtomicU64,
    /// Bytes of RAM that are free by it.
    pub freed: AtomicU64,
    /// Bytes charged above the limit when it was done.
    pub over: AtomicU64,
}

impl Request {
    /// The process handles the signal from now on.
    pub fn open(&self) {
        self.door.store(OPEN, Release);
    }

    /// The process will not handle the signal any more: another program is to be executed, to which it would be fatal.
    /// Waits for one that is on its way. `came` takes back a signal that is pending, `is_alive` says whether a process is
    /// still there, and `wait` passes time.
    pub fn shut(
        &self,
        mut came: impl FnMut() -> bool,
        is_alive: impl Fn(u32) -> bool,
        mut wait: impl FnMut(),
    ) {
        while !self.try_shut() {
            // In this order: whoever is gone has sent what it ever will.
            let gone = self.ringer().is_some_and(|pid| !is_alive(pid));
            if came() || gone {
                self.refuse();
            } else {
                wait();
            }
        }
    }

    /// The process serves nobody; nobody need wait.
    pub fn refuse(&self) {
        self.door.store(SHUT, Release);
    }

    /// `false`: a signal is on its way.
    fn try_shut(&self) -> bool {
        let free = |door| matches!(door, SHUT | OPEN | WORKING).then_some(SHUT);
        self.door.fetch_update(AcqRel, Relaxed, free).is_ok()
    }

    /// Who rings, if anybody does.
    fn ringer(&self) -> Option<u32> {
        let door = self.door.load(Relaxed);
        (door & RINGING != 0).then_some(door & !RINGING)
    }

    /// The signal has come. `None`: it is none of ours. `Some(false)`: nobody waits for it any more.
    pub fn take(&self) -> Option<bool> {
        // Acquire: what is asked was written before.
        let taken = self.door.fetch_update(AcqRel, Acquire, |door| match door {
            ABANDONED => Some(OPEN),
            _ if door & RINGING != 0 => Some(WORKING),
            _ => None,
        });
        taken.ok().map(|before| before != ABANDONED)
    }

    /// The answer is there.
    pub fn finish(&self) {
        // Shut meanwhile: another program is being executed.
        let _ = self.door.compare_exchange(WORKING, OPEN, AcqRel, Relaxed);
    }

    /// Asks, for process `pid`, which then sends the signal. Otherwise the state that the door is in.
    ///
    /// # Errors
    /// The door is not open.
    pub fn ring(&self, pid: u32) -> Result<(), u32> {
        self.door
            .compare_exchange(OPEN, ringing(pid), AcqRel, Acquire)
            .map(|_| ())
    }

    /// Process `pid` has rung and waits no longer. `false`: the process is at it already.
    pub fn give_up(&self, pid: u32) -> bool {
        self.door
            .compare_exchange(ringing(pid), ABANDONED, AcqRel, Acquire)
            .is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn request() -> Request {
        Request {
            door: AtomicU32::new(SHUT),
            what: AtomicU32::new(EVICT),
            wanted: AtomicU64::new(0),
            done: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            over: AtomicU64::new(0),
        }
    }

    #[test]
    fn a_signal_is_sent_only_to_who_handles_it() {
        let request = request();
        assert_eq!(request.ring(7), Err(SHUT), "not yet");
        request.open();
        assert_eq!(request.ring(7), Ok(()));
        assert_eq!(request.ring(8), Err(ringing(7)), "one at a time");
        assert!(!request.try_shut(), "the signal may still come");
        assert_eq!(request.ringer(), Some(7));
        assert_eq!(request.take(), Some(true));
        assert_eq!(request.take(), None, "another SIGSYS is the program's");
        assert_eq!(request.ring(8), Err(WORKING));
        request.finish();
        assert_eq!(request.ring(8), Ok(()));
        assert!(request.give_up(8));
        assert!(!request.try_shut(), "the signal may still come");
        assert_eq!(request.take(), Some(false));
        assert!(request.try_shut());
        assert_eq!(request.ring(8), Err(SHUT));
        request.finish();
        assert_eq!(request.ring(8), Err(SHUT), "a late answer opens nothing");
    }
}
