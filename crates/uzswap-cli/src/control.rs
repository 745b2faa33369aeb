//! *What*: what a group may have, by the kernel's words: the controls that `uzswap set` changes for
//! one group of a tree, beside the knobs, which are for all of it. [`Control::ALL`] is the list of
//! them.
//!
//! *Locking*: none; cells are atomics. *Context*: `uzswap set`, reports.

use std::sync::atomic::Ordering::SeqCst;

use anyhow::Result;
use serde_json::{Value, json};
use uzswap_group::group::Group;
use uzswap_sync::node::{Most, Path};

use crate::knob::Assignment;
use crate::limit::{self, Limit};
use crate::size::Size;

/// One control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The hard limit.
    Max,
    /// Where reclaim begins to slow down who needs more.
    High,
    /// What others leave it.
    Low,
    /// The most memory of compressed pools.
    PoolMax,
    /// The most memory on swap devices.
    SwapMax,
    /// Whether its memory may be written to swap devices.
    Writeback,
}

impl Control {
    /// All of them.
    pub const ALL: [Control; 6] = [
        Control::Max,
        Control::High,
        Control::Low,
        Control::PoolMax,
        Control::SwapMax,
        Control::Writeback,
    ];

    /// The kernel's word.
    pub const fn name(self) -> &'static str {
        match self {
            Control::Max => "max",
            Control::High => "high",
            Control::Low => "low",
            Control::PoolMax => "zswap.max",
            Control::SwapMax => "swap.max",
            Control::Writeback => "zswap.writeback",
        }
    }

    /// What it is for, in one line.
    pub const fn meaning(self) -> &'static str {
        match self {
            Control::Max => {
                "Limit of the group, and of all groups in it: of a whole tree the knob 'ram'"
            }
            Control::High => {
                "Memory above which whoever needs more evicts its own and is slowed down"
            }
            Control::Low => "Memory that other groups leave to it",
            Control::PoolMax => {
                "Most memory of compressed pools; 0: what is evicted goes on to swap, or stays"
            }
            Control::SwapMax => "Most memory on swap devices, as it was before it was compressed",
            Control::Writeback => {
                "Whether memory of the group, and of all groups in it, may go to swap"
            }
        }
    }

    /// The syntax of its values.
    pub const fn takes(self) -> &'static str {
        match self {
            Control::Low => "SIZE",
            Control::Writeback => "on|off",
            _ => "max|SIZE",
        }
    }

    /// What it is in a group: bytes, [`Most::NONE`] for no limit; of a switch 1 or 0.
    pub fn value(self, group: &Group, path: Path) -> u64 {
        let node = group.ledger.node(path.last());
        match self {
            Control::Max => group.limit_of(path.last()),
            Control::High => node.high.load(),
            Control::Low => node.low.load(SeqCst),
            Control::PoolMax => node.pool_max.load(),
            Control::SwapMax => node.swap_max.load(),
            Control::Writeback => u64::from(node.writeback_off.load(SeqCst) == 0),
        }
    }

    /// Changes it. `pid`: a process of the group.
    pub fn change(self, group: &Group, pid: u32, path: Path, value: u64) -> Result<()> {
        let node = group.ledger.node(path.last());
        match self {
            Control::Max => return limit::change(group, pid, Limit::Node(path), value),
            Control::High => limit::set_high(group, path, value),
            Control::Low => node.low.store(value, SeqCst),
            Control::PoolMax => node.pool_max.store(value),
            Control::SwapMax => node.swap_max.store(value),
            Control::Writeback => node.writeback_off.store(u32::from(value == 0), SeqCst),
        }
        Ok(())
    }

    /// A value as text.
    pub fn show(self, value: u64) -> String {
        match value {
            0 if self == Control::Writeback => "off".to_owned(),
            1 if self == Control::Writeback => "on".to_owned(),
            Most::NONE => "max".to_owned(),
            bytes => Size(bytes).to_string(),
        }
    }

    fn parse(self, text: &str) -> Result<u64, String> {
        match text {
            "on" | "1" if self == Control::Writeback => Ok(1),
            "off" | "0" if self == Control::Writeback => Ok(0),
            _ if self == Control::Writeback => Err(format!(
                "{} takes {}, not '{text}'",
                self.name(),
                self.takes()
            )),
            "max" | "none" if self != Control::Low => Ok(Most::NONE),
            _ => {
                let size = text.parse().map(|Size(bytes)| bytes);
                size.map_err(|why: String| format!("{}: '{text}' is {why}", self.name()))
            }
        }
    }

    /// A value as JSON.
    pub fn json(self, value: u64) -> Value {
        if self == Control::Writeback {
            return json!(value != 0);
        }
        json!((value != Most::NONE).then_some(value))
    }
}

/// Every control of a group by its name.
pub fn all(group: &Group, path: Path) -> Value {
    let values = Control::ALL.map(|control| {
        let value = control.json(control.value(group, path));
        (control.name().to_owned(), value)
    });
    Value::Object(values.into_iter().collect())
}

/// The controls of a group that were set, but for `max`, as text.
pub fn in_force(group: &Group, path: Path) -> String {
    let values = Control::ALL.map(|control| (control, control.value(group, path)));
    let in_force = values
        .into_iter()
        .filter(|&(control, value)| match control {
            Control::Max => false,
            Control::Low => value > 0,
            Control::Writeback => value == 0,
            Control::High | Control::PoolMax | Control::SwapMax => value != Most::NONE,
        });
    let texts =
        in_force.map(|(control, value)| format!("{} {}", control.name(), control.show(value)));
    texts.collect::<Vec<_>>().join(", ")
}

/// `KNOB=VALUE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Of a whole tree.
    Knob(Assignment),
    /// Of one group.
    Control(Control, u64),
}

impl std::str::FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        // As the kernel's files are called.
        let name = name.strip_prefix("memory.").unwrap_or(name);
        match Control::ALL
            .into_iter()
            .find(|control| control.name() == name)
        {
            Some(control) => control
                .parse(value)
                .map(|value| Change::Control(control, value)),
            None => text.parse().map(Change::Knob),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_control_takes_what_it_shows_and_nothing_else() {
        for control in Control::ALL {
            for name in [
                control.name().to_owned(),
                format!("memory.{}", control.name()),
            ] {
                let value = match control {
                    Control::Writeback => 0,
                    _ => 64 << 20,
                };
                let text = control.show(value);
                let change = format!("{name}={text}").parse();
                assert_eq!(change, Ok(Change::Control(control, value)));
            }
            for wrong in ["", "maybe", "-1"] {
                let change = format!("{}={wrong}", control.name());
                let error = change.parse::<Change>().unwrap_err();
                assert!(error.contains(control.name()), "{error}");
            }
        }
        assert_eq!(
            "max=max".parse(),
            Ok(Change::Control(Control::Max, Most::NONE))
        );
        assert!(matches!("ram=64M".parse(), Ok(Change::Knob(_))));
        assert!("frob=1".parse::<Change>().is_err());
    }
}
