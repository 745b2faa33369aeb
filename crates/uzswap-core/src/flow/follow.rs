//! *What*: applies knobs that change while the program runs: codecs, blocks, the accelerator's
//! workers.
//!
//! *Invariants*: knobs are read when room is made, so a process that never reclaims pays nothing.
//! *Locking*: as reclaim. *Context*: signal, worker.

use super::codecs::follow_compressor;
use super::workers::follow_workers;
use crate::op::OpGuard;
use crate::parts::Parts;

/// Takes up what the group asks for now.
#[inline]
pub(crate) fn follow_knobs(parts: &Parts, op: &mut OpGuard<'_>) {
    follow_compressor(parts, op);
    follow_workers(parts, op);
}
