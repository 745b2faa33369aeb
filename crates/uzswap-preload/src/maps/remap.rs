//! *What*: mremap, in all its forms.
//!
//! *Invariants*: managed memory stays managed unless the program fixes its new place outside the
//! arena; a mapping of the kernel's that leaves the arena leaves the arena's own mapping behind.
//! *Locking*: the engine's. *Context*: the program's.

use uzswap_core::arena::region::Flags;
use uzswap_core::{Masked, RemapTo};
use uzswap_sys::Errno;
use uzswap_sys::mem::{self, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE};

use super::errno_of;
use super::map::lay_over;
use super::span::{Span, aligned};
use crate::init::ENGINE;

/// The arguments of mremap(2).
#[derive(Clone, Copy, Debug)]
pub struct MremapArgs {
    /// Old address.
    pub old: usize,
    /// Old length.
    pub old_len: usize,
    /// New length.
    pub new_len: usize,
    /// `MREMAP_` bits.
    pub flags: i32,
    /// New address, used with `MREMAP_FIXED` and as a hint with `MREMAP_DONTUNMAP`.
    pub new: usize,
}

impl MremapArgs {
    const fn has(self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    /// Passes the call on.
    pub(super) fn kernel(self) -> Result<usize, Errno> {
        // SAFETY: the program's call, for memory that the kernel manages.
        unsafe { mem::mremap(self.old, self.old_len, self.new_len, self.flags, self.new) }
    }

    /// The kernel's checks that come before it looks at the mapping.
    fn check(self) -> Result<(Span, Span), Errno> {
        let known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
        let moves = self.has(MREMAP_MAYMOVE);
        if self.flags & !known != 0
            || (self.has(MREMAP_FIXED | MREMAP_DONTUNMAP) && !moves)
            || (self.has(MREMAP_DONTUNMAP) && self.old_len != self.new_len)
        {
            return Err(Errno::EINVAL);
        }
        let old = Span::new(self.old, self.old_len).ok_or(Errno::EINVAL)?;
        let new_at = if self.has(MREMAP_FIXED) { self.new } else { 0 };
        let new = Span::new(new_at, self.new_len).ok_or(Errno::EINVAL)?;
        let overlap = self.has(MREMAP_FIXED) && new.addr < old.end() && old.addr < new.end();
        if new.len == 0 || overlap || !aligned(new_at) {
            return Err(Errno::EINVAL);
        }
        Ok((old, new))
    }
}

/// `mremap(2)`. `Ok(Err(move))`: managed memory is to go to a fixed place outside the arena, which
/// needs a copy that only [`move_out`] may make, without signals blocked.
///
/// # Errors
/// As mremap(2).
pub fn mremap(m: &Masked, call: MremapArgs) -> Result<Result<usize, MremapArgs>, Errno> {
    let into_arena = call.has(MREMAP_FIXED) && uzswap_core::in_arena(call.new);
    if !ENGINE.started() || !(uzswap_core::in_arena(call.old) || into_arena) {
        return call.kernel().map(Ok);
    }
    let (old, new) = call.check()?;
    if !uzswap_core::in_arena(old.addr) {
        lay_over(m, new, || call.kernel().map(|_| ()))?;
        return Ok(Ok(new.addr));
    }
    let region = ENGINE.region(old.addr).ok_or(Errno::EFAULT)?;
    if region.flags.contains(Flags::FOREIGN) {
        return foreign(m, call, old, new).map(Ok);
    }
    if old.len == 0 {
        // Duplicating is for shared memory.
        return Err(Errno::EINVAL);
    }
    if region.end < old.end() {
        return Err(Errno::EFAULT);
    }
    if call.has(MREMAP_FIXED) && !new.touches_arena() {
        return Ok(Err(call));
    }
    if call.has(MREMAP_DONTUNMAP) && !call.has(MREMAP_FIXED) {
        // Always elsewhere, even where it could stay.
        let prot = region.flags.prot();
        let to = ENGINE.map(m, new.len, 0, prot).map_err(errno_of)?;
        let new = Span {
            addr: to,
            len: new.len,
        };
        return relocate(m, call, old, new).map(Ok);
    }
    if call.has(MREMAP_FIXED) {
        return relocate(m, call, old, new).map(Ok);
    }
    let to = if call.has(MREMAP_MAYMOVE) {
        RemapTo::MayMove
    } else {
        RemapTo::InPlace
    };
    let at = ENGINE.remap(m, old.addr, old.len, new.len, to);
    at.map(Ok).map_err(errno_of)
}

/// Moves managed memory to `new` in the arena.
fn relocate(m: &Masked, call: MremapArgs, old: Span, new: Span) -> Result<usize, Errno> {
    let region = ENGINE.region(old.addr).ok_or(Errno::EFAULT)?;
    let to = RemapTo::Fixed(new.addr);
    let at = ENGINE
        .remap(m, old.addr, old.len, new.len, to)
        .map_err(errno_of)?;
    if call.has(MREMAP_DONTUNMAP) {
        ENGINE
            .map_fixed(m, old.addr, old.len, region.flags.prot())
            .map_err(errno_of)?;
    }
    Ok(at)
}

/// A mapping of the kernel's that lies in the arena.
fn foreign(m: &Masked, call: MremapArgs, old: Span, new: Span) -> Result<usize, Errno> {
    let at = if call.has(MREMAP_FIXED) && uzswap_core::in_arena(new.addr) {
        lay_over(m, new, || call.kernel().map(|_| ()))?;
        new.addr
    } else {
        call.kernel()?
    };
    // Where the kernel has taken its mapping away, ours comes back.
    if at != old.addr {
        if old.len > 0 && !call.has(MREMAP_DONTUNMAP) {
            ENGINE.unmap(m, old.addr, old.len).map_err(errno_of)?;
        }
    } else if new.len < old.len {
        ENGINE
            .unmap(m, old.addr + new.len, old.len - new.len)
            .map_err(errno_of)?;
    }
    Ok(at)
}

/// Moves managed memory out of the arena by copying it, as [`mremap`] asked for.
///
/// # Errors
/// As mremap(2).
pub fn move_out(call: MremapArgs) -> Result<usize, Errno> {
    let (old, new) = call.check()?;
    let prot = ENGINE.region(old.addr).ok_or(Errno::EFAULT)?.flags.prot();
    let writable = mem::PROT_READ | mem::PROT_WRITE;
    let flags = mem::MAP_PRIVATE | mem::MAP_ANONYMOUS | mem::MAP_FIXED;
    // SAFETY: the program asked for this range to be replaced.
    unsafe { mem::mmap(new.addr, new.len, writable, flags, -1, 0) }?;
    if prot & mem::PROT_READ.unsigned_abs() == 0 {
        Masked::block(|m| super::protect::mprotect(m, old.addr, old.len, writable))?;
    }
    // SAFETY: the old range is mapped and readable, the new one was mapped writable above, and
    // `check` refuses ranges that overlap. Faults in the old one are served, since signals are not
    // blocked.
    unsafe {
        core::ptr::copy_nonoverlapping(
            old.addr as *const u8,
            new.addr as *mut u8,
            old.len.min(new.len),
        );
        mem::mprotect(new.addr, new.len, prot.cast_signed())?;
    }
    Masked::block(|m| {
        if call.has(MREMAP_DONTUNMAP) {
            ENGINE.map_fixed(m, old.addr, old.len, prot)
        } else {
            ENGINE.unmap(m, old.addr, old.len)
        }
    })
    .map_err(errno_of)?;
    Ok(new.addr)
}
