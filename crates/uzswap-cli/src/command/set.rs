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
use crate::limit;
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
    // The limit first: its change may fail.
    let (limit, others): (Vec<&Assignment>, Vec<_>) =
        options.changes.iter().partition(|change| is_ram(change));
    for change in limit.into_iter().chain(others) {
        let (cell, knob) = (group.knobs.cells()[change.index], &Knobs::ALL[change.index]);
        let before = cell.load(Ordering::Relaxed);
        if is_ram(change) {
            limit::change(&group, options.pid, change.value)?;
        } else {
            cell.store(change.value, Ordering::Relaxed);
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

fn is_ram(change: &Assignment) -> bool {
    Knobs::ALL[change.index].values == Values::Size
}

/// Fails if the new limit is too low for the new compressor.
fn check_room(group: &Group, changes: &[Assignment]) -> Result<()> {
    let to_be = |values, now: &AtomicU64| {
        let mut changes = changes.iter().rev();
        let change = changes.find(|change| Knobs::ALL[change.index].values == values);
        change.map_or_else(|| now.load(Ordering::Relaxed), |change| change.value)
    };
    let ram = Size(to_be(Values::Size, &group.knobs.ram));
    let codec = codec_of(to_be(Values::Codec, &group.knobs.compressor));
    if let Some((codec, least)) = codec.map(|codec| (codec, limit::min_limit(codec)))
        && ram < least
    {
        return Err(refused!(
            USAGE,
            "{codec} needs at least --ram {least}, and {ram} is less: nothing was changed"
        ));
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
