//! *What*: counts what the program's threads wait for, as the kernel's PSI does: each moment of an
//! operation that they wait for is reclaim, swap, or the rest of bringing evicted pages in.
//!
//! *Invariants*: only operations that began by [`Op::begin_wait`](crate::op::Op::begin_wait) are
//! counted: faults and pins, not the reclaimer nor what `uzswap reclaim` and others ask for.
//! *Locking*: none. *Context*: signal, worker.

use crate::op::Op;
use crate::parts::Parts;
use uzswap_group::counters::add;

/// Counts an operation that a thread of the program has waited `ticks` for.
pub(crate) fn count_wait(parts: &Parts, op: &Op, ticks: u64) {
    let stalls = &parts.account.process().stalls;
    let reclaim = op.stalls.reclaim;
    let swap = op.stalls.write + op.window.waited;
    if op.stalls.loaded {
        let rest = ticks.saturating_sub(reclaim + swap);
        add(&stalls.decompress, rest);
    }
    if reclaim > 0 {
        add(&stalls.reclaim, reclaim);
    }
    if swap > 0 {
        add(&stalls.swap, swap);
    }
}
