//! *What*: processes of our cgroup that the kernel kills because it has no memory left. The command
//! need not notice, and whoever waits for one of them may wait for ever: it is said at once.
//!
//! *Invariants*: each kill is told once, whoever of the cgroup it was. The cgroup is the one that
//! the run was started in.
//! *Locking*: none. *Context*: the supervisor's only thread.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use super::cgroup;

/// Time between two looks. Nothing wakes the supervisor for one.
const INTERVAL: Duration = Duration::from_secs(1);

/// The kills of our cgroup.
#[derive(Debug)]
pub struct Kills {
    events: Option<File>,
    told: u64,
    looked: Instant,
}

impl Kills {
    /// Those from now on.
    pub fn watch(root: &Path) -> Self {
        let events = cgroup::events(root);
        Kills {
            told: events.as_ref().and_then(cgroup::kills).unwrap_or(0),
            events,
            looked: Instant::now(),
        }
    }

    /// Looks, if it is time to. How many there were that were not told yet.
    pub fn tick(&mut self) -> Option<u64> {
        (self.looked.elapsed() >= INTERVAL).then(|| self.look())?
    }

    /// How many there were that were not told yet.
    pub fn look(&mut self) -> Option<u64> {
        self.looked = Instant::now();
        let all = self.events.as_ref().and_then(cgroup::kills)?;
        let new = all.saturating_sub(self.told);
        self.told = all;
        (new > 0).then_some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ram::fake_root::Root;

    fn event(root: &Root, kills: u64) {
        let text = format!("max 70\noom 9\noom_kill {kills}\noom_group_kill 0\n");
        root.add("cg/a/memory.events", &text);
    }

    #[test]
    fn each_kill_is_told_once() {
        let root = Root::unified("kills", "/a");
        event(&root, 3);
        let mut kills = Kills::watch(&root.0);
        assert_eq!(kills.look(), None, "those of before");
        event(&root, 5);
        assert_eq!(kills.tick(), None, "it is too early");
        assert_eq!(kills.look(), Some(2));
        assert_eq!(kills.look(), None);
    }

    #[test]
    fn v1_and_a_machine_without_cgroups() {
        let root = Root::new("kills-v1");
        assert_eq!(Kills::watch(&root.0).look(), None);
        root.add("proc/self/cgroup", "4:memory:/job\n0::/\n");
        let mounts = "31 23 0:28 / /cg/memory ro - cgroup cgroup rw,memory\n";
        root.add("proc/self/mountinfo", mounts);
        let control = "cg/memory/job/memory.oom_control";
        root.add(control, "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
        let mut kills = Kills::watch(&root.0);
        root.add(control, "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
        assert_eq!(kills.look(), Some(1));
    }
}
