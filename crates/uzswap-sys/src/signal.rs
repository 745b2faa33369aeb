//! *What*: signals at the kernel's own interface: masks, actions, alternate stacks, and the
//! arguments of a handler.
//! *Invariants*: layouts are the kernel's, not the C library's (whose `sigset_t` is 128 bytes).
//! *Locking*: none; with all signals blocked, a thread may take an engine lock that handlers take
//! too.
//! *Context*: any.

pub use crate::arch::signal::{Access, MContext, SignalFrame, UContext, touching_restorer};
use crate::syscall::{Result, addr, addr_mut, addr_or_null, call2, call3, call4, int, to_int};
use crate::thread::Timespec;
use crate::{arch, nr};

#[allow(missing_docs, reason = "see signal(7) and sigaction(2)")]
mod consts {
    pub const SIGHUP: i32 = 1;
    pub const SIGINT: i32 = 2;
    pub const SIGQUIT: i32 = 3;
    pub const SIGILL: i32 = 4;
    pub const SIGTRAP: i32 = 5;
    pub const SIGABRT: i32 = 6;
    pub const SIGBUS: i32 = 7;
    pub const SIGKILL: i32 = 9;
    pub const SIGUSR1: i32 = 10;
    pub const SIGSEGV: i32 = 11;
    pub const SIGUSR2: i32 = 12;
    pub const SIGPIPE: i32 = 13;
    pub const SIGALRM: i32 = 14;
    pub const SIGTERM: i32 = 15;
    pub const SIGCHLD: i32 = 17;
    pub const SIGCONT: i32 = 18;
    pub const SIGSTOP: i32 = 19;
    pub const SIGXFSZ: i32 = 25;
    pub const SIGSYS: i32 = 31;
    pub const NSIG: i32 = 64;

    pub const SIG_DFL: usize = 0;
    pub const SIG_IGN: usize = 1;

    pub const SIG_BLOCK: i32 = 0;
    pub const SIG_UNBLOCK: i32 = 1;
    pub const SIG_SETMASK: i32 = 2;

    pub const SA_NOCLDSTOP: u64 = 0x1;
    pub const SA_NOCLDWAIT: u64 = 0x2;
    pub const SA_SIGINFO: u64 = 0x4;
    pub const SA_RESTORER: u64 = 0x0400_0000;
    pub const SA_ONSTACK: u64 = 0x0800_0000;
    pub const SA_RESTART: u64 = 0x1000_0000;
    pub const SA_NODEFER: u64 = 0x4000_0000;
    pub const SA_RESETHAND: u64 = 0x8000_0000;

    pub const SS_ONSTACK: i32 = 1;
    pub const SS_DISABLE: i32 = 2;
    pub const SS_AUTODISARM: i32 = i32::MIN;

    pub const SEGV_MAPERR: i32 = 1;
    pub const SEGV_ACCERR: i32 = 2;
    pub const BUS_ADRERR: i32 = 2;
    pub const SYS_SECCOMP: i32 = 1;
    pub const SYS_USER_DISPATCH: i32 = 2;
    pub const SI_QUEUE: i32 = -1;
}
pub use consts::*;

/// A set of signals, as the kernel keeps it: bit `n - 1` is signal `n`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SigSet(pub u64);

impl SigSet {
    /// No signal.
    pub const EMPTY: SigSet = SigSet(0);
    /// Every signal. The kernel ignores `SIGKILL` and `SIGSTOP` in masks.
    pub const FULL: SigSet = SigSet(!0);

    const fn bit(signal: i32) -> u64 {
        if signal >= 1 && signal <= NSIG {
            1 << (signal - 1)
        } else {
            0
        }
    }

    /// This set and `signal`; numbers outside 1..=64 change nothing.
    #[must_use]
    pub const fn with(self, signal: i32) -> Self {
        SigSet(self.0 | Self::bit(signal))
    }

    /// This set less `signal`.
    #[must_use]
    pub const fn without(self, signal: i32) -> Self {
        SigSet(self.0 & !Self::bit(signal))
    }

    /// Is `signal` in it?
    #[must_use]
    pub const fn contains(self, signal: i32) -> bool {
        self.0 & Self::bit(signal) != 0
    }
}

