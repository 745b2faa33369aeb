//! What the end-to-end stories share: the built binary, jobs that run natively or under
//! `uzswap run`, compiled test programs, ordinary users and memory cgroups.
//!
//! *What*: one story per file in `tests/`; nothing here knows how uzswap works inside.
//! *Invariants*: every process a story starts is in a process group of its own and is ended when
//! its time is up; every file lives in a [`Scratch`] directory that goes with the story.
//! *Locking*: none.
//! *Context*: test processes only.

mod binary;
mod cgroup;
mod job;
mod sandbox;
mod scratch;
mod user;

pub use binary::{uzswap, uzswap_with_faults, workspace};
pub use cgroup::HardLimit;
pub use job::{Job, Live, Outcome};
pub use scratch::Scratch;
pub use user::{User, is_root, users};

/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;

/// Says on the real stderr, past the test harness's capture, that a story was not told and why.
pub fn skip(reason: &str) {
    use std::io::Write;
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    // A story that cannot say that it was skipped has nothing better to do than go on.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {reason}");
}

/// Path of `command` in `PATH`, or `None` after a visible skip that names what to install.
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
    let path = std::env::var_os("PATH").unwrap_or_default();
    ["/usr/bin", "/bin"]
        .into_iter()
        .map(std::path::PathBuf::from)
        .chain(std::env::split_paths(&path))
        .map(|dir| dir.join(command))
        .find(|p| p.is_file())
}

/// The seed of this run: `UZSWAP_SEED`, or one of its own for each run. It is printed, so that a failure can be repeated.
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

/// Whether the long form of the stories was asked for with `UZSWAP_LONG=1`.
#[must_use]
pub fn long_form() -> bool {
    std::env::var("UZSWAP_LONG").is_ok_and(|v| v != "0" && !v.is_empty())
}
