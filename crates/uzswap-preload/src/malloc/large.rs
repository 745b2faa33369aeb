//! *What*: blocks of 16 MiB and more, each a mapping of its own in the arena, so that growing one
//! moves page table entries instead of data: `realloc` in a loop must not need twice the memory.
//!
//! A block's mapping starts on a 32 MiB boundary with a header of 64 bytes; mimalloc's blocks lie
//! in segments that fill such units, so one bit for each unit tells whose a pointer is.
//!
//! *Invariants*: a bit of [`STARTS`] is set exactly while a large block's mapping starts in its
//! unit. The header's length is the mapping's.
//! *Locking*: the engine's. *Context*: the program's.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};

use uzswap_core::arena::region::LARGE_ALIGN as UNIT;
use uzswap_core::{ARENA_BASE, ARENA_LEN, Masked, RemapTo, in_arena};
use uzswap_sys::mem::{PROT_READ, PROT_WRITE};

use crate::init::ENGINE;

/// Smallest block: what mimalloc, too, would give a segment of its own.
pub const MIN_SIZE: usize = 16 << 20;
/// Bytes before the block, which keep it aligned to a cache line.
const HEADER: usize = 64;
const NR_UNITS: usize = ARENA_LEN / UNIT;

static STARTS: [AtomicU64; NR_UNITS / 64] = [const { AtomicU64::new(0) }; NR_UNITS / 64];

/// The bit of the unit that holds `addr`, which is in the arena.
fn bit(addr: usize) -> Option<(&'static AtomicU64, u64)> {
    let unit = addr.wrapping_sub(ARENA_BASE) / UNIT;
    Some((STARTS.get(unit / 64)?, 1 << (unit % 64)))
}

fn set(addr: usize, is: bool) {
    if let Some((word, bit)) = bit(addr) {
        if is {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// Whether `p` is a large block.
#[inline]
pub fn owns(p: *mut c_void) -> bool {
    // Relaxed: whoever has the pointer got it after the bit was set.
    in_arena(p as usize)
        && bit(p as usize).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Bytes of a mapping for `size` bytes; large enough to be aligned to a unit.
fn map_len(size: usize) -> Option<usize> {
    const FOLIO: usize = 64 << 10;
    size.checked_add(HEADER)?
        .checked_next_multiple_of(FOLIO)
        .map(|len| len.max(UNIT))
        // As the C library's: no object is larger than a pointer difference.
        .filter(|&len| isize::try_from(len).is_ok())
}

fn header(p: *mut c_void) -> *mut usize {
    p.wrapping_byte_sub(HEADER).cast()
}

/// A zeroed block, or null.
pub fn allocate(size: usize) -> *mut c_void {
    if !ENGINE.started() {
        return null_mut();
    }
    let Some(len) = map_len(size) else {
        return null_mut();
    };
    let prot = (PROT_READ | PROT_WRITE).unsigned_abs();
    match Masked::block(|m| ENGINE.map(m, len, 0, prot)) {
        Ok(addr) => publish(addr, len),
        Err(_) => null_mut(),
    }
}

fn publish(addr: usize, len: usize) -> *mut c_void {
    set(addr, true);
    let header = addr as *mut usize;
    // SAFETY: the mapping's first bytes, which are nobody else's; a fault is served, since signals
    // are not blocked.
    unsafe { header.write(len) };
    header.wrapping_byte_add(HEADER).cast()
}

/// Bytes in a large block.
///
/// # Safety
/// `p` is one.
pub unsafe fn usable(p: *mut c_void) -> usize {
    // SAFETY: the caller's.
    unsafe { header(p).read() - HEADER }
}

/// Frees a large block.
///
/// # Safety
/// `p` is one, and not used afterwards.
#[inline(never)]
pub unsafe fn free(p: *mut c_void) {
    let addr = header(p) as usize;
    // SAFETY: the caller's.
    let len = unsafe { header(p).read() };
    // First the bit: once unmapped, the unit may be anybody's.
    set(addr, false);
    // A region map without room for the split keeps the block: lost, but nothing else is.
    let _ = Masked::block(|m| ENGINE.unmap(m, addr, len));
}

/// Makes room for `size` bytes, and returns where the block is then; null, and the block is as it
/// was, if there is no room.
///
/// # Safety
/// `p` is a large block, `size` at least [`MIN_SIZE`].
pub unsafe fn resize(p: *mut c_void, size: usize) -> *mut c_void {
    let addr = header(p) as usize;
    // SAFETY: the caller's.
    let old = unsafe { header(p).read() };
    let Some(needed) = map_len(size) else {
        return null_mut();
    };
    if needed > old {
        // What grows will grow again: reserve address space for that, which costs nothing.
        let roomy = needed.saturating_mul(2).min(needed + (1 << 34));
        set(addr, false);
        let moved = Masked::block(|m| {
            let grow = |len| {
                let at = ENGINE.remap(m, addr, old, len, RemapTo::MayMove);
                at.map(|at| (at, len))
            };
            grow(roomy).or_else(|_| grow(needed))
        });
        return match moved {
            Ok((at, len)) => publish(at, len),
            Err(_) => {
                set(addr, true);
                null_mut()
            }
        };
    }
    // The tail of a block that shrank a lot goes back; the address space stays.
    let tail = needed + needed / 4;
    if tail < old {
        let _ = Masked::block(|m| ENGINE.discard(m, addr + tail, old - tail));
    }
    p
}
