//! *What*: brk(2) in the arena: a part of it is set aside at the first call, and grows upwards as
//! the program asks.
//!
//! *Invariants*: what is below the break is readable and writable; the rest of the part is mapped
//! without access, so that nothing else is put there.
//! *Locking*: one lock, held over the engine's calls and across a fork. *Context*: signal.

use uzswap_core::{ARENA_LEN, Masked};
use uzswap_sync::lock::{Lock, LockGuard};
use uzswap_sys::PAGE_SIZE;
use uzswap_sys::mem::{PROT_READ, PROT_WRITE};

use crate::init::ENGINE;

/// Bytes set aside.
const MOST: usize = ARENA_LEN / 64;

/// The break.
pub struct Break {
    /// Where it began; 0 before the first call.
    start: usize,
    /// Where it is.
    now: usize,
}

static BREAK: Lock<Break> = Lock::new(Break { start: 0, now: 0 });

/// Locks the break, for a fork.
pub fn hold() -> LockGuard<'static, Break> {
    BREAK.lock()
}

/// `brk(2)` as the kernel has it: returns the break, which did not move if it could not.
pub fn brk(m: &Masked, to: usize) -> usize {
    let mut at = BREAK.lock();
    if at.start == 0 {
        let Ok(start) = ENGINE.map(m, MOST, 0, 0) else {
            return 0;
        };
        (at.start, at.now) = (start, start);
    }
    if to < at.start || to > at.start + MOST {
        return at.now;
    }
    let (mapped, wanted) = (
        at.now.next_multiple_of(PAGE_SIZE),
        to.next_multiple_of(PAGE_SIZE),
    );
    let access = (PROT_READ | PROT_WRITE).unsigned_abs();
    let done = if wanted > mapped {
        ENGINE.map_fixed(m, mapped, wanted - mapped, access)
    } else if wanted < mapped {
        ENGINE.map_fixed(m, wanted, mapped - wanted, 0)
    } else {
        Ok(())
    };
    if done.is_ok() {
        at.now = to;
    }
    at.now
}
