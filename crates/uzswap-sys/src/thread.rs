//! *What*: the calling thread and process, clocks, and threads outside the C library.
//! *Invariants*: a thread from [`spawn_raw`] has no TLS of its own (it shares its creator's) and
//! runs only code that uses none: this workspace's no_std crates.
//! *Locking*: none. *Context*: any; [`spawn_raw`] with all signals blocked.

use crate::syscall::{Result, addr, addr_mut, call0, call1, call2, call3, from_raw, int, to_int};
use crate::{Errno, arch, file, futex, nr};
use core::sync::atomic::{AtomicU32, Ordering};

/// The kernel's `struct timespec`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timespec {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds, below 10⁹.
    pub nsec: i64,
}

impl Timespec {
    /// From nanoseconds.
    #[must_use]
    #[expect(clippy::cast_possible_wrap, reason = "u64::MAX ns is 1.8e10 s")]
    pub const fn from_nanos(ns: u64) -> Self {
        Timespec {
            sec: (ns / 1_000_000_000) as i64,
            nsec: (ns % 1_000_000_000) as i64,
        }
    }

    /// In nanoseconds; `None`: it is no time that the kernel takes, or longer than a `u64` says.
    #[must_use]
    pub fn checked_nanos(self) -> Option<u64> {
        let sec = u64::try_from(self.sec).ok()?.checked_mul(1_000_000_000)?;
        let nsec = u64::try_from(self.nsec)
            .ok()
            .filter(|n| *n < 1_000_000_000)?;
        sec.checked_add(nsec)
    }

    /// In nanoseconds; of a moment, which is not negative.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.sec.cast_unsigned() * 1_000_000_000 + self.nsec.cast_unsigned()
    }
}

/// This thread's id, unique in the system.
#[must_use]
pub fn gettid() -> i32 {
    // SAFETY: touches nothing; cannot fail.
    unsafe { call0(nr::GETTID) }.map_or(0, to_int)
}

/// Has every thread that shares this memory execute a serialising instruction before it goes on:
/// code that was changed before is what they execute after.
///
/// # Errors
/// `EINVAL`: the kernel cannot.
pub fn sync_core() -> Result<()> {
    const PRIVATE_EXPEDITED_SYNC_CORE: usize = 1 << 5;
    const REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: usize = 1 << 6;
    for command in [
        REGISTER_PRIVATE_EXPEDITED_SYNC_CORE,
        PRIVATE_EXPEDITED_SYNC_CORE,
    ] {
        // SAFETY: touches no memory.
        unsafe { call2(nr::MEMBARRIER, command, 0) }?;
    }
    Ok(())
}

/// This process's id.
#[must_use]
pub fn getpid() -> i32 {
    // SAFETY: touches nothing; cannot fail.
    unsafe { call0(nr::GETPID) }.map_or(0, to_int)
}

/// The CPU this thread runs on; a hint, old as soon as it is read. No system call on a normal
/// kernel: see [`arch::current_cpu`].
#[inline]
#[must_use]
pub fn sched_getcpu() -> u32 {
    arch::current_cpu().unwrap_or_else(getcpu_syscall)
}

#[cold]
fn getcpu_syscall() -> u32 {
    let mut cpu = 0u32;
    // SAFETY: the kernel writes one u32; the other pointers are null.
    let _ = unsafe { call3(nr::GETCPU, addr_mut(&mut cpu), 0, 0) };
    cpu
}

/// `sched_yield(2)`.
pub fn sched_yield() {
    // SAFETY: touches nothing; cannot fail.
    let _ = unsafe { call0(nr::SCHED_YIELD) };
}

/// Nanoseconds of `CLOCK_MONOTONIC`, by a real system call (100-150 ns; the vDSO belongs to the C
/// library). 0 if a sandbox refuses.
#[must_use]
pub fn monotonic_ns() -> u64 {
    const CLOCK_MONOTONIC: usize = 1;
    clock_ns(CLOCK_MONOTONIC)
}

/// Nanoseconds of CPU time that the whole process used.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    const CLOCK_PROCESS_CPUTIME_ID: usize = 2;
    clock_ns(CLOCK_PROCESS_CPUTIME_ID)
}

/// Nanoseconds of CPU time that the calling thread used.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    const CLOCK_THREAD_CPUTIME_ID: usize = 3;
    clock_ns(CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: usize) -> u64 {
    let mut now = Timespec::default();
    // SAFETY: the kernel writes one timespec.
    let _ = unsafe { call2(nr::CLOCK_GETTIME, clock, addr_mut(&mut now)) };
    now.nanos()
}

