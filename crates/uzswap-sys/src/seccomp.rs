//! *What*: seccomp filters in classic BPF.
//! *Invariants*: an installed filter is inherited by every child and never removed.
//! *Locking*: none. *Context*: init, single-threaded or with `TSYNC`.

use crate::syscall::{Result, addr, call3, call5};
use crate::{Errno, nr};

/// One BPF instruction.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SockFilter {
    /// Operation.
    pub code: u16,
    /// Instructions to skip if true.
    pub jt: u8,
    /// Instructions to skip if false.
    pub jf: u8,
    /// Constant.
    pub k: u32,
}

/// Most instructions that the kernel takes.
pub const BPF_MAXINSNS: usize = 4096;

#[repr(C)]
struct SockFprog {
    len: u16,
    filter: *const SockFilter,
}

/// Operations that filters use: load a 32-bit word of the data, compare, return.
pub mod op {
    /// A = data word at byte offset k.
    pub const LD_ABS: u16 = 0x20;
    /// A &= k.
    pub const AND: u16 = 0x54;
    /// A >>= k.
    pub const RSH: u16 = 0x74;
    /// Skip k instructions.
    pub const JA: u16 = 0x05;
    /// A == k?
    pub const JEQ: u16 = 0x15;
    /// A > k, unsigned?
    pub const JGT: u16 = 0x25;
    /// A >= k, unsigned?
    pub const JGE: u16 = 0x35;
    /// A & k?
    pub const JSET: u16 = 0x45;
    /// Return k.
    pub const RET: u16 = 0x06;
}

impl SockFilter {
    /// An instruction without jumps.
    #[must_use]
    pub const fn stmt(code: u16, k: u32) -> Self {
        SockFilter {
            code,
            jt: 0,
            jf: 0,
            k,
        }
    }

    /// A conditional jump: skip `jt` instructions if it holds, `jf` if not.
    #[must_use]
    pub const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Self {
        SockFilter { code, jt, jf, k }
    }
}

/// Byte offset of the call number in `struct seccomp_data`.
pub const DATA_NR: u32 = 0;
/// Byte offset of the architecture.
pub const DATA_ARCH: u32 = 4;
/// Byte offset of the low half of the instruction pointer, which is behind the system call
/// instruction.
pub const DATA_IP_LO: u32 = 8;
/// Byte offset of its high half.
pub const DATA_IP_HI: u32 = 12;

/// Byte offset of the low half of argument `n` (0..=5); the high half is 4 further.
#[must_use]
pub const fn data_arg_lo(n: u32) -> u32 {
    16 + 8 * n
}

/// Byte offset of the high half of argument `n` (0..=5).
#[must_use]
pub const fn data_arg_hi(n: u32) -> u32 {
    data_arg_lo(n) + 4
}

pub use crate::arch::abi::{AUDIT_ARCH, FOREIGN_ABI_NR};

/// Let the call through.
pub const RET_ALLOW: u32 = 0x7fff_0000;
/// Raise SIGSYS instead of the call; the low 16 bits arrive as `si_errno`.
pub const RET_TRAP: u32 = 0x0003_0000;
/// Fail the call with the error in the low 16 bits.
pub const RET_ERRNO: u32 = 0x0005_0000;

/// Put the filter on every thread of the process, or fail.
pub const FILTER_FLAG_TSYNC: usize = 1;
/// Do not turn on the speculation mitigations that older kernels add (4.17).
pub const FILTER_FLAG_SPEC_ALLOW: usize = 4;

const SET_MODE_FILTER: usize = 1;

/// The option of prctl(2) that installs a filter.
pub const PR_SET_SECCOMP: i32 = 22;

