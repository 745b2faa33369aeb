//! *What*: fork in a managed process: the engine is stopped around the clone, and carried into the
//! child, before either process runs on.
//!
//! *Invariants*: the forking thread holds all locks of ours that the child could meet (the
//! engine's, the table of actions, libc's heap) across the clone, so the child's copy of that
//! thread releases the child's copies of them. The child runs no code of the program before it has
//! a userfaultfd of its own. A clone that asks for another stack gets it when the handler returns.
//!
//! Not kept: `CLONE_FILES` without `CLONE_VM`. A child that shared the descriptor table would
//! replace the parent's userfaultfd by its own: it gets a table of its own.
//! *Locking*: libc's heap, table of actions, then the engine's. *Context*: signal (SIGSYS).

use core::sync::atomic::Ordering;

use uzswap_core::{ForkGuard, Masked, StartError};
use uzswap_sys::arch::abi::CLONE_TID_ARGS;
use uzswap_sys::signal::{SIGCHLD, UContext};
use uzswap_sys::thread::{CLONE_FILES, CLONE_VM};
use uzswap_sys::{Errno, nr, thread};

use crate::guard::frame::Frame;
use crate::guard::stub::{self, Call};
use crate::init::{self, ENGINE};
use crate::threads::{self, Record};
use crate::{guard, malloc, signals};

/// Whether `call` copies the memory of the process.
#[must_use]
pub fn copies_memory(call: &Call) -> bool {
    match call.nr {
        nr::FORK => true,
        nr::CLONE => call.args[0] & CLONE_VM == 0,
        _ => false,
    }
}

/// Whether this process shares the memory of another, which is managed: a vfork child.
#[must_use]
pub fn in_vfork_child() -> bool {
    let owner = ENGINE
        .process()
        .map(|process| process.pid.load(Ordering::Relaxed));
    owner.is_some_and(|pid| pid != thread::getpid().unsigned_abs())
}

/// Issues the fork. Returns twice.
///
/// # Safety
/// In the SIGSYS handler of the thread of record `r`, whose frame is open; `uc` is its context.
pub unsafe fn fork(
    m: &Masked,
    r: *mut Record,
    uc: *mut UContext,
    call: &Call,
) -> Result<isize, Errno> {
    let mut clone = Call {
        nr: nr::CLONE,
        args: match call.nr {
            nr::FORK => [uzswap_sys::syscall::int(SIGCHLD), 0, 0, 0, 0, 0],
            _ => call.args,
        },
    };
    clone.args[0] &= !CLONE_FILES;
    // The child starts on our stack, which it has a copy of.
    let stack = core::mem::take(&mut clone.args[1]);
    // SAFETY: the record is this thread's.
    unsafe {
        for word in CLONE_TID_ARGS.map(|n| clone.args[n]) {
            Frame::pin_whole(m, r, word, 4)?;
        }
        let heap = malloc::hold();
        let mut actions = signals::hold();
        let engine = ENGINE.fork_prepare(m);
        if engine.refused() {
            engine.failed(m);
            return Err(Errno::EAGAIN);
        }
        let ret = stub::issue(&clone);
        if ret != 0 {
            if ret < 0 {
                engine.failed(m);
            } else {
                engine.in_parent(m, u32::try_from(ret).unwrap_or(0));
            }
            drop(actions);
            drop(heap);
            return Ok(ret);
        }
        threads::after_fork(r);
        #[cfg(feature = "loader")]
        if let Err(error) = crate::loader::dispatch::trap_calls(m) {
            guard::refuse(guard::failed(error));
        }
        signals::after_fork(&mut actions);
        drop(actions);
        drop(heap);
        if let Err(error) = start_child(m, engine) {
            guard::refuse(error);
        }
        guard::start_workers(m);
        if stack != 0 {
            (*uc).set_stack_pointer(stack);
        }
        Ok(0)
    }
}

/// Carries the engine over to the child, under an entry of its own in the group.
fn start_child(m: &Masked, engine: ForkGuard) -> Result<(), StartError> {
    let Some(group) = init::group() else {
        engine.failed(m);
        return Ok(());
    };
    let process = match engine.reserved() {
        Some(reserved) => init::begin(&reserved)?,
        None => init::claim(group),
    };
    engine.in_child(m, process)
}
