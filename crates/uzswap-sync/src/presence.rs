//! *What*: whether a helper of this process's is there: it is started when there is work, sleeps
//! while there is none, and is ended and kept away while somebody wants that. The helper is a
//! thread or a process that shares this memory; whoever starts it is told how by the caller. Other
//! processes may give it work, too, by its [`Kick`], if that lies in memory that they share.
//!
//! *Invariants*
//! - There is one helper at most. `gate` counts those that want none, and has [`STARTING`] while
//!   one is started, which is only begun while `gate` is 0. So once a hold has counted itself and
//!   `STARTING` is gone, nobody starts one.
//! - Work that was given is seen: `kick` leaves [`IDLE`] before the helper is woken, and the helper
//!   sleeps only while it is `IDLE`, or for a time.
//! - One that was kicked by another process while there was none may be missing although `kick` is
//!   not [`IDLE`]: whoever has work then starts it ([`Presence::is_missing`]).
//! - A helper that ends clears `running` before it is gone (`alive` 0). One that is gone while
//!   `running` was killed.
//!
//! *Locking*: none. *Context*: any.

use crate::const_unless_modelled;
use crate::primitive::{
    AtomicBool, AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    spin_loop,
};
use crate::word::{SharedWord, Word};
use core::ptr::null_mut;

/// The helper sleeps until somebody has work for it.
const IDLE: u32 = 0;
/// There is work, or it is to end.
const AT_WORK: u32 = 1;
/// There is work, and it sleeps for a time.
const PAUSED: u32 = 2;

/// Bit of `gate`: a thread is starting it.
const STARTING: u32 = 1;
/// What a thread that wants none to be there adds to `gate`.
const HOLD: u32 = 2;

/// What wakes a helper. All zeroes: it has no work.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(transparent))]
pub struct Kick {
    /// [`IDLE`], [`AT_WORK`] or [`PAUSED`].
    word: SharedWord,
}

impl Kick {
    const_unless_modelled! {
        /// Of a helper without work.
        pub fn new() -> Self {
            Kick {
                word: SharedWord::new(IDLE),
            }
        }
    }

    /// From another process: gives the helper work, which has been written before.
    pub fn ring(&self) {
        // Written in any case, and Release: the helper, whose next look at the word is a swap, then
        // sees the work. It sleeps through a pause.
        let at_work = |state| Some(if state == IDLE { AT_WORK } else { state });
        if self.word.fetch_update(AcqRel, Relaxed, at_work) == Ok(IDLE) {
            self.word.wake_one();
        }
    }

    /// There is neither work nor a helper.
    pub fn reset(&self) {
        self.word.store(IDLE, Relaxed);
    }
}

impl Default for Kick {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a helper is there. All zeroes: there is none.
#[derive(Debug)]
pub struct Presence {
    /// Where its kick is; null: in `own_kick`.
    kick: AtomicPtr<Kick>,
    own_kick: Kick,
    /// It was started, and has not taken its leave.
    running: AtomicBool,
    /// It is to end.
    stop: AtomicBool,
    /// Its number while it is there, 0 once it is gone. The kernel clears it.
    alive: Word,
    /// Whether it may be started: [`STARTING`] and [`HOLD`]s.
    gate: AtomicU32,
    /// Times that it was started.
    starts: AtomicU32,
}

impl Presence {
    const_unless_modelled! {
        /// No helper.
        pub fn new() -> Self {
            Presence {
                kick: AtomicPtr::new(null_mut()),
                own_kick: Kick::new(),
                running: AtomicBool::new(false),
                stop: AtomicBool::new(false),
                alive: Word::new(0),
                gate: AtomicU32::new(0),
                starts: AtomicU32::new(0),
            }
        }
    }

    /// From now on its kick is there, if anywhere but here. While there is no helper.
    pub fn listen_at(&self, kick: Option<&'static Kick>) {
        let kick = kick.map_or(null_mut(), |kick| core::ptr::from_ref(kick).cast_mut());
        self.kick.store(kick, Release);
    }

    #[inline]
    fn word(&self) -> &SharedWord {
        // SAFETY: null, or what `listen_at` was given, which lives for good.
        let kick = unsafe { self.kick.load(Acquire).as_ref() };
        &kick.unwrap_or(&self.own_kick).word
    }

    /// Its number while it is there.
    pub const fn alive(&self) -> &Word {
        &self.alive
    }

    /// Whether it sleeps until it is given work.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.word().load(Relaxed) == IDLE
    }

