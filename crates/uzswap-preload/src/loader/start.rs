//! *What*: the first code of the image. A tracer has put it into a program, which it starts; or the
//! kernel executes it by itself ([`super::command`]).
//!
//! *Invariants*: the program begins with the stack, and with the registers, that the kernel gave
//! it. *Locking*: none. *Context*: init.

use super::command;
use crate::init;

/// Room for what starts the engine, whose parts are built on the stack: 0.3 MiB in a debug build.
const STACK_LEN: usize = 2 << 20;

/// The stack of the first code, where the program's own may be small.
#[repr(C, align(4096))]
pub struct Stack([u8; STACK_LEN]);

/// The end of it is where [`crate::arch::start`] begins.
pub static mut STACK: Stack = Stack([0; STACK_LEN]);
/// Bytes of it.
pub const LEN: usize = size_of::<Stack>();

/// Called by the first instructions, with the address of the program's own first instruction (0:
/// there is no program) and the stack that the kernel made. Returns the former.
///
/// # Safety
/// At the start of a process, which has one thread.
pub unsafe extern "C" fn begin(program: usize, stack: *const usize) -> usize {
    if program == 0 {
        // SAFETY: the stack is the kernel's.
        unsafe { command::run(stack) };
    }
    // A program of a run that has ended goes on as it is.
    init::managed();
    program
}
