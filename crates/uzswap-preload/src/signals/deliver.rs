//! *What*: starting a program's handler as the kernel would have: on the program's stack or the
//! alternate stack that it set, with the frame that it expects there, under the mask that it asked
//! for.
//!
//! *Invariants*: the frame built here has the kernel's layout, so the program's restorer,
//! unwinders and debuggers find what they know; its `uc_stack` is our slot stack, since the kernel
//! takes it for its own at `rt_sigreturn`. Nothing of ours is left behind when the handler runs.
//! Differences that remain: `SS_AUTODISARM` does not disarm; `uc_stack` does not show the program's
//! own alternate stack.
//! *Locking*: the table of actions, for a moment. *Context*: signal.

use uzswap_sys::signal::{
    self, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SIG_DFL, SIG_IGN, SigAction, SigInfo, SigSet,
    UContext, tgsigqueueinfo,
};
use uzswap_sys::{Errno, thread};

use super::{action, entry, is_on, reset};
use crate::guard::fast;
use crate::guard::frame::{Frame, in_arena, unblockable};
use crate::guard::port::{self, Masked};
use crate::threads::{self, Record};

/// What the kernel puts on the stack before a handler: return address, context, information.
const FRAME_LEN: usize = 8 + CONTEXT_LEN + size_of::<SigInfo>();
const CONTEXT_LEN: usize = size_of::<UContext>();
const _: () = assert!(CONTEXT_LEN == 304);

/// Bytes below the stack pointer that belong to the interrupted function.
const RED_ZONE: usize = 128;
/// Offsets into the saved floating-point state: the mark of an extended state, and its length.
const FP_MAGIC: usize = 464;
const FP_LEN: usize = 468;
const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
const FP_LEGACY_LEN: usize = 512;
/// Flags that a handler starts without: trap, direction, resume.
const EFLAGS_CLEARED: u64 = 0x100 | 0x400 | 0x1_0000;

/// The body of [`entry::program`].
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
        let mask = collapse(&m, uc);
        deliver(&m, r, signal, &*info, uc, scratch, mask, false)
    }
}

/// Collapses what the signal interrupted, and returns the mask that was in force.
///
/// # Safety
/// In a handler of ours, `uc` its context.
pub unsafe fn collapse(m: &Masked, uc: *mut UContext) -> SigSet {
    // SAFETY: the caller's promise; a stack pointer in a slot is on the stack of its thread.
    unsafe {
        let sp = usize::try_from((*uc).uc_mcontext.rsp).unwrap_or(0);
        let Some(r) = threads::at(sp) else {
            fast::redirect(&mut *uc);
            return (*uc).uc_sigmask;
        };
        Frame::collapse(m, r, uc).unwrap_or((*uc).uc_sigmask)
    }
}

