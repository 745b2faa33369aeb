//! *What*: mprotect, mlock, mincore.
//!
//! *Invariants*: the engine does not evict pages that cannot be read. Memory under a protection key
//! is given back to the kernel, because our handlers run without the key's rights.
//! *Locking*: the engine's. *Context*: the program's.

use core::sync::atomic::{AtomicUsize, Ordering};

use uzswap_core::arena::region::Flags;
use uzswap_core::{ARENA_BASE, Fault, Masked, PAGE_SIZE};
use uzswap_sys::mem::{self, PROT_EXEC, PROT_GROWSDOWN, PROT_GROWSUP, PROT_READ, PROT_WRITE};
use uzswap_sys::syscall::from_raw;
use uzswap_sys::{Errno, nr};

use super::span::{Span, aligned};
use super::walk::{Holes, walk};
use crate::guard::stub::{self, Call};
use crate::init::ENGINE;

/// `mprotect(2)`.
///
/// # Errors
/// As mprotect(2).
pub fn mprotect(m: &Masked, addr: usize, len: usize, prot: i32) -> Result<(), Errno> {
    // SAFETY: the program's call, for memory that the kernel manages.
    let kernel = |addr, len| unsafe { mem::mprotect(addr, len, prot) };
    let span = Span::new(addr, len).filter(|span| span.touches_arena() && ENGINE.started());
    let Some(span) = span else {
        return kernel(addr, len);
    };
    if prot & (PROT_GROWSDOWN | PROT_GROWSUP) != 0 {
        return Err(Errno::EINVAL);
    }
    let bits = prot & (PROT_READ | PROT_WRITE | PROT_EXEC);
    walk(
        span,
        Holes::Stop,
        |part| kernel(part.addr, part.len),
        |part, _| ENGINE.protect(m, part.addr, part.len, bits.unsigned_abs()),
    )
}

/// Bytes of the folios that [`mlock`] holds: for good, also when the program unlocks or unmaps
/// them, so it never falls.
static LOCKED: AtomicUsize = AtomicUsize::new(0);

/// Has `kernel` lock or unlock what is the kernel's of the range, and `ours` what is managed.
fn for_each_part(
    addr: usize,
    len: usize,
    kernel: fn(usize, usize) -> Result<(), Errno>,
    ours: impl Fn(Span, Flags) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let span = Span::covering(addr, len);
    let Some(span) = span.filter(|span| span.touches_arena() && ENGINE.started()) else {
        return kernel(addr, len);
    };
    walk(span, Holes::Stop, |part| kernel(part.addr, part.len), ours)
}

/// `mlock(2)`: brings the range in. What fits the engine's pin budget stays in for good; what does
/// not may be evicted again, as the limit demands.
///
/// # Errors
/// As mlock(2).
pub fn mlock(m: &Masked, addr: usize, len: usize) -> Result<(), Errno> {
    for_each_part(addr, len, mem::mlock, |part, flags| lock(m, part, flags))
}

fn lock(m: &Masked, part: Span, flags: Flags) -> Result<(), Errno> {
    if flags.prot() == 0 {
        return Err(Errno::ENOMEM);
    }
    let more = ENGINE.not_held(part.addr, part.len);
    let held = LOCKED.fetch_add(more, Ordering::Relaxed) + more;
    let done = if held <= ENGINE.pin_budget() {
        ENGINE.hold(m, part.addr, part.len)
    } else {
        LOCKED.fetch_sub(more, Ordering::Relaxed);
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
    for_each_part(addr, len, mem::munlock, |_, _| Ok(()))
}

/// Pages that [`mincore`] asks about at once.
const CHUNK: usize = 1024;

/// `mincore(2)` by [`residency`]: `ask` has it fill a buffer for the pages from an address on,
/// `put` copies that to the program's vector from an index on, which may be managed memory.
///
/// # Errors
/// As mincore(2).
pub fn mincore(
    addr: usize,
    len: usize,
    ask: impl Fn(usize, &mut [u8]) -> Result<(), Errno>,
    put: impl Fn(usize, &[u8]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let invalid = if aligned(addr) {
        Errno::ENOMEM
    } else {
        Errno::EINVAL
    };
    let pages = Span::new(addr, len).ok_or(invalid)?.len / PAGE_SIZE;
    let mut chunk = [0; CHUNK];
    for from in (0..pages).step_by(CHUNK) {
        let out = chunk
            .get_mut(..(pages - from).min(CHUNK))
            .unwrap_or_default();
        ask(addr + from * PAGE_SIZE, out)?;
        put(from, out)?;
    }
    Ok(())
}

/// 1 for each page from `addr` on that holds data, evicted or not.
///
/// # Errors
/// As mincore(2).
pub fn residency(m: &Masked, addr: usize, mut out: &mut [u8]) -> Result<(), Errno> {
    let mut at = addr;
    while !out.is_empty() {
        let (end, ours) = match ENGINE.region(at) {
            Some(region) => (region.end, !region.flags.contains(Flags::FOREIGN)),
            None if uzswap_core::in_arena(at) => return Err(Errno::ENOMEM),
            None if at < ARENA_BASE => (ARENA_BASE, false),
            None => (usize::MAX & !(PAGE_SIZE - 1), false),
        };
        let nr_pages = ((end - at) / PAGE_SIZE).min(out.len());
        let (part, rest) = out.split_at_mut_checked(nr_pages).ok_or(Errno::ENOMEM)?;
        if ours {
            ENGINE.residency(m, at, part)?;
        } else {
            // As the program's call, for what it has laid over the arena.
            let vector = part.as_mut_ptr() as usize;
            let call = Call {
                nr: nr::MINCORE,
                args: [at, nr_pages * PAGE_SIZE, vector, 0, 0, 0],
            };
            // SAFETY: the kernel writes a byte for each page.
            from_raw(unsafe { stub::issue(&call) })?;
        }
        at += nr_pages * PAGE_SIZE;
        out = rest;
    }
    Ok(())
}