/// Sleeps `ns` nanoseconds, or until a signal.
///
/// # Errors
/// `EINTR`.
pub fn nanosleep(ns: u64) -> Result<()> {
    let time = Timespec::from_nanos(ns);
    // SAFETY: the kernel reads one timespec.
    unsafe { call2(nr::NANOSLEEP, addr(&time), 0) }.map(drop)
}

/// Threads in this process right now, exiting ones not counted: link count of `/proc/self/task`
/// less two. `None` without /proc.
#[must_use]
pub fn nr_threads() -> Option<u64> {
    let stat = file::fstatat(file::AT_FDCWD, c"/proc/self/task", 0).ok()?;
    stat.st_nlink.checked_sub(2).filter(|&nr| nr > 0)
}

/// Ends the process at once, all threads: no exit handlers, no flushing.
pub fn exit_group(code: i32) -> ! {
    loop {
        // SAFETY: nothing runs after it.
        let _ = unsafe { call1(nr::EXIT_GROUP, int(code)) };
    }
}

/// See clone(2).
pub const CLONE_VM: usize = 0x100;
const CLONE_FS: usize = 0x200;
/// See clone(2).
pub const CLONE_FILES: usize = 0x400;
const CLONE_SIGHAND: usize = 0x800;
/// See clone(2).
pub const CLONE_VFORK: usize = 0x4000;
/// See clone(2).
pub const CLONE_THREAD: usize = 0x1_0000;
const CLONE_SYSVSEM: usize = 0x4_0000;
pub(crate) const CLONE_PARENT_SETTID: usize = 0x10_0000;
/// See clone(2).
pub const CLONE_CHILD_CLEARTID: usize = 0x20_0000;
pub(crate) const CLONE_UNTRACED: usize = 0x80_0000;

/// Starts a thread of this process that the C library does not know of: no pthread, no TLS, no
/// stack guard but the caller's. It inherits the signal mask: block all signals around this call,
/// or the program's handlers may run on it. Returns its thread id.
///
/// `alive` holds the thread id while the thread runs and becomes 0 once it has left its stack for
/// good ([`wait_exit`]). The thread ends when `entry` returns.
///
/// # Errors
/// `EAGAIN`: process limits. `EPERM`: a seccomp policy.
///
/// # Safety
/// `stack_top` is the end of writable memory that nobody else uses until `alive` is 0, and that is
/// never evicted; `entry` uses no thread-local storage, calls no C library, and does not unwind.
pub unsafe fn spawn_raw(
    stack_top: usize,
    entry: extern "C" fn(*mut core::ffi::c_void),
    arg: *mut core::ffi::c_void,
    alive: &'static AtomicU32,
) -> Result<i32> {
    let flags = CLONE_VM
        | CLONE_FS
        | CLONE_FILES
        | CLONE_SIGHAND
        | CLONE_THREAD
        | CLONE_SYSVSEM
        | CLONE_PARENT_SETTID
        | CLONE_CHILD_CLEARTID;
    // SAFETY: the stack and the entry are the caller's promise; `alive` lives for ever.
    let ret = unsafe { arch::thread::clone_thread(flags, stack_top, alive.as_ptr(), entry, arg) };
    from_raw(ret).map(to_int)
}

/// Calls `job` with `argument` on another stack, which grows down from `top`, and returns when it
/// does.
///
/// # Safety
/// The stack is writable memory that nobody else uses meanwhile, and large enough; `job` does not
/// unwind, and its argument is what it expects.
pub unsafe fn call_on_stack(
    top: usize,
    job: unsafe extern "C" fn(*mut core::ffi::c_void),
    argument: *mut core::ffi::c_void,
) {
    // SAFETY: the caller's promise.
    unsafe { arch::thread::call_on_stack(top, job, argument) }
}

/// Waits until a thread of [`spawn_raw`], or a process of
/// [`spawn_beside`](crate::process::spawn_beside), is gone and its stack is free.
pub fn wait_exit(alive: &AtomicU32) {
    loop {
        // Acquire: all that the thread did is visible; pairs with the kernel's store at exit.
        let tid = alive.load(Ordering::Acquire);
        if tid == 0 {
            return;
        }
        // The kernel wakes with the shared key; a changed word or a signal looks again.
        let _: core::result::Result<(), Errno> = futex::wait_shared(alive, tid, None);
    }
}
