//! *What*: `uzswap set GROUP|PID [KNOB=VALUE]...`: shows or changes the knobs of a group.
//!
//! *Invariants*: everything that can be refused is refused before anything changes.
//! *Locking*: none. *Context*: one thread.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use uzswap_core::MIN_DENSE_ORDER;
use uzswap_group::group::Group;
use uzswap_group::knobs::{Knobs, UNDECIDED, Values, codec_of};
use uzswap_sync::node::{Most, Path};

use super::print;
use crate::args::Set;
use crate::chosen::{Chosen, Whom};
use crate::control::{Change, Control};
use crate::group_file::Access;
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
    let group = Chosen::open(&options.whom, access)?;
    let path = group.part().path();
    let (knobs, controls) = split(&options.changes);
    check_scope(options, path, &knobs, &controls)?;
    check_room(&group, path, &knobs, &controls)?;
    check_densifier(&group, &knobs)?;
    let is_max = |(control, _): &(Control, u64)| *control == Control::Max;
    let (max, controls): (Vec<_>, Vec<_>) = controls.into_iter().partition(is_max);
    let (limits, knobs): (Vec<_>, Vec<_>) =
        knobs.iter().partition(|change| limit_of(change).is_some());
    let mut changed = String::new();
    // The limits first: their change may fail.
    for (control, value) in max {
        changed += &change_control(&group, path, control, value)?;
    }
    for change in limits {
        changed += &change_knob(&group, change)?;
    }
    for (control, value) in controls {
        changed += &change_control(&group, path, control, value)?;
    }
    for change in knobs {
        changed += &change_knob(&group, change)?;
    }
    if let Some(line) = limit::above_parent(&group, path).filter(|_| !options.changes.is_empty()) {
        eprintln!("uzswap: {line}");
    }
    let text = if options.json {
        serde_json::to_string_pretty(&json(&group, path))? + "\n"
    } else if options.changes.is_empty() {
        table(&group, path)
    } else {
        changed
    };
    print(&text)
}

/// Changes a control. Returns a line that says so.
fn change_control(group: &Chosen, path: Path, control: Control, value: u64) -> Result<String> {
    let before = control.show(control.value(group, path));
    control.change(group, group.pid(), path, value)?;
    let now = control.show(value);
    Ok(format!("{} {before} -> {now}\n", control.name()))
}

/// Changes a knob. Returns a line that says so.
fn change_knob(group: &Chosen, change: &Assignment) -> Result<String> {
    let (cell, knob) = (group.knobs.cells()[change.index], &Knobs::ALL[change.index]);
    let before = show(knob, cell.load(Ordering::Relaxed));
    match limit_of(change) {
        Some(_) if change.value == UNDECIDED => limit::start_following(group),
        Some(limit) => limit::change(group, group.pid(), limit, change.value)?,
        None => cell.store(change.value, Ordering::Relaxed),
    }
    let now = show(knob, change.value);
    Ok(format!("{} {before} -> {now}\n", knob.name))
}

/// The changes of knobs, and those of controls.
fn split(changes: &[Change]) -> (Vec<Assignment>, Vec<(Control, u64)>) {
    let (mut knobs, mut controls) = (Vec::new(), Vec::new());
    for change in changes {
        match *change {
            Change::Knob(assignment) => knobs.push(assignment),
            Change::Control(control, value) => controls.push((control, value)),
        }
    }
    (knobs, controls)
}

/// Fails if a limit is given twice, or a knob of the whole tree for a group in it.
fn check_scope(
    options: &Set,
    path: Path,
    knobs: &[Assignment],
    controls: &[(Control, u64)],
) -> Result<()> {
    let is_ram = |change: &Assignment| limit_of(change) == Some(Limit::Node(Path::ROOT));
    let max = controls
        .iter()
        .find(|(control, _)| *control == Control::Max);
    if path == Path::ROOT && max.is_some() {
        if knobs.iter().any(is_ram) {
            return Err(refused!(
                USAGE,
                "max and ram are the same limit: give one of them; nothing was changed"
            ));
        }
        if max.is_some_and(|(_, value)| *value == Most::NONE) {
            return Err(refused!(
                USAGE,
                "{} needs a limit: give max a size; nothing was changed",
                options.whom
            ));
        }
    }
    if let (Whom::Group(name), Some(first)) = (&options.whom, knobs.first())
        && path != Path::ROOT
    {
        let knob = Knobs::ALL[first.index].name;
        let root = name.root();
        return Err(refused!(
            USAGE,
            "{knob} is for all of group {root}: change it with 'uzswap set {root} {knob}=...'; nothing \
             was changed"
        ));
    }
    Ok(())
}

/// The limit that an assignment changes, if it is one.
fn limit_of(change: &Assignment) -> Option<Limit> {
    match Knobs::ALL[change.index].values {
        Values::Size => Some(Limit::Node(Path::ROOT)),
        Values::Limit => Some(Limit::Process),
        _ => None,
    }
}

/// Fails if the new limit is too low for the new compressor.
fn check_room(
    group: &Group,
    path: Path,
    changes: &[Assignment],
    controls: &[(Control, u64)],
) -> Result<()> {
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
    let max = controls
        .iter()
        .rev()
        .find(|(control, _)| *control == Control::Max);
    let max = max.map_or_else(|| Control::Max.value(group, path), |(_, value)| *value);
    for (option, limit) in [("--ram", ram), ("--ram-per-process", own), ("max", max)] {
        let is_limit = option != "--ram-per-process" || limit != 0;
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

/// The controls that are not knobs as well.
fn own_controls(path: Path) -> impl Iterator<Item = Control> {
    let is_knob = move |control: &Control| path == Path::ROOT && *control == Control::Max;
    Control::ALL
        .into_iter()
        .filter(move |control| !is_knob(control))
}

/// Every knob and control with its value, default, syntax and meaning.
fn json(group: &Group, path: Path) -> Value {
    let mut all = to_json(&group.knobs);
    for control in own_controls(path) {
        all[control.name()] = json!({
            "value": control.json(control.value(group, path)),
            "default": null,
            "takes": control.takes(),
            "meaning": control.meaning(),
        });
    }
    all
}

fn table(group: &Group, path: Path) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str, takes: &str, meaning: &str| {
        let _ = writeln!(text, "{name:<26} {value:>8}  {takes:<7} {meaning}");
    };
    line("KNOB", "VALUE", "TAKES", "MEANING");
    for control in own_controls(path) {
        let value = control.show(control.value(group, path));
        line(control.name(), &value, control.takes(), control.meaning());
    }
    for (cell, knob) in group.knobs.cells().into_iter().zip(Knobs::ALL) {
        let value = show(knob, cell.load(Ordering::Relaxed));
        line(knob.name, &value, takes(knob.values), knob.meaning);
    }
    text
}
