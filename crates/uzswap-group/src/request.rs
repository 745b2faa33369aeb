//! *What*: a request to a managed process from outside: `uzswap reclaim` asks it to evict or to
//! write back, `uzswap set` to come down to a lower limit, `uzswap swapoff` to bring back what is
//! on a swap device; `uzswap run` has it start its reclaimer for what other processes ask. A word
//! in the process's record, the *door*, says who may go on. An idle program has no thread in the
//! engine, and a thread that waits for requests would be visible to it, so a SIGSYS announces the
//! request: every managed process handles it and none can block it. The handler starts a thread
//! that does the work and ends.
//!
//! *Invariants*
//! - SIGSYS ends a process that does not handle it. It is sent only by whoever has turned the door
//!   from [`Door::Open`] to [`Door::Ringing`], and a process whose door is open has the handler
//!   until it shuts the door: before it executes another program, when it waits for a ring under
//!   way. Whose door it is, the ringer reads after it has rung: until it has taken its ring back or
//!   is gone, the record is nobody else's, even if the process dies ([`Request::shut_for_dead`]).
//! - What is asked is written by whoever rings, before the signal; the answer by the process,
//!   before it opens the door again.
//!
//! *Locking*: none; the door turns by compare-and-swap; modelled in `tests/shuttle_door.rs`.
//! *Context*: signal and worker in the process; `uzswap reclaim`, `set` and `swapoff` outside.

use crate::shared::{Encoded, Shared, encoded};
use uzswap_sync::primitive::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Who may turn the door next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The process takes no requests: it starts, executes another program, or is none of ours.
    Shut,
    /// It takes one.
    Open,
    /// It works on one.
    Working,
    /// Whoever rang has given up; the signal is still to come.
    Abandoned,
    /// A process has sent the signal or is about to.
    Ringing {
        /// That process's id.
        pid: u32,
    },
}

const RINGING: u32 = 1 << 31;

impl Encoded for Door {
    fn encode(self) -> u32 {
        match self {
            Self::Shut => 0,
            Self::Open => 1,
            Self::Working => 2,
            Self::Abandoned => 3,
            Self::Ringing { pid } => pid | RINGING,
        }
    }

    fn decode(number: u32) -> Self {
        match number {
            1 => Self::Open,
            2 => Self::Working,
            3 => Self::Abandoned,
            _ if number & RINGING != 0 => Self::Ringing {
                pid: number & !RINGING,
            },
            _ => Self::Shut,
        }
    }
}

encoded! {
    /// What a process is asked for.
    RequestKind {
        /// To evict so many bytes of resident memory, as far as it is old enough.
        Evict,
        /// To write so many bytes of compressed memory to swap.
        WriteBack = 1,
        /// To free so many bytes, as a limit was lowered.
        ComeDown = 2,
        /// To bring back what is on the swap device of that number.
        SwapOff = 3,
        /// To give other processes what they ask for, as nobody in it would.
        GiveUp = 4,
    }
}

/// The signal's value, by which the process knows it from others.
pub const VALUE: i32 = 0x757a_7377;

/// The door, what is asked and what came of it.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Request {
    /// A shared futex.
    pub door: Shared<Door>,
    /// What is asked for.
    pub what: Shared<RequestKind>,
    /// Bytes that are asked for, or the device's number.
    pub wanted: AtomicU64,
    /// Of what is to be evicted: only what was put on its LRU list before, ticks.
    pub before: AtomicU64,
    /// Bytes of it that were evicted, written back or brought back.
    pub done: AtomicU64,
    /// Bytes of RAM that are free by it.
    pub freed: AtomicU64,
}

impl Request {
    /// Memory of any age is to be evicted.
    pub const ANY_TIME: u64 = u64::MAX;

    /// Says what is asked for: `what`, so many bytes (or the device's number), and to evict only
    /// what was put on its LRU list before tick `before`. Nothing has come of it yet.
    pub fn ask(&self, what: RequestKind, wanted: u64, before: u64) {
        self.what.store(what, Relaxed);
        self.wanted.store(wanted, Relaxed);
        self.before.store(before, Relaxed);
        self.done.store(0, Relaxed);
        self.freed.store(0, Relaxed);
    }

    /// The process handles the signal from now on.
    pub fn open(&self) {
        self.door.store(Door::Open, Release);
    }

