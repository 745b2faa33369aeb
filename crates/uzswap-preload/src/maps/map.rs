//! *What*: mmap and munmap.
//!
//! Anonymous private memory becomes managed, unless the program insists on an address outside the
//! arena. That, and what is shared, executable, a stack, of huge pages or below 2 GiB, is left to
//! the kernel and counted. File mappings, whose pages the kernel can drop itself, are left to it
//! and not counted, and so are reservations without access that would leave too little of the
//! arena.
//!
//! *Invariants*: a mapping of the kernel's inside the arena is marked foreign in the engine before
//! the program knows of it.
//! *Locking*: the engine's. *Context*: the program's.

use uzswap_core::{ARENA_LEN, Masked, in_arena};
use uzswap_sys::mem::{
    self, MAP_32BIT, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_HUGETLB,
    MAP_LOCKED, MAP_POPULATE, MAP_PRIVATE, MAP_STACK, MAP_TYPE, PROT_NONE, PROT_READ, PROT_WRITE,
};
use uzswap_sys::{Errno, PAGE_SIZE, file};

use super::errno_of;
use super::span::Span;
use super::unmanaged::{self, Reason};
use crate::init::ENGINE;

/// Reservations of address space above this, of which programs use a small part, are managed only
/// while [`ROOM`] is left.
const LARGE_RESERVATION: usize = ARENA_LEN / 64;
/// The part of the arena that large reservations leave to all else.
const ROOM: usize = ARENA_LEN / 4;
/// Addresses that programs have in their code are multiples of this.
const NAMED_PLACES: usize = 1 << 40;
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
    fn managed(self) -> Result<(), Option<Reason>> {
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
        Ok(())
    }

    const fn is_large_reservation(self, len: usize) -> bool {
        self.prot == PROT_NONE && len > LARGE_RESERVATION
    }

    /// Whether `hint` is no guess: a program that reserves a whole multiple of a tebibyte has the
    /// address in its code, as Java's ZGC, and cannot do without it. Others name theirs at random,
    /// or take what they get.
    const fn names_its_place(self, hint: usize) -> bool {
        self.prot == PROT_NONE && hint != 0 && hint.is_multiple_of(NAMED_PLACES)
    }

    /// Whether the arena has room for `len` bytes of it.
    fn fits(self, len: usize) -> bool {
        !self.is_large_reservation(len) || ENGINE.free_space().saturating_sub(len) >= ROOM
    }
}

/// `mmap(2)`.
///
/// # Errors
/// As mmap(2).
pub fn mmap(m: &Masked, addr: usize, len: usize, request: MmapArgs) -> Result<usize, Errno> {
    // The kernel looks at it before all else, of anonymous mappings too.
    if !request.offset.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
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
    let elsewhere = request.names_its_place(addr) && !in_arena(addr);
    match request.managed() {
        Ok(()) if !fixed && !elsewhere && request.fits(span.len) => {
            let prot = request.prot.unsigned_abs();
            let hint = addr & !(PAGE_SIZE - 1);
            let addr = ENGINE.map(m, span.len, hint, prot).map_err(errno_of)?;
            ready_now(m, addr, span.len, request);
            Ok(addr)
        }
        _ => outside(addr, len, request),
    }
}

/// Leaves a mapping outside the arena to the kernel, and counts it.
fn outside(addr: usize, len: usize, request: MmapArgs) -> Result<usize, Errno> {
    let addr = kernel(addr, len, request)?;
    let Some(made) = Span::new(addr, len) else {
        return Ok(addr);
    };
    if request.has(MAP_FIXED | MAP_FIXED_NOREPLACE) {
        unmanaged::uncount(made);
    }
    match request.managed() {
        _ if request.is_large_reservation(made.len) || request.names_its_place(addr) => {}
        Ok(()) => unmanaged::count(made, Reason::Fixed),
        Err(Some(why)) => unmanaged::count(made, why),
        Err(None) => {}
    }
    Ok(addr)
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
    let Some(part) = span.inside() else {
        return Err(Errno::EINVAL);
    };
    let taken = || request.has(MAP_FIXED_NOREPLACE) && !ENGINE.is_free(part.addr, part.len);
    if part != span {
        // The kernel looks at the file first.
        if !request.has(MAP_ANONYMOUS) {
            file::fcntl(request.fd, file::F_GETFD, 0)?;
        }
        if taken() {
            return Err(Errno::EEXIST);
        }
        return straddle(m, span, part, request);
    }
    if request.managed().is_ok() {
        if taken() {
            return Err(Errno::EEXIST);
        }
        let prot = request.prot.unsigned_abs();
        ENGINE
            .map_fixed(m, span.addr, span.len, prot)
            .map_err(errno_of)?;
        ready_now(m, span.addr, span.len, request);
        return Ok(span.addr);
    }
    // Made elsewhere and moved: if the kernel refuses it, what is there stays.
    let mut aside = request;
    aside.flags &= !(MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_32BIT);
    let made = kernel(0, span.len, aside)?;
    let done = if taken() {
        Err(Errno::EEXIST)
    } else {
        lay_over(m, span, || place(made, span))
    };
    if done.is_err() {
        // SAFETY: made above, not placed, and nobody knows of it.
        let _ = unsafe { mem::munmap(made, span.len) };
    }
    done.map(|()| span.addr)
}

/// Moves a mapping of the kernel's to where the program has it.
pub(super) fn place(aside: usize, span: Span) -> Result<(), Errno> {
    let flags = mem::MREMAP_MAYMOVE | mem::MREMAP_FIXED;
    // SAFETY: both ranges are the caller's to move: the mapping, and the range that `lay_over`
    // holds free for it.
    unsafe { mem::mremap(aside, span.len, span.len, flags, span.addr) }.map(drop)
}

/// Lets `make` put a mapping of the kernel's over `span` of the arena. On failure it is not there:
/// `make` comes last.
pub(super) fn lay_over(
    m: &Masked,
    span: Span,
    make: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    // Ours first, without access, so that nobody else is given the range meanwhile.
    ENGINE
        .map_fixed(m, span.addr, span.len, 0)
        .map_err(errno_of)?;
    let marked = ENGINE.foreign(m, span.addr, span.len).map_err(errno_of);
    let made = marked.and_then(|()| make());
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
    for beside in span.outside() {
        outside(beside.addr, beside.len, cut(beside))?;
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