/// Changes this thread's mask (`SIG_BLOCK`, `SIG_UNBLOCK`, `SIG_SETMASK`) and returns the old one;
/// `set` `None` only reads. About 100 ns.
///
/// # Errors
/// `EINVAL`: unknown `how`.
#[inline]
pub fn sigprocmask(how: i32, set: Option<SigSet>) -> Result<SigSet> {
    let mut old = SigSet::EMPTY;
    let (new, len) = (addr_or_null(set.as_ref()), size_of::<SigSet>());
    // SAFETY: both sets are 8 bytes as the last argument says.
    unsafe { call4(nr::RT_SIGPROCMASK, int(how), new, addr_mut(&mut old), len) }?;
    Ok(old)
}

/// Sets this thread's mask and returns the old one.
pub fn set_mask(set: SigSet) -> SigSet {
    // With a set that can be read it cannot fail.
    sigprocmask(SIG_SETMASK, Some(set)).unwrap_or(SigSet::EMPTY)
}

/// Blocks every signal on this thread and returns the old mask.
pub fn block_all() -> SigSet {
    set_mask(SigSet::FULL)
}

/// Takes one pending signal of `set` from this thread or process; `None` if none is pending. Only
/// blocked signals are.
#[must_use]
pub fn take_pending(set: SigSet) -> Option<i32> {
    let (now, len) = (Timespec::default(), size_of::<SigSet>());
    // SAFETY: the kernel reads the set, 8 bytes, and the time; no information is asked for.
    unsafe { call4(nr::RT_SIGTIMEDWAIT, addr(&set), 0, addr(&now), len) }
        .ok()
        .map(to_int)
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigAction {
    /// `SIG_DFL`, `SIG_IGN`, or the address of the handler.
    pub handler: usize,
    /// `SA_*`.
    pub flags: u64,
    /// What a handler returns to, with `SA_RESTORER`.
    pub restorer: usize,
    /// Blocked while the handler runs, besides the signal itself.
    pub mask: SigSet,
}

/// A handler as the kernel calls it with `SA_SIGINFO`.
pub type Handler = unsafe extern "C" fn(i32, *mut SigInfo, *mut UContext);

impl SigAction {
    /// The default action.
    pub const DEFAULT: SigAction = SigAction {
        handler: SIG_DFL,
        flags: 0,
        restorer: 0,
        mask: SigSet::EMPTY,
    };

    /// An action that calls `handler`, with our own restorer. `SA_SIGINFO` and `SA_RESTORER` are
    /// added to `flags`.
    #[must_use]
    pub fn new(handler: Handler, flags: u64, mask: SigSet) -> Self {
        SigAction {
            handler: handler as *const () as usize,
            flags: flags | SA_SIGINFO | SA_RESTORER,
            restorer: arch::signal::restorer as *const () as usize,
            mask,
        }
    }
}

/// Sets the action of `signal` for the whole process, or only reads it, and returns the old one.
///
/// # Errors
/// `EINVAL`: no such signal, or one that cannot be caught.
///
/// # Safety
/// The handler runs on any thread at any instruction.
pub unsafe fn sigaction(signal: i32, action: Option<&SigAction>) -> Result<SigAction> {
    let mut old = SigAction::DEFAULT;
    let (new, len) = (addr_or_null(action), size_of::<SigSet>());
    // SAFETY: `SigAction` is the kernel's layout; the effect is the caller's promise.
    unsafe { call4(nr::RT_SIGACTION, int(signal), new, addr_mut(&mut old), len) }?;
    Ok(old)
}

/// The kernel's `stack_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigStack {
    /// Lowest address.
    pub sp: usize,
    /// `SS_*`.
    pub flags: i32,
    pad: i32,
    /// Bytes.
    pub size: usize,
}

impl SigStack {
    /// A stack for [`sigaltstack`].
    #[must_use]
    pub const fn new(sp: usize, size: usize, flags: i32) -> Self {
        SigStack {
            sp,
            flags,
            pad: 0,
            size,
        }
    }

    /// No alternate stack.
    pub const DISABLED: SigStack = SigStack::new(0, 0, SS_DISABLE);
}

