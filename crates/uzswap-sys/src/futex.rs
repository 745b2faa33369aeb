//! *What*: futex wait and wake.
//! *Invariants*: `wait` and `wake` are private to the process (no lookup of the page behind the
//! address); a futex in memory shared with another process needs the `_shared` forms.
//! *Locking*: none; locks are built from it.
//! *Context*: any. A wait in a signal handler must not wait for the thread it interrupted.

use crate::syscall::{Result, addr_or_null, call4};
use crate::{nr, thread::Timespec};
use core::sync::atomic::AtomicU32;

const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;
const FUTEX_PRIVATE_FLAG: usize = 128;

fn wait_op(op: usize, word: &AtomicU32, value: u32, timeout: Option<&Timespec>) -> Result<()> {
    let (at, timeout) = (word.as_ptr() as usize, addr_or_null(timeout));
    // SAFETY: the kernel reads the word and the time, both live for the call.
    unsafe { call4(nr::FUTEX, at, op, value as usize, timeout) }.map(drop)
}

fn wake_op(op: usize, word: &AtomicU32, nr_waiters: u32) -> usize {
    let at = word.as_ptr() as usize;
    // SAFETY: a wake only uses the address as a key.
    unsafe { call4(nr::FUTEX, at, op, nr_waiters as usize, 0) }.unwrap_or(0)
}

/// Sleeps while `*word == value`, until woken or for at most `timeout` (relative).
///
/// # Errors
/// `EAGAIN`: the word already differs. `EINTR`: a signal. `ETIMEDOUT`. The caller re-reads the word
/// in every case, also after success: wake-ups may be spurious.
pub fn wait(word: &AtomicU32, value: u32, timeout: Option<&Timespec>) -> Result<()> {
    wait_op(FUTEX_WAIT | FUTEX_PRIVATE_FLAG, word, value, timeout)
}

/// Wakes at most `nr_waiters` sleepers of [`wait`]; returns how many it woke.
pub fn wake(word: &AtomicU32, nr_waiters: u32) -> usize {
    wake_op(FUTEX_WAKE | FUTEX_PRIVATE_FLAG, word, nr_waiters)
}

/// [`wait`] on a word in memory shared between processes, or one that the kernel itself wakes
/// (the thread-exit word of [`crate::thread::spawn_raw`]).
///
/// # Errors
/// As [`wait`].
pub fn wait_shared(word: &AtomicU32, value: u32, timeout: Option<&Timespec>) -> Result<()> {
    wait_op(FUTEX_WAIT, word, value, timeout)
}

/// [`wake`] for [`wait_shared`].
pub fn wake_shared(word: &AtomicU32, nr_waiters: u32) -> usize {
    wake_op(FUTEX_WAKE, word, nr_waiters)
}
