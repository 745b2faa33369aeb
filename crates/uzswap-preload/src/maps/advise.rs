//! *What*: madvise.
//!
//! `MADV_FREE` drops at once, as the kernel may: memory that the program has given up is not worth
//! compressing. `MADV_WILLNEED` is accepted and left to faults, which read ahead themselves. Huge
//! page, merge and dump advice is accepted and has no effect.
//!
//! *Invariants*: none of its own. *Locking*: the engine's. *Context*: the program's.

use uzswap_core::arena::region::Flags;
use uzswap_core::{Fault, ForkPolicy, Masked};
use uzswap_sys::Errno;
use uzswap_sys::mem::{
    self, MADV_COLD, MADV_COLLAPSE, MADV_DODUMP, MADV_DOFORK, MADV_DONTDUMP, MADV_DONTFORK,
    MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE, MADV_HUGEPAGE, MADV_KEEPONFORK, MADV_MERGEABLE,
    MADV_NOHUGEPAGE, MADV_NORMAL, MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE,
    MADV_RANDOM, MADV_SEQUENTIAL, MADV_UNMERGEABLE, MADV_WILLNEED, MADV_WIPEONFORK, PROT_READ,
    PROT_WRITE,
};

use super::mapped;
use super::span::Span;
use crate::init::ENGINE;

/// `madvise(2)`.
///
/// # Errors
/// As madvise(2).
pub fn madvise(m: &Masked, addr: usize, len: usize, advice: i32) -> Result<(), Errno> {
    // SAFETY: the program's call, for memory that the kernel manages.
    let kernel = |addr, len| unsafe { mem::madvise(addr, len, advice) };
    let span = Span::new(addr, len);
    let Some(part) = span.and_then(Span::inside).filter(|_| ENGINE.started()) else {
        return kernel(addr, len);
    };
    let mut result = Ok(());
    // Holes are passed over and reported at the end, as in the kernel.
    let mut keep = |part: Result<(), Errno>| match part {
        Err(Errno::ENOMEM) => {
            result = Err(Errno::ENOMEM);
            Ok(())
        }
        other => other,
    };
    for outside in span.into_iter().flat_map(Span::outside) {
        keep(kernel(outside.addr, outside.len))?;
    }
    // What the program laid over the arena is the kernel's.
    let mut at = part.addr;
    while at < part.end() {
        let foreign = ENGINE
            .region(at)
            .filter(|r| r.flags.contains(Flags::FOREIGN));
        let end = match foreign {
            Some(region) => region.end.min(part.end()),
            None => next_foreign(at, part.end()),
        };
        if foreign.is_some() {
            keep(kernel(at, end - at))?;
        } else {
            keep(in_arena(m, at, end - at, advice))?;
        }
        at = end;
    }
    result
}

/// Where the next mapping of the kernel's begins.
fn next_foreign(from: usize, end: usize) -> usize {
    let mut at = from;
    while at < end {
        match ENGINE.region(at) {
            Some(region) if region.flags.contains(Flags::FOREIGN) => {
                return at;
            }
            Some(region) => at = region.end,
            // A hole: the caller reports it.
            None => return end,
        }
    }
    end
}

fn in_arena(m: &Masked, addr: usize, len: usize, advice: i32) -> Result<(), Errno> {
    match advice {
        MADV_DONTNEED | MADV_DONTNEED_LOCKED | MADV_FREE => ENGINE.discard(m, addr, len),
        MADV_PAGEOUT => ENGINE.pageout(m, addr, len),
        MADV_COLD => ENGINE.cold(m, addr, len),
        MADV_POPULATE_READ | MADV_POPULATE_WRITE => populate(m, addr, len, advice),
        MADV_DONTFORK => fork_policy(m, addr, len, ForkPolicy::DontFork),
        MADV_WIPEONFORK => fork_policy(m, addr, len, ForkPolicy::Wipe),
        MADV_DOFORK | MADV_KEEPONFORK => fork_policy(m, addr, len, ForkPolicy::Inherit),
        MADV_NORMAL | MADV_RANDOM | MADV_SEQUENTIAL | MADV_WILLNEED | MADV_HUGEPAGE
        | MADV_NOHUGEPAGE | MADV_MERGEABLE | MADV_UNMERGEABLE | MADV_DONTDUMP | MADV_DODUMP
        | MADV_COLLAPSE => mapped(addr, len),
        // MADV_REMOVE wants a file; guard markers would need the kernel's page tables, and their
        // users fall back to mprotect.
        _ => Err(Errno::EINVAL),
    }
}

fn fork_policy(m: &Masked, addr: usize, len: usize, policy: ForkPolicy) -> Result<(), Errno> {
    ENGINE.fork_policy(m, addr, len, policy);
    mapped(addr, len)
}

fn populate(m: &Masked, addr: usize, len: usize, advice: i32) -> Result<(), Errno> {
    let wanted = if advice == MADV_POPULATE_READ {
        PROT_READ
    } else {
        PROT_WRITE
    };
    let mut at = addr;
    while at < addr + len {
        let region = ENGINE.region(at).ok_or(Errno::ENOMEM)?;
        if region.flags.prot() & wanted.unsigned_abs() == 0 {
            return Err(Errno::EINVAL);
        }
        at = region.end;
    }
    ENGINE.populate(m, addr, len).map_err(|fault| match fault {
        Fault::OverLimit { .. } => Errno::ENOMEM,
        _ => Errno::EFAULT,
    })
}
