//! *What*: the stub page, through which trapped system calls are issued again: it lies at the same
//! address in every process, since an inherited filter exempts it by address.
//!
//! *Invariants*: it holds two gates: calls of the program go through [`PROGRAM_GATE`], which
//! filters of pointers exempt; calls of ours through [`OWN_GATE`].
//! *Locking*: none. *Context*: init.

use uzswap_sys::arch::syscall::{GATE_CODE, SYSCALL_LEN};
use uzswap_sys::mem::{
    MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_PRIVATE, PROT_EXEC, PROT_READ, PROT_WRITE, mmap,
    mprotect,
};
use uzswap_sys::{Errno, PAGE_SIZE};

/// Where the stub page is: just below the arena, in every managed process.
pub const STUB: usize = 0x0fff_ffff_0000;
/// The gate for calls of the program.
pub const PROGRAM_GATE: usize = STUB;
/// The instruction pointer of a call at [`PROGRAM_GATE`], as a filter sees it.
pub const PROGRAM_GATE_RETURN: usize = PROGRAM_GATE + SYSCALL_LEN;
/// The gate for calls of our own.
pub const OWN_GATE: usize = STUB + 16;
/// The instruction pointer of a call at [`OWN_GATE`].
pub const OWN_GATE_RETURN: usize = OWN_GATE + SYSCALL_LEN;

/// Maps the stub page.
///
/// # Errors
/// `EEXIST`: something else lies there. Others as mmap(2).
pub fn map() -> Result<(), Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE takes nothing away from anybody.
    let at = unsafe { mmap(STUB, PAGE_SIZE, PROT_READ | PROT_WRITE, flags, -1, 0) }?;
    if at != STUB {
        // A kernel that does not know NOREPLACE took the address for a hint.
        return Err(Errno::EEXIST);
    }
    for start in [PROGRAM_GATE, OWN_GATE] {
        for (n, byte) in GATE_CODE.iter().enumerate() {
            // SAFETY: inside the page mapped above.
            unsafe { ((start + n) as *mut u8).write(*byte) };
        }
    }
    // SAFETY: our own page, which stays.
    unsafe { mprotect(STUB, PAGE_SIZE, PROT_READ | PROT_EXEC) }
}
