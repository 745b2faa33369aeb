//! *What*: pins what a call's pointer arguments point at, as [`uzswap_guard::table`] says, with the
//! cases that a table cannot express.
//!
//! *Invariants*: after [`pin`] every byte that the call can reach through its direct pointers is
//! present, or not mapped.
//! *Locking*: the engine's. *Context*: signal.

use uzswap_core::{Masked, arena_part};
use uzswap_guard::table::{self, Extent, Pointer};
use uzswap_sys::{Errno, PAGE_SIZE, nr};

use super::frame::Frame;
use super::stub::Call;
use super::user;
use crate::threads::Record;

/// Bytes that are pinned where it is not known how many the call needs.
const UNKNOWN_LEN: usize = 64 << 10;
/// Longest path, its zero byte included.
const PATH_MAX: usize = 4096;
/// Bytes pinned of one argument: the kernel fills no more of a buffer (directory entries,
/// attributes).
const MAX_PIN_BYTES: usize = 1 << 20;

/// Pins what `call` points at.
///
/// # Errors
/// `EFAULT`: what was stored there is lost.
///
/// # Safety
/// `r` is the calling thread's record with an open frame.
pub unsafe fn pin(m: &Masked, r: *mut Record, call: &Call) -> Result<(), Errno> {
    for pointer in table::pointers(call.nr) {
        let addr = argument(call, pointer.arg);
        if arena_part(addr, 1).is_none() {
            continue;
        }
        // SAFETY: the caller's promise.
        unsafe { pin_one(m, r, call, *pointer, addr) }?;
    }
    Ok(())
}

fn argument(call: &Call, n: u8) -> usize {
    call.args.get(usize::from(n)).copied().unwrap_or(0)
}

unsafe fn pin_one(
    m: &Masked,
    r: *mut Record,
    call: &Call,
    pointer: Pointer,
    addr: usize,
) -> Result<(), Errno> {
    let len = match pointer.extent {
        Extent::Bytes(n) => n as usize,
        Extent::Units(arg, unit) => argument(call, arg)
            .saturating_mul(usize::from(unit))
            .min(MAX_PIN_BYTES),
        Extent::Bits(arg) => argument(call, arg)
            .div_ceil(64)
            .saturating_mul(8)
            .min(MAX_PIN_BYTES),
        Extent::At(arg) => {
            let at = argument(call, arg);
            // SAFETY: the caller's promise; plain numbers.
            unsafe {
                Frame::pin_whole(m, r, at, 4)?;
                user::value::<u32>(at).map_or(0, |n| (n as usize).min(MAX_PIN_BYTES))
            }
        }
        // SAFETY: the caller's promise.
        Extent::CString => return unsafe { pin_string(m, r, addr, PATH_MAX) },
        Extent::Unknown => unknown(call, pointer.arg),
    };
    if len == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { Frame::pin_whole(m, r, addr, len) }
}

/// Bytes to pin for arguments whose meaning depends on the call.
fn unknown(call: &Call, arg: u8) -> usize {
    match call.nr {
        nr::FUTEX => 16,
        nr::IOCTL => ioctl_len(call.args[1]),
        // A number, not a pointer, unless the option says so; never more than a page then.
        nr::PRCTL | nr::SEMCTL | nr::QUOTACTL | nr::PTRACE if arg <= 4 => PAGE_SIZE,
        _ => UNKNOWN_LEN,
    }
}

/// Bytes of an ioctl's argument: the request says it in its upper half, old ones do not.
fn ioctl_len(request: usize) -> usize {
    let len = request >> 16 & 0x3fff;
    let direction = request >> 30 & 3;
    if direction != 0 && len != 0 {
        len
    } else {
        PAGE_SIZE
    }
}

/// Pins a string page by page until its end.
///
/// # Errors
/// As [`pin`].
///
/// # Safety
/// As [`pin`].
pub unsafe fn pin_string(
    m: &Masked,
    r: *mut Record,
    addr: usize,
    most: usize,
) -> Result<(), Errno> {
    let mut at = addr;
    let end = addr.saturating_add(most);
    while at < end {
        let next = ((at / PAGE_SIZE + 1) * PAGE_SIZE).min(end);
        let mut page = [0u8; PAGE_SIZE];
        // SAFETY: the caller's promise; the buffer holds a page.
        unsafe {
            Frame::pin_whole(m, r, at, next - at)?;
            // Unreadable: the call reports it.
            if user::read(page.as_mut_ptr(), at, next - at).is_err() {
                return Ok(());
            }
        }
        if page.iter().take(next - at).any(|b| *b == 0) {
            return Ok(());
        }
        at = next;
    }
    Ok(())
}

/// Pins memory that words of `[addr, addr + len)` point at, for calls whose arguments hold further
/// pointers that only the driver knows.
///
/// # Errors
/// As [`pin`].
///
/// # Safety
/// As [`pin`]; what lies in the arena is pinned.
pub unsafe fn pin_behind(m: &Masked, r: *mut Record, addr: usize, len: usize) -> Result<(), Errno> {
    let mut words = [0usize; 64];
    let nr_words = (len / 8).min(words.len());
    // SAFETY: the caller's promise; the buffer holds that many words.
    if unsafe { user::read(words.as_mut_ptr(), addr, nr_words) }.is_err() {
        return Ok(());
    }
    for word in words.iter().take(nr_words) {
        if arena_part(*word, 1).is_some() {
            // SAFETY: the caller's promise.
            unsafe { Frame::pin(m, r, *word, UNKNOWN_LEN) }.or_else(|errno| match errno {
                Errno::ENOMEM => Ok(()),
                other => Err(other),
            })?;
        }
    }
    Ok(())
}

/// Bytes of the structure that an ioctl takes.
#[must_use]
pub fn ioctl_argument(call: &Call) -> (usize, usize) {
    (call.args[2], ioctl_len(call.args[1]).min(512))
}
