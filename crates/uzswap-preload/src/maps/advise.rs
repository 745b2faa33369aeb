//! *What*: madvise, msync.
//!
//! `MADV_FREE` drops at once, as the kernel may: memory that the program has given up is not worth
//! compressing. `MADV_WILLNEED` is accepted and left to faults, which read ahead themselves. Huge
//! page, merge and dump advice is accepted and has no effect.
//!
//! *Invariants*: none of its own. *Locking*: the engine's. *Context*: the program's.

use uzswap_core::arena::region::Flags;
use uzswap_core::{Fault, Masked};
use uzswap_sys::Errno;
use uzswap_sys::mem::{
    self, MADV_COLD, MADV_COLLAPSE, MADV_DONTFORK, MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE,
    MADV_NORMAL, MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE, PROT_READ, PROT_WRITE,
};

use super::fork_policy;
use super::span::Span;
use super::walk::{Holes, walk};
use crate::init::ENGINE;

/// `madvise(2)`.
///
/// # Errors
/// As madvise(2).
pub fn madvise(m: &Masked, addr: usize, len: usize, advice: i32) -> Result<(), Errno> {
    // SAFETY: the program's call, for memory that the kernel manages.
    let kernel = |addr, len| unsafe { mem::madvise(addr, len, advice) };
    let span = Span::new(addr, len).filter(|span| span.touches_arena() && ENGINE.started());
    let Some(span) = span else {
        return kernel(addr, len);
    };
    if !is_known(advice) {
        // Whether there is such advice comes first.
        kernel(addr, 0)?;
    }
    let holes = match advice {
        MADV_POPULATE_READ | MADV_POPULATE_WRITE => Holes::Stop,
        _ => Holes::Report,
    };
    walk(
        span,
        holes,
        |part| kernel(part.addr, part.len),
        |part, flags| managed(m, part, flags, advice),
    )
}

const fn is_known(advice: i32) -> bool {
    matches!(advice, MADV_NORMAL..=MADV_DONTNEED | MADV_FREE | MADV_DONTFORK..=MADV_COLLAPSE)
}

fn managed(m: &Masked, part: Span, flags: Flags, advice: i32) -> Result<(), Errno> {
    let Span { addr, len } = part;
    match advice {
        MADV_DONTNEED | MADV_DONTNEED_LOCKED | MADV_FREE => ENGINE.discard(m, addr, len)?,
        MADV_PAGEOUT => ENGINE.pageout(m, addr, len)?,
        MADV_COLD => ENGINE.cold(m, addr, len)?,
        MADV_POPULATE_READ => populate(m, part, flags, PROT_READ)?,
        MADV_POPULATE_WRITE => populate(m, part, flags, PROT_WRITE)?,
        _ if is_known(advice) => fork_policy::note(m, part, advice),
        // MADV_REMOVE wants a file; guard markers would need the kernel's page tables, and their
        // users fall back to mprotect.
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

fn populate(m: &Masked, part: Span, flags: Flags, wanted: i32) -> Result<(), Errno> {
    if flags.prot() & wanted.unsigned_abs() == 0 {
        return Err(Errno::EINVAL);
    }
    ENGINE
        .populate(m, part.addr, part.len)
        .map_err(|fault| match fault {
            Fault::OverLimit { .. } => Errno::ENOMEM,
            _ => Errno::EFAULT,
        })
}

/// `msync(2)`: of managed memory there is nothing to write, but programs ask by it what is mapped.
///
/// # Errors
/// As msync(2).
pub fn msync(addr: usize, len: usize, flags: i32) -> Result<(), Errno> {
    // SAFETY: the program's call, for memory that the kernel manages.
    let kernel = |addr, len| unsafe { mem::msync(addr, len, flags) };
    let span = Span::new(addr, len).filter(|span| span.touches_arena() && ENGINE.started());
    match span {
        // The flags are the kernel's to judge.
        Some(span) if kernel(addr, 0).is_ok() => walk(
            span,
            Holes::Report,
            |part| kernel(part.addr, part.len),
            |_, _| Ok(()),
        ),
        _ => kernel(addr, len),
    }
}