/// Sets this thread's alternate signal stack, or only reads it, and returns the old one.
///
/// # Errors
/// `EPERM`: running on it now. `ENOMEM`: smaller than the kernel's least (which grows with AVX-512
/// and AMX: ask `AT_MINSIGSTKSZ`).
///
/// # Safety
/// The memory stays mapped and unused for the thread's life, and a fault in it needs no handler of
/// ours.
pub unsafe fn sigaltstack(stack: Option<&SigStack>) -> Result<SigStack> {
    let mut old = SigStack::DISABLED;
    let new = addr_or_null(stack);
    // SAFETY: `SigStack` is the kernel's layout; the memory is the caller's promise.
    unsafe { call2(nr::SIGALTSTACK, new, addr_mut(&mut old)) }?;
    Ok(old)
}

/// Sends `signal` to one thread of process `pid` (`tgkill(2)`).
///
/// # Errors
/// As tgkill(2).
pub fn tgkill(pid: i32, tid: i32, signal: i32) -> Result<()> {
    // SAFETY: what the signal does is the receiver's action.
    unsafe { call3(nr::TGKILL, int(pid), int(tid), int(signal)) }.map(drop)
}

/// Sends `signal` with `info` to one thread of our own process, so that a handler sees
/// what the first one saw.
///
/// # Errors
/// As `rt_tgsigqueueinfo(2)`; `EPERM` for kernel codes when sent to others.
pub fn tgsigqueueinfo(pid: i32, tid: i32, signal: i32, info: &SigInfo) -> Result<()> {
    let info = addr(info);
    // SAFETY: the kernel reads 128 bytes, the size of `SigInfo`.
    unsafe { call4(nr::RT_TGSIGQUEUEINFO, int(pid), int(tid), int(signal), info) }.map(drop)
}

/// The kernel's `siginfo_t`, 128 bytes; which fields mean something depends on the signal.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct SigInfo {
    /// Signal number.
    pub si_signo: i32,
    /// For SIGSYS the low 16 bits of the filter's return value.
    pub si_errno: i32,
    /// Why: positive codes come from the kernel.
    pub si_code: i32,
    pad: i32,
    addr: usize,
    syscall: i32,
    rest: [u32; 25],
}

/// Sends `signal` with `value` to process `pid`, as sigqueue(3).
///
/// # Errors
/// As rt_sigqueueinfo(2).
pub fn queue(pid: i32, signal: i32, value: i32) -> Result<()> {
    let info = SigInfo {
        si_signo: signal,
        si_errno: 0,
        si_code: SI_QUEUE,
        pad: 0,
        // The sender's process id, and its user id, which is not told.
        addr: int(crate::thread::getpid()),
        syscall: value,
        rest: [0; 25],
    };
    // SAFETY: the kernel reads 128 bytes, the size of `SigInfo`.
    unsafe { call3(nr::RT_SIGQUEUEINFO, int(pid), int(signal), addr(&info)) }.map(drop)
}

impl SigInfo {
    /// Of a signal that this process sends to one of its threads, on behalf of the page at `address`.
    #[must_use]
    pub const fn sent(signal: i32, address: usize) -> SigInfo {
        SigInfo {
            si_signo: signal,
            si_errno: 0,
            si_code: SI_QUEUE,
            pad: 0,
            addr: address,
            syscall: 0,
            rest: [0; 25],
        }
    }

    /// SIGSEGV, SIGBUS: the address that faulted, exact to the byte for SIGSEGV and for SIGBUS
    /// from userfaultfd (page-aligned on some kernels).
    #[must_use]
    pub const fn si_addr(&self) -> usize {
        self.addr
    }

    /// SIGSYS: the architecture of the trapped call, as [`crate::arch::abi::AUDIT_ARCH`].
    #[must_use]
    pub const fn si_arch(&self) -> u32 {
        let [arch, ..] = self.rest;
        arch
    }

    /// SIGSYS: the number of the trapped call.
    #[must_use]
    pub const fn si_syscall(&self) -> i32 {
        self.syscall
    }
}

const _: () = {
    assert!(size_of::<SigInfo>() == 128);
    assert!(size_of::<SigAction>() == 32);
    assert!(size_of::<SigStack>() == 24);
};
