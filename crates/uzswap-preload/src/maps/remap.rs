//! *What*: mremap, in all its forms.
//!
//! *Invariants*: managed memory stays managed unless the program fixes its new place outside the
//! arena; a mapping of the kernel's that leaves the arena leaves the arena's own mapping behind.
//! *Locking*: the engine's. *Context*: the program's.

use uzswap_core::arena::region::Flags;
use uzswap_core::{Fault, Masked, RemapTo};
use uzswap_sys::mem::{self, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE};
use uzswap_sys::{Errno, PAGE_SIZE};

use super::give_back::read_through;
use super::map::lay_over;
use super::span::{Span, aligned};
use super::unmanaged::{self, Reason};
use super::{errno_of, fork_policy};
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
        // A hint is judged as if it were none.
        let placed = self.has(MREMAP_FIXED | MREMAP_DONTUNMAP);
        let new_at = if placed { self.new } else { 0 };
        let new = Span::new(new_at, self.new_len).ok_or(Errno::EINVAL)?;
        let overlap = placed && new.addr < old.end() && old.addr < new.end();
        if new.len == 0 || overlap || !aligned(new_at) {
            return Err(Errno::EINVAL);
        }
        Ok((old, new))
    }
}

/// `mremap(2)`. `Ok(Err(move))`: managed memory is to go to a fixed place outside the arena, which
/// needs a copy, which is for [`move_out`] to make.
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
        if old.len > 0 {
            // Whether it is mapped at all is found out while that costs nothing.
            let stays = MremapArgs {
                old_len: PAGE_SIZE,
                new_len: PAGE_SIZE,
                flags: 0,
                ..call
            };
            stays.kernel()?;
        }
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
        let to = ENGINE.map(m, new.len, new.addr, prot).map_err(errno_of)?;
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
    let to = match call.has(MREMAP_DONTUNMAP) {
        true => RemapTo::Leaving(new.addr),
        false => RemapTo::Fixed(new.addr),
    };
    ENGINE
        .remap(m, old.addr, old.len, new.len, to)
        .map_err(errno_of)
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

/// Moves managed memory out of the arena as [`mremap`] asked for, by `copy`: from, to, how much.
///
/// # Errors
/// As mremap(2).
pub fn move_out(
    call: MremapArgs,
    copy: impl FnOnce(usize, usize, usize) -> Result<(), Errno>,
) -> Result<usize, Errno> {
    let (old, new) = call.check()?;
    let flags = ENGINE.region(old.addr).ok_or(Errno::EFAULT)?.flags;
    let prot = flags.prot();
    let writable = mem::PROT_READ | mem::PROT_WRITE;
    let fixed = mem::MAP_PRIVATE | mem::MAP_ANONYMOUS | mem::MAP_FIXED;
    // SAFETY: the program asked for this range to be replaced.
    unsafe { mem::mmap(new.addr, new.len, writable, fixed, -1, 0) }?;
    unmanaged::uncount(new);
    // The old range is readable now, the new one was mapped writable above, and `check` refuses
    // ranges that overlap.
    let mut copied = Ok(());
    let copied = read_through(old, prot, || {
        copied = copy(old.addr, new.addr, old.len.min(new.len));
    })
    .and(copied);
    let moved = copied
        // SAFETY: the new range is the program's, which does not use it yet.
        .and_then(|()| unsafe { mem::mprotect(new.addr, new.len, prot.cast_signed()) })
        .and_then(|()| fork_policy::pass_on(flags, new))
        .and_then(|()| leave(old, call.has(MREMAP_DONTUNMAP)));
    if moved.is_err() {
        // SAFETY: as above. What was there before is gone, as natively.
        let _ = unsafe { mem::munmap(new.addr, new.len) };
        return moved.map(|()| new.addr);
    }
    unmanaged::count(new, Reason::Fixed);
    Ok(new.addr)
}

/// Copies managed memory with signals not blocked: faults are served.
pub fn copy_faulting(from: usize, to: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the promise of `move_out`.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len) };
    Ok(())
}

/// Copies managed memory piece by piece, pinned: with signals blocked, no fault could be served.
pub fn copy_pinned(m: &Masked, from: usize, to: usize, len: usize) -> Result<(), Errno> {
    const PIECE: usize = 64 << 10;
    for done in (0..len).step_by(PIECE) {
        let piece = PIECE.min(len - done);
        let pin = ENGINE
            .pin(m, from + done, piece)
            .map_err(|fault| match fault {
                Fault::OverLimit { .. } => Errno::ENOMEM,
                _ => Errno::EFAULT,
            })?;
        // SAFETY: the one range is pinned; the promise of `move_out`.
        unsafe {
            let (from, to) = ((from + done) as *const u8, (to + done) as *mut u8);
            core::ptr::copy_nonoverlapping(from, to, piece);
        }
        ENGINE.unpin(m, pin);
    }
    Ok(())
}

/// Drops what has been moved away.
fn leave(old: Span, stays_mapped: bool) -> Result<(), Errno> {
    Masked::block(|m| match stays_mapped {
        true => ENGINE.discard(m, old.addr, old.len),
        false => ENGINE.unmap(m, old.addr, old.len).map_err(errno_of),
    })
}
