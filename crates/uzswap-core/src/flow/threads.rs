//! *What*: the fault handler of thread mode, and what becomes of a page that has no room.
//!
//! *Invariants*: runs with all signals blocked from its first instruction, and uses no thread-local
//! storage: it shares its creator's.
//! *Locking*: as any operation. *Context*: a thread of its own, started by the preload library.

use super::fault::{self, Fault};
use super::{drop, space};
use crate::masked::Masked;
use crate::page::{PAGE_SIZE, Page, PageRange};
use crate::parts::Parts;
use uzswap_group::group::FailureReason;
use uzswap_sync::primitive::Ordering::Relaxed;
use uzswap_sys::file::{self, PollFd};
use uzswap_sys::uffd::{Event, UffdMsg};
use uzswap_sys::{Errno, mem};

/// Messages read at once.
const NR_MSGS: usize = 16;

/// What becomes of a page for which there is no room under the limit.
#[derive(Clone, Copy, Debug)]
pub enum NoRoom {
    /// The process ends with status 125: its program knows nothing of a limit.
    End,
    /// This raises SIGBUS in the thread, whose id it is told, with the address and the limit that
    /// would do, bytes. If it cannot (`false`), the page is given up with what it held: every access
    /// to it ends in SIGBUS.
    Raise(fn(u32, usize, u64) -> bool),
}

/// Serves faults (thread mode) until the one that [`Parts::last_fault`] names: a flag would be seen
/// after the fault before, and leave the last one unserved.
pub(crate) fn serve_faults(parts: &Parts, masked: &Masked, no_room: NoRoom) {
    let Some(uffd) = parts.arena.uffd() else {
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
        let mut was_last = false;
        for msg in msgs.iter().take(nr) {
            if let Event::Pagefault { addr, thread, .. } = msg.event() {
                let page = addr & !(PAGE_SIZE - 1);
                serve_one(parts, masked, addr, thread, no_room);
                let _ = uffd.wake(page, PAGE_SIZE);
                was_last |= page == parts.last_fault.load(Relaxed);
            }
        }
        if was_last {
            return;
        }
    }
}

fn serve_one(parts: &Parts, masked: &Masked, addr: usize, thread: u32, no_room: NoRoom) {
    let base = addr & !(PAGE_SIZE - 1);
    let fault = Page::containing(addr).map_or(Fault::NotMapped, |page| {
        fault::serve_timed(parts, masked, page)
    });
    match fault {
        // Foreign: the program mapped over it after the fault.
        Fault::Resolved | Fault::Foreign => {}
        // The thread sleeps in the kernel; with nothing mapped there it gets its SIGSEGV.
        Fault::NotMapped => {
            if let Err(errno) = space::make_hole(parts, &mut parts.op(masked), base) {
                // It would fault for ever.
                let errno = errno.0.unsigned_abs();
                parts.account.die(FailureReason::Internal, errno, 0);
            }
        }
        Fault::Corrupt => give_up(parts, masked, base),
        Fault::OverLimit { needed_bytes } => match no_room {
            NoRoom::End => parts.account.die(FailureReason::OverLimit, 0, needed_bytes),
            NoRoom::Raise(raise) => {
                if !raise(thread, addr, needed_bytes) {
                    give_up(parts, masked, base);
                }
            }
        },
    }
}

/// Gives up a page and what it held: from now on every access to it ends in SIGBUS.
fn give_up(parts: &Parts, masked: &Masked, base: usize) {
    let mut op = parts.op(masked);
    // Foreign first: at no time does it read as zeroes.
    if space::foreign(parts, &mut op, base, PAGE_SIZE).is_err() {
        parts
            .account
            .die(FailureReason::Internal, Errno::ENOMEM.0.unsigned_abs(), 0);
    }
    if map_beyond_end(base).is_err() {
        // No descriptor left: SIGSEGV instead.
        // SAFETY: the page's data are lost, and nothing brings them in again.
        let _ = unsafe { mem::munmap(base, PAGE_SIZE) };
    }
    let _ = drop::drop_pages(parts, PageRange::covering(base, PAGE_SIZE));
}

/// Maps the first page of an empty file at `page`.
fn map_beyond_end(page: usize) -> Result<(), Errno> {
    let fd = file::memfd_create(c"uzswap-lost", file::MFD_CLOEXEC)?;
    let prot = mem::PROT_READ | mem::PROT_WRITE;
    let flags = mem::MAP_SHARED | mem::MAP_FIXED;
    // SAFETY: the page is the engine's own, and what it held is lost.
    let mapped = unsafe { mem::mmap(page, PAGE_SIZE, prot, flags, fd, 0) };
    let _ = file::close(fd);
    mapped.map(|_| ())
}