/// Installs the filter on this thread, or on all with [`FILTER_FLAG_TSYNC`].
///
/// # Errors
/// `EACCES`: [`set_no_new_privs`] was not called and the process has no `CAP_SYS_ADMIN`.
/// `EINVAL`: the program is malformed or empty. `ENOMEM`: too many filters. `ESRCH`: with `TSYNC`,
/// a thread has other filters of its own (the kernel names it; which one is of no use here).
///
/// # Safety
/// There is no way back, for this process and all it starts. A filter that traps needs the SIGSYS
/// handler to be in place.
pub unsafe fn install_filter(program: &[SockFilter], flags: usize) -> Result<()> {
    let Ok(len) = u16::try_from(program.len()) else {
        return Err(Errno::EINVAL);
    };
    let prog = SockFprog {
        len,
        filter: program.as_ptr(),
    };
    let prog = addr(&prog);
    // SAFETY: the kernel copies the program during the call; the effect is the caller's promise.
    match unsafe { call3(nr::SECCOMP, SET_MODE_FILTER, flags, prog) }? {
        0 => Ok(()),
        _thread_out_of_sync => Err(Errno::ESRCH),
    }
}

/// `PR_SET_NO_NEW_PRIVS`: set-user-ID programs started from here get no privilege. Never undone.
///
/// # Errors
/// Practically none.
pub fn set_no_new_privs() -> Result<()> {
    const PR_SET_NO_NEW_PRIVS: usize = 38;
    // SAFETY: takes integers only.
    unsafe { call5(nr::PRCTL, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.map(drop)
}

/// A call that [`Sandbox`] lets through.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// Its number.
    pub nr: usize,
    /// The number of an argument and the only value that its low half may have.
    pub only: Option<(u32, u32)>,
}

/// A filter that refuses all calls with `EPERM` but a few.
#[derive(Debug)]
pub struct Sandbox {
    code: [SockFilter; 128],
    len: usize,
}

impl Sandbox {
    /// Lets `calls` through. Those that do not fit are refused.
    #[must_use]
    pub fn new(calls: &[Allowed]) -> Self {
        let mut sandbox = Sandbox {
            code: [SockFilter::stmt(op::RET, RET_ERRNO | 1); 128],
            len: 0,
        };
        sandbox.push(SockFilter::stmt(op::LD_ABS, DATA_ARCH));
        sandbox.push(SockFilter::jump(op::JEQ, AUDIT_ARCH, 1, 0));
        sandbox.push(SockFilter::stmt(op::RET, RET_ERRNO | 1));
        for call in calls {
            let nr = u32::try_from(call.nr).unwrap_or(u32::MAX);
            sandbox.push(SockFilter::stmt(op::LD_ABS, DATA_NR));
            match call.only {
                None => sandbox.push(SockFilter::jump(op::JEQ, nr, 0, 1)),
                Some((arg, value)) => {
                    sandbox.push(SockFilter::jump(op::JEQ, nr, 0, 3));
                    sandbox.push(SockFilter::stmt(op::LD_ABS, data_arg_lo(arg)));
                    sandbox.push(SockFilter::jump(op::JEQ, value, 0, 1));
                }
            }
            sandbox.push(SockFilter::stmt(op::RET, RET_ALLOW));
        }
        sandbox.push(SockFilter::stmt(op::RET, RET_ERRNO | 1));
        sandbox
    }

    fn push(&mut self, instruction: SockFilter) {
        // The last instruction stays a refusal.
        if let Some(place) = self
            .code
            .get_mut(..127)
            .and_then(|code| code.get_mut(self.len))
        {
            *place = instruction;
            self.len += 1;
        }
    }

    /// Puts the calling thread in it.
    ///
    /// # Errors
    /// As [`install_filter`].
    ///
    /// # Safety
    /// As [`install_filter`]. Refused calls fail: what the thread runs can bear it.
    pub unsafe fn enter(&self) -> Result<()> {
        set_no_new_privs()?;
        // SAFETY: the caller's promise; no call traps.
        unsafe { install_filter(&self.code, FILTER_FLAG_SPEC_ALLOW) }
    }
}
