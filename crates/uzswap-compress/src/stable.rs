//! *What*: a private copy of memory that the program may be writing.
//! *Invariants*: every source byte is read once, so the copy holds still, if it may be a mixture
//! that the block never held at one moment.
//! *Locking*: none. *Context*: any.
//!
//! Why copy: the compressors are written for input that holds still. The C lz4, for one, extends a
//! match backwards by comparing bytes and forwards by comparing them again. If they change in
//! between, its position falls behind entries of its own hash table, later matches point ahead of
//! the position, and the match length is counted past the end of the input, where the next page may
//! be missing: a fault inside the fault handler, which ends the process. Our own lz4 stays inside
//! (see its head), but a data race has no meaning in Rust.

use core::arch::x86_64::__m128i;

/// Copies `len` bytes, a multiple of 64, from `src` to `dst`.
///
/// # Safety
/// `src` is readable, `dst` writable and private, for `len` bytes; both are aligned to 16 and do
/// not overlap.
#[inline]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    debug_assert!(len.is_multiple_of(64));
    let (mut to, mut from) = (dst.cast::<__m128i>(), src.cast::<__m128i>());
    for _ in 0..len / 64 {
        // SAFETY: inside both blocks. Volatile: exactly one load of each byte, whatever other
        // threads write there.
        unsafe {
            let line = [
                from.read_volatile(),
                from.add(1).read_volatile(),
                from.add(2).read_volatile(),
                from.add(3).read_volatile(),
            ];
            to.cast::<[__m128i; 4]>().write(line);
            from = from.add(4);
            to = to.add(4);
        }
    }
}
