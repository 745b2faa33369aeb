//! ^C ends a measurement and keeps its results.
//!
//! *What*: a flag that SIGINT, SIGTERM and SIGHUP set; everything that takes long checks it.
//! *Invariants*: the handler only stores to an atomic.
//! *Locking*: none; the flag guards no other data, so relaxed ordering is enough.
//! *Context*: signal handler.

use std::sync::atomic::{AtomicBool, Ordering};

static HAPPENED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    HAPPENED.store(true, Ordering::Relaxed);
}

/// Makes those signals only set the flag, from now on. Children get the default action on exec.
pub fn catch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler is async-signal-safe and lives as long as the program.
        unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
    }
}

/// Clears the flag; returns whether it was set.
pub fn take() -> bool {
    HAPPENED.swap(false, Ordering::Relaxed)
}

/// Whether one of the signals has come.
#[must_use]
pub fn happened() -> bool {
    HAPPENED.load(Ordering::Relaxed)
}
