//! *What*: mmap and munmap.
//!
//! Anonymous private memory becomes managed, unless the program insists on an address outside the
//! arena. That, and what is shared, executable, a stack, of huge pages or below 2 GiB, is left to
//! the kernel and counted. File mappings, whose pages the kernel can drop itself, and large
//! reservations without access are left to it and not counted.
//!
//! *Invariants*: a mapping of the kernel's inside the arena is marked foreign in the engine before
//! the program knows of it.
//! *Locking*: the engine's. *Context*: the program's.

use uzswap_core::{ARENA_LEN, Masked};
use uzswap_sys::mem::{
    self, MAP_32BIT, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_HUGETLB,
    MAP_LOCKED, MAP_POPULATE, MAP_PRIVATE, MAP_STACK, MAP_TYPE, PROT_NONE, PROT_READ, PROT_WRITE,
};
use uzswap_sys::{Errno, PAGE_SIZE};

use super::errno_of;
use super::span::Span;
use super::unmanaged::{self, Reason};
use crate::init::ENGINE;

/// Reservations of address space above this are left to the kernel: they would leave too little of
/// the arena, and programs commit a small part of them only.
const MAX_RESERVATION: usize = ARENA_LEN / 8;
/// The protection that a new managed mapping may have.
const PROT_BITS: i32 = PROT_READ | PROT_WRITE;

/// The arguments of mmap(2), but for address and length.
#[derive(Clone, Copy, Debug)]
pub struct MmapArgs {
    /// `PROT_` bits.
    pub prot: i32,
    /// `MAP_` bits.
    pub flags: i32,
    /// File, ignored with `MAP_ANONYMOUS`.
    pub fd: i32,
    /// Offset in the file.
    pub offset: usize,
}

