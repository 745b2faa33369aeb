//! What the end-to-end stories share: the built binary, jobs that run natively or under `uzswap
//! run`, compiled test programs, ordinary users and memory cgroups.
//!
//! *What*: one story per file in `tests/stories`; nothing here knows how uzswap works inside.
//! *Invariants*: every process that a story starts is in a process group of its own, which is
//! killed when its time is up; every file lives in a [`Scratch`] directory that is removed with the
//! story.
//! *Locking*: none.
//! *Context*: test processes only.

mod binary;
mod cgroup;
mod job;
mod outcome;
mod sandbox;
mod scratch;
mod user;

pub use binary::{uzswap, uzswap_failing, workspace};
pub use cgroup::HardLimit;
pub use job::{Job, Live, tasks};
pub use outcome::{Outcome, number};
pub use scratch::Scratch;
pub use user::{User, is_root, users};

/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;
/// A directory for swap files on a disk; scratch directories may lie in memory.
pub const DISK: &str = "/var/tmp";

/// Says on the real stderr, past the test harness's capture, that a story was skipped and why.
pub fn skip(reason: &str) {
    use std::io::Write;
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    // A failure to print is no failure of the story.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {reason}");
}

/// Whether the tests run as root; if not, the story, which needs root for `what`, is skipped
/// visibly.
#[must_use]
pub fn root_or_skip(what: &str) -> bool {
    if !is_root() {
        skip(&format!("{what} needs root"));
    }
    is_root()
}

/// Path of `command` in `PATH`, or `None` after a visible skip that names the package to install.
#[must_use]
pub fn find_or_skip(command: &str, package: &str) -> Option<std::path::PathBuf> {
    let found = find(command);
    if found.is_none() {
        skip(&format!("no {command} here (apt-get install {package})"));
    }
    found
}

/// Path of `command`: the distribution's own in `/usr/bin` or `/bin` first, then `PATH`.
#[must_use]
pub fn find(command: &str) -> Option<std::path::PathBuf> {
    uzswap_corpus::find(command).ok()
}

/// Waits until something is so.
///
/// # Panics
/// If that takes minutes.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed().as_secs() < 180, "never: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// The seed of this run: `UZSWAP_SEED`, or a fresh one, which is printed so that a failure can be
/// repeated.
#[must_use]
pub fn seed() -> u64 {
    let given = std::env::var("UZSWAP_SEED")
        .ok()
        .and_then(|s| s.parse().ok());
    let seed = given.unwrap_or_else(|| {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |d| u64::from(d.subsec_nanos()) ^ (d.as_secs() << 20))
            & 0xffff_ffff
    });
    println!("UZSWAP_SEED={seed}");
    seed
}

/// Whether `UZSWAP_LONG=1` asks for the long form of the stories.
#[must_use]
pub fn long_form() -> bool {
    std::env::var("UZSWAP_LONG").is_ok_and(|v| v != "0" && !v.is_empty())
}
