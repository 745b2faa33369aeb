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
