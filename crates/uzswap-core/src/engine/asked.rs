//! *What*: what `uzswap reclaim`, `uzswap set` and `uzswap swapoff` ask of a process: see [`uzswap_group::request`].
//!
//! *Invariants*: a request ends: by what was asked, or by [`MAX_RECLAIM_RETRIES`] attempts in a row that
//! moved nothing. *Locking*: as any operation. *Context*: a thread of its own, or the signal.

use super::reclaim::MAX_RECLAIM_RETRIES;
use super::swap::Swap;
use super::writeback::Stuck;
use super::{Engine, Parts};
use crate::arena::{PAGE_SIZE, narrow, wide};
use crate::masked::Masked;
use crate::slot::{BATCH_PAGES, RESERVE_PAGES, SLACK_PAGES};
use uzswap_group::request::RequestKind;
use uzswap_sync::primitive::Ordering::Relaxed;
use uzswap_sys::{futex, thread};

impl Engine {
    /// Does what this process is asked, and answers.
    pub fn serve_request(&self, masked: &Masked) {
        let Some(parts) = self.parts() else { return };
        let request = &parts.process().request;
        let wanted = request.wanted.load(Relaxed);
        let before = parts.charge.used();
        let done = match request.what.load(Relaxed) {
            RequestKind::WriteBack => parts.write_back_bytes(masked, wanted),
            RequestKind::ComeDown => parts.come_down(masked),
            RequestKind::SwapOff => parts.swap_off(masked, narrow(wanted)),
            RequestKind::Evict => parts.evict_bytes(masked, wanted),
        };
        let freed = before.saturating_sub(parts.charge.used());
        request.done.store(done, Relaxed);
        request.freed.store(freed * wide(PAGE_SIZE), Relaxed);
        request
            .over
            .store(parts.charge.over() * wide(PAGE_SIZE), Relaxed);
        request.finish();
        let _ = futex::wake_shared(request.door.as_futex(), u32::MAX);
    }
}

impl Parts {
    /// Evicts `wanted` bytes of resident memory, the coldest first. Returns how many it were.
    fn evict_bytes(&self, masked: &Masked, wanted: u64) -> u64 {
        let mut done = 0;
        let mut failures = 0;
        while done < wanted && failures < MAX_RECLAIM_RETRIES {
            let pages = (wanted - done).div_ceil(wide(PAGE_SIZE));
            // A slot for a batch: faults and fork do not wait for the rest.
            let mut slot = self.slot(masked);
            let dropped = self.reclaim_batch(&mut slot, narrow(pages).min(BATCH_PAGES));
            slot.reserve.shrink_to(RESERVE_PAGES);
            drop(slot);
            done += wide(dropped * PAGE_SIZE);
            failures = if dropped > 0 { 0 } else { failures + 1 };
            if dropped == 0 {
                thread::sched_yield();
            }
        }
        done
    }

    /// Frees until no more is charged than the limit allows. Returns the bytes freed.
    fn come_down(&self, masked: &Masked) -> u64 {
        let first = self.charge.over();
        let mut least = first;
        let mut failures = 0;
        while least > 0 && failures < MAX_RECLAIM_RETRIES {
            let mut slot = self.slot(masked);
            self.follow_compressor(&mut slot);
            let aim = narrow(least).min(BATCH_PAGES);
            if !self.free_some(&mut slot, aim, failures > 0) {
                self.try_harder(&mut slot);
            }
            slot.reserve.shrink_to(RESERVE_PAGES);
            drop(slot);
            // The program goes on meanwhile: only what was never reached before is progress.
            let over = self.charge.over();
            failures = if over < least { 0 } else { failures + 1 };
            least = least.min(over);
        }
        self.publish_sizes();
        (first - least) * wide(PAGE_SIZE)
    }

    /// Writes `wanted` bytes of what is stored to swap, the coldest first. Returns how many it were.
    fn write_back_bytes(&self, masked: &Masked, wanted: u64) -> u64 {
        for device in self.swap.iter().flat_map(Swap::devices) {
            device.patience.reset();
        }
        let mut done = 0;
        let mut failures = 0;
        while done < wanted && failures < MAX_RECLAIM_RETRIES {
            let mut slot = self.slot(masked);
            match self.write_back(&mut slot) {
                Ok(moved) => {
                    done += moved.bytes;
                    failures = 0;
                }
                Err(Stuck::Raced) => failures += 1,
                Err(_) => break,
            }
            slot.reserve.shrink_to(RESERVE_PAGES + SLACK_PAGES);
        }
        self.publish_sizes();
        done
    }
}
