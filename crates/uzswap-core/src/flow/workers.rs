//! *What*: starts, stops and reconfigures the accelerator's workers as the knob `accel` asks.
//!
//! A worker compresses with one codec. For another codec it stops, gets another compressor, and
//! starts again. The knob is read when room is made, so a process that never reclaims has no
//! workers.
//!
//! *Invariants*: as [`crate::store::workers`].
//! *Locking*: op; `following` is only tried. *Context*: signal, worker.

use super::codecs::{charge_part, charged_compressor, retire_compressor};
use super::reclaim::make_room;
use crate::accel::thread::{Contexts, STACK, WorkerThread};
use crate::op::{OpGuard, STORE_LEN};
use crate::page::{PAGE_SIZE, wide};
use crate::parts::Parts;
use crate::store::codec::BLOCK_BUFFERS;
use crate::store::workers::MAX_WORKERS;
use uzswap_compress::{Codec, Decompressor};
use uzswap_sync::primitive::Ordering::Relaxed;

/// Sets the workers up as the knobs ask for.
#[inline]
pub(crate) fn follow_workers(parts: &Parts, op: &mut OpGuard<'_>) {
    let knobs = parts.account.knobs();
    let asked = knobs.accel.load(Relaxed) << 32 | knobs.compressor.load(Relaxed);
    if asked != parts.store.workers().asked() {
        change_workers(parts, op, asked);
    }
}

#[cold]
fn change_workers(parts: &Parts, op: &mut OpGuard<'_>, asked: u64) {
    let wanted = parts.store.workers().wanted(parts.account.knobs());
    let Some(codec) = parts.account.knobs().codec() else {
        return;
    };
    // A vfork child has no business to start threads here.
    if !parts.account.is_own_process() {
        return;
    }
    let Some(_following) = parts.store.workers().try_follow() else {
        return;
    };
    let mut done = true;
    if wanted > 0 || parts.store.has_queues() {
        charge_part(parts, op, BLOCK_BUFFERS, STORE_LEN - PAGE_SIZE);
    }
    for at in 0..MAX_WORKERS {
        if at < wanted {
            done &= bring_up(parts, op, at, codec);
        } else if let Some(worker) = parts.store.workers().all().nth(at) {
            worker.close();
        }
    }
    if done {
        parts.store.workers().set_asked(asked);
    }
}

/// Worker `at` is there, and compresses with `codec`. `false`: not yet. If there is no room for it,
/// or the process may have no more threads, there is none, and it is not tried again.
fn bring_up(parts: &Parts, op: &mut OpGuard<'_>, at: usize, codec: Codec) -> bool {
    let worker = parts.store.workers().all().nth(at);
    let Some(worker) = worker.or_else(|| make_worker(parts, op, at, codec)) else {
        return true;
    };
    if worker.codec() != Some(codec) {
        worker.close();
        if !worker.is_away() {
            return false;
        }
        if !change_worker(parts, op, worker, codec) {
            return true;
        }
    }
    // SAFETY: whoever holds an operation has all signals blocked; we hold `following`, and are no
    // vfork child.
    !unsafe { worker.start() } || worker.open()
}

fn make_worker(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    at: usize,
    codec: Codec,
) -> Option<&'static WorkerThread> {
    const CONTEXT_AT: usize = size_of::<WorkerThread>().next_multiple_of(PAGE_SIZE);
    let decoder = Decompressor::required_size();
    let stack_at = CONTEXT_AT + decoder.next_multiple_of(PAGE_SIZE);
    // Of the stack as little is counted as of the program's own.
    let pages = wide(stack_at / PAGE_SIZE);
    let compressor = charged_compressor(parts, op, codec, PAGE_SIZE)?;
    if !make_room(parts, op, pages) {
        retire_compressor(parts, op, compressor);
        return None;
    }
    let Ok(memory) = parts.account.memory().reserve(stack_at + STACK) else {
        op.unreserve(pages);
        retire_compressor(parts, op, compressor);
        return None;
    };
    parts.account.add_metadata(pages);
    // SAFETY: the parts of `memory` do not overlap, live for good, and are aligned to pages.
    let worker = unsafe {
        let decompressor = Decompressor::init(memory.add(CONTEXT_AT), decoder).ok()?;
        let contexts = Contexts {
            compressor,
            decompressor,
        };
        let worker = memory.cast::<WorkerThread>();
        worker.write(WorkerThread::new(
            contexts,
            memory.addr() + stack_at + STACK,
        ));
        &*worker
    };
    parts.store.add_worker(at, worker).then_some(worker)
}

/// Gives `worker`, which is away, another compressor. `false`: there is no room for it.
fn change_worker(parts: &Parts, op: &mut OpGuard<'_>, worker: &WorkerThread, codec: Codec) -> bool {
    let Some(new) = charged_compressor(parts, op, codec, PAGE_SIZE) else {
        return false;
    };
    // SAFETY: we hold `following`, without which nobody opens it either.
    let old = unsafe { worker.replace(new) };
    retire_compressor(parts, op, old);
    true
}
