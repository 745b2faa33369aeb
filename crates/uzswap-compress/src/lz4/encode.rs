//! *What*: the LZ4 encoder.
//! *Invariants*: [`Table`] holds positions of earlier blocks below `base` and of this block from
//! `base` on, so it need not be cleared for each block.
//! *Locking*: none. *Context*: any.
//!
//! A match candidate is used only if it lies in this block and before the current position, and
//! every copy and comparison is bounded by positions, never by contents. So even a source that
//! changed during the call could not lead outside.

use super::{LAST_LITERALS, LONG, MATCH_START_LIMIT, MIN_MATCH, copy8};

const HASH_BITS: u32 = 13;
/// log2 of the failed attempts after which the search takes longer steps.
const SKIP: u32 = 6;
/// Bytes for a token, an offset and copies in whole words, beyond the lengths themselves.
const SLACK: usize = 16;
/// Positions are 16 bits.
const MAX_POSITION: usize = 1 << 16;

/// Where each hash of five bytes was seen last.
#[repr(C, align(64))]
pub(crate) struct Table {
    /// Position of the first byte of the next block.
    base: usize,
    /// The last block compressed badly: see [`Table::take`].
    irregular: bool,
    positions: [u16; 1 << HASH_BITS],
}

impl Table {
    /// Makes a table in raw memory.
    ///
    /// # Safety
    /// `memory` is writable for `size_of::<Table>()` bytes and aligned to 64.
    pub(crate) unsafe fn init(memory: *mut u8) {
        // SAFETY: the caller's promise; all zeros is a valid, empty table.
        unsafe { memory.cast::<Table>().write_bytes(0, 1) };
    }

    /// Takes positions for a block of `len` bytes; returns the first.
    ///
    /// Clearing the table costs 200 ns. Not clearing it costs branch misses where old and new
    /// entries alternate: few in pages of records, 2 µs in a page of floating-point numbers. Large
    /// blocks, and those after a block that compressed badly, get a clear table.
    fn take(&mut self, len: usize) -> usize {
        if self.base + len > MAX_POSITION || self.irregular || len > crate::MIN_BLOCK {
            self.positions.fill(0);
            self.base = 0;
        }
        let base = self.base;
        self.base += len;
        base
    }
}

/// # Safety
/// 4 bytes are readable.
#[inline(always)]
unsafe fn read32(at: *const u8) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<u32>().read_unaligned() }
}

/// # Safety
/// 8 bytes are readable.
#[inline(always)]
unsafe fn read64(at: *const u8) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<u64>().read_unaligned() }
}

/// # Safety
/// 8 bytes are readable.
#[inline(always)]
unsafe fn hash(at: *const u8) -> usize {
    // The low five bytes decide: four find matches that are hardly worth a token.
    // SAFETY: the caller's promise.
    let five = unsafe { read64(at) } << 24;
    (five.wrapping_mul(0x9e37_79b1_85eb_ca87) >> (64 - HASH_BITS)) as usize
}

/// How many bytes are equal at `a` and `b`, up to `limit`, which is after `a`.
///
/// # Safety
/// Readable from `b`, which is before `a`, to 3 bytes after `limit`; 8 bytes at `a`.
#[inline(always)]
unsafe fn count_equal(a: *const u8, b: *const u8, limit: *const u8) -> usize {
    let max = limit.addr() - a.addr();
    let mut n = 0;
    // SAFETY: the first comparison reads the 8 bytes promised; later ones end at `limit` at most.
    unsafe {
        loop {
            let differ = read64(a.add(n)) ^ read64(b.add(n));
            if differ != 0 {
                return (n + (differ.trailing_zeros() / 8) as usize).min(max);
            }
            n += 8;
            if n + 8 > max {
                break;
            }
        }
        while n < max && *a.add(n) == *b.add(n) {
            n += 1;
        }
    }
    n.min(max)
}

/// Writes what a nibble of 15 leaves of a length: bytes of 255 and a last smaller one.
///
/// # Safety
/// `rest / 255 + 1` bytes are writable.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "below 255 when it is cast")]
unsafe fn put_length(mut op: *mut u8, mut rest: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        while rest >= 255 {
            *op = 255;
            op = op.add(1);
            rest -= 255;
        }
        *op = rest as u8;
        op.add(1)
    }
}

/// Encodes `src` into `dst`; returns the bytes written, `None` if it does not fit (or is longer
/// than 64 KiB).
pub(super) fn encode(table: &mut Table, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    if src.len() > MAX_POSITION {
        return None;
    }
    let base = table.take(src.len());
    // SAFETY: `base + src.len()` is at most 65536, and entries from `base` on are this block's.
    let written = unsafe { encode_block(&mut table.positions, base, src, dst) };
    table.irregular = written.is_some_and(|written| written > src.len() / 2);
    written
}

