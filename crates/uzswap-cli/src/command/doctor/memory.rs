//! *What*: how much memory a run may have here: cgroups, machine, huge pages.
//!
//! *Locking*: none. *Context*: `uzswap doctor`.

use uzswap_group::follow::Follows;

use super::{Finding, fact};
use crate::args::Run;
use crate::os;
use crate::ram;
use crate::size::Size;

/// Memory that the engine locks: the page of each process's key, and one to make it in.
const LOCKED: u64 = 8 << 10;

/// The limit that `run` would have, and what was found.
pub fn look(run: &Run) -> (Option<u64>, Vec<Finding>) {
    let (limit, of_limit) = limit(run);
    (limit, vec![of_limit, cgroup(), huge_pages(), locked()])
}

fn limit(run: &Run) -> (Option<u64>, Finding) {
    if let Some(ram) = run.knobs.ram() {
        let found = format!("{ram} (UZSWAP_RAM)");
        return (Some(ram.0), Finding::new("limit", found));
    }
    match ram::at_start(run.knobs.codec()) {
        Err(why) => (None, Finding::fails("limit", why)),
        Ok((left, _)) => {
            let whose = match left.by {
                Follows::Cgroup => "what the cgroup leaves",
                _ => "of the memory that the machine has available",
            };
            let found = format!("{} without --ram: {whose}", Size(left.limit));
            (Some(left.limit), Finding::new("limit", found))
        }
    }
}

/// The cgroup that counts memory, as the kernel names it.
fn cgroup() -> Finding {
    let Some(cgroups) = fact("/proc/self/cgroup") else {
        return Finding::worse(
            "cgroup",
            "/proc/self/cgroup cannot be read",
            "a limit of the container is not seen: the kernel may end programs",
        )
        .change("mount -t proc proc /proc");
    };
    let of_memory = cgroups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        controllers
            .split(',')
            .any(|one| one == "memory")
            .then_some(path)
    });
    let unified = cgroups.lines().find_map(|line| line.strip_prefix("0::"));
    Finding::new(
        "cgroup",
        match (of_memory, unified) {
            (Some(path), _) => format!("v1, {path}"),
            (None, Some(path)) => format!("v2, {path}"),
            (None, None) => "none that counts memory".to_owned(),
        },
    )
}

fn huge_pages() -> Finding {
    let enabled = fact("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let mode = enabled
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    let found = match mode {
        Some((mode, _)) => format!("transparent: {mode}; managed memory has none"),
        None => "no transparent ones".to_owned(),
    };
    Finding::new("huge pages", found)
}

/// The key of what is on swap must not be swapped by the kernel.
fn locked() -> Finding {
    let limit = os::limit(libc::RLIMIT_MEMLOCK);
    if limit >= LOCKED || os::euid() == 0 {
        let most = match limit {
            libc::RLIM_INFINITY => "unlimited".to_owned(),
            bytes => Size(bytes).to_string(),
        };
        return Finding::new("locked memory", most);
    }
    Finding::worse(
        "locked memory",
        Size(limit).to_string(),
        "the kernel may write the key of what is on swap to its own swap",
    )
    .change("ulimit -l 64")
}
