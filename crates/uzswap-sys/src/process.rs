//! *What*: a process beside this one: it shares the memory and nothing else. It is no thread of
//! this process and, where that can be had, no child either: nothing that looks at either sees it.
//! And how such processes are recognised.
//!
//! *Invariants*: the new process has a table of descriptors of its own, a copy of this one's. It
//! shares its creator's thread-local storage and must use none.
//! *Locking*: none. *Context*: [`spawn_beside`]: any, with all signals blocked; [`share_memory`]:
//! any; the rest: the new process.

use core::ffi::c_void;
use core::sync::atomic::{AtomicIsize, AtomicU32, Ordering};

use crate::file::{self, PollFd};
use crate::signal::{self, SigAction, SigSet};
use crate::syscall::{Result, addr, addr_mut, call2, call3, call4, call5, from_raw, int};
use crate::thread::{
    CLONE_CHILD_CLEARTID, CLONE_FILES, CLONE_PARENT_SETTID, CLONE_UNTRACED, CLONE_VM, getpid,
};
use crate::{Errno, arch, nr};

/// Waits for children that send no signal when they end.
const WCLONE: usize = 0x8000_0000;

/// What [`spawn_beside`] starts.
#[derive(Debug)]
pub struct Beside<'a> {
    /// The end of the new process's stack.
    pub stack_top: usize,
    /// The end of another, of a page or more, used until [`spawn_beside`] returns.
    pub helper_stack_top: usize,
    /// Where it starts. It ends when this returns.
    pub entry: extern "C" fn(*mut c_void),
    /// What `entry` is given.
    pub argument: *mut c_void,
    /// Its process id while it runs; 0 once it has left its stack for good, and
    /// [`thread::wait_exit`](crate::thread::wait_exit) returns.
    pub alive: &'a AtomicU32,
}

/// Starts a process that shares this one's memory. No thread appears here. It becomes an orphan at
/// once, so that no `wait` of the program's finds it; only in a process that orphans come to (an
/// init, a subreaper) it stays a child, whose end sends no signal and that `wait` passes over
/// unless asked for such children. A tracer of this process does not get to trace it.
///
/// # Errors
/// As clone(2). `EAGAIN`: no more processes are allowed.
///
/// # Safety
/// The stacks are writable memory that nobody else uses, never evicted, `stack_top`'s until `alive`
/// is 0; `alive` lives as long. `entry` uses no thread-local storage, calls no C library and does
/// not unwind. All signals are blocked on this thread.
pub unsafe fn spawn_beside(what: &Beside<'_>) -> Result<()> {
    if adopts_orphans() {
        // SAFETY: the caller's promise.
        return from_raw(unsafe { clone_beside(what) }).map(drop);
    }
    let helper = Helper {
        what,
        result: AtomicIsize::new(0),
        tid: AtomicU32::new(0),
    };
    // Shares the table of descriptors, so that it is copied once only.
    let flags = CLONE_VM | CLONE_FILES | CLONE_UNTRACED | CLONE_PARENT_SETTID;
    let argument = core::ptr::from_ref(&helper).cast_mut().cast();
    // SAFETY: as the caller's; `helper` outlives the process, which is waited for.
    let pid = from_raw(unsafe {
        let top = what.helper_stack_top;
        arch::thread::clone_thread(flags, top, helper.tid.as_ptr(), orphan, argument)
    })?;
    reap_beside(u32::try_from(pid).unwrap_or(0));
    from_raw(helper.result.load(Ordering::Acquire)).map(drop)
}

/// The process in between, whose end makes an orphan of the one that it starts.
struct Helper<'a> {
    what: &'a Beside<'a>,
    result: AtomicIsize,
    tid: AtomicU32,
}

