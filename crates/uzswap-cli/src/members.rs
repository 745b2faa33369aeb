//! *What*: what each supervisor does for the processes of its group now and then: takes back what
//! the dead held of the limit, ends the runs of supervisors that were killed, asks for memory when
//! the group is above its limit, wakes those that are asked and have no reclaimer yet, and ends a
//! program whose reclaimer somebody killed, as it may wait for it forever.
//!
//! *Invariants*
//! - Only what surely is nobody's is taken back: of a process that is dead or a zombie, of a fork
//!   child that never came to be, of one that executed a program which is not managed.
//! - A program is ended for its reclaimer only while it still has the memory that the reclaimer
//!   worked on. By exit or exec the kernel ends the reclaimer as well, but takes that memory first.
//!
//! *Locking*: none. *Context*: the supervisor's only thread, between signals.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use uzswap_group::ask::Wish;
use uzswap_group::group::{FailureReason, Group, Process, ProcessState};
use uzswap_group::request::{Door, Request, RequestKind};

use crate::group_file::{self, Managed};
use crate::group_view::{PAGE, is_alive, pid_of};
use crate::limit::{self, Limit};
use crate::request;
use crate::supervise::Orphan;

/// Time between two looks while several processes share memory that gets scarce, or one is
/// suspected of something.
const SHORT: Duration = Duration::from_millis(250);
/// Time between two looks otherwise.
const LONG: Duration = Duration::from_secs(1);
/// Time between two looks at a process that is alone.
const ALONE: Duration = Duration::from_secs(10);
/// Time between two looks at least, whatever ends.
const SHORTEST: Duration = Duration::from_millis(20);

/// A fork child that has not begun by then, and whose parent is dead, is none.
const UNBORN: Duration = Duration::from_secs(2);

/// A record that may be nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspect {
    record: usize,
    state: ProcessState,
    of: Suspicion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspicion {
    /// It is for a child of a process that is dead.
    Unborn,
    /// Its process has executed a program that is not managed.
    Unmanaged,
}

/// A reclaimer that a signal ended.
#[derive(Clone, Copy, Debug)]
struct Killed {
    record: usize,
    state: ProcessState,
    reclaimer: u32,
    seen: Instant,
}

/// The supervisor's view of its group's processes.
#[derive(Debug)]
pub struct Members<'a> {
    group: &'a Group,
    last: Instant,
    next: Instant,
    /// What the next look may be ahead of that, where others wake us anyway.
    early: Duration,
    /// With the time of the look that found them first.
    suspects: Vec<(Suspect, Instant)>,
    killed: Vec<Killed>,
}

impl<'a> Members<'a> {
    /// Those of `group`.
    pub fn of(group: &'a Group) -> Self {
        Members {
            group,
            last: Instant::now(),
            next: Instant::now(),
            early: Duration::ZERO,
            suspects: Vec::new(),
            killed: Vec::new(),
        }
    }

    /// Looks at them if it is time to, or some `orphans` have ended. Returns the time until the
    /// next look.
    pub fn look(&mut self, orphans: &[Orphan]) -> Duration {
        let now = Instant::now();
        self.note_killed(orphans, now);
        if !orphans.is_empty() {
            self.next = self.next.min(now + SHORTEST);
        }
        if limit::nodes(self.group).any(|path| limit::over(self.group, path) > 0) {
            self.next = self.next.min(self.last + SHORT);
            self.come_down();
            self.wake_asked();
        }
        if now + self.early >= self.next {
            self.group.expire_dead(std::process::id(), is_running);
            self.end_runs();
            self.expire_suspects(now);
            self.end_bereft(now);
            self.wake_asked();
            let period = self.period();
            self.last = now;
            (self.next, self.early) = (now + period, period / 3);
        }
        self.next.saturating_duration_since(now)
    }

    /// Makes the next look due: the limit has been lowered.
    pub fn hurry(&mut self) {
        self.next = Instant::now();
    }

    fn period(&self) -> Duration {
        let shares = self.group.ledger.shares().iter();
        let holders = shares.filter(|share| share.granted() > 0);
        let is_scarce = limit::nodes(self.group).any(|path| {
            let node = limit::level(self.group, path);
            node.held.claimed > node.limit / 4 * 3
        });
        let is_suspect = !self.killed.is_empty() || !self.suspects.is_empty();
        match holders.count() > 1 {
            _ if is_suspect => SHORT,
            true if is_scarce => SHORT,
            true => LONG,
            false => ALONE,
        }
    }

