//! *What*: whom a command for a running group is about: a process or a run by process id, or a
//! group by name.
//!
//! *Locking*: none. *Context*: any command.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};
use uzswap_group::group::Process;
use uzswap_sync::node::Path;

use crate::group_file::name::{self, GroupName};
use crate::group_file::{self, Access, Mapping};
use crate::group_view::{Part, Sizes, live_processes, pid_of};
use crate::limit;
use crate::request::check_pid_namespace;
use crate::status::{USAGE, refused};

/// Process ids of Linux.
const MAX_PID: u32 = 4_194_304;

/// What the user names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// `uzswap run` or any process under it.
    Pid(u32),
    /// A group.
    Group(GroupName),
}

impl FromStr for Whom {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_number = |c: char| c.is_ascii_digit() || c == '-';
        if !text.chars().all(is_number) {
            return text.parse().map(Whom::Group);
        }
        match text.parse() {
            Ok(pid @ 1..=MAX_PID) => Ok(Whom::Pid(pid)),
            _ => Err(format!(
                "'{text}' is no process id: these are 1 to {MAX_PID}"
            )),
        }
    }
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whom::Pid(pid) => pid.fmt(f),
            Whom::Group(name) => name.fmt(f),
        }
    }
}

/// The group of whom the user names.
#[derive(Debug)]
pub struct Chosen {
    group: Mapping,
    whom: Whom,
    /// Of a group by name.
    path: Path,
}

impl Chosen {
    /// Maps the group.
    pub fn open(whom: &Whom, access: Access) -> Result<Self> {
        let (group, path) = match whom {
            Whom::Pid(pid) => (group_file::of_process(*pid, access)?, Path::ROOT),
            Whom::Group(name) => name::find(name, access)?,
        };
        let whom = whom.clone();
        Ok(Chosen { group, whom, path })
    }

    /// The part of the group: a node, or the run of a process.
    pub fn part(&self) -> Part<'_> {
        let group = &*self.group;
        let Whom::Pid(pid) = self.whom else {
            return Part::node(group, self.path);
        };
        let of_process = || {
            let all = Part::all(group);
            let record = live_processes(&all).find(|process| pid_of(process) == pid)?;
            Some(record.run.load(std::sync::atomic::Ordering::Relaxed) as usize)
        };
        let run = group.run_by(pid).or_else(of_process);
        run.map_or(Part::all(group), |run| Part::run(group, run))
    }

    /// The process that the user named, or a supervisor of the group.
    pub fn pid(&self) -> u32 {
        match self.whom {
            Whom::Pid(pid) => pid,
            Whom::Group(_) => Part::all(&self.group).supervisor(),
        }
    }

    /// The processes that a request goes to: the one named, or those of the run or group, the
    /// largest in RAM first, and last what lies in a group within it that is below its `low`.
    pub fn targets(&self) -> Result<Vec<&Process>> {
        check_pid_namespace(self.pid())?;
        let (part, whom) = (self.part(), &self.whom);
        let mut live: Vec<_> = live_processes(&part).collect();
        if let Whom::Pid(pid) = whom {
            if let Some(own) = live.iter().find(|process| pid_of(process) == *pid) {
                return Ok(vec![own]);
            }
            if live.is_empty() || self.group.run_by(*pid).is_none() {
                bail!("process {pid} manages no memory");
            }
        }
        if live.is_empty() {
            return Err(refused!(
                USAGE,
                "group {whom} has no process: 'uzswap run --group {whom} -- COMMAND' starts one"
            ));
        }
        live.sort_by_key(|process| {
            let is_kept = limit::is_below_low(&self.group, process, part.path());
            (is_kept, std::cmp::Reverse(Sizes::of(process).resident))
        });
        Ok(live)
    }
}

impl std::ops::Deref for Chosen {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_process_and_anything_else_a_group() {
        assert_eq!("17".parse(), Ok(Whom::Pid(17)));
        let group = Whom::Group("17a/b".parse().unwrap());
        assert_eq!("17a/b".parse(), Ok(group));
        for wrong in ["0", "-3", "4194305", "99999999999", "", "a b"] {
            assert!(wrong.parse::<Whom>().is_err(), "{wrong}");
        }
    }
}