/// Returns the context that starts the program's handler for `signal`, or that ends the process if
/// that is what the program's action comes to. `raised`: the thread itself caused it, so it can be
/// neither ignored nor put off.
///
/// # Safety
/// In a handler of ours: `uc` is its context, `scratch` memory for another on the slot stack; `r`
/// is the thread's record.
#[expect(
    clippy::too_many_arguments,
    reason = "what a handler knows of its signal"
)]
pub unsafe fn deliver(
    m: &Masked,
    r: Option<*mut Record>,
    signal: i32,
    info: &SigInfo,
    uc: *mut UContext,
    scratch: *mut UContext,
    mask: SigSet,
    raised: bool,
) -> *mut UContext {
    let action = action(signal);
    match action.handler {
        SIG_IGN if !raised => uc,
        // SAFETY: the caller's promise.
        SIG_DFL | SIG_IGN => unsafe { default(signal, info, uc) },
        // SAFETY: the caller's promise.
        _ => unsafe {
            let context = build(m, r, signal, info, uc, scratch, mask, &action);
            if action.flags & SA_RESETHAND != 0 {
                reset(signal, &action);
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

/// Puts a frame for the handler of `action` where it belongs and returns the context that enters it.
#[expect(
    clippy::too_many_arguments,
    reason = "what a handler knows of its signal"
)]
unsafe fn build(
    m: &Masked,
    r: Option<*mut Record>,
    signal: i32,
    info: &SigInfo,
    uc: *mut UContext,
    scratch: *mut UContext,
    mask: SigSet,
    action: &SigAction,
) -> *mut UContext {
    // SAFETY: the context, the record and the scratch space are this thread's.
    unsafe {
        // A thread without a slot got its frame on its own stack already: there it stays.
        let in_place = threads::at(uc as usize).is_none();
        let sp = usize::try_from((*uc).uc_mcontext.rsp).unwrap_or(0);
        let altstack = r.map(|r| (*r).altstack);
        let on_altstack = match altstack {
            Some(stack) if action.flags & SA_ONSTACK != 0 && stack.size > 0 => {
                (!is_on(&stack, sp)).then_some(stack.sp + stack.size)
            }
            _ => None,
        };
        let frame = match on_altstack {
            None if in_place => uc as usize - 8,
            top => {
                let from = top.unwrap_or(sp.wrapping_sub(RED_ZONE));
                place(m, uc, from)
            }
        };
        let context = (frame + 8) as *mut UContext;
        // The program's view of its own mask: its beliefs are in the record.
        (*context).uc_sigmask = (*uc).uc_sigmask;
        if let Some(r) = r {
            (*context).uc_stack = threads::kernel_stack(r);
        }
        let at = (frame + 8 + CONTEXT_LEN) as *mut SigInfo;
        if !core::ptr::eq(at, info) {
            at.write(*info);
        }
        let restorer = if in_arena(frame, 1).is_some() {
            entry::restorer as *const () as usize
        } else {
            action.restorer
        };
        (frame as *mut usize).write(restorer);

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
        let regs = &mut enter.uc_mcontext;
        // No saved state means the initial state, with which handlers start.
        regs.fpstate = core::ptr::null_mut();
        regs.rip = action.handler as u64;
        regs.rsp = frame as u64;
        regs.rdi = u64::from(signal.unsigned_abs());
        regs.rsi = at as u64;
        regs.rdx = context as u64;
        regs.rax = 0;
        regs.eflags &= !EFLAGS_CLEARED;
        scratch
    }
}

/// Copies context and floating-point state of `uc` to the program's stack below `from`, and returns
/// where the frame is.
unsafe fn place(m: &Masked, uc: *mut UContext, from: usize) -> usize {
    // SAFETY: the state is the kernel's, and as long as it says. The destination is where the
    // kernel would have written; if nothing can be written there, the process ends by SIGSEGV, as
    // it would have.
    unsafe {
        let state = (*uc).uc_mcontext.fpstate as usize;
        let state_len = if state == 0 {
            0
        } else if ((state + FP_MAGIC) as *const u32).read() == FP_XSTATE_MAGIC1 {
            ((state + FP_LEN) as *const u32).read() as usize
        } else {
            FP_LEGACY_LEN
        };
        let state_to = from.wrapping_sub(state_len) & !63;
        let frame = (state_to.wrapping_sub(FRAME_LEN) & !15).wrapping_sub(8);
        let pin = in_arena(frame, from.wrapping_sub(frame))
            .and_then(|(addr, len)| port::pin(m, addr, len).ok());
        core::ptr::copy(state as *const u8, state_to as *mut u8, state_len);
        let context = (frame + 8) as *mut UContext;
        core::ptr::copy(uc, context, 1);
        (*context).uc_mcontext.fpstate = if state == 0 {
            core::ptr::null_mut()
        } else {
            state_to as *mut core::ffi::c_void
        };
        if let Some(pin) = pin {
            port::unpin(m, pin);
        }
        frame
    }
}
