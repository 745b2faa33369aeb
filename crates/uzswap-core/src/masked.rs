//! *What*: [`Masked`], the proof that no signal handler of the program can run on this thread.
//!
//! *Invariants*
//! - Whoever holds a `Masked` has every signal blocked. Otherwise a handler of the program could
//!   interrupt a frame that holds an engine lock, fault, and wait for itself.
//! - It does not run on a stack in the arena: reclaim could evict the stack under it, and the fault
//!   would find SIGBUS blocked. [`Masked::block`] switches stacks there and pins the caller's
//!   frames.
//!
//! *Locking*: taken before every lock of the engine. *Context*: any.

use core::ffi::c_void;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::page::in_arena;
use uzswap_sys::signal;

/// Proof that all signals are blocked on the calling thread.
#[derive(Debug)]
pub struct Masked(PhantomData<*mut ()>);

/// The function that a [`StackSwitch`] runs on the other stack.
pub type SwitchedFn = unsafe fn(*mut c_void, &Masked);

/// Runs `job` with all signals blocked on a stack outside the arena. The caller's frames, which
/// hold the job's argument, are resident and pinned meanwhile.
pub type StackSwitch = unsafe fn(job: SwitchedFn, argument: *mut c_void);

/// The [`StackSwitch`] of this process, or null.
static STACK_SWITCH: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Sets how [`Masked::block`] leaves a stack in the arena.
pub fn set_stack_switch(switch: StackSwitch) {
    // Release: pairs with the acquire in `block`.
    STACK_SWITCH.store(switch as *mut c_void, Ordering::Release);
}

impl Masked {
    /// Asserts that the caller has all signals blocked.
    ///
    /// # Safety
    /// The mask is full for as long as the value lives: in a signal handler installed with a full
    /// mask, or on a thread started with all signals blocked that never unblocks them. The stack is
    /// not in the arena.
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
            return Self::block_on_other_stack(f);
        }
        Self::block_here(f)
    }

    fn block_here<R>(f: impl FnOnce(&Masked) -> R) -> R {
        let old = signal::block_all();
        let out = f(&Masked(PhantomData));
        signal::set_mask(old);
        out
    }

    #[cold]
    fn block_on_other_stack<R, F: FnOnce(&Masked) -> R>(f: F) -> R {
        enum State<F, R> {
            Call(F),
            Done(R),
            Empty,
        }
        unsafe fn run<R, F: FnOnce(&Masked) -> R>(state: *mut c_void, masked: &Masked) {
            // SAFETY: the state below, which nobody else uses meanwhile.
            let state = unsafe { &mut *state.cast::<State<F, R>>() };
            if let State::Call(f) = core::mem::replace(state, State::Empty) {
                *state = State::Done(f(masked));
            }
        }
        let switch = STACK_SWITCH.load(Ordering::Acquire);
        if switch.is_null() {
            return Self::block_here(f);
        }
        let mut state = State::Call(f);
        // SAFETY: `set_stack_switch` stored a function of that type; the state outlives the call.
        unsafe {
            let switch: StackSwitch = core::mem::transmute(switch);
            switch(run::<R, F>, (&raw mut state).cast());
        }
        match state {
            State::Done(out) => out,
            // The `StackSwitch` returned without running its job.
            State::Call(_) | State::Empty => uzswap_sys::thread::exit_group(125),
        }
    }
}
