//! The guard's seccomp filters, built as the library builds them and run by an interpreter: the
//! library itself cannot be linked into a test.
#![allow(missing_docs, dead_code, reason = "modules of the library, in part")]

#[path = "../src/guard/bpf.rs"]
mod bpf;
#[path = "../src/guard/filter.rs"]
mod filter;
#[path = "../src/guard/stub.rs"]
mod stub;
#[path = "../src/guard/table.rs"]
mod table;
