//! *What*: one *handler stack* a thread: a guard page, the alternate stack that our handlers run
//! on, and above it the record of what the guard keeps for the thread. All handler stacks lie in
//! one fixed range, so a handler finds its thread's record from the stack pointer: no thread-local
//! storage.
//!
//! *Invariants*
//! - [`TIDS`]`[n]` is 0 (free), [`CLAIMED`] (a thread is being created), or the id of the thread of
//!   handler stack `n`. Only that thread, or a thread that found it dead, touches the stack.
//! - The kernel's alternate stack of a thread is always its handler stack. What the program sets
//!   with `sigaltstack` is kept in the record, and the program's handlers run there
//!   ([`crate::signals::deliver`]).
//! - A thread that the C library did not start (raw clone) gets its stack at its first signal.
//! - Handler stacks are never in the arena, and never unmapped: a dead thread's is used again.
//!
//! *Locking*: stacks are claimed by compare-and-swap on [`TIDS`]; the record needs no lock.
//! *Context*: signal, init, and the start of every thread.

#[cfg(not(feature = "loader"))]
pub mod exports;

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use uzswap_core::masked::SwitchedFn;
use uzswap_core::{Masked, Pin, arena_part};
use uzswap_sys::mem::{
    IoVec, MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, PROT_READ,
    PROT_WRITE, UIO_MAXIOV, mmap, mprotect,
};
use uzswap_sys::signal::{self, SigInfo, SigSet, SigStack, UContext, tgkill};
use uzswap_sys::thread::Timespec;
use uzswap_sys::{Errno, PAGE_SIZE, thread};

use crate::guard::frame::Frame;
use crate::guard::stub;
use crate::init::ENGINE;

/// First address of the handler stacks.
pub const STACKS: usize = 0x0ffe_0000_0000;
/// Bytes of each: guard page, stack, record.
pub const STACK_LEN: usize = 256 << 10;
/// Threads that can have one at once.
pub const NR_STACKS: usize = 1 << 14;
/// Bytes of all of them.
pub const STACKS_LEN: usize = STACK_LEN * NR_STACKS;
/// Bytes at the top that hold the record.
const RECORD_LEN: usize = 96 << 10;
/// Pins that one call can hold.
pub const NR_PINS: usize = 2048;

const _: () = assert!(STACKS + STACKS_LEN <= stub::STUB, "the stub page is above");
const _: () = assert!(size_of::<Record>() <= RECORD_LEN);

/// A handler stack whose thread is being created.
const CLAIMED: u32 = u32::MAX;

static TIDS: [AtomicU32; NR_STACKS] = [const { AtomicU32::new(0) }; NR_STACKS];
/// Handler stacks from this number on have never been claimed.
static HIGH_WATER: AtomicUsize = AtomicUsize::new(0);

/// What the guard keeps for a thread. Zeroed memory is a fresh record but for `altstack`.
#[repr(C)]
pub struct Record {
    /// The call being issued for the thread, if any.
    pub frame: Frame,
    /// The alternate stack that the program set.
    pub altstack: SigStack,
    /// The signals of ours that the program believes blocked.
    pub blocked: SigSet,
    /// A mask passed to the kernel in place of the program's.
    pub mask: SigSet,
    /// `pselect6`'s last argument, rebuilt: pointer and length of a mask.
    pub mask_argument: [usize; 2],
    /// A message header passed to the kernel in place of the program's.
    pub header: crate::guard::vector::MsgHdr,
    /// Where the program has the header that `header` stands for.
    pub user_header: usize,
    /// Signals of the program that the thread has taken outside the window, modulo 2³².
    pub nr_handled: u32,
    /// When the wait that the thread is in ends, by the monotonic clock, nanoseconds; 0: not known.
    pub deadline: u64,
    /// When the call that the thread is in began, by that clock, if it is one on a socket that may
    /// have a timeout; else, and where it is not known, 0.
    pub began: u64,
    /// One more than the number of the call that the thread makes by `syscall(2)`, or that a signal
    /// of ours has interrupted at a rewritten site; or 0.
    pub passed_on: usize,
    /// What is left of the wait, for a call that is continued.
    pub time_left: Timespec,
    /// Memory of an `execve` being tried: address and length, 0 when none.
    pub exec: [usize; 2],
    /// What a new thread begins with: start routine and argument.
    start: [usize; 2],
    /// Memory of calls by rewritten sites.
    #[cfg(feature = "loader")]
    pub shortcut: crate::arch::shortcut::Shortcut,
    /// Floating-point state of a frame that the program returns from.
    #[cfg(feature = "loader")]
    pub fp_state: FpState,
    /// Pins of the call, the first `frame.nr_pins` of them.
    pub pins: [MaybeUninit<Pin>; NR_PINS],
    /// Vectors passed to the kernel in place of the program's.
    pub iov: [IoVec; UIO_MAXIOV],
    /// The program's vectors.
    pub user_iov: [IoVec; UIO_MAXIOV],
}