impl MmapArgs {
    const fn has(self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    /// `Ok` if this mapping can be managed; `Err` if the kernel keeps it, with the reason if it
    /// counts as unmanaged.
    fn managed(self, len: usize) -> Result<(), Option<Reason>> {
        if !self.has(MAP_ANONYMOUS) {
            return Err(None);
        }
        if self.flags & MAP_TYPE != MAP_PRIVATE
            || self.has(MAP_32BIT | MAP_HUGETLB)
            || self.prot & !PROT_BITS != 0
        {
            return Err(Some(Reason::Special));
        }
        if self.has(MAP_STACK | MAP_GROWSDOWN) {
            return Err(Some(Reason::Stack));
        }
        if self.prot == PROT_NONE && len > MAX_RESERVATION {
            return Err(None);
        }
        Ok(())
    }
}

/// `mmap(2)`.
///
/// # Errors
/// As mmap(2).
pub fn mmap(m: &Masked, addr: usize, len: usize, request: MmapArgs) -> Result<usize, Errno> {
    let fixed = request.has(MAP_FIXED | MAP_FIXED_NOREPLACE);
    let span = if fixed {
        Span::new(addr, len)
    } else {
        Span::new(0, len)
    };
    let Some(span) = span.filter(|span| span.len > 0 && ENGINE.started()) else {
        return kernel(addr, len, request);
    };
    if fixed && span.touches_arena() {
        return map_in_arena(m, span, request);
    }
    match request.managed(span.len) {
        Ok(()) if !fixed => {
            let prot = request.prot.unsigned_abs();
            let addr = ENGINE.map(m, span.len, 0, prot).map_err(errno_of)?;
            ready_now(m, addr, span.len, request);
            Ok(addr)
        }
        why => {
            let addr = kernel(addr, len, request)?;
            let made = Span { addr, ..span };
            if fixed {
                unmanaged::uncount(made);
            }
            match why {
                Ok(()) => unmanaged::count(made, Reason::Fixed),
                Err(Some(why)) => unmanaged::count(made, why),
                Err(None) => {}
            }
            Ok(addr)
        }
    }
}

/// Passes the call on.
pub(super) fn kernel(addr: usize, len: usize, request: MmapArgs) -> Result<usize, Errno> {
    // SAFETY: the program's call, outside the arena or over a range of it that it owns.
    unsafe {
        mem::mmap(
            addr,
            len,
            request.prot,
            request.flags,
            request.fd,
            request.offset,
        )
    }
}

/// A mapping that has to be exactly there, and there is at least partly in the arena.
fn map_in_arena(m: &Masked, span: Span, request: MmapArgs) -> Result<usize, Errno> {
    // The engine knows what lies at an address, not what comes next; a fixed mapping that must not
    // replace is rare and small.
    let taken = |part: Span| {
        (part.addr..part.end())
            .step_by(PAGE_SIZE)
            .any(|at| ENGINE.region(at).is_some())
    };
    let Some(part) = span.inside() else {
        return Err(Errno::EINVAL);
    };
    if request.has(MAP_FIXED_NOREPLACE) && (part != span || taken(part)) {
        return Err(Errno::EEXIST);
    }
    if part != span {
        return straddle(m, span, part, request);
    }
    if request.managed(span.len).is_ok() {
        let prot = request.prot.unsigned_abs();
        ENGINE
            .map_fixed(m, span.addr, span.len, prot)
            .map_err(errno_of)?;
        ready_now(m, span.addr, span.len, request);
        return Ok(span.addr);
    }
    lay_over(m, span, || {
        let mut over = request;
        over.flags = (request.flags & !MAP_FIXED_NOREPLACE) | MAP_FIXED;
        kernel(span.addr, span.len, over).map(|_| ())
    })?;
    Ok(span.addr)
}

/// Lets `make` put a mapping of the kernel's over `span` of the arena.
pub(super) fn lay_over(
    m: &Masked,
    span: Span,
    make: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    // Ours first, without access, so that nobody else is given the range meanwhile.
    ENGINE
        .map_fixed(m, span.addr, span.len, 0)
        .map_err(errno_of)?;
    let made = make().and_then(|()| ENGINE.foreign(m, span.addr, span.len).map_err(errno_of));
    if made.is_err() {
        // As after a failed MAP_FIXED of the kernel's: what was there is gone.
        let _ = ENGINE.unmap(m, span.addr, span.len);
    }
    made
}

/// A fixed mapping across an edge of the arena, made in parts.
fn straddle(m: &Masked, span: Span, part: Span, request: MmapArgs) -> Result<usize, Errno> {
    let cut = |part: Span| MmapArgs {
        offset: request.offset + (part.addr - span.addr),
        ..request
    };
    for outside in span.outside() {
        kernel(outside.addr, outside.len, cut(outside))?;
    }
    map_in_arena(m, part, cut(part))?;
    Ok(span.addr)
}

/// `MAP_POPULATE` and `MAP_LOCKED`: best effort, as in the kernel.
fn ready_now(m: &Masked, addr: usize, len: usize, request: MmapArgs) {
    if request.has(MAP_LOCKED) {
        let _ = super::protect::mlock(m, addr, len);
    } else if request.has(MAP_POPULATE) && request.prot & (PROT_READ | PROT_WRITE) != 0 {
        let _ = ENGINE.populate(m, addr, len);
    }
}

/// `munmap(2)`.
///
/// # Errors
/// As munmap(2).
pub fn munmap(m: &Masked, addr: usize, len: usize) -> Result<(), Errno> {
    let span = Span::new(addr, len).filter(|span| span.len > 0);
    let Some(span) = span.filter(|_| ENGINE.started()) else {
        // SAFETY: the program's call, outside the arena.
        return unsafe { mem::munmap(addr, len) };
    };
    if let Some(part) = span.inside() {
        ENGINE.unmap(m, part.addr, part.len).map_err(errno_of)?;
    }
    for outside in span.outside() {
        // SAFETY: the program's call, outside the arena.
        unsafe { mem::munmap(outside.addr, outside.len) }?;
        unmanaged::uncount(outside);
    }
    Ok(())
}
