//! *What*: the system call guard: makes system calls safe on memory that may be evicted.
//!
//! A fault inside the kernel is not served (the call fails with `EFAULT`, and a datagram is lost),
//! so what a call touches is brought in and pinned first. Seccomp filters ([`filter`]) turn calls
//! that concern us into SIGSYS. The handler here pins what the call's arguments name ([`ranges`],
//! [`vector`], [`exec`]), issues the call again through the stub page ([`stub`]) with the program's
//! own signal mask in force, unpins, and returns the result.
//!
//! *Invariants*: a trapped call is issued as often as the program issued it, and its result is the
//! program's, whatever signals come in between ([`frame`]). Calls that change what we keep for the
//! program (signal actions, masks, alternate stacks) are never issued but carried out here.
//!
//! *Not covered*: memory that the kernel reaches without a call of this process: another process's
//! `process_vm_readv` or `ptrace`, `/proc/PID/mem`, robust futex lists in the arena, KVM guests,
//! `vmsplice`d pages that the program changes before they are read. Pointers inside an ioctl's
//! structure are brought in where they can be recognised. Core dumps leave the arena out.
//! *Locking*: the engine's. *Context*: signal, init.

pub mod exec;
#[cfg(not(feature = "loader"))]
pub mod fast;
#[cfg(not(feature = "loader"))]
pub mod filter;
#[cfg(not(feature = "loader"))]
mod filters;
pub mod frame;
pub mod pieces;
mod process_vm;
pub mod ranges;
pub mod room;
pub mod servable;
pub mod stub;
#[cfg(not(feature = "loader"))]
pub mod text;
pub mod timed;
pub mod tracee;
pub mod user;
pub mod vector;

pub use uzswap_guard::table;

#[cfg(not(feature = "loader"))]
use crate::arch::tls;
#[cfg(feature = "loader")]
pub use crate::bare::fast;
#[cfg(feature = "loader")]
use crate::bare::tls;

use core::sync::atomic::{AtomicBool, Ordering};

use uzswap_core::arena::region::Flags;
use uzswap_core::{FaultMode, Masked, StartError, StartStep, arena_part};
use uzswap_group::counters::add;
use uzswap_sys::arch::{PR_SET_TSC, PR_TSC_SIGSEGV};
use uzswap_sys::signal::{self, SIGSYS, SYS_SECCOMP, SigInfo, SigSet, UContext};
use uzswap_sys::syscall::to_int;
use uzswap_sys::{Errno, nr, seccomp};

use crate::init::ENGINE;
#[cfg(feature = "loader")]
use crate::loader::{
    self,
    dispatch::{is_trapped_call, trap_calls},
};
use crate::signals::deliver::{self, Arrived};
use crate::signals::{self, has_blocked};
use crate::threads::{self, Record};
use crate::{fds, fork, maps, request, show_memory, workers};
#[cfg(not(feature = "loader"))]
use filters::{is_trapped_call, trap_calls};
use frame::{Frame, fail, unblockable};
use pieces::{Buffers, Transfer};
use stub::Call;

/// Whether the program may write to all of the buffer.
pub(crate) fn is_writable(addr: usize, len: usize) -> bool {
    let (mut at, end) = (addr, addr + len);
    while at < end {
        let region = ENGINE.region(at);
        let Some(region) = region.filter(|r| r.flags.contains(Flags::WRITE)) else {
            return false;
        };
        at = region.end;
    }
    true
}

/// Handlers and filters are in place.
static ENABLED: AtomicBool = AtomicBool::new(false);
/// The program has filtered its calls, or tried to.
static OWN_FILTER: AtomicBool = AtomicBool::new(false);

/// Whether the guard is in place.
#[must_use]
pub fn enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Whether the program has filtered its calls, or tried to.
#[must_use]
pub fn has_own_filter() -> bool {
    OWN_FILTER.load(Ordering::Relaxed)
}

/// The failure of the guard.
#[must_use]
pub const fn failed(errno: Errno) -> StartError {
    StartError {
        step: StartStep::Guard,
        errno,
    }
}

/// Maps the stub page. From here on no filter of an earlier program traps calls of ours, even where
/// our text lies at that program's addresses. To be called before anything else.
///
/// # Errors
/// The stub page's place is taken.
pub fn open_gate() -> Result<(), StartError> {
    stub::map().map_err(failed)
}