    fn records(&self) -> impl Iterator<Item = (usize, &'a Process)> + use<'a> {
        self.group.used().iter().enumerate()
    }

    /// Those that run a program here, as far as can be told.
    fn live(&self) -> impl Iterator<Item = (usize, &'a Process)> + use<'a> {
        let group = self.group;
        self.records()
            .filter(move |(_, process)| process.is_live() && !group.is_foreign(process))
    }

    /// Takes back what those hold that looked the same the last time, or for some time.
    fn expire_suspects(&mut self, now: Instant) {
        let found: Vec<_> = self
            .suspects()
            .map(|suspect| {
                let before = self.suspects.iter().find(|(known, _)| *known == suspect);
                (suspect, before.map_or(now, |(_, first)| *first))
            })
            .collect();
        for (Suspect { record, state, of }, first) in &found {
            let process = &self.group.processes[*record];
            match (of, now.saturating_duration_since(*first)) {
                (_, Duration::ZERO) => {}
                (Suspicion::Unmanaged, _) => self.group.expire(process, *state, std::process::id()),
                (Suspicion::Unborn, time) => {
                    if let ProcessState::Reserved { parent } = *state
                        && time >= UNBORN
                    {
                        // As a child that was killed before it began: whoever finds it frees it.
                        let born = ProcessState::Born { child: parent };
                        let _ = process.state.turn(*state, born);
                    }
                }
            }
        }
        self.suspects = found;
    }

    fn suspects(&self) -> impl Iterator<Item = Suspect> + use<'a> {
        let group = self.group;
        self.records().filter_map(move |(record, process)| {
            let state = process.state.load(Acquire);
            let of = match state {
                ProcessState::Reserved { parent } if !is_running(parent) => Suspicion::Unborn,
                // A managed process opens its door as soon as it is one, and shuts it to execute
                // another.
                ProcessState::Live { .. }
                    if !group.is_foreign(process)
                        && process.request.door.load(Relaxed) == Door::Shut
                        && group_file::is_managed(pid_of(process)) == Managed::No =>
                {
                    Suspicion::Unmanaged
                }
                _ => return None,
            };
            Some(Suspect { record, state, of })
        })
    }

    fn note_killed(&mut self, orphans: &[Orphan], now: Instant) {
        for orphan in orphans.iter().filter(|orphan| orphan.killed) {
            let is_its = |process: &Process| process.reclaimer.load(Relaxed) == orphan.pid;
            let mut live = self
                .live()
                .map(|(record, process)| (record, process.state.load(Acquire), process));
            if let Some((record, state, _)) = live.find(|(.., process)| is_its(process)) {
                self.killed.push(Killed {
                    record,
                    state,
                    reclaimer: orphan.pid,
                    seen: now,
                });
            }
        }
    }

    /// Ends programs whose reclaimer was killed some time ago, and that have not noticed.
    fn end_bereft(&mut self, now: Instant) {
        let group = self.group;
        self.killed.retain(|killed| {
            if now < killed.seen + SHORT / 2 {
                return true;
            }
            let process = &group.processes[killed.record];
            let pid = pid_of(process);
            let is_same = process.state.load(Acquire) == killed.state
                && process.reclaimer.load(Relaxed) == killed.reclaimer;
            if is_same && is_running(pid) && group_file::is_managed(pid) == Managed::Yes {
                let run = group.run_of(process);
                let limit = group.limit_of(run.path.load().last());
                let reason = FailureReason::ReclaimerKilled;
                run.failure.record(reason, pid, 0, 0, 0, limit);
                // SAFETY: no memory effects; the process is of our group.
                unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
            }
            false
        });
    }

    /// Ends the runs whose supervisors were killed.
    fn end_runs(&self) {
        for (nr, run) in self.group.runs().iter().enumerate() {
            if run.supervisor.load(Acquire) != 0 && group_file::has_ended(run) {
                self.group.end_run(nr);
            }
        }
    }

    /// Asks for what a node is above its limit, as it is when memory outside has grown: nobody
    /// notices that who asks for no more.
    fn come_down(&self) {
        let nodes = limit::nodes(self.group);
        for (process, bytes) in nodes.flat_map(|path| Limit::Node(path).excess(self.group)) {
            process.ask.ask(Wish {
                pages: bytes / PAGE,
                before: Wish::ANY_TIME,
            });
        }
    }

    /// Has those start a reclaimer that others ask for memory and that have none.
    fn wake_asked(&self) {
        for (_, process) in self.live() {
            if process.ask.is_open() && process.reclaimer.load(Relaxed) == 0 {
                // Its door is shut, or it serves another request: the next time.
                let _ = request::announce(process, RequestKind::GiveUp, 0, Request::ANY_TIME);
            }
        }
    }
}

/// Whether process `pid` is there and no zombie. The leader of a process whose other threads run is
/// none, though the kernel says so.
fn is_running(pid: u32) -> bool {
    is_alive(pid) && !std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(is_zombie)
}

/// Whether `/proc/PID/stat` is that of a process without a thread that runs.
fn is_zombie(stat: String) -> bool {
    /// Fields between the state and the number of threads.
    const BETWEEN: usize = 16;
    let Some((_, fields)) = stat.rsplit_once(") ") else {
        return false;
    };
    let mut fields = fields.split(' ');
    let (state, threads) = (fields.next(), fields.nth(BETWEEN));
    matches!(state, Some("Z" | "X")) && matches!(threads, Some("0" | "1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_is_told_by_its_state_and_its_threads() {
        let stat = |state, threads| {
            format!(
                "12 (a) Z (b) {state} 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 9 0 0"
            )
        };
        assert!(is_zombie(stat("Z", 1)));
        assert!(!is_zombie(stat("Z", 2)), "a thread of it still runs");
        assert!(!is_zombie(stat("S", 1)));
        assert!(!is_zombie(String::new()));
    }

    #[test]
    fn a_child_that_nobody_waits_for_does_not_run() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let began = Instant::now();
        while is_running(child.id()) {
            assert!(began.elapsed() < Duration::from_secs(60), "it never ends");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(is_alive(child.id()), "a zombie is still there");
        child.wait().unwrap();
        assert!(is_running(std::process::id()));
    }
}
