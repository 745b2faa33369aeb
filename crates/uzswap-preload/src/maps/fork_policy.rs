//! *What*: what fork children get of a mapping, as the program has advised: noted for managed
//! memory, and passed on where such memory becomes the kernel's.
//!
//! *Invariants*: none of its own: of the kernel's mappings the kernel knows, in the child too.
//! *Locking*: the engine's. *Context*: the program's.

use uzswap_core::arena::region::Flags;
use uzswap_core::{ForkPolicy, Masked};
use uzswap_sys::Errno;
use uzswap_sys::mem::{self, MADV_DOFORK, MADV_DONTFORK, MADV_KEEPONFORK, MADV_WIPEONFORK};

use super::span::Span;
use crate::init::ENGINE;

/// What a region says, and the advice that says the same.
const POLICIES: [(Flags, i32); 2] = [
    (Flags::DONT_FORK, MADV_DONTFORK),
    (Flags::WIPE_ON_FORK, MADV_WIPEONFORK),
];

/// The advice by which memory gets the policy of `flags`.
fn advice_of(flags: Flags) -> impl Iterator<Item = i32> {
    let given = POLICIES
        .into_iter()
        .filter(move |(flag, _)| flags.contains(*flag));
    given.map(|(_, advice)| advice)
}

/// Notes `advice` about managed memory, if it is of this kind.
pub fn note(m: &Masked, part: Span, advice: i32) {
    let (policy, applies) = match advice {
        MADV_DONTFORK => (ForkPolicy::DontFork, true),
        MADV_DOFORK => (ForkPolicy::DontFork, false),
        MADV_WIPEONFORK => (ForkPolicy::Wipe, true),
        MADV_KEEPONFORK => (ForkPolicy::Wipe, false),
        _ => return,
    };
    ENGINE.fork_policy(m, part.addr, part.len, policy, applies);
}

/// Gives memory of the kernel's, private and anonymous, the policy of managed memory with `flags`.
///
/// # Errors
/// As madvise(2).
pub fn pass_on(flags: Flags, to: Span) -> Result<(), Errno> {
    // SAFETY: changes no contents, here.
    advice_of(flags).try_for_each(|advice| unsafe { mem::madvise(to.addr, to.len, advice) })
}

/// Gives managed memory anew the policy of `flags`.
pub fn restore(m: &Masked, flags: Flags, to: Span) {
    advice_of(flags).for_each(|advice| note(m, to, advice));
}