/// Puts handlers and filters in place. The engine has started; the process has one thread.
///
/// # Errors
/// What the kernel refused; the process must not go on.
pub fn install(m: &Masked, mode: FaultMode) -> Result<(), StartError> {
    threads::map().map_err(failed)?;
    let r = threads::attach(m).ok_or(failed(Errno::ENOMEM))?;
    tls::set_record(r);
    #[cfg(feature = "loader")]
    {
        loader::sites::set_up();
        // SAFETY: this thread's record.
        unsafe { (*r).shortcut.attach() };
    }
    uzswap_core::masked::set_stack_switch(threads::leave);
    signals::install(m, mode).map_err(failed)?;
    trap_calls(m).map_err(failed)?;
    ENABLED.store(true, Ordering::Relaxed);
    start_workers(m);
    Ok(())
}

/// Takes the signals that are ours out of the mask that the process was started with, which is in
/// force again.
pub fn unblock() {
    let mask = signal::block_all();
    signal::set_mask(unblockable(mask));
}

/// The end of a thread. The program's last thread ends the process, which the kernel does not do
/// while there are threads of ours.
unsafe fn exit(call: &Call) -> isize {
    let mut call = *call;
    if uzswap_sys::thread::nr_threads().is_some_and(|nr| nr <= 1 + workers::count()) {
        call.nr = nr::EXIT_GROUP;
    }
    // SAFETY: what the program asked for.
    unsafe { stub::issue(&call) }
}

/// Starts the engine's threads: at start and in a forked child.
pub fn start_workers(m: &Masked) {
    if let Err(errno) = workers::start(m) {
        refuse(failed(errno));
    }
    request::open_door();
}

/// Ends a process that cannot be managed any more.
pub fn refuse(error: StartError) -> ! {
    crate::init::refuse_now(error)
}

/// The body of [`arch::entry::sigsys`].
///
/// # Safety
/// From the entry.
pub unsafe extern "C" fn on_sigsys(
    signal: i32,
    info: *mut SigInfo,
    uc: *mut UContext,
    scratch: *mut UContext,
) -> *mut UContext {
    // SAFETY: our handlers' masks are full; the pointers are the kernel's frame.
    unsafe {
        let m = Masked::assume();
        let r = threads::at(scratch as usize);
        if !is_trapped_call(&*info) {
            if let Some(wanted) = request::take(&*info) {
                if wanted {
                    workers::serve_request(&m);
                }
                if let Some(r) = r {
                    #[cfg(feature = "loader")]
                    {
                        let number = loader::shortcut::take_back(r, &mut *uc);
                        (*r).passed_on = number.map_or(0, |number| number + 1);
                    }
                    signals::resume::resume(&m, r, uc);
                }
                return uc;
            }
            let raised = (*info).si_code == SYS_SECCOMP;
            let mask = deliver::collapse(&m, uc);
            if raised && has_blocked(r, SIGSYS) {
                return deliver::default(signal, &*info, uc);
            }
            let arrived = Arrived {
                signal,
                info: &*info,
                uc,
                mask,
                raised,
            };
            return deliver::deliver(&m, r, &arrived, scratch);
        }
        let call = Call {
            nr: usize::try_from((*info).si_syscall()).unwrap_or(0),
            args: (*uc).syscall_args(),
        };
        if let Some(process) = ENGINE.process() {
            add(&process.counters.guarded_syscalls, 1);
        }
        #[cfg(feature = "loader")]
        if (*info).si_arch() != uzswap_sys::arch::abi::AUDIT_ARCH {
            // A call of the 32-bit kind, which takes its arguments elsewhere.
            (*uc).set_syscall_return(fail(Errno::ENOSYS));
            return uc;
        }
        #[cfg(feature = "loader")]
        if let (nr::RT_SIGRETURN, Some(r)) = (call.nr, r) {
            return loader::sigreturn::sigreturn(&m, r, &*info, uc, scratch);
        }
        #[cfg(feature = "loader")]
        if let Err(errno) = loader::sites::note(&m, &*uc, &call) {
            (*uc).set_syscall_return(fail(errno));
            return uc;
        }
        if let Some(ret) = maps::raw_calls::serve(&m, &call) {
            (*uc).set_syscall_return(ret);
            return uc;
        }
        let ret = match r {
            Some(r) => {
                threads::drop_exec(r);
                #[cfg(feature = "loader")]
                loader::calls::note_times(r, &call);
                Frame::open(r, uc);
                let ret = serve(&m, r, uc, &call).unwrap_or_else(fail);
                Frame::close(&m, r);
                ret
            }
            None => without_record(&m, uc, &call),
        };
        (*uc).set_syscall_return(ret);
        uc
    }
}