    /// Whether it was given work, is not there, and may be started.
    pub fn is_missing(&self) -> bool {
        self.alive.load(Relaxed) == 0 && self.gate.load(Relaxed) == 0
    }

    /// Gives it work. `true`: it had none, and has to be [woken](Presence::wake).
    #[inline]
    pub fn kick(&self) -> bool {
        self.is_idle()
            && self
                .word()
                .compare_exchange(IDLE, AT_WORK, Release, Relaxed)
                .is_ok()
    }

    /// Wakes it. `false`: it is not there.
    pub fn wake(&self) -> bool {
        self.word().wake_one();
        self.alive.load(Relaxed) != 0
    }

    /// Whether it was killed.
    #[must_use]
    pub fn was_killed(&self) -> bool {
        // All of one start: it is complete, its helper is gone, and did not say so before. Acquire:
        // each value comes with what was written before it.
        let starts = self.starts.load(Acquire);
        self.gate.load(Acquire) & STARTING == 0
            && self.alive.load(Acquire) == 0
            && self.running.load(Acquire)
            && self.starts.load(Acquire) == starts
    }

    /// Starts it by `start`, unless it is there or not wanted. `start` sets the word that it is
    /// given before it returns, and has it cleared when the helper is gone. `false`: `start`
    /// failed.
    pub fn start_with(&self, start: impl FnOnce(&Word) -> bool) -> bool {
        // Acquire: pairs with the release of the start before.
        let begun = self.gate.compare_exchange(0, STARTING, Acquire, Relaxed);
        if begun.is_err() {
            return true;
        }
        let mut started = true;
        if self.alive.load(Acquire) == 0 {
            self.starts.fetch_add(1, Release);
            self.stop.store(false, Relaxed);
            self.running.store(true, Release);
            started = start(&self.alive);
            if !started {
                self.running.store(false, Release);
            }
        }
        // Release: who finds the gate open sees that it is there.
        self.gate.fetch_and(!STARTING, Release);
        started
    }

    /// In it: sleeps until there is work. `false`: it is to end.
    #[must_use]
    pub fn wait(&self) -> bool {
        while self.word().swap(IDLE, Acquire) == IDLE {
            if self.is_stopped() {
                return false;
            }
            self.word().sleep_while(IDLE);
        }
        !self.is_stopped()
    }

    /// In it: sleeps until there is work, for `ns` nanoseconds at most. `false`: it is to end.
    #[must_use]
    pub fn wait_for(&self, ns: u64) -> bool {
        if self.word().swap(IDLE, Acquire) == IDLE && !self.is_stopped() {
            self.word().sleep_while_for(IDLE, ns);
        }
        !self.is_stopped()
    }

    /// In it: sleeps for `ns` nanoseconds, unless it is to end. Work that comes in waits.
    pub fn pause(&self, ns: u64) {
        // Of the two swaps, `hold`'s is later and ends the sleep, or earlier, and this one sees
        // `stop`.
        self.word().swap(PAUSED, AcqRel);
        if !self.is_stopped() {
            self.word().sleep_while_for(PAUSED, ns);
        }
    }

    /// In it: whether it is to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Acquire)
    }

    /// In it: takes its leave, last of all.
    pub fn leave(&self) {
        self.running.store(false, Release);
    }

    /// Ends it, waits until it is gone, and keeps it away until [`Presence::release`]. Returns its
    /// number, 0 if it was not there.
    pub fn hold(&self) -> u32 {
        self.gate.fetch_add(HOLD, AcqRel);
        // Acquire: pairs with the release in `start_with`.
        while self.gate.load(Acquire) & STARTING != 0 {
            spin_loop();
        }
        self.stop.store(true, Release);
        self.word().swap(AT_WORK, AcqRel);
        self.word().wake_one();
        let number = self.alive.load(Acquire);
        self.alive.wait_for_zero_of_kernel();
        number
    }

    /// After a [`Presence::hold`].
    pub fn release(&self) {
        self.word().store(IDLE, Relaxed);
        self.gate.fetch_sub(HOLD, Release);
    }

    /// In a fork child, which has no helper, nor a thread that starts or wants none. Its kick is
    /// not the parent's: see [`Presence::listen_at`].
    pub fn reset(&self, kick: Option<&'static Kick>) {
        self.listen_at(kick);
        self.alive.store(0, Relaxed);
        self.running.store(false, Relaxed);
        self.gate.store(0, Relaxed);
        self.stop.store(false, Relaxed);
        self.word().store(IDLE, Relaxed);
    }
}

impl Default for Presence {
    fn default() -> Self {
        Self::new()
    }
}
