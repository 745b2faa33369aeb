//! *What*: [`Part`]: what a command or report speaks of: a node of a group's tree with all that
//! lies in it, or one run.
//!
//! *Invariants*: as [`super`]. *Locking*: none. *Context*: any command.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use uzswap_group::group::{
    Failure, FailureReason, Group, Outside, Process, ProcessState, Run, Text,
};
use uzswap_sync::ledger::Levels;
use uzswap_sync::node::{Node, Path};

use super::PAGE;

/// A part of a group.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    group: &'a Group,
    whose: Whose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Node(Path),
    Run(usize),
}

impl std::ops::Deref for Part<'_> {
    type Target = Group;

    fn deref(&self) -> &Group {
        self.group
    }
}

impl<'a> Part<'a> {
    /// All of `group`.
    pub fn all(group: &'a Group) -> Self {
        Part::node(group, Path::ROOT)
    }

    /// What lies in a node.
    pub fn node(group: &'a Group, path: Path) -> Self {
        let whose = Whose::Node(path);
        Part { group, whose }
    }

    /// Run number `nr`.
    pub fn run(group: &'a Group, nr: usize) -> Self {
        let whose = Whose::Run(nr);
        Part { group, whose }
    }

    /// The whole group.
    pub fn group(&self) -> &'a Group {
        self.group
    }

    /// Where it lies.
    pub fn path(&self) -> Path {
        match self.whose {
            Whose::Node(path) => path,
            Whose::Run(nr) => self.group.run(nr).path.load(),
        }
    }

    /// Its node.
    pub fn own_node(&self) -> &'a Node {
        self.group.ledger.node(self.path().last())
    }

    /// The names of the nodes from the root to its own; none for a group without a name.
    pub fn name(&self) -> Option<String> {
        name_of_path(self.group, self.path())
    }

    /// Its records that hold or held a process.
    pub fn used_slots(&self) -> impl Iterator<Item = &'a Process> + use<'a> {
        let (group, whose) = (self.group, self.whose);
        group
            .used()
            .iter()
            .filter(|process| process.state.load(Acquire) != ProcessState::Free)
            .filter(move |process| {
                let run = process.run.load(Relaxed) as usize;
                match whose {
                    Whose::Run(nr) => run == nr,
                    Whose::Node(path) => group.run(run).path.load().has(path.last()),
                }
            })
    }

    /// Its runs, those that have ended included, unless their place was taken.
    pub fn runs(&self) -> impl Iterator<Item = &'a Run> + use<'a> {
        let (group, whose) = (self.group, self.whose);
        let numbered = group.runs().iter().enumerate();
        let mine = numbered.filter(move |(nr, run)| match whose {
            Whose::Run(own) => *nr == own,
            Whose::Node(path) => run.path.load().has(path.last()),
        });
        mine.map(|(_, run)| run)
    }

    /// The sums of what has ended in it.
    pub fn ended(&self) -> impl Iterator<Item = &'a Process> + use<'a> {
        let runs = self.runs().map(|run| &run.ended);
        runs.chain(self.past_nodes().map(|nr| &self.group.past[nr].sums))
    }

    /// Nodes whose earlier runs count in it.
    fn past_nodes(&self) -> impl Iterator<Item = usize> + use<'a> {
        let (group, whose) = (self.group, self.whose);
        (0..group.nr_nodes()).filter(move |&nr| match whose {
            Whose::Run(_) => false,
            Whose::Node(path) => group.ledger.node(nr).path.load().has(path.last()),
        })
    }

    /// Processes that were ever managed in it.
    pub fn nr_started(&self) -> u32 {
        let runs = self.runs().map(|run| &run.nr_started);
        let past = self.past_nodes().map(|nr| &self.group.past[nr].nr_started);
        runs.chain(past).map(|nr| nr.load(Relaxed)).sum()
    }

    /// The supervisor of its first run that goes on; 0: none does.
    pub fn supervisor(&self) -> u32 {
        let pids = self.runs().map(|run| run.supervisor.load(Acquire));
        pids.filter(|pid| *pid != 0).min().unwrap_or(0)
    }

    /// The limit that holds for it, bytes: the least of its node and of those that this lies in.
    pub fn limit(&self) -> u64 {
        let nodes = self.path().nodes();
        nodes.map(|nr| self.group.limit_of(nr)).min().unwrap_or(0)
    }

    /// What its node holds, and those above.
    pub fn look(&self) -> Levels {
        self.group.ledger.look(self.path())
    }

    /// Bytes outside the engines' account, as last measured.
    pub fn unmanaged(&self) -> u64 {
        self.runs().map(|run| run.unmanaged.load(Relaxed)).sum()
    }

    /// The most that this was.
    pub fn unmanaged_peak(&self) -> u64 {
        match self.whose {
            Whose::Run(nr) => self.group.run(nr).unmanaged_peak.load(Relaxed),
            Whose::Node(_) => self.own_node().outside_peak() * PAGE,
        }
    }

    /// One kind of memory outside, bytes.
    pub fn outside(&self, kind: fn(&Outside) -> &AtomicU64) -> u64 {
        let runs = self.runs().map(|run| kind(&run.outside).load(Relaxed));
        runs.sum()
    }

    /// Of its runs' first failures one, if there is any.
    pub fn failure(&self) -> &'a Failure {
        let failed = |failure: &&Failure| failure.reason.load(Acquire) != FailureReason::None;
        let first = self.runs().map(|run| &run.failure).find(failed);
        first.unwrap_or(&self.group.run(0).failure)
    }

    /// Seconds for which processes thrashed.
    pub fn thrashing_s(&self) -> u64 {
        self.runs().map(|run| run.thrashing_s.load(Relaxed)).sum()
    }
}

/// The names of the nodes of a path, separated by slashes; none for a group without a name.
pub fn name_of_path(group: &Group, path: Path) -> Option<String> {
    let mut buffer = [0; Text::LEN];
    let names: Vec<_> = path
        .nodes()
        .map(|nr| group.names[nr].get(&mut buffer).to_owned())
        .collect();
    (!names[0].is_empty()).then(|| names.join("/"))
}
