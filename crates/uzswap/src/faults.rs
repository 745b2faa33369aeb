//! *What*: the host's side of page faults: SIGBUS (SIGSEGV where there is no userfaultfd) arrives
//! here; a fault in a pool is its engine's, any other goes on to the handler that the host had
//! before.
//!
//! A host may install a handler of its own later. It then gets the pools' faults, too, and ends
//! the process unless it passes them on. [`check`] says so, and [`install`] puts ours first again,
//! with the host's behind it.
//!
//! *Invariants*
//! - The engine runs with all signals blocked and on a stack of the library's.
//! - The host's handler runs under the mask and with the flags that it was installed with, but on
//!   the stack that the signal arrived on.
//! - A signal that both handlers pass to each other ends as if there were neither.
//!
//! *Locking*: [`Chain`]s change under `CHANGES`; a handler reads one without it. *Context*: signal;
//! installing: a thread of the host.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use uzswap_core::{Fault, FaultMode, Masked, in_arena};
use uzswap_sync::lock::Lock;
use uzswap_sys::fmt::write_line;
use uzswap_sys::signal::{
    self, BUS_ADRERR, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_SIGINFO, SEGV_ACCERR, SEGV_MAPERR,
    SIG_DFL, SIG_IGN, SIGBUS, SIGSEGV, SIGSYS, SigAction, SigInfo, SigSet, UContext,
};
use uzswap_sys::thread;

use crate::error::Replaced;
use crate::{engines, guard, masks, stack};

/// The action that the host had for a signal when ours was installed.
struct Chain {
    handler: AtomicUsize,
    flags: AtomicU64,
    mask: AtomicU64,
    /// Whether ours is, or was, installed.
    used: AtomicU32,
}

impl Chain {
    const fn new() -> Self {
        Chain {
            handler: AtomicUsize::new(SIG_DFL),
            flags: AtomicU64::new(0),
            mask: AtomicU64::new(0),
            used: AtomicU32::new(0),
        }
    }

    fn set(&self, action: &SigAction) {
        self.mask.store(action.mask.0, Ordering::Relaxed);
        self.flags.store(action.flags, Ordering::Relaxed);
        // Release: pairs with the acquire in `get`; a handler comes with its own flags.
        self.handler.store(action.handler, Ordering::Release);
    }

    fn get(&self) -> (usize, u64, SigSet) {
        let handler = self.handler.load(Ordering::Acquire);
        let flags = self.flags.load(Ordering::Relaxed);
        (handler, flags, SigSet(self.mask.load(Ordering::Relaxed)))
    }
}

static BUS: Chain = Chain::new();
static SEGV: Chain = Chain::new();
static SYS: Chain = Chain::new();
static CHANGES: Lock<()> = Lock::new(());

/// The chain of a signal of ours.
fn chain_of(signal: i32) -> Option<&'static Chain> {
    match signal {
        SIGBUS => Some(&BUS),
        SIGSEGV => Some(&SEGV),
        SIGSYS => Some(&SYS),
        _ => None,
    }
}

/// The signal by which faults arrive in `mode`; `None`: a thread reads them.
pub(crate) const fn signal_of(mode: FaultMode) -> Option<i32> {
    match mode {
        FaultMode::Signal => Some(SIGBUS),
        FaultMode::Segv => Some(SIGSEGV),
        FaultMode::Thread => None,
    }
}

fn ours(signal: i32) -> SigAction {
    let (entry, flags): (signal::Handler, u64) = match signal {
        SIGSYS => (guard::on_sigsys, signal::SA_RESTART),
        _ => (on_fault, SA_ONSTACK),
    };
    SigAction::new(entry, flags, SigSet::FULL)
}

