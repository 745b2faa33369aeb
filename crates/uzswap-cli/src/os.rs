//! *What*: the few system calls that std lacks.
//!
//! *Locking*: none. *Context*: any command.

pub use uzswap_swap::os::{limit, lock, lock_shared, lock_waiting, map_shared, memory_file};

/// Effective user id.
pub fn euid() -> u32 {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether this process may trace others of its user, as far as a sandbox is concerned.
pub fn may_trace() -> bool {
    // SAFETY: there is no process -1: the call has no effect. A sandbox answers EPERM or ENOSYS.
    let _ = unsafe { libc::ptrace(libc::PTRACE_ATTACH, -1, 0, 0) };
    std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// When process `pid` started, clock ticks since the machine did; none if there is no such process,
/// or only what is left of it.
pub fn started(pid: u32) -> Option<u64> {
    /// Fields between the state and the time.
    const BETWEEN: usize = 18;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.nth(BETWEEN)?.parse().ok(),
    }
}
