//! *What*: [`Masked`], the proof that no signal handler of the program can run on this thread.
//!
//! *Invariants*: whoever holds a `Masked` has every signal blocked. Without it a handler of the
//! program could interrupt a frame that holds an engine lock, fault, and wait for itself. Nor does
//! it run on a stack in the arena: such a stack could be evicted under it, and the fault would find
//! SIGBUS blocked. What it was called with on such a stack is pinned meanwhile.
//! *Locking*: taken before every lock of the engine. *Context*: any.

use core::ffi::c_void;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::page::in_arena;
use uzswap_sys::signal;

/// Proof that all signals are blocked on the calling thread.
#[derive(Debug)]
pub struct Masked(PhantomData<*mut ()>);

/// What [`StackSwitch`] runs elsewhere.
pub type SwitchedFn = unsafe fn(*mut c_void, &Masked);

/// Runs a job with all signals blocked, on a stack outside the arena, with the caller's frames, where
/// the job's argument is, brought in and kept in.
pub type StackSwitch = unsafe fn(job: SwitchedFn, argument: *mut c_void);

/// The [`StackSwitch`] of this process, null while there is none.
static STACK_SWITCH: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Sets how [`Masked::block`] leaves a stack that lies in the arena.
pub fn set_stack_switch(switch: StackSwitch) {
    // Release: pairs with the acquire in `block`.
    STACK_SWITCH.store(switch as *mut c_void, Ordering::Release);
}

impl Masked {
    /// Says that the caller has all signals blocked.
    ///
    /// # Safety
    /// True for as long as the value lives: in a signal handler installed with a full mask, or on
    /// a thread that was started with all signals blocked and never unblocks them. The stack is not
    /// in the arena.
    #[inline]
    #[must_use]
    pub const unsafe fn assume() -> Masked {
        Masked(PhantomData)
    }

    /// Runs `f` with all signals blocked, then restores the mask. Two system calls.
    #[inline]
    pub fn block<R>(f: impl FnOnce(&Masked) -> R) -> R {
        let here = 0_u8;
        if in_arena(core::ptr::from_ref(&here) as usize) {
            return Self::elsewhere(f);
        }
        Self::here(f)
    }

    fn here<R>(f: impl FnOnce(&Masked) -> R) -> R {
        let old = signal::block_all();
        let out = f(&Masked(PhantomData));
        signal::set_mask(old);
        out
    }

    #[cold]
    fn elsewhere<R, F: FnOnce(&Masked) -> R>(f: F) -> R {
        enum State<F, R> {
            Call(F),
            Done(R),
            Empty,
        }
        unsafe fn run<R, F: FnOnce(&Masked) -> R>(state: *mut c_void, masked: &Masked) {
            // SAFETY: the state below, used by nobody else meanwhile.
            let state = unsafe { &mut *state.cast::<State<F, R>>() };
            if let State::Call(f) = core::mem::replace(state, State::Empty) {
                *state = State::Done(f(masked));
            }
        }
        let switch = STACK_SWITCH.load(Ordering::Acquire);
        if switch.is_null() {
            return Self::here(f);
        }
        let mut state = State::Call(f);
        // SAFETY: `set_stack_switch` stored a function of that type; the state outlives the call.
        unsafe {
            let switch: StackSwitch = core::mem::transmute(switch);
            switch(run::<R, F>, (&raw mut state).cast());
        }
        match state {
            State::Done(out) => out,
            // A `StackSwitch` that does not run its job has broken its word.
            State::Call(_) | State::Empty => uzswap_sys::thread::exit_group(125),
        }
    }
}