/// Puts our handler of `signal` first, with whatever is there behind it.
///
/// # Errors
/// What the kernel answers.
pub(crate) fn install(signal: i32) -> Result<(), uzswap_sys::Errno> {
    let Some(chain) = chain_of(signal) else {
        return Ok(());
    };
    Masked::block(|_| {
        let _changes = CHANGES.lock();
        // SAFETY: reads only.
        let found = unsafe { signal::sigaction(signal, None) }?;
        let ours = ours(signal);
        if found.handler == ours.handler {
            return Ok(());
        }
        chain.set(&found);
        chain.used.store(1, Ordering::Relaxed);
        // SAFETY: our entry is what a handler must be.
        unsafe { signal::sigaction(signal, Some(&ours)) }.map(drop)
    })
}

/// A signal of ours whose handler the host has replaced.
fn replaced() -> Option<i32> {
    [SIGBUS, SIGSEGV, SIGSYS].into_iter().find(|signal| {
        let used = chain_of(*signal).is_some_and(|chain| chain.used.load(Ordering::Relaxed) != 0);
        // SAFETY: reads only.
        used && unsafe { signal::sigaction(*signal, None) }
            .is_ok_and(|found| found.handler != ours(*signal).handler)
    })
}

/// Whether the pools' faults arrive: not if the host has replaced a signal handler of ours.
///
/// # Errors
/// The signal, and what to do.
pub fn check() -> Result<(), Replaced> {
    replaced().map_or(Ok(()), |signal| Err(Replaced { signal }))
}

/// Puts all our handlers first again, with what replaced them behind. Each new pool does so.
///
/// # Errors
/// What the kernel answers.
pub fn reinstall() -> io::Result<()> {
    while let Some(signal) = replaced() {
        install(signal).map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
    }
    Ok(())
}

/// The signals by which faults and trapped calls arrive in this process.
pub(crate) fn signals() -> SigSet {
    let ours = [SIGBUS, SIGSEGV, SIGSYS].into_iter();
    let used = ours.filter(|signal| {
        chain_of(*signal).is_some_and(|chain| chain.used.load(Ordering::Relaxed) != 0)
    });
    used.fold(SigSet::EMPTY, SigSet::with)
}

/// Takes the signals by which faults and trapped calls arrive out of this thread's mask. The kernel
/// ends a process that faults while they are blocked. glibc's `pthread_sigmask` leaves them out of
/// masks from the first pool on: only threads that had blocked them before, or by other ways, have
/// to call this, or touch no pool.
pub fn unblock() {
    let ours = SigSet::EMPTY.with(SIGBUS).with(SIGSEGV).with(SIGSYS);
    let _ = signal::sigprocmask(signal::SIG_UNBLOCK, Some(ours));
}

/// Name and id of a thread of this process that blocks SIGBUS, and must touch no pool unless that
/// is in thread mode: a library's worker that was started before the first pool. `FaultMode::Auto`
/// takes thread mode then, if it can.
#[must_use]
pub fn blocking_thread() -> Option<(String, i32)> {
    masks::blocking_thread()
}

/// SIGBUS, and SIGSEGV where there is no userfaultfd.
unsafe extern "C" fn on_fault(signal: i32, info: *mut SigInfo, uc: *mut UContext) {
    // SAFETY: the kernel's frame; our handlers' masks are full.
    unsafe {
        let masked = Masked::assume();
        let mut info = *info;
        let addr = info.si_addr();
        if may_be_ours(signal, &info)
            && let Some(engine) = engines::of(addr)
            && engine.started()
        {
            match stack::with(&masked, || engine.fault(&masked, addr)) {
                Fault::Resolved => return,
                Fault::NotMapped => (info.si_signo, info.si_code) = (SIGSEGV, SEGV_MAPERR),
                Fault::Corrupt => {
                    (info.si_signo, info.si_code) = (SIGBUS, BUS_ADRERR);
                    say(format_args!(
                        "uzswap: what was stored of the page at {addr:#x} cannot be read back"
                    ));
                }
                Fault::OverLimit { needed_bytes } => {
                    (info.si_signo, info.si_code) = (SIGBUS, BUS_ADRERR);
                    say_no_room(addr, needed_bytes);
                }
                Fault::Foreign => {}
            }
        }
        pass_on(&masked, signal, info, uc);
    }
}

