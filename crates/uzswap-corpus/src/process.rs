//! What the kernel says about processes.

use std::fs;
use std::time::Duration;

/// The value in KiB of the line that starts with `name` in a file of `/proc`, such as
/// `MemAvailable:` in `/proc/meminfo`; `None` if the file or the line is missing.
#[must_use]
pub fn proc_kib(path: &str, name: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.lines().find_map(|line| {
        line.strip_prefix(name)?
            .trim()
            .strip_suffix(" kB")?
            .trim()
            .parse()
            .ok()
    })
}

/// Processor time of a process, in ticks of 10 ms; `None` if it is gone.
#[must_use]
pub fn cpu_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    // User and system time.
    let times = fields.split(' ').skip(11).take(2);
    Some(times.filter_map(|field| field.parse::<u64>().ok()).sum())
}

/// The time of one of our own clocks of processor time.
#[must_use]
pub fn cpu_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to `time` only.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(time.tv_sec.unsigned_abs(), nanos)
}

/// A process and its descendants.
#[must_use]
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(&parent) = all.get(next) {
        next += 1;
        let threads = fs::read_dir(format!("/proc/{parent}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            all.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn descendants_include_children() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 100 & echo; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        io::BufRead::read_line(&mut io::BufReader::new(out), &mut line).unwrap();
        let all = descendants(child.id());
        assert_eq!(all.len(), 2, "{all:?}");
        for pid in all {
            // SAFETY: processes that this test started and has not waited for.
            unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
        }
        child.wait().unwrap();
    }
}
