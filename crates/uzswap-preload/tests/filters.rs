//! The guard's seccomp filters, built as the library builds them and run by an interpreter: the
//! library itself cannot be linked into a test.
#![allow(
    missing_docs,
    dead_code,
    unused_imports,
    reason = "modules of the library, in part"
)]

#[path = "../src/arch/x86_64"]
mod arch {
    pub mod stub;
}

#[path = "../src/guard"]
mod guard {
    pub mod filter;
    pub mod room;
    pub mod stub;
    pub mod text;
}

#[path = "../src/proc_files.rs"]
mod proc_files;
