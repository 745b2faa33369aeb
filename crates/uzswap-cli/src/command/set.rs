//! *What*: `uzswap set PID [KNOB=VALUE]...`: shows or changes the knobs of a run.
//!
//! *Invariants*: everything that can be refused is refused before anything changes.
//! *Locking*: none. *Context*: one thread.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail};
use uzswap_core::MIN_DENSE_ORDER;
use uzswap_group::group::Group;
use uzswap_group::knobs::{Knobs, Values, codec_of};

use super::print;
use crate::args::Set;
use crate::group_file::{self, Access};
use crate::knob::{Assignment, show, takes, to_json};
use crate::limit::{self, Limit};
use crate::size::Size;
use crate::status::{USAGE, refused};

/// Changes the given knobs, or shows all.
pub fn set(options: &Set) -> Result<u8> {
    let access = match options.changes.is_empty() {
        true => Access::Read,
        false => Access::Change,
    };
    let group = group_file::of_process(options.pid, access)?;
    check_room(&group, &options.changes)?;
    check_densifier(&group, &options.changes)?;
    let mut changed = String::new();
    // The limits first: their change may fail.
    let (limits, others): (Vec<&Assignment>, Vec<_>) = options
        .changes
        .iter()
        .partition(|change| limit_of(change).is_some());
    for change in limits.into_iter().chain(others) {
        let (cell, knob) = (group.knobs.cells()[change.index], &Knobs::ALL[change.index]);
        let before = cell.load(Ordering::Relaxed);
        match limit_of(change) {
            Some(limit) => limit::change(&group, options.pid, limit, change.value)?,
            None => cell.store(change.value, Ordering::Relaxed),
        }
        let (before, now) = (show(knob, before), show(knob, change.value));
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

/// The limit that an assignment changes, if it is one.
fn limit_of(change: &Assignment) -> Option<Limit> {
    match Knobs::ALL[change.index].values {
        Values::Size => Some(Limit::Group),
        Values::Limit => Some(Limit::Process),
        _ => None,
    }
}

/// Fails if the new limit is too low for the new compressor.
fn check_room(group: &Group, changes: &[Assignment]) -> Result<()> {
    let to_be = |values, now: &AtomicU64| {
        let mut changes = changes.iter().rev();
        let change = changes.find(|change| Knobs::ALL[change.index].values == values);
        change.map_or_else(|| now.load(Ordering::Relaxed), |change| change.value)
    };
    let codec = codec_of(to_be(Values::Codec, &group.knobs.compressor));
    let Some((codec, least)) = codec.map(|codec| (codec, limit::min_limit(codec))) else {
        return Ok(());
    };
    let ram = to_be(Values::Size, &group.knobs.ram);
    let own = to_be(Values::Limit, &group.knobs.ram_per_process);
    for (option, limit) in [("--ram", ram), ("--ram-per-process", own)] {
        let is_limit = option == "--ram" || limit != 0;
        if is_limit && Size(limit) < least {
            return Err(refused!(
                USAGE,
                "{codec} needs at least {option} {least}, and {} is less: nothing was changed",
                Size(limit)
            ));
        }
    }
    Ok(())
}

/// Fails if densify is turned on in a run without a reclaimer.
fn check_densifier(group: &Group, changes: &[Assignment]) -> Result<()> {
    let gives =
        |change: &Assignment| Knobs::ALL[change.index].name == "densify" && change.value > 0;
    if !changes.iter().any(gives) {
        return Ok(());
    }
    let config = &group.config;
    if config.folio_order.load(Ordering::Relaxed) < MIN_DENSE_ORDER {
        bail!(
            "densify needs folios of 16K or more: start the command again with --folio 64K; nothing \
             was changed"
        );
    }
    let reclaimer = [&config.background, &config.densifier];
    let has_one = reclaimer.iter().any(|why| why.load(Ordering::Relaxed) != 0);
    if !has_one {
        bail!(
            "densify works in the reclaimer, and the run was started without: start the command again \
             without --background-reclaim=off; nothing was changed"
        );
    }
    Ok(())
}

fn table(knobs: &Knobs) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:<26} {:>8}  {:<7} MEANING",
        "KNOB", "VALUE", "TAKES"
    );
    for (cell, knob) in knobs.cells().into_iter().zip(Knobs::ALL) {
        let value = show(knob, cell.load(Ordering::Relaxed));
        let (name, takes, meaning) = (knob.name, takes(knob.values), knob.meaning);
        let _ = writeln!(text, "{name:<26} {value:>8}  {takes:<7} {meaning}");
    }
    text
}