/// One line on standard error.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = write_line(2, line);
}

/// Says why the access to `addr` ends in SIGBUS.
pub(crate) fn say_no_room(addr: usize, needed_bytes: u64) {
    say(format_args!(
        "uzswap: a pool has no room for the page at {addr:#x}: it would need a limit of \
         {needed_bytes} bytes, or swap"
    ));
}

/// Whether the signal is one that an access to the arena raises.
fn may_be_ours(signal: i32, info: &SigInfo) -> bool {
    let raised = match signal {
        SIGSEGV => matches!(info.si_code, SEGV_ACCERR | SEGV_MAPERR),
        _ => info.si_code == BUS_ADRERR,
    };
    raised && in_arena(info.si_addr())
}

/// Signals being passed on, by their contexts: one that comes back is nobody's.
static PASSED_ON: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];

fn is_passed_on(uc: usize) -> bool {
    PASSED_ON.iter().any(|at| at.load(Ordering::Relaxed) == uc)
}

/// Has the host's earlier handler serve a signal that is not ours, which arrived as signal number
/// `arrived`.
///
/// # Safety
/// In a handler of ours, of the signal whose context is `uc`.
pub(crate) unsafe fn pass_on(_: &Masked, arrived: i32, info: SigInfo, uc: *mut UContext) {
    let (number, raised) = (info.si_signo, info.si_code > 0);
    let (handler, flags, mask) = match chain_of(number) {
        Some(chain) if chain.used.load(Ordering::Relaxed) != 0 => chain.get(),
        // SAFETY: reads only.
        _ => unsafe { signal::sigaction(number, None) }.map_or((SIG_DFL, 0, SigSet::EMPTY), |a| {
            (a.handler, a.flags, a.mask)
        }),
    };
    let place = (!is_passed_on(uc as usize))
        .then(|| {
            PASSED_ON.iter().find(|at| {
                at.compare_exchange(0, uc as usize, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            })
        })
        .flatten();
    // SAFETY: the kernel's frame.
    let interrupted = unsafe { (*uc).uc_sigmask };
    match handler {
        SIG_IGN if !raised => {}
        SIG_DFL | SIG_IGN => end_by(&info, raised && arrived == number),
        // What the kernel does about a fault whose signal is blocked.
        _ if place.is_none() || (raised && interrupted.contains(number)) => {
            end_by(&info, raised && arrived == number);
        }
        handler => {
            if flags & SA_RESETHAND != 0
                && let Some(chain) = chain_of(number)
            {
                chain.set(&SigAction::DEFAULT);
            }
            let mut during = SigSet(interrupted.0 | mask.0);
            if flags & SA_NODEFER == 0 {
                during = during.with(number);
            }
            signal::set_mask(during);
            let mut info = info;
            // SAFETY: the host installed it for this signal; it gets what the kernel would pass.
            unsafe {
                if flags & SA_SIGINFO != 0 {
                    let handler: signal::Handler = std::mem::transmute(handler);
                    handler(number, &raw mut info, uc);
                } else {
                    let handler: unsafe extern "C" fn(i32) = std::mem::transmute(handler);
                    handler(number);
                }
            }
            signal::block_all();
        }
    }
    if let Some(place) = place {
        place.store(0, Ordering::Relaxed);
    }
}

/// Has the kernel do what it does by default: when the access is `repeated`, or at the signal sent
/// anew.
fn end_by(info: &SigInfo, repeated: bool) {
    // SAFETY: the default action.
    let _ = unsafe { signal::sigaction(info.si_signo, Some(&SigAction::DEFAULT)) };
    if !repeated {
        let (pid, tid) = (thread::getpid(), thread::gettid());
        let _ = signal::tgsigqueueinfo(pid, tid, info.si_signo, info);
    }
}
