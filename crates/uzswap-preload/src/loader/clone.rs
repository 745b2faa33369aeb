//! *What*: `clone` and `vfork` that share memory: new threads, and children that are about to
//! execute.
//!
//! *Invariants*: the child begins in our code, on a handler stack of its own that its maker claimed
//! for it, with all signals blocked; its calls are dispatched before it returns to the program,
//! with the registers that its maker had.
//! *Locking*: none. *Context*: signal; the start of every thread.

use uzswap_core::{Masked, in_arena};
use uzswap_sys::signal::UContext;
use uzswap_sys::thread::{CLONE_CHILD_CLEARTID, CLONE_THREAD, CLONE_VFORK, CLONE_VM};
use uzswap_sys::{Errno, nr};

use super::dispatch;
use crate::arch::thread::clone_program;
use crate::guard::frame::Frame;
use crate::guard::stub::Call;
use crate::init::ENGINE;
use crate::threads::{self, Record};

/// What a child finds on its handler stack.
#[repr(C)]
pub struct Child {
    context: UContext,
    record: *mut Record,
    flags: usize,
}

/// Whether `call` makes somebody who shares the memory.
#[must_use]
pub const fn shares_memory(call: &Call) -> bool {
    match call.nr {
        nr::VFORK => true,
        nr::CLONE => call.args[0] & CLONE_VM != 0,
        _ => false,
    }
}

/// Issues the call.
///
/// # Safety
/// In the SIGSYS handler of the thread of record `r`, whose frame is open; `uc` is its context.
pub unsafe fn clone(
    m: &Masked,
    r: *mut Record,
    uc: *mut UContext,
    call: &Call,
) -> Result<isize, Errno> {
    const SIGCHLD: usize = 17;
    let [flags, stack, ptid, ctid, tls, _] = match call.nr {
        nr::VFORK => [CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0, 0],
        _ => call.args,
    };
    let theirs = threads::claim_new(m).ok_or(Errno::EAGAIN)?;
    // SAFETY: both records are ours until the child runs.
    unsafe {
        for word in [ptid, ctid] {
            Frame::pin_whole(m, r, word, 4)?;
        }
        if flags & CLONE_CHILD_CLEARTID != 0 && in_arena(ctid) {
            // The kernel writes there when the thread ends.
            let _ = ENGINE.hold(m, ctid, 4);
        }
        (*theirs).blocked = (*r).blocked;
        let child = prepare(theirs, uc, stack);
        (*child).flags = flags;
        let ret = clone_program(flags, child.cast(), ptid, ctid, tls);
        // A vfork child has left the memory by now.
        if ret < 0 || flags & CLONE_VFORK != 0 {
            threads::disclaim(theirs);
        }
        Ok(ret)
    }
}

/// Copies the context of `uc` to the top of the handler stack of record `r`, for a child that goes
/// on with stack pointer `stack`, unless that is 0.
unsafe fn prepare(r: *mut Record, uc: *mut UContext, stack: usize) -> *mut Child {
    // SAFETY: the handler stack is claimed and free; the floating-point state is the kernel's.
    unsafe {
        let (state, len) = (*uc).fp_state();
        let to = (r as usize - len) & !63;
        core::ptr::copy_nonoverlapping(state as *const u8, to as *mut u8, len);
        let child = ((to - size_of::<Child>()) & !63) as *mut Child;
        (*child).context = *uc;
        (*child).record = r;
        let context = &mut (*child).context;
        context.set_fp_state(if state == 0 { 0 } else { to });
        context.set_syscall_return(0);
        context.uc_stack = threads::kernel_stack(r);
        if stack != 0 {
            context.set_stack_pointer(stack);
        }
        child
    }
}

/// The first code of a child, on its handler stack. Returns the context in which it goes on.
///
/// # Safety
/// From [`clone_program`].
pub unsafe extern "C" fn begin(child: *mut Child) -> *mut UContext {
    // SAFETY: the maker had all signals blocked, and hands the record over.
    unsafe {
        let m = Masked::assume();
        let (r, flags) = ((*child).record, (*child).flags);
        // Another process that shares the memory is not found by its number here: its maker, or
        // nobody, gives the handler stack back.
        if flags & CLONE_THREAD != 0 {
            threads::adopt(&m, r);
        }
        threads::use_stack(r);
        (*r).shortcut.attach();
        if let Err(errno) = dispatch::trap_calls(&m) {
            crate::guard::refuse(crate::guard::failed(errno));
        }
        &raw mut (*child).context
    }
}
