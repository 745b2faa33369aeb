//! *What*: giving managed memory back to the kernel for good, for uses that an engine between the
//! program and the kernel would break: a userfaultfd of the program's own, protection keys.
//!
//! *Invariants*: contents and properties stay, also where the kernel refuses, and pages without contents stay
//! missing: a userfaultfd of the program's own is to report them.
//! *Locking*: the engine's, for short. *Context*: the program's, with signals as they are.

use uzswap_core::arena::region::Flags;
use uzswap_core::{Masked, PAGE_SIZE};
use uzswap_sys::Errno;
use uzswap_sys::mem::{self, MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};

use super::fork_policy;
use super::map::{lay_over, place};
use super::span::Span;
use crate::init::ENGINE;

const WRITABLE: i32 = PROT_READ | PROT_WRITE;

/// Makes the managed parts of `[addr, addr + len)` ordinary memory of the kernel's, contents and
/// protection kept. To be called with signals not blocked, before the call that needs it; nobody
/// may write to the range meanwhile.
///
/// # Errors
/// No memory, or the kernel refused.
pub fn give_back(addr: usize, len: usize) -> Result<(), Errno> {
    let span = Span::covering(addr, len).ok_or(Errno::EINVAL)?;
    let Some(part) = span.inside().filter(|_| ENGINE.started()) else {
        return Ok(());
    };
    let mut at = part.addr;
    while at < part.end() {
        let Some(region) = ENGINE.region(at) else {
            at += PAGE_SIZE;
            continue;
        };
        let end = region.end.min(part.end());
        if !region.flags.contains(Flags::FOREIGN) {
            give_region(
                Span {
                    addr: at,
                    len: end - at,
                },
                region.flags,
            )?;
        }
        at = end;
    }
    Ok(())
}

fn give_region(span: Span, flags: Flags) -> Result<(), Errno> {
    let prot = flags.prot();
    // SAFETY: a fresh mapping where the kernel likes.
    let aside = unsafe { mem::mmap(0, span.len, WRITABLE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) }?;
    let made = Span {
        addr: aside,
        len: span.len,
    };
    let given = read_through(span, prot, || copy(span.addr, aside, span.len)).and_then(|()| {
        // SAFETY: the copy is this function's. It gets its properties while a refusal still costs
        // nothing.
        unsafe { mem::mprotect(aside, span.len, prot.cast_signed()) }?;
        fork_policy::pass_on(flags, made)?;
        let given = Masked::block(|m| lay_over(m, span, || place(aside, span)));
        given.inspect_err(|_| put_back(aside, span, flags))
    });
    if given.is_err() {
        // SAFETY: as above; it has not been placed.
        let _ = unsafe { mem::munmap(aside, span.len) };
    }
    given
}

/// Makes the range managed memory again, with the contents of the copy.
fn put_back(aside: usize, span: Span, flags: Flags) {
    let writable = WRITABLE.unsigned_abs();
    let mapped = Masked::block(|m| ENGINE.map_fixed(m, span.addr, span.len, writable));
    // SAFETY: the copy is the caller's.
    let readable = unsafe { mem::mprotect(aside, span.len, WRITABLE) };
    if mapped.is_ok() && readable.is_ok() {
        copy(aside, span.addr, span.len);
        Masked::block(|m| {
            fork_policy::restore(m, flags, span);
            let _ = ENGINE.protect(m, span.addr, span.len, flags.prot());
        });
    }
}

/// Runs `reads` while the range can be read, and leaves it with the protection `prot`, as it is.
pub(super) fn read_through(span: Span, prot: u32, reads: impl FnOnce()) -> Result<(), Errno> {
    if prot & PROT_READ.unsigned_abs() != 0 {
        reads();
        return Ok(());
    }
    let protect = |prot| Masked::block(|m| ENGINE.protect(m, span.addr, span.len, prot));
    protect(WRITABLE.unsigned_abs())?;
    reads();
    protect(prot)
}

/// Copies what is not zero, with signals not blocked: faults in the arena are served.
fn copy(from: usize, to: usize, len: usize) {
    for page in (0..len).step_by(PAGE_SIZE) {
        // SAFETY: both ranges are mapped, and the destination is fresh.
        unsafe { copy_unless_zero((from + page) as *const u64, (to + page) as *mut u64) };
    }
}

/// Copies a page; one of zeroes is left missing at its new place.
///
/// # Safety
/// Both pages are mapped, `to` is fresh.
unsafe fn copy_unless_zero(from: *const u64, to: *mut u64) {
    const WORDS: usize = PAGE_SIZE / size_of::<u64>();
    // SAFETY: the caller's; reads are volatile since the page is the program's.
    unsafe {
        for i in 0..WORDS {
            if from.add(i).read_volatile() != 0 {
                core::ptr::copy_nonoverlapping(from, to, WORDS);
                return;
            }
        }
    }
}
