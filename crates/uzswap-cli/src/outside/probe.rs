//! *What*: the cheapest sign that a run's memory has changed: `/proc/PID/statm` of each process
//! that the last look found, through files that stay open, less what engines count.
//!
//! *Invariants*: the figure only tells whether to look; it is never shown. It has files' pages in
//! it and counts shared memory once for each process.
//! *Locking*: none. *Context*: the supervisor's only thread.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use uzswap_group::group::Process;

use super::Seen;
use crate::group_view::{PAGE, Sizes};

/// Processes that are probed: each holds a descriptor of ours.
const MAX_PROBES: usize = 64;

/// One process.
#[derive(Debug)]
pub struct Probe<'a> {
    pid: u32,
    statm: File,
    record: Option<&'a Process>,
}

impl Probe<'_> {
    /// Resident bytes that no engine counts; 0 if it has ended.
    fn read(&self) -> u64 {
        let mut text = [0; 64];
        let len = self.statm.read_at(&mut text, 0).unwrap_or(0);
        let resident = resident_in(&text[..len]).unwrap_or(0) * PAGE;
        let counted = self.record.map_or(0, |record| Sizes::of(record).in_use());
        resident.saturating_sub(counted)
    }
}

/// The second number.
fn resident_in(statm: &[u8]) -> Option<u64> {
    let text = str::from_utf8(statm).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Opens the processes that have memory of their own; `before` are those that are open.
pub fn open<'a>(proc: &Path, seen: &[Seen<'a>], before: Vec<Probe<'a>>) -> Vec<Probe<'a>> {
    let mut before: HashMap<u32, Probe<'a>> = before.into_iter().map(|p| (p.pid, p)).collect();
    let owners = seen.iter();
    let owners = owners.filter(|it| it.proc.anonymous + it.proc.shared > 0);
    let probe = |it: &Seen<'a>| {
        let pid = it.proc.pid;
        let statm = match before.remove(&pid) {
            Some(open) => open.statm,
            None => File::open(proc.join(format!("{pid}/statm"))).ok()?,
        };
        Some(Probe {
            pid,
            statm,
            record: it.record,
        })
    };
    owners.filter_map(probe).take(MAX_PROBES).collect()
}

/// Resident bytes that no engine counts.
pub fn sum(probes: &[Probe<'_>]) -> u64 {
    probes.iter().map(Probe::read).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outside::Way;
    use crate::outside::tree::look;
    use crate::outside::tree::tests::FakeProc;

    #[test]
    fn a_probe_reads_what_is_resident() {
        let proc = FakeProc::new("probe");
        proc.add(7, 1, 0, [100, 0]);
        proc.write("7/statm", "900 300 20 1 0 5 0\n");
        let see = |it| Seen {
            proc: it,
            record: None,
            light: [0, 0],
            way: Way::Look,
            eldest: true,
        };
        let seen: Vec<_> = look(&proc.0, 7).into_iter().map(see).collect();
        let probes = open(&proc.0, &seen, Vec::new());
        assert_eq!(sum(&probes), 300 * PAGE);
        proc.write("7/statm", "900 400 20 1 0 5 0\n");
        let probes = open(&proc.0, &seen, probes);
        assert_eq!(sum(&probes), 400 * PAGE);
        assert_eq!(sum(&[]), 0);
    }
}
