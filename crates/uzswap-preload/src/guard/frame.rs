//! *What*: the frame of a call that is being issued for a thread: its pins, how much of it is done,
//! and how to *collapse* it when a signal of the program arrives meanwhile.
//!
//! A program's handler never runs on top of a handler of ours. When a signal interrupts the window,
//! the frame is collapsed first: pins are dropped, and the thread is put where it would be without
//! the guard, at the program's own system call instruction, either about to issue it (again) or
//! just returned from it with its result. Whatever the program's handler then does (look at the
//! context, unwind, jump out, cancel the thread, scan the stack, return) happens on the program's
//! own stack and state.
//!
//! *Invariants*: a thread has at most one open frame, and its context `uc` is on the thread's
//! handler stack above everything that runs meanwhile. Pins of a frame are dropped exactly once: at
//! its end or its collapse. A forked child inherits none.
//! *Locking*: none; a frame is its thread's. *Context*: signal.

use uzswap_core::{Fault, Masked, Pin, arena_part};
use uzswap_sys::Errno;
use uzswap_sys::signal::{SigSet, UContext};

use super::stub::{self, Call, State};
use crate::init::ENGINE;
use crate::signals::ours;
use crate::threads::{NR_PINS, Record};

/// What is written back to the program's memory after a call.
pub type Finish = unsafe fn(&Masked, *mut Record, isize);

/// The call being issued for a thread.
#[repr(C)]
pub struct Frame {
    /// The context of the trapped call; null when no frame is open.
    uc: *mut UContext,
    /// Pins held.
    pub nr_pins: usize,
    /// The number of the call that is issued, for [`crate::signals::resume`].
    pub nr: usize,
    /// Bytes that earlier pieces of this call moved.
    pub done: usize,
    /// The mask that the call itself puts in force while it waits (`ppoll`), if `has_mask`.
    pub mask: SigSet,
    /// See `mask`.
    pub has_mask: bool,
    /// What remains to be done with a result.
    pub finish: Option<Finish>,
}

/// The error number as a system call returns it.
#[must_use]
pub const fn fail(errno: Errno) -> isize {
    -(errno.0 as isize)
}

/// A result that is an error.
#[must_use]
pub const fn is_error(ret: isize) -> bool {
    ret < 0 && ret >= -4095
}

impl Frame {
    /// Opens the frame of the trapped call whose context is `uc`.
    ///
    /// # Safety
    /// `r` is the calling thread's record and has no open frame.
    pub unsafe fn open(r: *mut Record, uc: *mut UContext) {
        // SAFETY: the caller's promise.
        let f = unsafe { &mut (*r).frame };
        f.uc = uc;
        f.nr_pins = 0;
        f.nr = usize::MAX;
        f.done = 0;
        f.has_mask = false;
        f.finish = None;
    }

    /// Closes the frame: drops its pins.
    ///
    /// # Safety
    /// `r` is the calling thread's record.
    pub unsafe fn close(m: &Masked, r: *mut Record) {
        // SAFETY: the caller's promise.
        unsafe {
            Self::unpin_to(m, r, 0);
            (*r).frame.uc = core::ptr::null_mut();
        }
    }

    /// Forgets a frame in a forked child, which inherits no pins.
    ///
    /// # Safety
    /// The record is this thread's, or nobody's.
    pub unsafe fn forget(r: *mut Record) {
        // SAFETY: the caller's promise.
        unsafe {
            (*r).frame.nr_pins = 0;
            (*r).frame.uc = core::ptr::null_mut();
        }
    }

    /// The program's stack pointer at the trapped call.
    ///
    /// # Safety
    /// `r` is the calling thread's record.
    pub unsafe fn stack_pointer(r: *mut Record) -> Option<usize> {
        // SAFETY: an open frame's context is on the handler stack.
        unsafe { (*r).frame.uc.as_ref() }.map(UContext::stack_pointer)
    }

    /// Drops pins from the last back to number `keep`.
    ///
    /// # Safety
    /// `r` is the calling thread's record.
    pub unsafe fn unpin_to(m: &Masked, r: *mut Record, keep: usize) {
        // SAFETY: the first `nr_pins` pins are initialised; the record is ours.
        unsafe {
            while (*r).frame.nr_pins > keep {
                (*r).frame.nr_pins -= 1;
                let n = (*r).frame.nr_pins;
                let pin = (&raw const (*r).pins)
                    .cast::<core::mem::MaybeUninit<Pin>>()
                    .add(n)
                    .read();
                ENGINE.unpin(m, pin.assume_init());
            }
        }
    }

