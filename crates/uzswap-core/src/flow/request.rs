//! *What*: serves `uzswap reclaim`, `uzswap set` and `uzswap swapoff` in a process, and what others
//! ask of one that has no reclaimer: see [`uzswap_group::request`].
//!
//! *Invariants*: a request ends: when it is fulfilled, or after [`MAX_RECLAIM_RETRIES`] attempts in
//! a row without progress.
//! *Locking*: as any operation. *Context*: a thread of its own, or the signal.

use super::writeback::WritebackError;
use super::{evict, follow, give_up, reclaim, reclaimer, shrink, sizes, swapoff};
use crate::backing::device::MAX_RECLAIM_RETRIES;
use crate::masked::Masked;
use crate::op::{RESERVE_PAGES, SLACK_PAGES};
use crate::page::batch::BATCH_PAGES;
use crate::page::lru::Wanted;
use crate::page::{PAGE_SIZE, narrow, wide};
use crate::parts::Parts;
use uzswap_group::request::{Request, RequestKind};
use uzswap_sync::primitive::Ordering::Relaxed;
use uzswap_sys::{futex, thread};

/// Does what this process is asked, and answers.
pub(crate) fn serve(parts: &Parts, masked: &Masked) {
    let request = &parts.account.process().request;
    let charge = parts.account.charge();
    let wanted = request.wanted.load(Relaxed);
    let before = charge.used();
    let done = match request.what.load(Relaxed) {
        RequestKind::WriteBack => write_back_bytes(parts, masked, wanted),
        RequestKind::ComeDown => come_down(parts, masked, wanted),
        RequestKind::SwapOff => swapoff::swap_off(parts, masked, narrow(wanted)),
        RequestKind::Evict => evict_bytes(parts, masked, wanted, request.before.load(Relaxed)),
        RequestKind::GiveUp => {
            give_up::answer(parts, masked);
            0
        }
    };
    reclaimer::note_eviction(parts);
    let freed = before.saturating_sub(charge.used());
    request.done.store(done, Relaxed);
    request.freed.store(freed * wide(PAGE_SIZE), Relaxed);
    finish(request);
}

/// Has the reclaimer do what is asked, if it is its work. `false`: [`serve`] does it.
pub(crate) fn serve_beside(parts: &Parts) -> bool {
    let request = &parts.account.process().request;
    let served =
        request.what.load(Relaxed) == RequestKind::GiveUp && reclaimer::answer_others(parts);
    if served {
        finish(request);
    }
    served
}

fn finish(request: &Request) {
    request.finish();
    let _ = futex::wake_shared(request.door.as_futex(), u32::MAX);
}

/// Evicts `wanted` bytes of resident memory, the coldest first, as long as that was put on its list
/// before `before`: a batch's first folio tells. Returns how many it were.
fn evict_bytes(parts: &Parts, masked: &Masked, wanted: u64, before: u64) -> u64 {
    let coldest = &parts.account.process().ask.coldest;
    let mut done = 0;
    let mut failures = 0;
    while done < wanted && failures < MAX_RECLAIM_RETRIES && coldest.load(Relaxed) <= before {
        let pages = (wanted - done).div_ceil(wide(PAGE_SIZE));
        // One operation a batch: faults and fork do not wait for the rest.
        let mut op = parts.op(masked);
        let wanted = Wanted::about(narrow(pages).min(BATCH_PAGES));
        let dropped = evict::reclaim_batch(parts, &mut op, wanted);
        op.reserve.shrink_to(RESERVE_PAGES);
        drop(op);
        done += wide(dropped * PAGE_SIZE);
        failures = if dropped > 0 { 0 } else { failures + 1 };
        if dropped == 0 {
            thread::sched_yield();
        }
    }
    done
}

/// Frees `wanted` bytes, this process's part, as long as more is charged than the limits allow.
/// Returns the bytes freed.
fn come_down(parts: &Parts, masked: &Masked, wanted: u64) -> u64 {
    let charge = parts.account.charge();
    let first = charge.used();
    let goal = first.saturating_sub(wanted.div_ceil(wide(PAGE_SIZE)));
    let mut least = first;
    let mut failures = 0;
    while least > goal && charge.over() > 0 && failures < MAX_RECLAIM_RETRIES {
        let mut op = parts.op(masked);
        follow::follow_knobs(parts, &mut op);
        let target = narrow(least - goal).min(BATCH_PAGES);
        if !reclaim::reclaim_or_write_back(parts, &mut op, Wanted::about(target), failures > 0) {
            reclaim::compact_and_yield(parts, &mut op);
        }
        op.reserve.shrink_to(RESERVE_PAGES);
        drop(op);
        // The program goes on meanwhile: only what was never reached before is progress.
        let used = charge.used();
        failures = if used < least { 0 } else { failures + 1 };
        least = least.min(used);
    }
    charge.settle();
    sizes::publish_sizes(parts);
    (first - least) * wide(PAGE_SIZE)
}

/// Writes `wanted` bytes of what is stored to swap, the coldest first. Returns how many it were.
fn write_back_bytes(parts: &Parts, masked: &Masked, wanted: u64) -> u64 {
    let backing = parts.backing.iter();
    for device in backing.flat_map(|backing| backing.devices().iter()) {
        device.backoff.reset();
    }
    let mut done = 0;
    let mut failures = 0;
    while done < wanted && failures < MAX_RECLAIM_RETRIES {
        let mut op = parts.op(masked);
        match shrink::write_back(parts, &mut op) {
            Ok(moved) => {
                done += moved.bytes;
                failures = 0;
            }
            Err(WritebackError::Raced) => failures += 1,
            Err(_) => break,
        }
        op.reserve.shrink_to(RESERVE_PAGES + SLACK_PAGES);
    }
    sizes::publish_sizes(parts);
    done
}
