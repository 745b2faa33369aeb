//! *What*: the signal frame: what the kernel puts on the stack before it enters a handler, and
//! reads back at `rt_sigreturn`.
//! *Invariants*: layouts are the kernel's.
//! *Locking*: none. *Context*: any.

use super::nr;
use super::syscall::SYSCALL_LEN;
use crate::signal::{SigInfo, SigSet, SigStack};
use core::arch::naked_asm;
use core::ffi::c_void;

/// The saved registers, in the kernel's order (`struct sigcontext`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "registers are named by themselves")]
pub struct MContext {
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rsp: u64,
    pub rip: u64,
    pub eflags: u64,
    /// cs, gs, fs, ss.
    pub segments: [u16; 4],
    /// For page faults the hardware error code: see [`PF_WRITE`].
    pub err: u64,
    pub trapno: u64,
    pub oldmask: u64,
    /// The fault address.
    pub cr2: u64,
    /// Floating-point state, on the signal frame.
    pub fpstate: *mut c_void,
    reserved: [u64; 8],
}

/// `err`: the access was a write.
pub const PF_WRITE: u64 = 2;
/// `err`: the access came from user mode.
pub const PF_USER: u64 = 4;
/// `err`: the access was an instruction fetch.
pub const PF_INSTR: u64 = 16;

/// What a thread did to memory when it faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Execute,
}

/// The kernel's `ucontext`, which a handler may change: the thread resumes as it says.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UContext {
    /// `UC_*` flags.
    pub uc_flags: u64,
    /// Unused by the kernel.
    pub uc_link: *mut c_void,
    /// The thread's alternate stack.
    pub uc_stack: SigStack,
    /// Registers.
    pub uc_mcontext: MContext,
    /// The mask that returns with the frame. Only these 8 bytes are on a kernel frame.
    pub uc_sigmask: SigSet,
}

/// Offsets into the saved floating-point state: the mark of an extended state, and its length.
const FP_MAGIC: usize = 464;
const FP_LEN: usize = 468;
/// Offset of the vector registers, and their bit among the parts of an extended state.
const FP_XMM: usize = 160;
const XSTATE_SSE: u64 = 1 << 1;
const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
const FP_LEGACY_LEN: usize = 512;

#[expect(
    clippy::cast_possible_truncation,
    reason = "registers and usize have 64 bits"
)]
impl UContext {
    /// The stack pointer.
    #[must_use]
    pub const fn stack_pointer(&self) -> usize {
        self.uc_mcontext.rsp as usize
    }

    /// Sets the stack pointer.
    pub const fn set_stack_pointer(&mut self, sp: usize) {
        self.uc_mcontext.rsp = sp as u64;
    }

    /// The address of the next instruction.
    #[must_use]
    pub const fn instruction_pointer(&self) -> usize {
        self.uc_mcontext.rip as usize
    }

    /// Sets the address of the next instruction.
    pub const fn set_instruction_pointer(&mut self, ip: usize) {
        self.uc_mcontext.rip = ip as u64;
    }

    /// The arguments of the system call that trapped.
    #[must_use]
    pub const fn syscall_args(&self) -> [usize; 6] {
        let r = &self.uc_mcontext;
        [
            r.rdi as usize,
            r.rsi as usize,
            r.rdx as usize,
            r.r10 as usize,
            r.r8 as usize,
            r.r9 as usize,
        ]
    }

    /// What the system call before the instruction pointer returned.
    #[must_use]
    pub const fn syscall_return(&self) -> isize {
        self.uc_mcontext.rax.cast_signed() as isize
    }

    /// Sets what that system call returns.
    pub const fn set_syscall_return(&mut self, value: isize) {
        self.uc_mcontext.rax = value.cast_unsigned() as u64;
    }

    /// Sets the number of the call that the next system call instruction issues.
    pub const fn set_syscall_nr(&mut self, nr: usize) {
        self.uc_mcontext.rax = nr as u64;
    }

    /// Moves from behind a system call instruction to before it, as a restart does.
    pub const fn rewind_syscall(&mut self) {
        self.uc_mcontext.rip -= SYSCALL_LEN as u64;
    }

    /// The access that a SIGSEGV of a page fault is about.
    #[must_use]
    pub const fn fault_access(&self) -> Access {
        let err = self.uc_mcontext.err;
        if err & PF_INSTR != 0 {
            Access::Execute
        } else if err & PF_WRITE != 0 {
            Access::Write
        } else {
            Access::Read
        }
    }

    /// Address and length of the floating-point state, which lies outside this structure. Address
    /// and length are 0 if there is none.
    ///
    /// # Safety
    /// The context is on the frame that the kernel put it on, or its state is still where it says.
    #[must_use]
    pub unsafe fn fp_state(&self) -> (usize, usize) {
        let state = self.uc_mcontext.fpstate as usize;
        if state == 0 {
            return (0, 0);
        }
        // SAFETY: the state is the kernel's and at least `FP_LEGACY_LEN` long.
        unsafe {
            if ((state + FP_MAGIC) as *const u32).read() == FP_XSTATE_MAGIC1 {
                (state, ((state + FP_LEN) as *const u32).read() as usize)
            } else {
                (state, FP_LEGACY_LEN)
            }
        }
    }

    /// Bytes of the floating-point state by which [`UContext::fp_state`] knows its length.
    pub const FP_HEAD_LEN: usize = FP_LEGACY_LEN;

    /// Where the floating-point state lies; 0: nowhere.
    #[must_use]
    pub fn fp_address(&self) -> usize {
        self.uc_mcontext.fpstate as usize
    }

    /// Says where the floating-point state lies now; 0: nowhere.
    pub fn set_fp_state(&mut self, addr: usize) {
        self.uc_mcontext.fpstate = addr as *mut c_void;
    }

