//! Who runs a job.

/// Who runs a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the tests.
    Same,
    /// `nobody`, without groups; only root can ask for this.
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

/// Everyone a story can be told for: root and an ordinary user, or just whoever we are.
#[must_use]
pub fn users() -> &'static [User] {
    if is_root() {
        &[User::Same, User::Ordinary]
    } else {
        &[User::Same]
    }
}
