//! *What*: the registers of a tracee.
//! *Invariants*: the layout is the kernel's `struct user_regs_struct`.
//! *Locking*: none. *Context*: a tracer.

use super::syscall::GATE_CODE;

/// What stands at the tracee's instruction pointer while it makes calls for its tracer.
pub const CALL_CODE: [u8; 2] = [GATE_CODE[0], GATE_CODE[1]];

/// The code segment of 64-bit programs.
const USER_CS: u64 = 0x33;

/// The registers of a stopped tracee.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "registers are named by themselves")]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    /// The number of the call, -1 if there is none to restart.
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub eflags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    /// ds, es, fs, gs.
    pub segments: [u64; 4],
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "registers and usize have 64 bits"
)]
impl Registers {
    /// Whether the tracee is a program of this word size.
    #[must_use]
    pub const fn is_native(&self) -> bool {
        self.cs == USER_CS
    }

    /// The address of the next instruction.
    #[must_use]
    pub const fn instruction_pointer(&self) -> usize {
        self.rip as usize
    }

    /// The stack pointer.
    #[must_use]
    pub const fn stack_pointer(&self) -> usize {
        self.rsp as usize
    }

    /// These registers, about to issue a call at the instruction pointer.
    #[must_use]
    pub const fn with_call(mut self, nr: usize, args: [usize; 6]) -> Self {
        let [a, b, c, d, e, f] = args;
        self.rax = nr as u64;
        self.orig_rax = u64::MAX;
        self.rdi = a as u64;
        self.rsi = b as u64;
        self.rdx = c as u64;
        self.r10 = d as u64;
        self.r8 = e as u64;
        self.r9 = f as u64;
        self
    }

    /// What the call returned.
    #[must_use]
    pub const fn result(&self) -> isize {
        self.rax.cast_signed() as isize
    }

    /// These registers, about to start at `entry` with one argument.
    #[must_use]
    pub const fn with_entry(mut self, entry: usize, argument: usize) -> Self {
        self.rip = entry as u64;
        self.rdi = argument as u64;
        self.rax = 0;
        self.orig_rax = u64::MAX;
        self
    }
}

const _: () = assert!(size_of::<Registers>() == 27 * 8);
