//! *What*: expands a block from tokens, extras and literals.
//!
//! Copies are of whole steps where there is room to overshoot, and exact near the ends. Matches
//! that overlap themselves by less than a word are written by copies that double.
//!
//! *Invariants*: every read is inside a stream or the block written so far, every write inside the
//! block: by checked slices, or after one comparison for each copy of whole steps.
//! *Locking*: none. *Context*: any.

use crate::PAGE;
use crate::format::{FIRST_DISTANCE, LONG_LITERALS, LONG_REST, MIN_MATCH, kind};
use crate::streams::STEP;
use core::hint::select_unpredictable;

/// Matches up to this long are copied without a loop.
const SHORT: usize = 2 * STEP;

/// Reads the rest of a length from the extras.
#[inline(always)]
fn rest(extras: &[u8], at: &mut usize) -> Option<usize> {
    let byte = usize::from(*extras.get(*at)?);
    *at += 1;
    if byte != LONG_REST {
        return Some(byte);
    }
    let number = extras.get(*at..)?.first_chunk()?;
    *at += 2;
    Some(usize::from(u16::from_le_bytes(*number)))
}

/// Copies one step.
///
/// # Safety
/// `N` bytes are readable at `from` and writable at `to`.
#[inline(always)]
unsafe fn copy_step<const N: usize>(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's promise; byte arrays need no alignment. The read precedes the write.
    unsafe { to.cast::<[u8; N]>().write(from.cast::<[u8; N]>().read()) };
}

/// Fills `block`; `None` if these are not streams of exactly one.
#[inline]
pub(crate) fn expand<const PAGES: usize>(
    tokens: &[u8],
    extras: &[u8],
    literals: &[u8],
    block: &mut [u8],
) -> Option<()> {
    // For pages the length is a constant.
    let block_len = if PAGES == 1 { PAGE } else { block.len() };
    let block = block.get_mut(..block_len)?;
    // Positions in block, literals and extras.
    let (mut op, mut lp, mut ep) = (0, 0, 0);
    let mut last = [FIRST_DISTANCE; 2];
    for &token in tokens {
        let kind = usize::from(token >> 6);
        let mut nr = usize::from(token >> 4) & 3;
        let mut len = usize::from(token & 15) + MIN_MATCH + usize::from(kind != kind::LAST);

        let pair = match extras.get(ep..).and_then(<[u8]>::first_chunk) {
            Some(pair) => u16::from_le_bytes(*pair),
            None => u16::from(extras.get(ep).copied().unwrap_or(0)),
        };
        let near = (usize::from(pair & 0xff) + 1) * 8;
        let new = select_unpredictable(kind == kind::FAR, usize::from(pair), near);
        let repeated = select_unpredictable(kind == kind::LAST, last[0], last[1]);
        let distance = select_unpredictable(kind >= kind::NEAR, new, repeated);
        last[1] = select_unpredictable(kind == kind::LAST, last[1], last[0]);
        last[0] = distance;
        ep += kind.saturating_sub(1);
        if nr == LONG_LITERALS {
            nr += rest(extras, &mut ep)?;
        }
        if token & 15 == 15 {
            len += rest(extras, &mut ep)?;
        }

        if nr <= STEP && literals.len() - lp >= STEP && block_len - op >= STEP {
            // SAFETY: a step is left of both, as just compared.
            unsafe { copy_step::<STEP>(block.as_mut_ptr().add(op), literals.as_ptr().add(lp)) };
        } else {
            block
                .get_mut(op..op + nr)?
                .copy_from_slice(literals.get(lp..lp + nr)?);
        }
        op += nr;
        lp += nr;

        if distance == 0 || distance > op || len > block_len - op {
            return None;
        }
        if block_len - op >= len + SHORT && distance >= 8 {
            // SAFETY: `distance <= op`, so `from` is in the block, and before `to`. Reads and
            // writes end less than a step after `to + len`, or at `to + SHORT`: inside the block,
            // as just compared.
            unsafe {
                let to = block.as_mut_ptr().add(op);
                let from = to.sub(distance);
                if distance >= STEP {
                    copy_step::<STEP>(to, from);
                    copy_step::<STEP>(to.add(STEP), from.add(STEP));
                    let mut done = SHORT;
                    while done < len {
                        copy_step::<STEP>(to.add(done), from.add(done));
                        done += STEP;
                    }
                } else {
                    let mut done = 0;
                    while done < len {
                        copy_step::<8>(to.add(done), from.add(done));
                        done += 8;
                    }
                }
            }
        } else {
            copy_exactly(block, op, distance, len);
        }
        op += len;
    }
    // What is left is literals.
    let left = block.get_mut(op..)?;
    let literals = literals.get(lp..)?;
    if left.len() != literals.len() || ep != extras.len() {
        return None;
    }
    left.copy_from_slice(literals);
    Some(())
}

/// Copies a match that overlaps itself closely, or near the end of the block.
#[inline(never)]
fn copy_exactly(block: &mut [u8], op: usize, distance: usize, len: usize) {
    let end = op + len;
    if distance == 1 {
        let byte = block[op - 1];
        block[op..end].fill(byte);
        return;
    }
    // Each step copies all that was copied so far, and so doubles the period.
    let from = op - distance;
    let mut to = op;
    while to < end {
        let nr = (to - from).min(end - to);
        block.copy_within(from..from + nr, to);
        to += nr;
    }
}