/// # Safety
/// `base + src.len() <= 65536`, and no entry of `positions` is from `base` on.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "positions and distances fit 16 bits"
)]
unsafe fn encode_block(
    positions: &mut [u16; 1 << HASH_BITS],
    base: usize,
    src: &[u8],
    dst: &mut [u8],
) -> Option<usize> {
    let table = positions.as_mut_ptr();
    let start = src.as_ptr();
    // Position p is at `zero + p`; only ever dereferenced inside the source.
    let zero = start.wrapping_sub(base);
    let position = |at: *const u8| at.addr().wrapping_sub(zero.addr()) as u16;
    let first = base as u16;

    let out = dst.as_mut_ptr();
    let mut op = out;
    let mut anchor = start;
    // SAFETY: one past the end of each slice.
    let (end, out_end) = unsafe { (start.add(src.len()), out.add(dst.len())) };
    let room = |op: *mut u8| out_end.addr() - op.addr();

    // SAFETY: for all that follows: `ip` is at most `last_start`, 12 bytes before the end, wherever
    // 8 bytes are read from it; `candidate` is in `start..ip` (checked when found, kept by going
    // back in step); hashes are below the table's length; before each group of writes `room` is
    // compared with their sum, which SLACK covers up to one 8-byte copy past the literals.
    unsafe {
        if src.len() > MATCH_START_LIMIT {
            let last_start = end.sub(MATCH_START_LIMIT);
            let match_end = end.sub(LAST_LITERALS);
            *table.add(hash(start)) = first;
            let mut ip = start.add(1);
            let mut next_hash = hash(ip);
            'block: loop {
                // Find a match, in longer and longer steps.
                let mut candidate;
                let mut next = ip;
                let mut step = 1;
                let mut attempts = 1usize << SKIP;
                loop {
                    let here = next_hash;
                    ip = next;
                    next = next.wrapping_add(step);
                    step = attempts >> SKIP;
                    attempts += 1;
                    if next > last_start {
                        break 'block;
                    }
                    let entry = *table.add(here);
                    next_hash = hash(next);
                    *table.add(here) = position(ip);
                    candidate = zero.wrapping_add(entry as usize);
                    if entry >= first && candidate < ip && read32(candidate) == read32(ip) {
                        break;
                    }
                }
                // A run of one byte found at some small distance: distance 1 starts it earlier, and
                // any decoder copies that by memset.
                if ip.addr() - candidate.addr() < 16 && read64(ip.sub(1)) == read64(ip) {
                    candidate = ip.sub(1);
                }
                // It may have begun earlier.
                if candidate > start && *ip.sub(1) == *candidate.sub(1) {
                    loop {
                        ip = ip.sub(1);
                        candidate = candidate.sub(1);
                        if !(ip > anchor && candidate > start && *ip.sub(1) == *candidate.sub(1)) {
                            break;
                        }
                    }
                }

                let nr_literals = ip.addr() - anchor.addr();
                if room(op) < nr_literals + nr_literals / 255 + SLACK {
                    return None;
                }
                let mut token_at = op;
                let mut token;
                op = op.add(1);
                if nr_literals >= LONG {
                    token = (LONG as u8) << 4;
                    op = put_length(op, nr_literals - LONG);
                    let mut copied = 0;
                    while copied < nr_literals {
                        copy8(op.add(copied), anchor.add(copied));
                        copied += 8;
                    }
                } else {
                    token = (nr_literals as u8) << 4;
                    copy8(op, anchor);
                    if nr_literals > 8 {
                        copy8(op.add(8), anchor.add(8));
                    }
                }
                op = op.add(nr_literals);

                // One match, and those that follow it without literals between.
                loop {
                    let distance = ip.addr() - candidate.addr();
                    op.cast::<u16>().write_unaligned((distance as u16).to_le());
                    op = op.add(2);
                    let more = count_equal(ip.add(MIN_MATCH), candidate.add(MIN_MATCH), match_end);
                    ip = ip.add(MIN_MATCH + more);
                    if more >= LONG {
                        if room(op) < more / 255 + SLACK {
                            return None;
                        }
                        token |= LONG as u8;
                        op = put_length(op, more - LONG);
                    } else {
                        token |= more as u8;
                    }
                    *token_at = token;
                    anchor = ip;
                    if ip >= last_start {
                        break 'block;
                    }
                    if room(op) < SLACK {
                        return None;
                    }
                    *table.add(hash(ip.sub(2))) = position(ip.sub(2));
                    let here = hash(ip);
                    let entry = *table.add(here);
                    *table.add(here) = position(ip);
                    candidate = zero.wrapping_add(entry as usize);
                    if entry >= first && candidate < ip && read32(candidate) == read32(ip) {
                        token_at = op;
                        token = 0;
                        op = op.add(1);
                        continue;
                    }
                    break;
                }
                ip = ip.add(1);
                next_hash = hash(ip);
            }
        }

        let nr_literals = end.addr() - anchor.addr();
        if room(op) < 1 + nr_literals + (nr_literals + 240) / 255 {
            return None;
        }
        let token_at = op;
        op = op.add(1);
        if nr_literals >= LONG {
            *token_at = (LONG as u8) << 4;
            op = put_length(op, nr_literals - LONG);
        } else {
            *token_at = (nr_literals as u8) << 4;
        }
        op.copy_from_nonoverlapping(anchor, nr_literals);
        Some(op.addr() + nr_literals - out.addr())
    }
}
