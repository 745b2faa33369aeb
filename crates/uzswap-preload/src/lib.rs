//! *What*: the library that `uzswap run` preloads into unmodified programs. It gives them an
//! allocator and an address space whose memory the engine manages, and makes their system calls,
//! signals and forks work on it.
//!
//! Where to look: `init` (start in a process), `malloc` (allocator), `maps` (mmap and relatives),
//! `guard` (system calls on evicted memory), `signals`, `threads` (handler stacks), `fork`,
//! `workers` (the engine's threads), `request` (`uzswap reclaim` and its like), `show_memory`
//! (another total for the program), `fds`, `dl`, `arch`.
//!
//! *Invariants*: no std, no allocation, no unwinding. *Locking*, *Context*: each module's.
#![no_std]
#![cfg_attr(
    feature = "loader",
    allow(
        dead_code,
        unused_imports,
        reason = "without a C library to serve, parts are used by half"
    )
)]

mod arch;
#[cfg(feature = "loader")]
mod bare;
#[cfg(not(feature = "loader"))]
mod dl;
mod engine_files;
mod environ;
mod fds;
mod fork;
mod guard;
mod init;
mod inject;
#[cfg(feature = "loader")]
mod loader;
#[cfg(not(feature = "loader"))]
mod malloc;
mod maps;
#[cfg(not(feature = "loader"))]
mod next;
mod proc_files;
mod request;
#[cfg(not(feature = "loader"))]
mod show_memory;
mod signals;
mod threads;
mod workers;

#[cfg(feature = "loader")]
use bare::{malloc, show_memory};

pub use init::ENGINE;

/// A bug of ours: one line, then exit. A panic must not unwind through the program's frames.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    init::say(format_args!("uzswap: internal error: {info}"));
    uzswap_sys::thread::exit_group(127)
}