extern "C" fn orphan(helper: *mut c_void) {
    // SAFETY: `spawn_beside` passes one, and waits.
    let helper = unsafe { &*helper.cast::<Helper<'_>>() };
    // SAFETY: the promise to `spawn_beside`.
    let result = unsafe { clone_beside(helper.what) };
    helper.result.store(result, Ordering::Release);
}

unsafe fn clone_beside(what: &Beside<'_>) -> isize {
    let flags = CLONE_VM | CLONE_UNTRACED | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    let (top, alive) = (what.stack_top, what.alive.as_ptr());
    // SAFETY: the promise to `spawn_beside`.
    unsafe { arch::thread::clone_thread(flags, top, alive, what.entry, what.argument) }
}

/// Whether processes that lost their parent become this one's children.
fn adopts_orphans() -> bool {
    const PR_GET_CHILD_SUBREAPER: usize = 37;
    let mut subreaper = 0_i32;
    // SAFETY: the kernel writes one int.
    let asked = unsafe {
        call5(
            nr::PRCTL,
            PR_GET_CHILD_SUBREAPER,
            addr_mut(&mut subreaper),
            0,
            0,
            0,
        )
    };
    getpid() == 1 || asked.is_err() || subreaper != 0
}

/// Waits for process `pid` of [`spawn_beside`], which is about to end, if it is a child.
pub fn reap_beside(pid: u32) {
    // SAFETY: no status is asked for. ECHILD: an orphan, or another thread waited for it.
    while pid != 0 && unsafe { call4(nr::WAIT4, pid as usize, 0, WCLONE, 0) } == Err(Errno::EINTR) {
    }
}

/// Ends a process of [`spawn_beside`] whose stack lies in `[addr, addr + len)`, and unmaps that:
/// what [`Beside::alive`] points at is not written to.
///
/// # Safety
/// Nobody else uses the memory, or waits for this process.
pub unsafe fn leave(addr: usize, len: usize) -> ! {
    // SAFETY: the caller's promise.
    unsafe { arch::thread::leave(addr, len) }
}

/// Ignores all signals, blocks none: those that are sent to this process leave nothing behind. Not
/// SIGKILL and SIGSTOP.
pub fn ignore_signals() {
    let ignore = SigAction {
        handler: signal::SIG_IGN,
        ..SigAction::DEFAULT
    };
    const LAST_SIGNAL: i32 = 64;
    for signal in 1..=LAST_SIGNAL {
        // SAFETY: no handler. SIGKILL and SIGSTOP answer EINVAL.
        let _ = unsafe { signal::sigaction(signal, Some(&ignore)) };
    }
    signal::set_mask(SigSet::EMPTY);
}

/// Leaves the process group of the creator: what is sent to that is not for us. Not its session: the
/// scheduler shares processors out among sessions first (`sched_autogroup_enabled`), so in one of its
/// own this thread would have as much of them as all of the program's together.
pub fn leave_group() {
    // SAFETY: touches nothing.
    let _ = unsafe { call2(nr::SETPGID, 0, 0) };
}

/// Closes all descriptors but those of `keep`, which is sorted; negative ones are none.
///
/// # Errors
/// `ENOSYS`: before Linux 5.9.
pub fn close_all_but(keep: &[i32]) -> Result<()> {
    let mut from = 0;
    for fd in keep.iter().filter_map(|fd| usize::try_from(*fd).ok()) {
        if fd > from {
            close_range(from, fd - 1)?;
        }
        from = fd + 1;
    }
    close_range(from, u32::MAX as usize)
}

fn close_range(first: usize, last: usize) -> Result<()> {
    // SAFETY: the table is this process's own, and nothing in it is used later.
    unsafe { call3(nr::CLOSE_RANGE, first, last, 0) }.map(drop)
}

/// Whether two processes share their memory, as after vfork; `None` if the kernel does not tell.
#[must_use]
pub fn share_memory(a: u32, b: u32) -> Option<bool> {
    const KCMP_VM: usize = 1;
    // SAFETY: compares two numbers of the kernel's; the unused arguments are zero.
    let order = unsafe { call5(nr::KCMP, a as usize, b as usize, KCMP_VM, 0, 0) };
    order.ok().map(|order| order == 0)
}

/// Ends this process by SIGKILL, whatever it is doing, when the last descriptor of the write end of
/// `pipe`, of which it has the read end, is closed. `false`: it is closed already, or this cannot
/// be had.
#[must_use]
pub fn die_with(pipe: i32) -> bool {
    const F_SETFL: i32 = 4;
    const F_SETOWN: i32 = 8;
    const F_SETSIG: i32 = 10;
    const O_ASYNC: usize = 0o2_0000;
    const SIGKILL: usize = 9;
    let pid = usize::try_from(getpid()).unwrap_or(0);
    let armed = file::fcntl(pipe, F_SETOWN, pid)
        .and_then(|_| file::fcntl(pipe, F_SETSIG, SIGKILL))
        .and_then(|_| file::fcntl(pipe, F_SETFL, O_ASYNC));
    let mut ends = [PollFd {
        fd: pipe,
        events: file::POLLIN,
        revents: 0,
    }];
    // Looked at after it is armed: a close before that is seen here.
    let closed = file::poll(&mut ends, Some(&crate::thread::Timespec::default()));
    armed.is_ok() && closed == Ok(0)
}

/// Schedules this thread as a batch job, on the processors that process `like` may use: it neither
/// preempts others when it wakes nor inherits a real-time priority or one thread's place.
pub fn run_as_batch(like: i32) {
    const SCHED_BATCH: usize = 3;
    let priority = 0_i32;
    // SAFETY: the kernel reads one int.
    let _ = unsafe { call3(nr::SCHED_SETSCHEDULER, 0, SCHED_BATCH, addr(&priority)) };
    let mut cpus = [0_u64; 16];
    let len = size_of_val(&cpus);
    // SAFETY: the kernel writes and reads `len` bytes at most.
    unsafe {
        if let Ok(len) = call3(nr::SCHED_GETAFFINITY, int(like), len, addr_mut(&mut cpus)) {
            let _ = call3(nr::SCHED_SETAFFINITY, 0, len, addr(&cpus));
        }
    }
}

/// Names this thread, as ps(1) shows it: 15 bytes at most.
pub fn set_name(name: &core::ffi::CStr) {
    const PR_SET_NAME: usize = 15;
    // SAFETY: the kernel reads up to the zero byte.
    let _ = unsafe { call5(nr::PRCTL, PR_SET_NAME, name.as_ptr() as usize, 0, 0, 0) };
}

/// Gives all capabilities up.
///
/// # Errors
/// Practically none.
pub fn drop_capabilities() -> Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let none = [0_u32; 6];
    // SAFETY: the kernel reads a header and two records of three words.
    unsafe { call2(nr::CAPSET, addr(&header), addr(&none)) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_shares_its_memory_with_itself_and_not_with_its_parent() {
        let own = getpid().unsigned_abs();
        // Forbidden in some containers: then it is not told.
        if let Some(shared) = share_memory(own, own) {
            assert!(shared);
            assert_ne!(
                share_memory(own, std::os::unix::process::parent_id()),
                Some(true)
            );
        }
    }
}