/// Carries out a trapped call.
unsafe fn serve(
    m: &Masked,
    r: *mut Record,
    uc: *mut UContext,
    call: &Call,
) -> Result<isize, Errno> {
    let [a, b, c, d, e, f] = call.args;
    // SAFETY: the record is this thread's with an open frame.
    unsafe {
        #[cfg(feature = "loader")]
        if let Some(done) = loader::calls::serve(m, r, uc, call) {
            return done;
        }
        match call.nr {
            nr::CLONE | nr::FORK if fork::copies_memory(call) => {
                return fork::fork(m, r, uc, call);
            }
            nr::EXECVE | nr::EXECVEAT => return exec::exec(m, r, call),
            nr::EXIT => return Ok(exit(call)),
            nr::CLOSE_RANGE => return Ok(fds::split_close_range(a, b, c)),
            nr::READV
            | nr::PREADV
            | nr::PREADV2
            | nr::WRITEV
            | nr::PWRITEV
            | nr::PWRITEV2
            | nr::VMSPLICE => return Ok(vector::transfer(m, r, call)),
            nr::SENDMSG | nr::RECVMSG => return Ok(vector::message(m, r, call)),
            nr::SENDMMSG | nr::RECVMMSG => return vector::messages(m, r, call),
            nr::PROCESS_VM_READV | nr::PROCESS_VM_WRITEV => {
                return Ok(process_vm::process_vm(m, r, call));
            }
            nr::FUTEX_WAITV => return vector::futexes(m, r, call),
            nr::FUTEX if !is_priority(b) => return futex(m, r, call),
            _ => {}
        }
        if let Some(transfer) = Transfer::plain(call)
            && arena_part(b, c).is_some()
        {
            // The other pointers of `recvfrom` and `sendto`.
            let mut rest = *call;
            rest.args[2] = 0;
            ranges::pin(m, r, &rest)?;
            return Ok(pieces::run(m, r, &transfer, Buffers::One, c));
        }
        ranges::pin(m, r, call)?;
        match call.nr {
            nr::MINCORE if arena_part(a, b.max(1)).is_some() => {
                return maps::raw_calls::mincore(m, a, b, c);
            }
            nr::SYSINFO => {
                if let Some(done) = show_memory::sysinfo(a) {
                    return done.map(|()| 0);
                }
            }
            nr::RT_SIGACTION => return signals::sigaction(to_int(a), b, c, d),
            nr::RT_SIGPROCMASK => return signals::sigprocmask(Some(r), uc, to_int(a), b, c, d),
            nr::SIGALTSTACK => return signals::sigaltstack(r, uc, a, b),
            nr::RT_SIGSUSPEND => return masked(r, call, 0, a, b),
            nr::PPOLL => return masked(r, call, 3, d, e),
            nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => return masked(r, call, 4, e, f),
            nr::PSELECT6 => return pselect(m, r, call),
            nr::IOCTL => {
                let (at, len) = ranges::ioctl_argument(call);
                ranges::pin_behind(m, r, at, len)?;
            }
            nr::PRCTL if to_int(a) == seccomp::PR_SET_SECCOMP => expect_filter(),
            // Our handlers read it.
            nr::PRCTL if to_int(a) == PR_SET_TSC && b == PR_TSC_SIGSEGV => {
                return Err(Errno::EINVAL);
            }
            nr::SECCOMP => {
                expect_filter();
                ranges::pin_behind(m, r, b, 256)?;
            }
            nr::BPF | nr::KEYCTL | nr::SETXATTRAT | nr::GETXATTRAT => {
                ranges::pin_behind(m, r, b, 256)?;
            }
            // The kernel keeps these addresses, and writes there later.
            nr::SET_ROBUST_LIST | nr::SET_TID_ADDRESS | nr::RSEQ => {
                // Beyond the limit it stays evictable.
                let _ = ENGINE.hold(m, a, 32);
            }
            _ => {}
        }
        Ok(Frame::issue(r, call))
    }
}

