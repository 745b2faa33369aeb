//! *What*: one thread-local word: the address of the calling thread's record, for code in the
//! program's own context that must be quick.
//!
//! *Invariants*: null, or the record of this thread, or (on a thread made by a raw clone that
//! shares its maker's thread-local storage) its maker's: good for hints, not for stacks. The word
//! is in the initial TLS block, as that of every preloaded library, so an access calls no function.
//! *Locking*: none. *Context*: the program's.

use core::arch::{asm, global_asm};

use crate::threads::Record;

global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".hidden uzswap_thread_record",
    ".globl uzswap_thread_record",
    ".type uzswap_thread_record, @object",
    ".size uzswap_thread_record, 8",
    ".balign 8",
    "uzswap_thread_record:",
    ".zero 8",
    ".text",
);

/// The calling thread's record, null if there is none.
#[inline]
pub fn record() -> *mut Record {
    let r: *mut Record;
    // SAFETY: reads the word declared above.
    unsafe {
        asm!(
            "mov {r}, qword ptr [rip + uzswap_thread_record@GOTTPOFF]",
            "mov {r}, qword ptr fs:[{r}]",
            r = out(reg) r,
            options(nostack, readonly, preserves_flags),
        );
    }
    r
}

/// Sets it.
pub fn set_record(r: *mut Record) {
    // SAFETY: writes the word declared above.
    unsafe {
        asm!(
            "mov {t}, qword ptr [rip + uzswap_thread_record@GOTTPOFF]",
            "mov qword ptr fs:[{t}], {r}",
            r = in(reg) r,
            t = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}