    /// Pins what of `[addr, addr + len)` lies in the arena, for the call. `Ok` also when nothing
    /// does.
    ///
    /// # Errors
    /// `ENOMEM`: the limit does not take it (or [`NR_PINS`] are in use): smaller pieces may do.
    /// `EFAULT`: what was stored there is lost.
    ///
    /// # Safety
    /// `r` is the calling thread's record with an open frame.
    pub unsafe fn pin(m: &Masked, r: *mut Record, addr: usize, len: usize) -> Result<(), Errno> {
        let Some((addr, len)) = arena_part(addr, len) else {
            return Ok(());
        };
        // SAFETY: the record is ours and `nr_pins` is below the number of pins.
        unsafe {
            if (*r).frame.nr_pins >= NR_PINS {
                return Err(Errno::ENOMEM);
            }
            match ENGINE.pin(m, addr, len) {
                Ok(pin) => {
                    let n = (*r).frame.nr_pins;
                    (&raw mut (*r).pins)
                        .cast::<core::mem::MaybeUninit<Pin>>()
                        .add(n)
                        .write(core::mem::MaybeUninit::new(pin));
                    (*r).frame.nr_pins = n + 1;
                    Ok(())
                }
                // Not mapped, or the kernel's: the call itself reports it.
                Err(Fault::Resolved | Fault::NotMapped | Fault::Foreign) => Ok(()),
                Err(Fault::OverLimit { .. }) => Err(Errno::ENOMEM),
                // As the kernel answers where a page cannot be had back from swap.
                Err(Fault::Corrupt) => Err(Errno::EFAULT),
            }
        }
    }

    /// Pins, where there is no smaller piece: ends the process when the limit does not take it.
    ///
    /// # Errors
    /// `EFAULT`: what was stored there is lost.
    ///
    /// # Safety
    /// As [`Frame::pin`].
    pub unsafe fn pin_whole(
        m: &Masked,
        r: *mut Record,
        addr: usize,
        len: usize,
    ) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        match unsafe { Self::pin(m, r, addr, len) } {
            // SAFETY: the caller's promise.
            Err(Errno::ENOMEM) if unsafe { (*r).frame.nr_pins } < NR_PINS => {
                ENGINE.end_over_limit(len as u64)
            }
            // Out of pins: the page may stay in by itself, and if not the call fails.
            Err(Errno::ENOMEM) => Ok(()),
            other => other,
        }
    }

    /// Issues `call` with the program's signals unblocked.
    ///
    /// # Safety
    /// As [`stub::window`]; `r` is the calling thread's record with an open frame.
    pub unsafe fn issue(r: *mut Record, call: &Call) -> isize {
        // SAFETY: the context outlives the frame.
        unsafe {
            (*r).frame.nr = call.nr;
            let mask = unblockable((*(*r).frame.uc).uc_sigmask);
            stub::window(call, &mask)
        }
    }

    /// Collapses the open frame of the interrupted thread, if `uc` interrupted its window: makes
    /// `uc` the context that the program would have been interrupted in without the guard. Returns
    /// the mask that was in force then.
    ///
    /// # Safety
    /// In a handler of ours that interrupted the thread of record `r`; `uc` is its frame.
    pub unsafe fn collapse(m: &Masked, r: *mut Record, uc: *mut UContext) -> Option<SigSet> {
        // SAFETY: the record is this thread's; the contexts are on its handler stack.
        unsafe {
            let f = &raw mut (*r).frame;
            if (*f).uc.is_null() {
                return None;
            }
            let state = stub::state(&*uc)?;
            let program = (*f).uc;
            let done = (*f).done;
            match state {
                State::NotIssued if done == 0 => {
                    (*program).rewind_syscall();
                }
                State::NotIssued => (*program).set_syscall_return(done.cast_signed()),
                State::Returned(ret) => {
                    let ret = if done == 0 {
                        ret
                    } else if is_error(ret) {
                        done.cast_signed()
                    } else {
                        ret + done.cast_signed()
                    };
                    if let Some(finish) = (*f).finish {
                        finish(m, r, ret);
                    }
                    (*program).set_syscall_return(ret);
                }
            }
            let mask = if (*f).has_mask {
                (*f).mask
            } else {
                (*program).uc_sigmask
            };
            Self::close(m, r);
            // The floating-point state of the trapped call is still on the handler stack, where the
            // copied pointer says.
            (*uc).become_copy(&*program);
            Some(mask)
        }
    }
}

/// A mask that lets our signals through.
#[must_use]
pub fn unblockable(set: SigSet) -> SigSet {
    SigSet(set.0 & !ours().0)
}
