//! *What*: symbols that Rust cannot declare.
//! *Invariants*: all are hidden: the program may have its own.
//! *Locking*: none. *Context*: none.

use core::arch::global_asm;

// A weak reference, for `malloc::heap`: the loader stores the address of the program's `mallctl`,
// or null.
global_asm!(
    ".pushsection .data.rel.ro.uzswap_mallctl, \"aw\", @progbits",
    ".balign 8",
    ".weak mallctl",
    ".hidden uzswap_mallctl",
    ".globl uzswap_mallctl",
    "uzswap_mallctl: .quad mallctl",
    ".popsection",
);

// The precompiled `core` refers to it for unwinding. Without link-time optimization, as in debug
// builds, the reference stays; nothing calls it.
#[cfg(debug_assertions)]
global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality: ud2",
);
