//! *What*: tracing a process that is about to execute a program: ptrace(2) and the stops that
//! wait(2) reports.
//!
//! *Invariants*: the tracee runs on by itself when its tracer ends, however that happens, unless it
//! was to end with it.
//! *Locking*: none. *Context*: the tracer's one thread.

pub use crate::arch::ptrace::Registers;
use crate::signal::SigSet;
use crate::syscall::{Result, addr, addr_mut, call4, int, to_int};
use crate::{Errno, nr};

const POKETEXT: usize = 4;
const PEEKTEXT: usize = 1;
const CONT: usize = 7;
const GETREGS: usize = 12;
const SETREGS: usize = 13;
const DETACH: usize = 17;
const SYSCALL: usize = 24;
const SEIZE: usize = 0x4206;
const LISTEN: usize = 0x4208;
const GETSIGMASK: usize = 0x420a;
const SETSIGMASK: usize = 0x420b;
/// Stops at system calls are told apart from signals.
const O_TRACESYSGOOD: usize = 1;
const O_TRACEEXEC: usize = 0x10;
const EVENT_EXEC: i32 = 4;
const EVENT_STOP: i32 = 128;
const SIGTRAP: i32 = 5;
/// Waits for children and tracees of all kinds.
const WALL: usize = 0x4000_0000;

/// Why a tracee is not running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It has executed a program, and has not run it yet.
    Exec,
    /// It enters or leaves a system call.
    Call,
    /// This signal is about to be delivered.
    Signal(i32),
    /// It has been stopped by a signal, or goes on.
    Group,
    /// It is gone.
    Ended,
}

fn ptrace(request: usize, pid: i32, at: usize, data: usize) -> Result<()> {
    // SAFETY: what the tracee's memory and registers become is the caller's answer; ours is
    // written as the requests below say.
    unsafe { call4(nr::PTRACE, request, int(pid), at, data) }.map(drop)
}

/// Traces thread `tid` from now on, which runs on.
///
/// # Errors
/// `EPERM`: not allowed, or traced already. `ESRCH`: no such thread.
pub fn seize(tid: i32) -> Result<()> {
    ptrace(SEIZE, tid, 0, O_TRACEEXEC | O_TRACESYSGOOD)
}

/// Waits for the next stop of any tracee, and returns its number.
///
/// # Errors
/// `ECHILD`: there is none.
pub fn wait() -> Result<(i32, Stop)> {
    let mut status = 0_i32;
    let pid = loop {
        // SAFETY: the kernel writes one int.
        match unsafe { call4(nr::WAIT4, usize::MAX, addr_mut(&mut status), WALL, 0) } {
            Err(Errno::EINTR) => {}
            other => break to_int(other?),
        }
    };
    Ok((pid, stop_of(status)))
}

const fn stop_of(status: i32) -> Stop {
    if status & 0xff != 0x7f {
        return Stop::Ended;
    }
    let (signal, event) = (status >> 8 & 0xff, status >> 16);
    match (signal, event) {
        (SIGTRAP, EVENT_EXEC) => Stop::Exec,
        (_, EVENT_STOP) => Stop::Group,
        _ if signal == SIGTRAP | 0x80 => Stop::Call,
        _ => Stop::Signal(signal),
    }
}

/// Lets a tracee run on, with `signal` unless that is 0.
///
/// # Errors
/// `ESRCH`: it is gone.
pub fn go_on(pid: i32, signal: i32) -> Result<()> {
    ptrace(CONT, pid, 0, int(signal))
}

/// Lets a tracee run to where it next enters or leaves a system call.
///
/// # Errors
/// `ESRCH`: it is gone.
pub fn to_call(pid: i32) -> Result<()> {
    ptrace(SYSCALL, pid, 0, 0)
}

/// Leaves a tracee in its group stop.
///
/// # Errors
/// `ESRCH`: it is gone; `EIO`: it is in none.
pub fn listen(pid: i32) -> Result<()> {
    ptrace(LISTEN, pid, 0, 0)
}

/// Has a tracee end if its tracer does: half of what the tracer makes of it must not run.
///
/// # Errors
/// `ESRCH`: it is gone.
pub fn end_together(pid: i32) -> Result<()> {
    const SETOPTIONS: usize = 0x4200;
    const O_EXITKILL: usize = 0x10_0000;
    ptrace(
        SETOPTIONS,
        pid,
        0,
        O_TRACEEXEC | O_TRACESYSGOOD | O_EXITKILL,
    )
}

/// Ends the tracing.
///
/// # Errors
/// `ESRCH`: it is gone.
pub fn detach(pid: i32) -> Result<()> {
    ptrace(DETACH, pid, 0, 0)
}

/// The registers of a stopped tracee.
///
/// # Errors
/// `ESRCH`: it is gone.
pub fn registers(pid: i32) -> Result<Registers> {
    let mut registers = Registers::default();
    ptrace(GETREGS, pid, 0, addr_mut(&mut registers))?;
    Ok(registers)
}

/// Sets them.
///
/// # Errors
/// `ESRCH`: it is gone. `EIO`: not such registers.
pub fn set_registers(pid: i32, registers: &Registers) -> Result<()> {
    ptrace(SETREGS, pid, 0, addr(registers))
}

/// A word of a tracee's memory.
///
/// # Errors
/// `EIO`: not mapped. `ESRCH`: it is gone.
pub fn word(pid: i32, at: usize) -> Result<usize> {
    let mut word = 0_usize;
    ptrace(PEEKTEXT, pid, at, addr_mut(&mut word))?;
    Ok(word)
}

/// Writes a word of a tracee's memory, its code included.
///
/// # Errors
/// As [`word`].
pub fn set_word(pid: i32, at: usize, word: usize) -> Result<()> {
    ptrace(POKETEXT, pid, at, word)
}

/// The signal mask of a stopped tracee.
///
/// # Errors
/// `ESRCH`: it is gone.
pub fn mask(pid: i32) -> Result<SigSet> {
    let mut mask = SigSet::EMPTY;
    ptrace(GETSIGMASK, pid, size_of::<SigSet>(), addr_mut(&mut mask))?;
    Ok(mask)
}

/// Sets it.
///
/// # Errors
/// `ESRCH`: it is gone.
pub fn set_mask(pid: i32, mask: SigSet) -> Result<()> {
    ptrace(SETSIGMASK, pid, size_of::<SigSet>(), addr(&mask))
}
