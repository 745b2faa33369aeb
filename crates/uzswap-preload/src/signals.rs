//! *What*: the program's signals. SIGBUS and SIGSYS are ours, SIGSEGV where there is no
//! userfaultfd, and SIGTRAP where call sites are rewritten. The kernel knows every handler of the
//! program only through an entry of ours, which puts it on the stack and under the mask where the
//! kernel would have started it ([`deliver`]).
//!
//! Why every handler: the kernel then writes all signal frames to our own handler stacks, never to
//! memory that may be evicted (a coroutine's stack); a call that is being issued for the program
//! can be taken back before the program's handler runs ([`crate::guard::frame`]); and the program
//! may have as small an alternate stack as it likes.
//!
//! *Invariants*
//! - In the kernel, the signals that are [`ours`] always have our actions. What the program sets
//!   for them is in [`ACTIONS`] alone, and takes effect for signals that the program itself causes.
//! - For other signals the kernel's action is what [`ACTIONS`] says, with [`entry::program`] in the
//!   handler's place. A process that shares memory but not actions (a vfork child) changes the
//!   kernel's only.
//! - Our signals are in no mask of the kernel's while a program's code runs: they are taken out of
//!   every mask on its way in. What the program set is in [`Record::blocked`]: it reads back what
//!   it set with `sigprocmask`, and a fault under a blocked SIGBUS ends the program as it natively
//!   does. Not kept: signals of ours that are sent (not raised) are not held back, nor seen by
//!   `sigwaitinfo` or `signalfd`; and a program started with exec begins with them unblocked and
//!   not ignored.
//!
//! *Locking*: [`ACTIONS`], held across the kernel's call that goes with a change, and across fork.
//! *Context*: signal, init.

pub mod deliver;
pub mod fault;
pub mod resume;

use core::sync::atomic::{AtomicU64, Ordering};

use uzswap_core::{FaultMode, Masked};
use uzswap_sync::lock::{Lock, LockGuard};
use uzswap_sys::signal::{
    self, NSIG, SA_NOCLDSTOP, SA_NOCLDWAIT, SA_ONSTACK, SA_RESTART, SIG_BLOCK, SIG_DFL, SIG_IGN,
    SIG_SETMASK, SIG_UNBLOCK, SIGBUS, SIGKILL, SIGSEGV, SIGSTOP, SIGSYS, SS_AUTODISARM, SS_DISABLE,
    SS_ONSTACK, SigAction, SigSet, SigStack, UContext,
};
use uzswap_sys::{Errno, thread};

use crate::arch::entry;
use crate::guard::frame::unblockable;
use crate::guard::user;
use crate::threads::Record;

/// [`ours`], once [`install`] has decided.
static OURS: AtomicU64 = AtomicU64::new(SigSet::EMPTY.with(SIGBUS).with(SIGSYS).0);

/// The signals that the program cannot block.
#[inline]
#[must_use]
pub fn ours() -> SigSet {
    // Relaxed: written while the process has one thread.
    SigSet(OURS.load(Ordering::Relaxed))
}

/// What the program set, for signals 0 to 64.
pub struct Actions {
    table: [SigAction; 65],
    /// The process that the table describes.
    pid: i32,
}

static ACTIONS: Lock<Actions> = Lock::new(Actions {
    table: [SigAction::DEFAULT; 65],
    pid: 0,
});

/// Locks the table, for a fork.
pub fn hold() -> LockGuard<'static, Actions> {
    ACTIONS.lock()
}

/// In a forked child: the table is this process's now.
pub fn after_fork(actions: &mut LockGuard<'static, Actions>) {
    actions.pid = thread::getpid();
}

fn index(signal: i32) -> usize {
    usize::try_from(signal).unwrap_or(0)
}

/// What the program set for `signal`.
#[must_use]
pub fn action(signal: i32) -> SigAction {
    let actions = ACTIONS.lock();
    actions
        .table
        .get(index(signal))
        .copied()
        .unwrap_or(SigAction::DEFAULT)
}

