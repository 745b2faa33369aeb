//! Threads that wake when they want to.

/// Has this thread wake on time; the kernel may otherwise wake it 50 µs late.
pub(crate) fn be_on_time() {
    // SAFETY: no memory effects.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}