    /// The process will not handle the signal any more: another program is to be executed, to which
    /// it would be fatal. Waits for one that is on its way. `came` takes back a signal that is
    /// pending, `is_alive` says whether a process is still there, and `wait` passes time.
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
        self.door.store(Door::Shut, Release);
    }

    /// `false`: a signal is on its way.
    fn try_shut(&self) -> bool {
        let free = |door| matches!(door, Door::Shut | Door::Open | Door::Working);
        let free = |door| free(door).then_some(Door::Shut);
        self.door.fetch_update(AcqRel, Relaxed, free).is_ok()
    }

    /// Who rings, if anybody does.
    fn ringer(&self) -> Option<u32> {
        match self.door.load(Relaxed) {
            Door::Ringing { pid } => Some(pid),
            _ => None,
        }
    }

    /// The signal has come. `None`: it is not ours. `Some(false)`: nobody waits for it any
    /// more.
    pub fn take(&self) -> Option<bool> {
        // Acquire: what is asked was written before.
        let taken = self.door.fetch_update(AcqRel, Acquire, |door| match door {
            Door::Abandoned => Some(Door::Open),
            Door::Ringing { .. } => Some(Door::Working),
            Door::Shut | Door::Open | Door::Working => None,
        });
        taken.ok().map(|before| before != Door::Abandoned)
    }

    /// The answer is there.
    pub fn finish(&self) {
        // Shut meanwhile: another program is being executed.
        let _ = self.door.turn(Door::Working, Door::Open);
    }

    /// Asks, for process `pid`, which then reads whose door it is and sends the signal. Otherwise
    /// the state that the door is in.
    ///
    /// # Errors
    /// The door is not open.
    pub fn ring(&self, pid: u32) -> Result<(), Door> {
        self.door
            .compare_exchange(Door::Open, Door::Ringing { pid }, AcqRel, Acquire)
            .map(|_| ())
    }

    /// Process `pid` has rung, and will send no signal.
    pub fn take_back(&self, pid: u32) {
        let _ = self.door.turn(Door::Ringing { pid }, Door::Open);
    }

    /// The process is dead: nobody rings any more, and its record may become another's. `false`:
    /// somebody who has rung may be about to send the signal, and must find the dead one here.
    pub fn shut_for_dead(&self, is_alive: impl Fn(u32) -> bool) -> bool {
        let shuts = |door| match door {
            Door::Ringing { pid } if is_alive(pid) => None,
            _ => Some(Door::Shut),
        };
        self.door.fetch_update(AcqRel, Acquire, shuts).is_ok()
    }

    /// Process `pid` has rung and waits no longer. `false`: the process is at it already.
    pub fn give_up(&self, pid: u32) -> bool {
        self.door
            .compare_exchange(Door::Ringing { pid }, Door::Abandoned, AcqRel, Acquire)
            .is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_sent_only_to_who_handles_it() {
        let request = Request::default();
        assert_eq!(request.ring(7), Err(Door::Shut), "not yet");
        request.open();
        assert_eq!(request.ring(7), Ok(()));
        assert_eq!(
            request.ring(8),
            Err(Door::Ringing { pid: 7 }),
            "one at a time"
        );
        assert!(!request.try_shut(), "the signal may still come");
        assert_eq!(request.ringer(), Some(7));
        assert_eq!(request.take(), Some(true));
        assert_eq!(request.take(), None, "another SIGSYS is the program's");
        assert_eq!(request.ring(8), Err(Door::Working));
        request.finish();
        assert_eq!(request.ring(8), Ok(()));
        assert!(request.give_up(8));
        assert!(!request.try_shut(), "the signal may still come");
        assert_eq!(request.take(), Some(false));
        assert!(request.try_shut());
        assert_eq!(request.ring(8), Err(Door::Shut));
        request.open();
        assert_eq!(request.ring(8), Ok(()));
        assert!(
            !request.shut_for_dead(|_| true),
            "it may be about to signal"
        );
        request.take_back(8);
        assert!(request.shut_for_dead(|_| true));
        request.open();
        assert_eq!(request.ring(8), Ok(()));
        assert!(request.shut_for_dead(|_| false), "the ringer is dead, too");
        request.finish();
        assert_eq!(
            request.ring(8),
            Err(Door::Shut),
            "a late answer opens nothing"
        );
    }
}