const fn is_handler(action: &SigAction) -> bool {
    action.handler != SIG_DFL && action.handler != SIG_IGN
}

/// The kernel's action where the program set `action`.
fn kernel_action(action: &SigAction) -> SigAction {
    if !is_handler(action) {
        return *action;
    }
    let kept = SA_NOCLDSTOP | SA_NOCLDWAIT | SA_RESTART;
    SigAction::new(
        entry::program,
        (action.flags & kept) | SA_ONSTACK,
        SigSet::FULL,
    )
}

/// Takes over the signals of the process: entries replace the handlers that are there already, and
/// the signals of faults in `mode` and of trapped calls get our handlers.
///
/// # Errors
/// What the kernel answers if it refuses one of the actions.
pub fn install(_: &Masked, mode: FaultMode) -> Result<(), Errno> {
    if mode == FaultMode::Segv {
        OURS.store(ours().with(SIGSEGV).0, Ordering::Relaxed);
    }
    #[cfg(feature = "loader")]
    OURS.store(ours().with(signal::SIGTRAP).0, Ordering::Relaxed);
    let mut actions = ACTIONS.lock();
    actions.pid = thread::getpid();
    for signal in 1..=NSIG {
        if signal == SIGKILL || signal == SIGSTOP {
            continue;
        }
        // SAFETY: without a new action nothing changes.
        let Ok(found) = (unsafe { signal::sigaction(signal, None) }) else {
            continue;
        };
        if let Some(kept) = actions.table.get_mut(index(signal)) {
            *kept = found;
        }
        let new = match signal {
            SIGSYS => SigAction::new(entry::sigsys, SA_ONSTACK | SA_RESTART, SigSet::FULL),
            _ if ours().contains(signal) => SigAction::new(entry::fault, SA_ONSTACK, SigSet::FULL),
            _ if is_handler(&found) => kernel_action(&found),
            _ => continue,
        };
        // SAFETY: our entries are what handlers must be.
        unsafe { signal::sigaction(signal, Some(&new)) }?;
    }
    Ok(())
}

/// Takes a one-shot action off (`SA_RESETHAND`), if it still is the one that was delivered.
pub fn reset(signal: i32, delivered: &SigAction) {
    let mut actions = ACTIONS.lock();
    if let Some(kept) = actions.table.get_mut(index(signal))
        && kept == delivered
    {
        kept.handler = SIG_DFL;
        if !ours().contains(signal) {
            // SAFETY: the default action.
            let _ = unsafe { signal::sigaction(signal, Some(&SigAction::DEFAULT)) };
        }
    }
}

/// `rt_sigaction` for the program.
///
/// # Safety
/// `new` and `old` are the program's pointers; parts in the arena are pinned.
pub unsafe fn sigaction(signal: i32, new: usize, old: usize, size: usize) -> Result<isize, Errno> {
    if size != size_of::<SigSet>() || !(1..=NSIG).contains(&signal) {
        return Err(Errno::EINVAL);
    }
    let mut wanted = None;
    if new != 0 {
        let mut action = SigAction::DEFAULT;
        // SAFETY: `action` is a local, and any bytes make one.
        unsafe { user::read(&raw mut action, new, 1) }?;
        if signal == SIGKILL || signal == SIGSTOP {
            return Err(Errno::EINVAL);
        }
        wanted = Some(action);
    }
    let mut actions = ACTIONS.lock();
    let shared = actions.pid != thread::getpid();
    let Some(kept) = actions.table.get_mut(index(signal)) else {
        return Err(Errno::EINVAL);
    };
    let ours = ours().contains(signal);
    let found = if ours {
        *kept
    } else {
        // The kernel knows whether there is a handler: a vfork child has actions of its own.
        // SAFETY: without a new action nothing changes.
        match unsafe { signal::sigaction(signal, None) }? {
            found if found.handler == entry::program as *const () as usize => *kept,
            found => found,
        }
    };
    if let Some(action) = wanted {
        if !ours {
            // SAFETY: our entry stands for the program's handler.
            unsafe { signal::sigaction(signal, Some(&kernel_action(&action))) }?;
        }
        if !shared {
            *kept = action;
        }
    }
    drop(actions);
    if old != 0 {
        user::write(old, &found)?;
    }
    Ok(0)
}

