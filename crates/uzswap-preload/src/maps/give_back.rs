//! *What*: giving managed memory back to the kernel for good, for uses that an engine between the
//! program and the kernel would break: a userfaultfd of the program's own, protection keys.
//!
//! *Invariants*: the contents stay, and pages without contents stay missing: a userfaultfd of the
//! program's own is to report them.
//! *Locking*: the engine's, for short. *Context*: the program's, with signals as they are.

use uzswap_core::arena::region::Flags;
use uzswap_core::{Masked, PAGE_SIZE};
use uzswap_sys::Errno;
use uzswap_sys::mem::{self, MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};

use super::map::lay_over;
use super::span::Span;
use crate::init::ENGINE;

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
                region.flags.prot(),
            )?;
        }
        at = end;
    }
    Ok(())
}

fn give_region(span: Span, prot: u32) -> Result<(), Errno> {
    let writable = PROT_READ | PROT_WRITE;
    if prot & PROT_READ.unsigned_abs() == 0 {
        Masked::block(|m| super::protect::mprotect(m, span.addr, span.len, writable))?;
    }
    // SAFETY: a fresh mapping where the kernel likes.
    let aside = unsafe { mem::mmap(0, span.len, writable, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) }?;
    for page in (0..span.len).step_by(PAGE_SIZE) {
        // SAFETY: both pages are mapped; a fault in the arena is served, as signals are not
        // blocked.
        unsafe { copy_unless_zero((span.addr + page) as *const u64, (aside + page) as *mut u64) };
    }
    Masked::block(|m| {
        lay_over(m, span, || {
            let flags = mem::MREMAP_MAYMOVE | mem::MREMAP_FIXED;
            // SAFETY: both ranges are this function's to move: the copy, and the range that
            // `lay_over` holds free for it.
            unsafe {
                mem::mremap(aside, span.len, span.len, flags, span.addr)?;
                mem::mprotect(span.addr, span.len, prot.cast_signed())
            }
        })
    })
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