/// Room for a floating-point state, aligned as the processor wants it.
#[cfg(feature = "loader")]
#[repr(C, align(64))]
pub struct FpState([u8; 16 << 10]);

/// The lowest address of handler stack `n`.
const fn base(n: usize) -> usize {
    STACKS + n * STACK_LEN
}

/// The record of handler stack `n`.
const fn record(n: usize) -> *mut Record {
    (base(n) + STACK_LEN - RECORD_LEN) as *mut Record
}

/// The number of the handler stack that holds `record`.
#[must_use]
pub fn number(record: *const Record) -> usize {
    (record as usize - STACKS) / STACK_LEN
}

/// The record of the thread whose handler stack holds `sp`.
#[must_use]
pub fn at(sp: usize) -> Option<*mut Record> {
    let offset = sp.wrapping_sub(STACKS);
    (offset < STACKS_LEN).then(|| record(offset / STACK_LEN))
}

/// Reserves the range of the handler stacks.
///
/// # Errors
/// `EEXIST`: something else lies there. Others as mmap(2).
pub fn map() -> Result<(), Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE takes nothing away from anybody.
    let at = unsafe { mmap(STACKS, STACKS_LEN, PROT_NONE, flags, -1, 0) }?;
    if at == STACKS {
        Ok(())
    } else {
        Err(Errno::EEXIST)
    }
}

/// Claims a handler stack, as [`CLAIMED`]. It gets its thread's id only once it is
/// [prepared](prepare): a fork child meets no id whose record is not mapped.
fn claim() -> Option<usize> {
    let high = HIGH_WATER.load(Ordering::Relaxed);
    if let Some(n) = claim_below(high) {
        return Some(n);
    }
    // All seem in use: look for dead threads, once per doubling.
    if high >= 16 && (high.is_power_of_two() || high == NR_STACKS) {
        reap(high);
        if let Some(n) = claim_below(high) {
            return Some(n);
        }
    }
    loop {
        let n = HIGH_WATER
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                (n < NR_STACKS).then_some(n + 1)
            })
            .ok()?;
        // Another thread may have seen the number raised and been quicker.
        if take(n) {
            return Some(n);
        }
    }
}

fn claim_below(high: usize) -> Option<usize> {
    (0..high).find(|&n| take(n))
}

/// Claims and prepares a handler stack for thread `tid`.
fn claim_for(m: &Masked, tid: u32) -> Option<usize> {
    // The kernel may have reused a dead thread's id: its stack is this thread's.
    let n = stack_of_thread(tid).or_else(claim)?;
    let usable = prepare(m, n);
    let owner = if usable { tid } else { 0 };
    TIDS.get(n).inspect(|t| t.store(owner, Ordering::Release));
    usable.then_some(n)
}

/// The handler stack of thread `tid`.
fn stack_of_thread(tid: u32) -> Option<usize> {
    let high = HIGH_WATER.load(Ordering::Relaxed);
    (0..high).find(|&n| tid_of(n) == Some(tid))
}

fn tid_of(n: usize) -> Option<u32> {
    TIDS.get(n).map(|t| t.load(Ordering::Relaxed))
}

fn take(n: usize) -> bool {
    TIDS.get(n).is_some_and(|t| {
        t.load(Ordering::Relaxed) == 0
            && t.compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    })
}

