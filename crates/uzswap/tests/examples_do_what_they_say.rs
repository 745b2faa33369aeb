//! The examples run, which check their data themselves.
#![allow(missing_docs, dead_code, reason = "a test")]

#[path = "../examples/key_value_store.rs"]
mod key_value_store;
#[path = "../examples/larger_than_ram.rs"]
mod larger_than_ram;

#[test]
fn larger_than_ram() {
    larger_than_ram::main().unwrap();
}

#[test]
fn key_value_store() {
    key_value_store::main().unwrap();
}
