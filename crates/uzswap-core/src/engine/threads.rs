//! *What*: the loops of the engine's own threads: the fault handler of thread mode and the
//! background reclaimer.
//!
//! *Invariants*: both run with all signals blocked from their first instruction. They use no
//! thread-local storage: they share their creator's.
//! *Locking*: as any operation. *Context*: threads of their own, started by the preload library.

use super::fault::Fault;
use super::{Engine, Parts};
use crate::arena::{PAGE_SIZE, PageRange, wide};
use crate::masked::Masked;
use crate::slot::RESERVE_PAGES;
use uzswap_group::counters::add;
use uzswap_group::group::FailureReason;
use uzswap_sync::primitive::Ordering;
use uzswap_sys::file::{self, PollFd};
use uzswap_sys::uffd::{Event, UffdMsg};
use uzswap_sys::{Errno, futex, mem};

/// Messages read at once.
const NR_MSGS: usize = 16;

impl Engine {
    /// Serves faults for as long as the process lives (thread mode).
    pub fn serve_faults(&self, masked: &Masked) {
        let Some(parts) = self.parts() else { return };
        let Some(uffd) = parts.mapping.uffd() else {
            return;
        };
        let mut msgs = [UffdMsg::default(); NR_MSGS];
        loop {
            let mut fds = [PollFd {
                fd: uffd.0,
                events: file::POLLIN,
                revents: 0,
            }];
            let _ = file::poll(&mut fds, None);
            let Ok(nr) = uffd.read_events(&mut msgs) else {
                continue;
            };
            for msg in msgs.iter().take(nr) {
                if let Event::Pagefault { addr, .. } = msg.event() {
                    self.serve_one(parts, masked, addr);
                    let _ = uffd.wake(addr & !(PAGE_SIZE - 1), PAGE_SIZE);
                }
            }
        }
    }

    fn serve_one(&self, parts: &Parts, masked: &Masked, addr: usize) {
        let page = addr & !(PAGE_SIZE - 1);
        match self.fault(masked, addr) {
            // The latter came to be after the fault.
            Fault::Resolved | Fault::Foreign => {}
            // The thread sleeps in the kernel; with nothing mapped there it gets its SIGSEGV.
            Fault::NotMapped => {
                // SAFETY: nothing that the program may use is there.
                let _ = unsafe { mem::munmap(page, PAGE_SIZE) };
                let _ = self.foreign(masked, page, PAGE_SIZE);
            }
            Fault::Corrupt => self.give_up(parts, masked, page),
            Fault::OverLimit { needed_bytes } => {
                parts.die(FailureReason::OverLimit, 0, needed_bytes);
            }
        }
    }

    /// A page whose contents are lost: from now on every access to it ends in SIGBUS.
    fn give_up(&self, parts: &Parts, masked: &Masked, page: usize) {
        // Foreign first: at no time does it read as zeroes.
        if self.foreign(masked, page, PAGE_SIZE).is_err() {
            parts.die(FailureReason::Internal, Errno::ENOMEM.0.unsigned_abs(), 0);
        }
        if map_beyond_end(page).is_err() {
            // No descriptor to be had: SIGSEGV then.
            // SAFETY: the page's data are lost, and nothing brings them in again.
            let _ = unsafe { mem::munmap(page, PAGE_SIZE) };
        }
        let _slot = parts.slot(masked);
        let _ = parts.drop_pages(PageRange::covering(page, PAGE_SIZE));
    }

    /// Keeps room free for as long as the process lives, asleep while there is enough.
    pub fn reclaim_in_background(&self, masked: &Masked) {
        let Some(parts) = self.parts() else { return };
        loop {
            while parts.kick.swap(0, Ordering::Acquire) == 0 {
                let _ = futex::wait(&parts.kick, 0, None);
            }
            while parts.charge.room() < parts.low_water() * 2 {
                let mut slot = parts.slot(masked);
                parts.follow_compressor(&mut slot);
                let freed = parts.reclaim_batch(&mut slot, 64);
                slot.reserve.shrink_to(RESERVE_PAGES);
                add(&parts.counters().reclaim_background, 1);
                if freed == 0 {
                    break;
                }
            }
        }
    }

    /// Ends the process because its data do not fit the limit.
    pub fn end_over_limit(&self, needed_bytes: u64) -> ! {
        match self.parts() {
            Some(parts) => parts.die(
                FailureReason::OverLimit,
                0,
                needed_bytes.max(parts.need_least()),
            ),
            None => uzswap_sys::thread::exit_group(125),
        }
    }
}

/// Maps the first page of an empty file at `page`.
fn map_beyond_end(page: usize) -> Result<(), Errno> {
    let fd = file::memfd_create(c"uzswap-lost", file::MFD_CLOEXEC)?;
    let prot = mem::PROT_READ | mem::PROT_WRITE;
    let flags = mem::MAP_SHARED | mem::MAP_FIXED;
    // SAFETY: the page is the engine's own, and what it held is lost.
    let mapped = unsafe { mem::mmap(page, PAGE_SIZE, prot, flags, fd, 0) };
    let _ = file::close(fd);
    mapped.map(drop)
}

impl Parts {
    /// Wakes the background thread.
    pub(crate) fn kick_background(&self) {
        if self.kick.swap(1, Ordering::Release) == 0 {
            let _ = futex::wake(&self.kick, 1);
        }
    }

    /// Bytes that everything charged now takes.
    fn need_least(&self) -> u64 {
        self.charge.used() * wide(PAGE_SIZE)
    }
}
