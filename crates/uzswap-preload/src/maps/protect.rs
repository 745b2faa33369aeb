//! *What*: mprotect, mlock, mincore.
//!
//! *Invariants*: the engine does not evict pages that cannot be read. Memory under a protection key
//! is given back to the kernel, because our handlers run without the key's rights.
//! *Locking*: the engine's. *Context*: the program's.

use core::sync::atomic::{AtomicUsize, Ordering};

use uzswap_core::arena::region::Flags;
use uzswap_core::{ARENA_BASE, Fault, Masked, PAGE_SIZE};
use uzswap_sys::Errno;
use uzswap_sys::mem::{self, PROT_EXEC, PROT_GROWSDOWN, PROT_GROWSUP, PROT_READ, PROT_WRITE};

use super::mapped;
use super::span::Span;
use crate::init::ENGINE;

/// `mprotect(2)`.
///
/// # Errors
/// As mprotect(2).
pub fn mprotect(m: &Masked, addr: usize, len: usize, prot: i32) -> Result<(), Errno> {
    // SAFETY: the program's call, for memory that the kernel manages.
    let kernel = |addr, len| unsafe { mem::mprotect(addr, len, prot) };
    let span = Span::new(addr, len).filter(|_| ENGINE.started());
    let Some((span, part)) = span.and_then(|span| Some((span, span.inside()?))) else {
        return kernel(addr, len);
    };
    if prot & (PROT_GROWSDOWN | PROT_GROWSUP) != 0 {
        return Err(Errno::EINVAL);
    }
    let mut outside = span.outside();
    if let Some(below) = outside.next().filter(|o| o.addr < part.addr) {
        kernel(below.addr, below.len)?;
    }
    let bits = prot & (PROT_READ | PROT_WRITE | PROT_EXEC);
    ENGINE.protect(m, part.addr, part.len, bits.unsigned_abs())?;
    if part.end() < span.end() {
        kernel(part.end(), span.end() - part.end())?;
    }
    Ok(())
}

/// Bytes held by [`mlock`].
static LOCKED: AtomicUsize = AtomicUsize::new(0);

/// Has `kernel` lock or unlock what of the range is outside the arena, and returns the part inside.
fn split(
    addr: usize,
    len: usize,
    kernel: fn(usize, usize) -> Result<(), Errno>,
) -> Result<Option<Span>, Errno> {
    let span = Span::covering(addr, len);
    let Some(part) = span.and_then(Span::inside).filter(|_| ENGINE.started()) else {
        return kernel(addr, len).map(|()| None);
    };
    for outside in span.into_iter().flat_map(Span::outside) {
        kernel(outside.addr, outside.len)?;
    }
    mapped(part.addr, part.len)?;
    Ok(Some(part))
}

/// `mlock(2)`: brings the range in. What fits the engine's pin budget stays in for good; what does
/// not may be evicted again, as the limit demands.
///
/// # Errors
/// As mlock(2).
pub fn mlock(m: &Masked, addr: usize, len: usize) -> Result<(), Errno> {
    let Some(part) = split(addr, len, mem::mlock)? else {
        return Ok(());
    };
    let held = LOCKED.fetch_add(part.len, Ordering::Relaxed) + part.len;
    let done = if held <= ENGINE.pin_budget() {
        ENGINE.hold(m, part.addr, part.len)
    } else {
        LOCKED.fetch_sub(part.len, Ordering::Relaxed);
        ENGINE.populate(m, part.addr, part.len)
    };
    done.map_err(|fault| match fault {
        Fault::OverLimit { .. } => Errno::EAGAIN,
        _ => Errno::ENOMEM,
    })
}

/// `mlock2(2)`: `MLOCK_ONFAULT` locks nothing yet.
///
/// # Errors
/// As mlock2(2).
pub fn mlock2(m: &Masked, addr: usize, len: usize, flags: usize) -> Result<(), Errno> {
    const MLOCK_ONFAULT: usize = 1;
    match flags {
        0 => mlock(m, addr, len),
        MLOCK_ONFAULT => munlock(m, addr, len),
        _ => Err(Errno::EINVAL),
    }
}

/// `munlock(2)`: nothing to do for managed memory.
///
/// # Errors
/// As munlock(2).
pub fn munlock(_: &Masked, addr: usize, len: usize) -> Result<(), Errno> {
    split(addr, len, mem::munlock).map(drop)
}

/// Most pages that one [`mincore`] reports.
pub const CHUNK: usize = 1024;

/// `mincore(2)` for at most [`CHUNK`] pages: 1 where a page holds data, evicted or not.
///
/// # Errors
/// As mincore(2).
pub fn mincore(m: &Masked, addr: usize, mut out: &mut [u8]) -> Result<(), Errno> {
    let mut at = addr;
    while !out.is_empty() {
        let (end, ours) = match ENGINE.region(at) {
            Some(region) => (region.end, !region.flags.contains(Flags::FOREIGN)),
            None if uzswap_core::in_arena(at) => return Err(Errno::ENOMEM),
            None if at < ARENA_BASE => (ARENA_BASE, false),
            None => (usize::MAX & !(PAGE_SIZE - 1), false),
        };
        let nr = ((end - at) / PAGE_SIZE).min(out.len());
        let (part, rest) = out.split_at_mut_checked(nr).ok_or(Errno::ENOMEM)?;
        if ours {
            ENGINE.residency(m, at, part)?;
        } else {
            mem::mincore(at, nr * PAGE_SIZE, part)?;
        }
        at += nr * PAGE_SIZE;
        out = rest;
    }
    Ok(())
}
