//! `uzswap set PID [KNOB=VALUE]...`: shows or changes the live knobs of a run.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use anyhow::{Result, bail};
use uzswap_compress::Codec;
use uzswap_core::group::Group;
use uzswap_core::knobs::{Knobs, Values};
use uzswap_core::min_ram;

use crate::args::Set;
use crate::command::print;
use crate::group_file::{self, Access};
use crate::knob::{Assignment, show, takes, to_json};
use crate::size::Size;

/// Changes the knobs that are told, and says what they are.
pub fn set(options: &Set) -> Result<u8> {
    let access = match options.changes.is_empty() {
        true => Access::Read,
        false => Access::Change,
    };
    let group = group_file::of_process(options.pid, access)?;
    for change in &options.changes {
        check_room(&group, change)?;
    }
    let mut changed = String::new();
    for change in &options.changes {
        let (cell, knob) = (group.knobs.cells()[change.index], &Knobs::ALL[change.index]);
        let before = show(knob, cell.swap(change.value, Ordering::Relaxed));
        let now = show(knob, change.value);
        let _ = writeln!(changed, "{} {before} -> {now}", knob.name);
    }
    let text = if options.json {
        serde_json::to_string_pretty(&to_json(&group.knobs))? + "\n"
    } else if options.changes.is_empty() {
        table(&group.knobs)
    } else {
        changed
    };
    print(&text)
}

/// Whether there is room for what the change needs.
fn check_room(group: &Group, change: &Assignment) -> Result<()> {
    let knob = &Knobs::ALL[change.index];
    let codec = u32::try_from(change.value).ok().and_then(Codec::from_bits);
    if let (Values::Codec, Some(codec)) = (knob.values, codec) {
        let (ram, least) = (
            Size(group.config.ram.load(Ordering::Relaxed)),
            Size(min_ram(codec)),
        );
        if ram < least {
            bail!(
                "{codec} needs at least --ram {least}, and the run has {ram}: nothing was changed"
            );
        }
    }
    Ok(())
}

fn table(knobs: &Knobs) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:<26} {:>6}  {:<7} MEANING",
        "KNOB", "VALUE", "TAKES"
    );
    for (cell, knob) in knobs.cells().into_iter().zip(Knobs::ALL) {
        let value = show(knob, cell.load(Ordering::Relaxed));
        let (name, takes, meaning) = (knob.name, takes(knob.values), knob.meaning);
        let _ = writeln!(text, "{name:<26} {value:>6}  {takes:<7} {meaning}");
    }
    text
}
