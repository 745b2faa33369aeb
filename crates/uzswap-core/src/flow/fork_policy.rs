//! *What*: in a fork child, what the program asked not to be inherited goes.
//!
//! Of managed memory the region map says what that is. Of the program's own mappings the kernel
//! has decided already: such a mapping takes its policy along wherever it is moved, so the kernel
//! is asked what is there.
//!
//! *Invariants*: what is not there any more is not mapped in the region map either.
//! *Locking*: op → folios or the region map. *Context*: the fork child, alone.

use super::space;
use crate::arena::region::Flags;
use crate::masked::Masked;
use crate::op::OpGuard;
use crate::page::PAGE_SIZE;
use crate::parts::Parts;
use uzswap_sys::mem::{
    self, MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, MS_ASYNC, PROT_NONE,
};

/// Applies the policies of all that is mapped in the arena.
pub(crate) fn apply_fork_policies(parts: &Parts, masked: &Masked) {
    let regions = parts.arena.regions();
    let partition = parts.arena.partition();
    let mut at = partition.start();
    while let Some(region) = regions.next_in(at, partition.end() - at) {
        at = region.end;
        let (start, len) = (region.start, region.len());
        let mut op = parts.op(masked);
        if region.flags.contains(Flags::FOREIGN) {
            forget_absent(parts, &mut op, start, len);
        } else if region.flags.contains(Flags::DONT_FORK) {
            let _ = space::unmap(parts, &mut op, start, len);
        } else if region.flags.contains(Flags::WIPE_ON_FORK) {
            let _ = space::discard(parts, start, len);
        }
    }
}

/// Unmaps what the kernel has not given the child of a range of the program's own mappings.
fn forget_absent(parts: &Parts, op: &mut OpGuard<'_>, start: usize, len: usize) {
    // SAFETY: asks what is mapped, and does nothing else.
    if unsafe { mem::msync(start, len, MS_ASYNC) }.is_ok() {
        return;
    }
    if len == PAGE_SIZE || is_all_absent(start, len) {
        let _ = space::unmap(parts, op, start, len);
        return;
    }
    let half = (len / 2).next_multiple_of(PAGE_SIZE);
    forget_absent(parts, op, start, half);
    forget_absent(parts, op, start + half, len - half);
}

/// Whether nothing is mapped in a range; what is there then is to be mapped over.
fn is_all_absent(start: usize, len: usize) -> bool {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    // SAFETY: a fresh mapping where there is none.
    unsafe { mem::mmap(start, len, PROT_NONE, flags, -1, 0) }.is_ok()
}
