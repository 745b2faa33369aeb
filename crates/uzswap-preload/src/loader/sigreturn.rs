//! *What*: `rt_sigreturn` of the program: the frame is read from its stack, which may be evicted,
//! and the kernel restores the copy.
//!
//! *Invariants*: the thread returns with its handler stack, and with our signals unblocked,
//! whatever the program made of the frame.
//! *Locking*: the engine's. *Context*: signal.

use uzswap_core::Masked;
use uzswap_sys::Errno;
use uzswap_sys::signal::{SIGSEGV, SigInfo, UContext};

use crate::guard::frame::{Frame, unblockable};
use crate::guard::user;
use crate::signals::deliver;
use crate::threads::{self, Record};

/// Returns the context that the program's frame holds.
///
/// # Safety
/// In the SIGSYS handler of the thread of record `r`; `uc` is its context, `scratch` memory for
/// another on the handler stack.
pub unsafe fn sigreturn(
    m: &Masked,
    r: *mut Record,
    info: &SigInfo,
    uc: *mut UContext,
    scratch: *mut UContext,
) -> *mut UContext {
    // SAFETY: the caller's promise.
    unsafe {
        Frame::open(r, uc);
        let read = read(m, r, (*uc).stack_pointer(), scratch);
        Frame::close(m, r);
        match read {
            Ok(()) => scratch,
            // As the kernel answers a bad frame.
            Err(_) => deliver::default(SIGSEGV, info, uc),
        }
    }
}

/// Reads the context at `from` and its floating-point state.
unsafe fn read(
    m: &Masked,
    r: *mut Record,
    from: usize,
    context: *mut UContext,
) -> Result<(), Errno> {
    // SAFETY: the record is this thread's with an open frame; the copies have room.
    unsafe {
        Frame::pin_whole(m, r, from, size_of::<UContext>())?;
        user::read(context, from, 1)?;
        let state = (*context).fp_address();
        if state != 0 {
            let room = &raw mut (*r).fp_state;
            let (room, most) = (room as usize, size_of_val(&*room));
            Frame::pin_whole(m, r, state, UContext::FP_HEAD_LEN)?;
            user::read(room as *mut u8, state, UContext::FP_HEAD_LEN)?;
            (*context).set_fp_state(room);
            let (_, len) = (*context).fp_state();
            if len > most {
                return Err(Errno::EFAULT);
            }
            Frame::pin_whole(m, r, state, len)?;
            user::read(room as *mut u8, state, len)?;
        }
        (*context).uc_sigmask = unblockable((*context).uc_sigmask);
        (*context).uc_stack = threads::kernel_stack(r);
    }
    Ok(())
}
