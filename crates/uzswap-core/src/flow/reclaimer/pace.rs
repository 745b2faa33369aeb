//! *What*: when the reclaimer makes way: while it has to wait for a processor it takes the
//! program's time and saves none, so it pauses, twice as long each time.
//!
//! *Invariants*: none. *Locking*: none. *Context*: the reclaimer.

use uzswap_sys::file;

/// First and longest pause, nanoseconds.
const MIN_PAUSE_NS: u64 = 1_000_000;
const MAX_PAUSE_NS: u64 = 64_000_000;

/// Time that the reclaimer waited for a processor, and how long it pauses for that.
pub(super) struct Pace {
    /// `/proc/thread-self/schedstat`; -1 without: then it never pauses.
    schedstat: i32,
    /// Nanoseconds waited for a processor so far.
    waited: u64,
    pause: u64,
}

impl Pace {
    /// Opens what tells of the time waited. Before the sandbox.
    pub(super) fn new() -> Self {
        let flags = file::O_RDONLY | file::O_CLOEXEC;
        let path = c"/proc/thread-self/schedstat";
        Self::of(file::openat(file::AT_FDCWD, path, flags, 0).unwrap_or(-1))
    }

    fn of(schedstat: i32) -> Self {
        let mut pace = Pace {
            schedstat,
            waited: 0,
            pause: MIN_PAUSE_NS,
        };
        pace.waited = pace.read().unwrap_or(0);
        pace
    }

    /// After work that took `elapsed` nanoseconds: how long to pause, if a quarter of them passed
    /// in waiting for a processor.
    pub(super) fn pause_after(&mut self, elapsed: u64) -> Option<u64> {
        let waited = self.read()?;
        let waiting = waited.saturating_sub(core::mem::replace(&mut self.waited, waited));
        self.pause_for(waiting, elapsed)
    }

    fn pause_for(&mut self, waiting: u64, elapsed: u64) -> Option<u64> {
        if waiting < elapsed / 4 {
            self.pause = MIN_PAUSE_NS;
            return None;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(MAX_PAUSE_NS);
        Some(pause)
    }

    fn read(&self) -> Option<u64> {
        let mut text = [0; 64];
        let len = file::pread(self.schedstat, &mut text, 0).ok()?;
        parse(text.get(..len)?)
    }
}

/// The second number of `text`: time spent running, time waiting to run, times run.
fn parse(text: &[u8]) -> Option<u64> {
    let word = text.split(|byte| *byte == b' ').nth(1)?;
    core::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_pauses_longer_and_longer_until_a_processor_is_idle() {
        let mut pace = Pace::of(-1);
        assert_eq!(pace.pause_after(1), None, "nothing tells of the time");
        let busy: Vec<_> = (0..9).map(|_| pace.pause_for(30, 100)).collect();
        let ms = [1, 2, 4, 8, 16, 32, 64, 64, 64];
        assert_eq!(busy, ms.map(|ms| Some(ms * 1_000_000)));
        assert_eq!(pace.pause_for(10, 100), None);
        assert_eq!(pace.pause_for(30, 100), Some(MIN_PAUSE_NS));
    }

    #[test]
    fn the_kernels_line_is_read() {
        assert_eq!(parse(b"120 3456 7\n"), Some(3456));
        assert_eq!(parse(b"120"), None);
        assert!(Pace::new().read().is_some(), "Linux has it");
    }
}
