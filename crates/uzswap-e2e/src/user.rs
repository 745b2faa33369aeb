//! The user who runs a job.

/// The user who runs a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// The user who runs the tests.
    Same,
    /// `nobody`, without groups; possible only as root.
    Ordinary,
}

/// User and group id of [`User::Ordinary`].
pub(crate) const NOBODY: u32 = 65534;

/// Whether the tests run as root.
#[must_use]
pub fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The users that a story runs as: root and an ordinary user, or just the one who runs the tests.
#[must_use]
pub fn users() -> &'static [User] {
    if is_root() {
        &[User::Same, User::Ordinary]
    } else {
        &[User::Same]
    }
}
