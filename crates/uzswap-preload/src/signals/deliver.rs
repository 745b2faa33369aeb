//! *What*: starting a program's handler as the kernel would have: on the program's stack or the
//! alternate stack that it set, with the frame that it expects there, under the mask that it asked
//! for.
//!
//! *Invariants*: the frame built here has the kernel's layout, so the program's restorer, unwinders
//! and debuggers read it as they would the kernel's. Its `uc_stack` is our handler stack, since the
//! kernel makes that the alternate stack at `rt_sigreturn`. Nothing of ours is left on any stack
//! when the handler runs. Differences that remain: `SS_AUTODISARM` does not disarm; `uc_stack` does
//! not show the program's own alternate stack.
//! *Locking*: the table of actions, for a moment. *Context*: signal.

use uzswap_core::{Fault, Masked, arena_part};
use uzswap_sys::signal::{
    self, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SIG_DFL, SIG_IGN, SIGSEGV, SigAction, SigInfo,
    SigSet, SignalFrame, UContext, tgsigqueueinfo,
};
use uzswap_sys::{Errno, thread};

use super::{action, is_on, reset};
use crate::guard::fast;
use crate::guard::frame::{Frame, unblockable};
use crate::init::ENGINE;
use crate::threads::{self, Record};

/// A signal that has arrived, and what it interrupted.
#[derive(Clone, Copy)]
pub struct Arrived<'a> {
    /// Its number.
    pub signal: i32,
    /// What the kernel, or the sender, says of it.
    pub info: &'a SigInfo,
    /// The context that it interrupted, [collapsed](collapse).
    pub uc: *mut UContext,
    /// The mask that was in force.
    pub mask: SigSet,
    /// The thread itself caused it, so it can be neither ignored nor put off.
    pub raised: bool,
}

/// The body of [`crate::arch::entry::program`].
///
/// # Safety
/// From the entry.
pub unsafe extern "C" fn on_program(
    signal: i32,
    info: *mut SigInfo,
    uc: *mut UContext,
    scratch: *mut UContext,
) -> *mut UContext {
    // SAFETY: our handlers' masks are full; the pointers are the kernel's frame.
    unsafe {
        let m = Masked::assume();
        let r = threads::at(scratch as usize);
        let arrived = Arrived {
            signal,
            info: &*info,
            uc,
            mask: collapse(&m, uc),
            raised: false,
        };
        deliver(&m, r, &arrived, scratch)
    }
}

/// Collapses what the signal interrupted, and returns the mask that was in force.
///
/// # Safety
/// In a handler of ours, `uc` its context.
pub unsafe fn collapse(m: &Masked, uc: *mut UContext) -> SigSet {
    // SAFETY: the caller's promise; a handler stack is its thread's.
    unsafe {
        #[cfg(feature = "loader")]
        crate::loader::shortcut::take_back_here(&mut *uc);
        let sp = (*uc).stack_pointer();
        let Some(r) = threads::at(sp) else {
            fast::redirect(&mut *uc);
            return (*uc).uc_sigmask;
        };
        let Some(mask) = Frame::collapse(m, r, uc) else {
            return (*uc).uc_sigmask;
        };
        // A signal of ours may have continued the call of a fast path.
        fast::redirect(&mut *uc);
        mask
    }
}

/// Returns the context that starts the program's handler for the signal, or that ends the process
/// if the program's action does.
///
/// # Safety
/// In a handler of ours, with its context in `arrived`: `scratch` is memory for another on the
/// handler stack; `r` is the thread's record.
pub unsafe fn deliver(
    m: &Masked,
    r: Option<*mut Record>,
    arrived: &Arrived<'_>,
    scratch: *mut UContext,
) -> *mut UContext {
    let action = action(arrived.signal);
    match action.handler {
        SIG_IGN if !arrived.raised => arrived.uc,
        // SAFETY: the caller's promise.
        SIG_DFL | SIG_IGN => unsafe { default(arrived.signal, arrived.info, arrived.uc) },
        // SAFETY: the caller's promise.
        _ => unsafe {
            let context = build(m, r, arrived, &action, scratch);
            if action.flags & SA_RESETHAND != 0 {
                reset(arrived.signal, &action);
            }
            context
        },
    }
}

