//! What a program sees with `--show-memory`: the library itself cannot be linked into a test.
#![allow(missing_docs, dead_code, reason = "modules of the library, in part")]

#[path = "../src/show_memory/shown.rs"]
mod shown;
#[path = "../src/show_memory/source.rs"]
mod source;