/// The program is about to filter its calls. It may forbid what starting a reclaimer takes, or the
/// look at what it executes.
fn expect_filter() {
    ENGINE.refuse_reclaimer();
    OWN_FILTER.store(true, Ordering::Relaxed);
}

/// Reads the program's mask at `set`, which a call is to put in force while it waits, and makes it
/// the frame's. Returns the address of ours, for the call.
unsafe fn replace_mask(r: *mut Record, set: usize, size: usize) -> Result<usize, Errno> {
    if size != size_of::<SigSet>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the record is this thread's with an open frame; the mask is pinned.
    unsafe {
        let mask = unblockable(user::value(set)?);
        (*r).mask = mask;
        (*r).frame.mask = mask;
        (*r).frame.has_mask = true;
        Ok((&raw const (*r).mask) as usize)
    }
}

/// A call that puts the mask at `set`, argument number `arg`, in force while it waits.
unsafe fn masked(
    r: *mut Record,
    call: &Call,
    arg: usize,
    set: usize,
    size: usize,
) -> Result<isize, Errno> {
    let mut call = *call;
    // SAFETY: the record is this thread's with an open frame; the mask is pinned.
    unsafe {
        if set != 0
            && let Some(to) = call.args.get_mut(arg)
        {
            *to = replace_mask(r, set, size)?;
        }
        Ok(Frame::issue(r, &call))
    }
}

/// `pselect6`: the mask is behind a second pointer.
unsafe fn pselect(m: &Masked, r: *mut Record, call: &Call) -> Result<isize, Errno> {
    let mut call = *call;
    let at = call.args[5];
    // SAFETY: the record is this thread's with an open frame.
    unsafe {
        let [set, size]: [usize; 2] = if at == 0 { [0; 2] } else { user::value(at)? };
        if set != 0 {
            Frame::pin_whole(m, r, set, size_of::<SigSet>())?;
            (*r).mask_argument = [replace_mask(r, set, size)?, size];
            call.args[5] = (&raw const (*r).mask_argument) as usize;
        }
        Ok(Frame::issue(r, &call))
    }
}

/// Priority-inheriting futexes: the kernel writes the word after the wait, so it stays pinned.
const fn is_priority(op: usize) -> bool {
    matches!(op & 0x7f, 6 | 7 | 8 | 11 | 12 | 13)
}

/// Other futex calls: the word is read before the wait. It is brought in, not pinned, so that many
/// waiters hold no memory; evicted in between, the call fails without having done anything, and is
/// issued again.
unsafe fn futex(m: &Masked, r: *mut Record, call: &Call) -> Result<isize, Errno> {
    const ATTEMPTS: usize = 64;
    // SAFETY: the record is this thread's with an open frame.
    unsafe {
        for _ in 0..ATTEMPTS {
            ranges::pin(m, r, call)?;
            Frame::unpin_to(m, r, 0);
            let ret = Frame::issue(r, call);
            if ret != fail(Errno::EFAULT) {
                return Ok(ret);
            }
        }
        ranges::pin(m, r, call)?;
        Ok(Frame::issue(r, call))
    }
}

/// Carries out a call for a thread without a record (there are more threads than handler stacks):
/// with signals blocked, and what it touches brought in but not pinned.
unsafe fn without_record(m: &Masked, uc: *mut UContext, call: &Call) -> isize {
    const ATTEMPTS: usize = 64;
    const MAX_POPULATE_BYTES: usize = 64 << 10;
    let [a, b, c, d, ..] = call.args;
    // SAFETY: the context is this thread's.
    unsafe {
        match call.nr {
            nr::RT_SIGACTION => {
                return signals::sigaction(to_int(a), b, c, d).unwrap_or_else(fail);
            }
            nr::RT_SIGPROCMASK => {
                return signals::sigprocmask(None, uc, to_int(a), b, c, d).unwrap_or_else(fail);
            }
            nr::CLOSE_RANGE => return fds::split_close_range(a, b, c),
            _ => {}
        }
        for _ in 0..ATTEMPTS {
            for pointer in table::pointers(call.nr) {
                let at = call.args.get(usize::from(pointer.arg)).copied();
                if let Some((at, len)) = arena_part(at.unwrap_or(0), MAX_POPULATE_BYTES) {
                    let _ = ENGINE.populate(m, at, len);
                }
            }
            let ret = stub::issue(call);
            if ret != fail(Errno::EFAULT) {
                return ret;
            }
        }
        stub::issue(call)
    }
}
