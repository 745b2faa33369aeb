//! *What*: the few system calls that std lacks.
//!
//! *Locking*: none. *Context*: any command.

pub use uzswap_swap::os::{limit, lock, lock_shared, lock_waiting, map_shared, memory_file};

/// Effective user id.
pub fn euid() -> u32 {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() }
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
