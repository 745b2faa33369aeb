//! *What*: applies a call to what is mapped of a range, part by part, as the kernel goes over its
//! VMAs.
//!
//! *Invariants*: parts come lowest first, and the first failure ends the walk. Holes do not: they
//! are passed over and reported at the end, unless the call stops there.
//! *Locking*: the engine's. *Context*: the program's.

use uzswap_core::arena::region::{Flags, Region};
use uzswap_sys::Errno;

use super::span::Span;
use crate::init::ENGINE;

/// What a walk does at a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// Ends with ENOMEM.
    Stop,
    /// Goes on, and ends with ENOMEM.
    Report,
}

/// Has `kernel` do what is the kernel's of `span`, and `ours` what is managed.
///
/// # Errors
/// ENOMEM: part of the range is not mapped. As `kernel` and `ours`.
pub fn walk(
    span: Span,
    holes: Holes,
    kernel: impl Fn(Span) -> Result<(), Errno>,
    ours: impl Fn(Span, Flags) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut whole = Ok(());
    let mut note = |done: Result<(), Errno>| match done {
        Err(Errno::ENOMEM) if holes == Holes::Report => {
            whole = Err(Errno::ENOMEM);
            Ok(())
        }
        done => done,
    };
    let inside = span.inside();
    let (below, above): (Option<Span>, Option<Span>) = span.beside();
    if let Some(below) = below {
        note(kernel(below))?;
    }
    let mut at = inside.map_or(0, |inside| inside.addr);
    let end = inside.map_or(0, Span::end);
    while at < end {
        let Some(Region { start, end, flags }) = ENGINE.next_region(at, end - at) else {
            note(Err(Errno::ENOMEM))?;
            break;
        };
        if start > at {
            note(Err(Errno::ENOMEM))?;
        }
        let part = Span {
            addr: start,
            len: end - start,
        };
        note(match flags.contains(Flags::FOREIGN) {
            true => kernel(part),
            false => ours(part, flags),
        })?;
        at = end;
    }
    if let Some(above) = above {
        note(kernel(above))?;
    }
    whole
}
