//! *What*: the LZ4 decoder.
//! *Invariants*: every read is inside the source, every write inside the destination, checked
//! before each against what is left of both.
//! *Locking*: none. *Context*: any.
//!
//! Copies are of whole 16-byte words where there is room to overshoot, and exact near the ends.
//! Overlapping matches at small distances are the common case in memory (runs of zeros, of equal
//! words). To copy those word by word from their own output costs a store-forwarding stall each, so
//! they are written from a register, or by copies that double.

use super::{LONG, MIN_MATCH, copy8};
use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_set1_epi64x, _mm_storeu_si128};

/// # Safety
/// 16 bytes are readable and writable; the two may overlap.
#[inline(always)]
unsafe fn copy16(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's promise; the load is complete before the store.
    unsafe { _mm_storeu_si128(to.cast::<__m128i>(), _mm_loadu_si128(from.cast())) };
}

/// Reads the bytes that continue a length of 15; `None` if they run out. Each adds at most 255, so
/// the sum stays far from overflow.
#[inline(always)]
unsafe fn long_length(src: *const u8, len: usize, ip: &mut usize) -> Option<usize> {
    let mut sum = LONG;
    loop {
        if *ip >= len {
            return None;
        }
        // SAFETY: below `len`, the source's length.
        let byte = usize::from(unsafe { *src.add(*ip) });
        *ip += 1;
        sum += byte;
        if byte != 255 {
            return Some(sum);
        }
    }
}

/// Decodes `src` into the whole of `dst`, or, if `PARTLY`, no further than its `first` bytes need;
/// `false` if what was decoded is no block of exactly that length.
#[inline]
pub(super) fn decode<const PARTLY: bool>(src: &[u8], first: usize, dst: &mut [u8]) -> bool {
    let (len, capacity) = (src.len(), dst.len());
    let (src, dst) = (src.as_ptr(), dst.as_mut_ptr());
    // How far we are in each; never beyond their lengths.
    let (mut ip, mut op) = (0, 0);
    // SAFETY: each access is preceded by a comparison with what is left, `len - ip` and
    // `capacity - op`; the numbers beside them are derived there.
    unsafe {
        loop {
            if PARTLY && op >= first {
                return true;
            }
            if ip >= len {
                // A block ends with literals.
                return false;
            }
            let token = usize::from(*src.add(ip));
            ip += 1;
            let mut nr_literals = token >> 4;
            let distance;
            // Reads 16, then at most 14 + 2. Writes 16, then at most 14 + 18.
            if nr_literals != LONG && len - ip >= 18 && capacity - op >= 32 {
                copy16(dst.add(op), src.add(ip));
                op += nr_literals;
                ip += nr_literals;
                distance = usize::from(u16::from_le(src.add(ip).cast::<u16>().read_unaligned()));
                ip += 2;
                if token & LONG != LONG && distance >= 8 && distance <= op {
                    // At most 18 bytes, in steps that a distance of 8 allows.
                    let (to, from) = (dst.add(op), dst.add(op - distance));
                    copy8(to, from);
                    copy8(to.add(8), from.add(8));
                    to.add(16)
                        .cast::<u16>()
                        .write_unaligned(from.add(16).cast::<u16>().read_unaligned());
                    op += (token & LONG) + MIN_MATCH;
                    continue;
                }
            } else {
                if nr_literals == LONG {
                    match long_length(src, len, &mut ip) {
                        Some(sum) => nr_literals = sum,
                        None => return false,
                    }
                }
                if len - ip >= nr_literals + 16 && capacity - op >= nr_literals + 16 {
                    let mut copied = 0;
                    while copied < nr_literals {
                        copy16(dst.add(op + copied), src.add(ip + copied));
                        copied += 16;
                    }
                } else {
                    if len - ip < nr_literals || capacity - op < nr_literals {
                        return false;
                    }
                    dst.add(op)
                        .copy_from_nonoverlapping(src.add(ip), nr_literals);
                }
                ip += nr_literals;
                op += nr_literals;
                if len - ip < 2 {
                    return ip == len && op == capacity;
                }
                distance = usize::from(u16::from_le(src.add(ip).cast::<u16>().read_unaligned()));
                ip += 2;
            }
            if distance == 0 || distance > op {
                return false;
            }
            let mut nr_match = token & LONG;
            if nr_match == LONG {
                match long_length(src, len, &mut ip) {
                    Some(sum) => nr_match = sum,
                    None => return false,
                }
            }
            nr_match += MIN_MATCH;
            let room = capacity - op;
            if room < nr_match {
                return false;
            }
            let to = dst.add(op);
            if distance >= 16 && room >= nr_match + 32 {
                let mut copied = 0;
                while copied < nr_match {
                    copy16(to.add(copied), to.add(copied).sub(distance));
                    copy16(to.add(copied + 16), to.add(copied + 16).sub(distance));
                    copied += 32;
                }
            } else {
                copy_near(to, distance, nr_match, room);
            }
            op += nr_match;
        }
    }
}

/// Copies a match at a small distance, or near the end of the destination.
///
/// # Safety
/// `distance` bytes before `to` are readable, `room` bytes from it writable; `1 <= distance`,
/// `len <= room`.
#[inline(never)]
unsafe fn copy_near(mut to: *mut u8, distance: usize, mut len: usize, room: usize) {
    // SAFETY: by the promise above, with the sums beside each.
    unsafe {
        let from = to.sub(distance).cast_const();
        // One byte, one word: from a register, overshooting by 15 at most.
        let word = match distance {
            1 => return to.write_bytes(*from, len),
            2 => u64::from(from.cast::<u16>().read_unaligned()) * 0x0001_0001_0001_0001,
            4 => u64::from(from.cast::<u32>().read_unaligned()) * 0x0000_0001_0000_0001,
            8 => from.cast::<u64>().read_unaligned(),
            _ => 0,
        };
        if matches!(distance, 2 | 4 | 8) && room >= len + 16 {
            let words = _mm_set1_epi64x(word.cast_signed());
            let mut copied = 0;
            while copied < len {
                _mm_storeu_si128(to.add(copied).cast(), words);
                copied += 16;
            }
            return;
        }
        if distance < 16 {
            let byte = *from;
            if (1..distance).all(|i| *from.add(i) == byte) {
                return to.write_bytes(byte, len);
            }
        }
        if distance >= 8 && len <= 32 && room >= len + 8 {
            let mut copied = 0;
            while copied < len {
                copy8(to.add(copied), from.add(copied));
                copied += 8;
            }
            return;
        }
        // What was copied can be copied again with it: each step doubles the period.
        let mut period = distance;
        while len > 0 {
            let n = period.min(len);
            let from = to.sub(period).cast_const();
            if n < 16 {
                for i in 0..n {
                    *to.add(i) = *from.add(i);
                }
            } else {
                to.copy_from_nonoverlapping(from, n);
            }
            to = to.add(n);
            len -= n;
            period += n;
        }
    }
}