/// Lets the kernel's default action happen when the handler returns to `uc`, with `info` and the
/// registers in the core dump as they are.
///
/// # Safety
/// In a handler of ours, `uc` its context.
pub unsafe fn default(signal: i32, info: &SigInfo, uc: *mut UContext) -> *mut UContext {
    // SAFETY: the default action; the context is the kernel's.
    unsafe {
        let _ = signal::sigaction(signal, Some(&SigAction::DEFAULT));
        (*uc).uc_sigmask = (*uc).uc_sigmask.without(signal);
    }
    let (pid, tid) = (thread::getpid(), thread::gettid());
    if let Err(Errno::EPERM | Errno::EINVAL) = tgsigqueueinfo(pid, tid, signal, info) {
        let _ = uzswap_sys::signal::tgkill(pid, tid, signal);
    }
    uc
}

/// Puts a frame for the handler of `action` where it belongs and returns the context that enters
/// it.
unsafe fn build(
    m: &Masked,
    r: Option<*mut Record>,
    arrived: &Arrived<'_>,
    action: &SigAction,
    scratch: *mut UContext,
) -> *mut UContext {
    let &Arrived {
        signal,
        info,
        uc,
        mask,
        ..
    } = arrived;
    // SAFETY: the context, the record and the scratch space are this thread's.
    unsafe {
        // A thread without a handler stack has the frame on its own stack already: there it stays.
        let in_place = threads::at(uc as usize).is_none();
        let sp = (*uc).stack_pointer();
        let altstack = r.map(|r| (*r).altstack);
        let on_altstack = match altstack {
            Some(stack) if action.flags & SA_ONSTACK != 0 && stack.size > 0 => {
                (!is_on(&stack, sp)).then_some(stack.sp + stack.size)
            }
            _ => None,
        };
        let frame = match on_altstack {
            None if in_place => SignalFrame::of(uc),
            top => {
                let from = top.unwrap_or(sp.wrapping_sub(SignalFrame::RED_ZONE));
                match place(m, uc, from) {
                    Some(frame) => frame,
                    // As the kernel does where there is no room for a frame.
                    None => return default(SIGSEGV, info, uc),
                }
            }
        };
        let context = &raw mut (*frame).context;
        // Our signals are not in it: whether the program blocks them is in the record.
        (*context).uc_sigmask = (*uc).uc_sigmask;
        if let Some(r) = r {
            (*context).uc_stack = threads::kernel_stack(r);
        }
        let at = &raw mut (*frame).info;
        if !core::ptr::eq(at, info) {
            at.write(*info);
        }
        let restorer = if arena_part(frame as usize, 1).is_some() {
            signal::touching_restorer as *const () as usize
        } else {
            action.restorer
        };

        let mut blocked = SigSet(mask.0 | action.mask.0);
        if action.flags & SA_NODEFER == 0 {
            blocked = blocked.with(signal);
        }
        scratch.write(*context);
        let enter = &mut *scratch;
        enter.uc_sigmask = unblockable(blocked);
        if let Some(r) = r {
            enter.uc_stack = threads::kernel_stack(r);
        }
        enter.enter_handler(action.handler, signal, frame, restorer);
        scratch
    }
}

/// Whether all of `[addr, addr + len)`, in the arena, is mapped.
fn is_mapped(addr: usize, len: usize) -> bool {
    let mut at = addr;
    while at < addr + len {
        let Some(region) = ENGINE.region(at) else {
            return false;
        };
        at = region.end;
    }
    true
}

/// Copies context and floating-point state of `uc` to the program's stack below `from`, and returns
/// where the frame is. `None`: nothing is mapped there.
unsafe fn place(m: &Masked, uc: *mut UContext, from: usize) -> Option<*mut SignalFrame> {
    // SAFETY: the state is the kernel's, and as long as it says. The destination is where the
    // kernel would have written; if nothing can be written there, the process ends by SIGSEGV, as
    // it would have.
    unsafe {
        let (state, state_len) = (*uc).fp_state();
        let (frame, state_to) = SignalFrame::below(from, state_len);
        let part = arena_part(frame as usize, from.wrapping_sub(frame as usize));
        if part.is_some_and(|(addr, len)| !is_mapped(addr, len)) {
            return None;
        }
        let pin = match part.map(|(addr, len)| ENGINE.pin(m, addr, len)) {
            Some(Ok(pin)) => Some(pin),
            Some(Err(Fault::NotMapped | Fault::Corrupt)) => return None,
            _ => None,
        };
        core::ptr::copy(state as *const u8, state_to as *mut u8, state_len);
        let context = &raw mut (*frame).context;
        core::ptr::copy(uc, context, 1);
        (*context).set_fp_state(if state == 0 { 0 } else { state_to });
        if let Some(pin) = pin {
            ENGINE.unpin(m, pin);
        }
        Some(frame)
    }
}