/// `rt_sigprocmask` for the program: changes the mask that returns with the frame.
///
/// # Safety
/// As [`sigaction`]; `r` is the thread's record, `uc` its trapped context.
pub unsafe fn sigprocmask(
    r: Option<*mut Record>,
    uc: *mut UContext,
    how: i32,
    set: usize,
    old: usize,
    size: usize,
) -> Result<isize, Errno> {
    if size != size_of::<SigSet>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the record and the context are this thread's.
    unsafe {
        let blocked = r.map_or(SigSet::EMPTY, |r| (*r).blocked);
        let before = SigSet((*uc).uc_sigmask.0 | blocked.0);
        if set != 0 {
            let set: SigSet = user::value(set)?;
            let after = match how {
                SIG_BLOCK => SigSet(before.0 | set.0),
                SIG_UNBLOCK => SigSet(before.0 & !set.0),
                SIG_SETMASK => set,
                _ => return Err(Errno::EINVAL),
            };
            let after = after.without(SIGKILL).without(SIGSTOP);
            (*uc).uc_sigmask = unblockable(after);
            if let Some(r) = r {
                (*r).blocked = SigSet(after.0 & ours().0);
            }
        }
        if old != 0 {
            user::write(old, &before)?;
        }
    }
    Ok(0)
}

/// Whether the program has blocked `signal`, one of ours, as far as it knows.
///
/// # Safety
/// `r` is the calling thread's record.
#[must_use]
pub unsafe fn has_blocked(r: Option<*mut Record>, signal: i32) -> bool {
    // SAFETY: the caller's promise.
    r.is_some_and(|r| unsafe { (*r).blocked.contains(signal) })
}

/// Smallest alternate stack that the program may set.
const MINSIGSTKSZ: usize = 2048;

/// Whether `sp` is on the stack.
#[must_use]
pub const fn is_on(stack: &SigStack, sp: usize) -> bool {
    stack.size > 0 && sp > stack.sp && sp - stack.sp <= stack.size
}

/// `sigaltstack` for the program: kept in the record. The kernel goes on using ours.
///
/// # Safety
/// As [`sigaction`]; `r` is the thread's record.
pub unsafe fn sigaltstack(
    r: *mut Record,
    uc: *mut UContext,
    new: usize,
    old: usize,
) -> Result<isize, Errno> {
    // SAFETY: the record and the context are this thread's.
    unsafe {
        let now = (*r).altstack;
        let sp = (*uc).stack_pointer();
        let on = is_on(&now, sp);
        if new != 0 {
            let mut set = SigStack::DISABLED;
            user::read(&raw mut set, new, 1)?;
            if on {
                return Err(Errno::EPERM);
            }
            match set.flags & !SS_AUTODISARM {
                SS_DISABLE => set = SigStack::DISABLED,
                0 | SS_ONSTACK if set.size < MINSIGSTKSZ => return Err(Errno::ENOMEM),
                0 | SS_ONSTACK => {}
                _ => return Err(Errno::EINVAL),
            }
            (*r).altstack = set;
        }
        if old != 0 {
            let mut shown = now;
            shown.flags &= SS_AUTODISARM;
            if now.size == 0 {
                shown.flags |= SS_DISABLE;
            } else if on {
                shown.flags |= SS_ONSTACK;
            }
            user::write(old, &shown)?;
        }
    }
    Ok(0)
}
