//! How a job ended, and what a story expects of that.

use std::time::Duration;

use serde_json::Value;

/// How a job ended.
#[derive(Debug)]
pub struct Outcome {
    /// Exit status as a shell has it: 128 + N after signal N.
    pub status: i32,
    /// All of stdout.
    pub stdout: Vec<u8>,
    /// All of stderr.
    pub stderr: String,
    /// What `--stats` wrote; null for a native run or when nothing was written.
    pub stats: Value,
    /// Highest resident set of any process of the job, file pages included, bytes; polled every few
    /// milliseconds. (wait4's figure includes this test process, which the job was before exec.)
    pub peak_rss: u64,
    /// User and system time of the job's processes.
    pub cpu: Duration,
    /// Wall time.
    pub elapsed: Duration,
}

impl Outcome {
    /// stdout as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into()
    }

    /// stdout as JSON.
    ///
    /// # Panics
    /// If it is not.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|why| panic!("{why}: {}\n{}", self.text(), self.stderr))
    }

    /// A number from the stats.
    ///
    /// # Panics
    /// If the stats do not have it.
    #[must_use]
    pub fn stat(&self, name: &str) -> u64 {
        number(&self.stats, name)
    }

    /// Fails the story with all the output unless the job ended well.
    #[must_use]
    pub fn expect_success(self, what: &str) -> Self {
        assert!(
            self.status == 0,
            "{what} ended with {}\nstdout:\n{}\nstderr:\n{}\nstats: {}",
            self.status,
            self.text(),
            self.stderr,
            self.stats
        );
        self
    }

    /// Fails the story unless the job ended with `status` and one line on stderr that has all
    /// `words`.
    #[must_use]
    pub fn expect_refused(self, status: i32, words: &[&str]) -> Self {
        let line = &self.stderr;
        assert_eq!(self.status, status, "{line}");
        assert_eq!(line.trim_end().lines().count(), 1, "one line, not:\n{line}");
        self.expect_stderr(words);
        self
    }

    /// Checks that stderr has all `words`.
    ///
    /// # Panics
    /// If it lacks one.
    pub fn expect_stderr(&self, words: &[&str]) {
        for word in words {
            let has = self.stderr.contains(word);
            assert!(has, "no {word:?} in: {}", self.stderr);
        }
    }

    /// Checks that this managed run printed what the native run printed.
    ///
    /// # Panics
    /// If it did not.
    pub fn expect_same_output(&self, native: &Self) {
        assert!(
            self.status == native.status && self.stdout == native.stdout,
            "native: {}\n{}\nmanaged: {}\n{}\n{}",
            native.status,
            native.text(),
            self.status,
            self.text(),
            self.stderr
        );
    }

    /// Checks that this managed run stayed within its limit, by its own account and by the
    /// kernel's. `beside` is what the program has in RAM that no limit covers (code, libraries,
    /// stacks, files), in bytes.
    ///
    /// # Panics
    /// If it did not.
    pub fn expect_within(&self, beside: u64) {
        let (peak, limit) = match self.stats["ram_limit_per_process"].as_u64() {
            Some(limit) => (self.stat("ram_peak_per_process"), limit),
            None => (self.stat("ram_peak"), self.stat("ram_limit")),
        };
        // What leaves the memory that a family has in common may count twice for a moment.
        let twice = match self.stat("processes") {
            1 => 0,
            _ => self.stat("folio"),
        };
        assert!(
            peak > 0 && peak <= limit + twice,
            "peak {peak} of {limit}: {}",
            self.stats
        );
        assert!(
            self.peak_rss <= limit + beside,
            "resident set {} MiB, limit {} MiB and {} MiB beside it",
            self.peak_rss >> 20,
            limit >> 20,
            beside >> 20
        );
    }

    /// Checks that this managed run's peak is at most a quarter of the native run's.
    ///
    /// # Panics
    /// If it is not.
    pub fn expect_quarter_of(&self, native: &Self) {
        let peak = self.stat("ram_peak");
        assert!(
            peak * 4 <= native.peak_rss,
            "peak {} MiB is more than a quarter of the native {} MiB",
            peak >> 20,
            native.peak_rss >> 20
        );
    }
}

/// The number `key` of a JSON object.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn number(object: &Value, key: &str) -> u64 {
    object[key]
        .as_u64()
        .unwrap_or_else(|| panic!("no number {key:?} in {object}"))
}