    /// Sets the low halves of the sixteen vector registers, in the floating-point state. Without
    /// one the registers stay as they are.
    ///
    /// # Safety
    /// As [`UContext::fp_state`].
    pub unsafe fn set_vectors(&mut self, xmm: &[[u64; 2]; 16]) {
        // SAFETY: the caller's promise.
        let (state, _) = unsafe { self.fp_state() };
        if state == 0 {
            return;
        }
        // SAFETY: the state is the kernel's; the registers lie in its legacy part, and where it is
        // extended a word says which parts are not in their initial state.
        unsafe {
            ((state + FP_XMM) as *mut [[u64; 2]; 16]).write_unaligned(*xmm);
            if ((state + FP_MAGIC) as *const u32).read() == FP_XSTATE_MAGIC1 {
                let parts = (state + FP_LEGACY_LEN) as *mut u64;
                parts.write(parts.read() | XSTATE_SSE);
            }
        }
    }

    /// Makes the thread resume as `other` says: registers, mask and flags. The floating-point state
    /// stays where `other` has it.
    pub const fn become_copy(&mut self, other: &UContext) {
        self.uc_mcontext = other.uc_mcontext;
        self.uc_sigmask = other.uc_sigmask;
        self.uc_flags = other.uc_flags;
    }

    /// Makes this the context in which the handler at `handler` starts: `frame` is on its stack,
    /// and it returns to `restorer`.
    ///
    /// # Safety
    /// `frame` is writable.
    pub unsafe fn enter_handler(
        &mut self,
        handler: usize,
        signal: i32,
        frame: *mut SignalFrame,
        restorer: usize,
    ) {
        /// Flags that a handler starts without: trap, direction, resume.
        const FLAGS_CLEARED: u64 = 0x100 | 0x400 | 0x1_0000;
        // SAFETY: the caller's promise.
        let (info, context) = unsafe {
            (*frame).restorer = restorer;
            (&raw mut (*frame).info, &raw mut (*frame).context)
        };
        let regs = &mut self.uc_mcontext;
        // No saved state means the initial state, with which handlers start.
        regs.fpstate = core::ptr::null_mut();
        regs.rip = handler as u64;
        regs.rsp = frame as u64;
        regs.rdi = u64::from(signal.unsigned_abs());
        regs.rsi = info as u64;
        regs.rdx = context as u64;
        regs.rax = 0;
        regs.eflags &= !FLAGS_CLEARED;
    }
}

/// What is on the stack when a handler starts; the stack pointer points at it.
#[repr(C)]
pub struct SignalFrame {
    /// The handler's return address.
    restorer: usize,
    /// The interrupted context.
    pub context: UContext,
    /// What is known of the signal.
    pub info: SigInfo,
}

impl SignalFrame {
    /// Bytes below the stack pointer that belong to the interrupted function.
    pub const RED_ZONE: usize = 128;

    /// The frame that holds the context at `uc`.
    #[must_use]
    pub const fn of(uc: *mut UContext) -> *mut SignalFrame {
        uc.wrapping_byte_sub(core::mem::offset_of!(SignalFrame, context))
            .cast()
    }

    /// The places below address `from` of a frame, and of `fp_len` bytes of floating-point state
    /// above it.
    #[must_use]
    pub const fn below(from: usize, fp_len: usize) -> (*mut SignalFrame, usize) {
        let fp_state = from.wrapping_sub(fp_len) & !63;
        // Aligned as if a call instruction had pushed the return address.
        let frame = (fp_state.wrapping_sub(size_of::<SignalFrame>()) & !15).wrapping_sub(8);
        (frame as *mut SignalFrame, fp_state)
    }
}

/// Returns from a signal frame. The bytes are exactly those by which libgcc's unwinder and gdb know
/// a signal frame without debug information (`mov $15, %rax; syscall`).
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn restorer() {
    naked_asm!(".byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05")
}

/// Returns from a signal frame that may be evicted: touches every page of it, and then asks the
/// kernel to read it.
///
/// # Safety
/// For a handler to return to.
#[unsafe(naked)]
pub unsafe extern "C" fn touching_restorer() {
    naked_asm!(
        // The return address is popped: the stack pointer is at the context.
        "mov al, [rsp]",
        "mov al, [rsp + {last}]",
        "mov rcx, [rsp + {fpstate}]",
        "test rcx, rcx",
        "jz 2f",
        // The state is a few KiB, on at most three pages.
        "mov al, [rcx]",
        "mov edx, [rcx + {fp_magic}]",
        "cmp edx, {xstate}",
        "jne 2f",
        "mov edx, [rcx + {fp_len}]",
        "mov al, [rcx + rdx - 1]",
        "cmp edx, 4096",
        "jb 2f",
        "mov al, [rcx + 4096]",
        "mov al, [rcx + rdx - 4096]",
        "2:",
        "mov eax, {sigreturn}",
        "syscall",
        "ud2",
        last = const size_of::<SignalFrame>() - size_of::<usize>() - 1,
        fpstate = const core::mem::offset_of!(UContext, uc_mcontext)
            + core::mem::offset_of!(MContext, fpstate),
        fp_magic = const FP_MAGIC,
        fp_len = const FP_LEN,
        xstate = const FP_XSTATE_MAGIC1,
        sigreturn = const nr::RT_SIGRETURN,
    )
}

const _: () = {
    assert!(size_of::<MContext>() == 256);
    assert!(size_of::<UContext>() == 304);
    assert!(size_of::<SignalFrame>() == 440);
    assert!(core::mem::offset_of!(UContext, uc_sigmask) == 296);
    assert!(core::mem::offset_of!(MContext, rip) == 16 * 8);
    assert!(core::mem::offset_of!(MContext, fpstate) == 184);
};
