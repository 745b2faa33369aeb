//! *What*: rewriting a site: its last instruction before the system call becomes a jump to a ramp.
//!
//! *Invariants*: threads execute the old bytes, a breakpoint, or the new bytes, never a mixture:
//! the first byte becomes a breakpoint, the others change behind it, then the first. Between the
//! steps every thread executes a serialising instruction. Who meets the breakpoint goes by the ramp
//! ([`super::sites::step_over`]).
//! *Locking*: the caller's. *Context*: signal.

use core::sync::atomic::{AtomicU8, Ordering};

use uzswap_core::in_arena;
use uzswap_sys::mem::{
    MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_PRIVATE, PROT_EXEC, PROT_READ, PROT_WRITE, mmap,
    mprotect, munmap,
};
use uzswap_sys::signal::UContext;
use uzswap_sys::{Errno, PAGE_SIZE, thread};

use crate::arch::shortcut::{MAX_DISPLACED, RAMP_LEN, ramp};
use crate::arch::site::{Around, BEFORE, BREAKPOINT, JUMP_LEN, Reach, displaceable, jump, reach};
use crate::guard::user;

/// Places that are tried for a ramp.
const MAX_PLACES: usize = 32;

/// What is to be done at a site.
pub struct Plan {
    /// Where it begins.
    pub start: usize,
    /// The address behind its system call.
    behind: usize,
    /// The instruction that is displaced, the first `len` bytes.
    displaced: [u8; MAX_DISPLACED],
    len: usize,
    reach: Reach,
}

/// Plans the rewriting of the site that the thread of context `uc` was trapped at, which lies in
/// `text`. `None`: it must stay as it is.
///
/// # Safety
/// The text is mapped, and stays.
pub unsafe fn plan(uc: &UContext, text: (usize, usize)) -> Option<Plan> {
    let behind = uc.instruction_pointer();
    let first = behind.checked_sub(size_of::<Around>() - 1)?;
    // A byte behind the call is looked at, too.
    if first < text.0 || behind >= text.1 {
        return None;
    }
    let mut code: Around = [0; size_of::<Around>()];
    // SAFETY: the buffer is as long.
    unsafe { user::read(code.as_mut_ptr(), first, code.len()) }.ok()?;
    let len = displaceable(&code, uc)?;
    let start = first + BEFORE - len;
    if start / PAGE_SIZE != (start + JUMP_LEN - 1) / PAGE_SIZE {
        return None;
    }
    let mut displaced = [0; MAX_DISPLACED];
    let bytes = code.get(BEFORE - len..BEFORE)?;
    displaced.get_mut(..len)?.copy_from_slice(bytes);
    Some(Plan {
        start,
        behind,
        displaced,
        len,
        reach: reach(&code, start, len)?,
    })
}

/// Maps a ramp for the site, and returns where it is. `None`: there is no room in its reach.
///
/// # Safety
/// None of its own: only free addresses are mapped.
pub unsafe fn build_ramp(plan: &Plan) -> Option<usize> {
    let code = ramp(plan.displaced.get(..plan.len)?, plan.behind);
    let Reach { first, last } = plan.reach;
    let step = ((last - first) / MAX_PLACES).next_multiple_of(PAGE_SIZE);
    // Near the site, where there is a choice.
    let begin = if (first..=last).contains(&plan.start) {
        plan.start + (64 << 20)
    } else {
        first
    };
    let places = (0..MAX_PLACES).filter_map(|n| {
        let at = begin.checked_add(n * step.min(1 << 20))?;
        let at = if last - first > PAGE_SIZE {
            at.next_multiple_of(PAGE_SIZE)
        } else {
            at
        };
        (at <= last && !in_arena(at)).then_some(at)
    });
    for at in places {
        let page = at & !(PAGE_SIZE - 1);
        let len = (at + RAMP_LEN - page).next_multiple_of(PAGE_SIZE);
        // SAFETY: nothing else lies there; the code fits.
        unsafe {
            if map_free(page, len).is_err() {
                continue;
            }
            core::ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, code.len());
            if mprotect(page, len, PROT_READ | PROT_EXEC).is_ok() {
                return Some(at);
            }
            let _ = munmap(page, len);
        }
        return None;
    }
    None
}

/// Maps memory where none is.
unsafe fn map_free(at: usize, len: usize) -> Result<(), Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE takes nothing away from anybody.
    unsafe {
        let got = mmap(at, len, PROT_READ | PROT_WRITE, flags, -1, 0)?;
        if got == at {
            return Ok(());
        }
        // A kernel that does not know NOREPLACE took the address for a hint.
        munmap(got, len)?;
    }
    Err(Errno::EEXIST)
}

/// Has the site lead to `ramp`, which stands.
///
/// # Safety
/// The site's text is mapped, and nobody else changes it; a breakpoint there is stepped over.
pub unsafe fn lead_to(plan: &Plan, ramp: usize) {
    let Some(jump) = jump(plan.start, ramp) else {
        return;
    };
    let page = plan.start & !(PAGE_SIZE - 1);
    let text = PROT_READ | PROT_EXEC;
    // SAFETY: a page of text, which stays readable and executable throughout.
    unsafe {
        if thread::sync_core().is_err() || mprotect(page, PAGE_SIZE, text | PROT_WRITE).is_err() {
            return;
        }
        change(plan, &jump);
        // It stays writable where that is refused.
        let _ = mprotect(page, PAGE_SIZE, text);
    }
}

/// Writes the jump behind a breakpoint, and then its first byte.
unsafe fn change(plan: &Plan, jump: &[u8; JUMP_LEN]) {
    let put = |n: usize, byte: u8| {
        // SAFETY: a byte of the site, which the caller has made writable.
        let at = unsafe { AtomicU8::from_ptr((plan.start + n) as *mut u8) };
        at.store(byte, Ordering::SeqCst);
    };
    put(0, BREAKPOINT);
    // Half done, it works: who meets the breakpoint goes by the ramp.
    if thread::sync_core().is_err() {
        return;
    }
    // What is longer than the instruction is there already.
    for (n, byte) in jump.iter().enumerate().take(plan.len).skip(1) {
        put(n, *byte);
    }
    if thread::sync_core().is_err() {
        return;
    }
    let [first, ..] = jump;
    put(0, *first);
    // When it fails, a thread may meet the breakpoint for a moment longer.
    let _ = thread::sync_core();
}
