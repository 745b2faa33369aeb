//! ^C ends a measurement, not the results: what was measured is kept, what was changed is put back.
//!
//! *What*: a flag that SIGINT, SIGTERM and SIGHUP set.
//! *Invariants*: the handler only stores to an atomic.
//! *Locking*: none; the flag guards no other data, so relaxed order is enough.
//! *Context*: signal handler; everything that takes long looks at the flag.

use std::sync::atomic::{AtomicBool, Ordering};

static HAPPENED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    HAPPENED.store(true, Ordering::Relaxed);
}

/// From now on those signals only set the flag. Children have the default again after exec.
pub fn catch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler is async-signal-safe and lives as long as the program.
        unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
    }
}

/// What was interrupted has ended: the next one counts anew. Whether there was one.
pub fn forget() -> bool {
    HAPPENED.swap(false, Ordering::Relaxed)
}

/// Whether one of the signals has come.
#[must_use]
pub fn happened() -> bool {
    HAPPENED.load(Ordering::Relaxed)
}
