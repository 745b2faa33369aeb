//! *What*: symbols that Rust cannot declare.
//! *Invariants*: all are hidden: the program may have its own.
//! *Locking*: none. *Context*: none.

use core::arch::global_asm;

// Weak references, for `malloc::heap`: the loader stores the addresses of the program's `mallctl`
// and `operator new`, or null.
global_asm!(
    ".pushsection .data.rel.ro.uzswap_allocator, \"aw\", @progbits",
    ".balign 8",
    ".weak mallctl",
    ".weak _Znwm",
    ".hidden uzswap_allocator",
    ".globl uzswap_allocator",
    "uzswap_allocator: .quad mallctl, _Znwm",
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