/// Frees the handler stacks of threads that are gone.
fn reap(high: usize) {
    let pid = thread::getpid();
    for t in TIDS.iter().take(high) {
        let tid = t.load(Ordering::Relaxed);
        if tid != 0
            && tid != CLAIMED
            && let Ok(id) = i32::try_from(tid)
            && tgkill(pid, id, 0) == Err(Errno::ESRCH)
        {
            let _ = t.compare_exchange(tid, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Makes handler stack `n` usable, with a fresh record.
fn prepare(m: &Masked, n: usize) -> bool {
    let usable = base(n) + PAGE_SIZE;
    // SAFETY: memory of ours; the lowest page stays a guard.
    if unsafe { mprotect(usable, STACK_LEN - PAGE_SIZE, PROT_READ | PROT_WRITE) }.is_err() {
        return false;
    }
    let r = record(n);
    // SAFETY: the stack is claimed, so this thread alone touches the record.
    unsafe {
        Frame::close(m, r);
        (*r).altstack = SigStack::DISABLED;
        (*r).blocked = SigSet::EMPTY;
        (*r).exec = [0, 0];
        (*r).start = [0, 0];
    }
    true
}

/// Handler stack `n` as the kernel is given it.
const fn stack_of(n: usize) -> SigStack {
    let low = base(n) + PAGE_SIZE;
    SigStack::new(low, STACK_LEN - RECORD_LEN - PAGE_SIZE, 0)
}

/// Gives the calling thread a handler stack and makes the kernel use it. The alternate stack that
/// the thread had becomes the program's.
pub fn attach(m: &Masked) -> Option<*mut Record> {
    let tid = u32::try_from(thread::gettid()).ok()?;
    let n = claim_for(m, tid)?;
    let r = record(n);
    // SAFETY: the stack lives as long as the thread; the record is ours.
    unsafe {
        if let Ok(old) = signal::sigaltstack(Some(&stack_of(n))) {
            (*r).altstack = old;
        }
    }
    Some(r)
}

/// Called by the entries when a handler runs on a stack that is not ours: gives the thread a
/// handler stack and returns its top, or 0 when there is none to be had.
///
/// # Safety
/// In a handler with all signals blocked; `uc` is its frame.
pub unsafe extern "C" fn enter(uc: *mut UContext) -> usize {
    // SAFETY: the handlers' masks are full.
    let m = unsafe { Masked::assume() };
    let Ok(tid) = u32::try_from(thread::gettid()) else {
        return 0;
    };
    // SAFETY: the kernel's frame.
    let interrupted = unsafe { (*uc).stack_pointer() };
    let n = match stack_of_thread(tid) {
        // We were interrupted on our own handler stack: the program set an alternate stack without
        // our seeing it, and the kernel switched to that. Go on below the red zone.
        Some(n) if interrupted.wrapping_sub(base(n)) < STACK_LEN => {
            return (interrupted - 256) & !15;
        }
        Some(n) => n,
        None => {
            let Some(n) = claim_for(&m, tid) else {
                return 0;
            };
            n
        }
    };
    // SAFETY: the frame is the kernel's and the record this thread's. `rt_sigreturn` sets the
    // alternate stack that the frame names.
    unsafe {
        let kernels = (*uc).uc_stack;
        if kernels.sp != stack_of(n).sp {
            (*record(n)).altstack = kernels;
        }
        (*uc).uc_stack = stack_of(n);
    }
    base(n) + STACK_LEN - RECORD_LEN
}

/// In a forked child: this thread is the only one, under a new id. Pins were not inherited.
///
/// # Safety
/// In the child, on the forking thread's handler stack.
pub unsafe fn after_fork(own: *mut Record) {
    let high = HIGH_WATER.load(Ordering::Relaxed);
    let tid = u32::try_from(thread::gettid()).unwrap_or(CLAIMED);
    for (n, t) in TIDS.iter().enumerate().take(high) {
        // The record of a stack that is only claimed may not be mapped yet, and holds nothing.
        if !matches!(t.load(Ordering::Relaxed), 0 | CLAIMED) {
            // SAFETY: this thread's record, or that of a thread that is not in this process.
            unsafe { Frame::forget(record(n)) };
        }
        t.store(if record(n) == own { tid } else { 0 }, Ordering::Relaxed);
    }
}

/// Frees memory that a failed or finished `execve` of this thread's vfork child left behind.
///
/// # Safety
/// `r` is the calling thread's record.
pub unsafe fn drop_exec(r: *mut Record) {
    // SAFETY: the record is ours; the memory was mapped for the purpose.
    unsafe {
        let [addr, len] = (*r).exec;
        if len > 0 {
            (*r).exec = [0, 0];
            let _ = uzswap_sys::mem::munmap(addr, len);
        }
    }
}

// New threads -------------------------------------------------------------------------------------

/// Claims a handler stack for a thread about to be created.
pub fn claim_new(m: &Masked) -> Option<*mut Record> {
    let n = claim()?;
    let r = record(n);
    if prepare(m, n) {
        return Some(r);
    }
    disclaim(r);
    None
}

/// Gives a handler stack back: its thread was not created after all, or is gone.
pub fn disclaim(r: *mut Record) {
    TIDS.get(number(r))
        .inspect(|t| t.store(0, Ordering::Release));
}

/// Makes the handler stack of record `r`, which its creator claimed for it, the calling thread's.
pub fn adopt(_: &Masked, r: *mut Record) {
    let tid = u32::try_from(thread::gettid()).unwrap_or(CLAIMED);
    // The same id on another stack is a dead thread's.
    for t in TIDS.iter().take(HIGH_WATER.load(Ordering::Relaxed)) {
        let _ = t.compare_exchange(tid, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
    TIDS.get(number(r))
        .inspect(|t| t.store(tid, Ordering::Release));
}

/// Has the kernel deliver the calling thread's signals on the handler stack of record `r`.
pub fn use_stack(r: *mut Record) {
    // SAFETY: the stack lives as long as the thread. That it is in use now is no error: the kernel
    // knows of none yet.
    unsafe {
        let _ = signal::sigaltstack(Some(&kernel_stack(r)));
    }
}

// Leaving a stack in the arena --------------------------------------------------------------------

/// Bytes of the caller's frames that are pinned while its job runs.
const CALLER_FRAMES: usize = 32 << 10;

/// [`uzswap_core::masked::StackSwitch`] of this library: runs `job` on the thread's handler stack,
/// which nothing uses while the program's own code runs.
///
/// # Safety
/// In the program's context, on a stack in the arena.
pub unsafe fn leave(job: SwitchedFn, argument: *mut c_void) {
    // The only call that may be trapped before the stack is left.
    let tid = u32::try_from(thread::gettid()).unwrap_or(CLAIMED);
    let Some(n) = stack_of_thread(tid) else {
        // A thread of a raw clone that has had no signal yet has no handler stack: stay here.
        // SAFETY: as the caller's.
        return unsafe { on_handler_stack(job as *const c_void, argument, 0) };
    };
    // SAFETY: the handler stack is this thread's, and free.
    unsafe { crate::arch::thread::switch(job as *const c_void, argument, record(n) as usize) }
}

/// Runs `job` with signals blocked. `sp`, if it is not 0, is the stack pointer of the caller, whose
/// frames are pinned meanwhile.
///
/// # Safety
/// From [`leave`].
pub unsafe extern "C" fn on_handler_stack(job: *const c_void, argument: *mut c_void, sp: usize) {
    // SAFETY: it was one in `leave`.
    let job: SwitchedFn = unsafe { core::mem::transmute(job) };
    let old = signal::block_all();
    // SAFETY: blocked just now, on a handler stack.
    let m = unsafe { Masked::assume() };
    let frames = arena_part(sp & !(PAGE_SIZE - 1), CALLER_FRAMES);
    let pin = frames.and_then(|(at, len)| ENGINE.pin(&m, at, len).ok());
    // SAFETY: the job's own promise.
    unsafe { job(argument, &m) };
    if let Some(pin) = pin {
        ENGINE.unpin(&m, pin);
    }
    signal::set_mask(old);
}

/// The handler stack of record `r`, as the kernel has it.
#[must_use]
pub fn kernel_stack(r: *mut Record) -> SigStack {
    stack_of(number(r))
}

/// Whether a signal was sent by a process, not raised by the kernel.
#[must_use]
pub fn is_sent(info: &SigInfo) -> bool {
    info.si_code <= 0
}
