//! *What*: where `run` would put what it needs: swap, the library that is preloaded.
//!
//! *Invariants*: the swap area that is opened to look has no name, and goes with this process.
//! *Locking*: flock on the area. *Context*: `uzswap doctor`.

use std::os::unix::fs::MetadataExt as _;

use uzswap_swap::SwapArea;

use super::{Finding, fact};
use crate::args::Run;
use crate::group_file;
use crate::preload::{IMAGE, LIBRARY};
use crate::size::Size;
use crate::swap;

/// What was found.
pub fn look(run: &Run) -> Vec<Finding> {
    let mut findings = swap(run);
    findings.push(library());
    findings.extend(nested());
    findings
}

fn swap(run: &Run) -> Vec<Finding> {
    let choice = match swap::choose(&run.swap, run.swap_max) {
        Ok(choice) => choice,
        Err(why) => return vec![Finding::fails("swap", why)],
    };
    let mut findings = Vec::new();
    for mut area in choice.areas {
        area.rotational = run.swap_rotational.resolve(area.rotational);
        findings.push(of_area(&area));
    }
    if findings.is_empty() {
        let why = match choice.notes.as_slice() {
            [] => "none is wanted (UZSWAP_SWAP)".to_owned(),
            notes => notes.join("; "),
        };
        let none = Finding::worse(
            "swap",
            why,
            "what does not fit in RAM compressed ends the program with status 125",
        );
        return vec![none.change("export UZSWAP_SWAP_DIR=/a/directory/on/a/disk")];
    }
    // What 'run' says as well.
    findings.extend(
        choice
            .notes
            .into_iter()
            .map(|note| Finding::new("swap", note)),
    );
    findings
}

fn of_area(area: &SwapArea) -> Finding {
    let kind = file_system(area).map_or(String::new(), |kind| format!("{kind}, "));
    let found = format!(
        "up to {} in {} ({kind}{})",
        Size(area.nr_slots * uzswap_io::SLOT as u64),
        area.path.display(),
        match area.rotational {
            true => "a disk that turns",
            false => "no disk that turns, as far as the kernel says",
        }
    );
    if !area.rotational {
        return Finding::new("swap", found);
    }
    Finding::worse(
        "swap",
        found,
        "a page that comes back from there takes milliseconds",
    )
    .change("export UZSWAP_SWAP_DIR=/a/directory/on/a/solid/state/disk")
    .change("export UZSWAP_SWAP_ROTATIONAL=off (if the kernel is wrong, as in some VMs)")
}

/// The kind of file system that a file is on.
fn file_system(area: &SwapArea) -> Option<String> {
    let meta = area.file.metadata().ok().filter(|meta| meta.is_file())?;
    let device = format!("{}:{}", libc::major(meta.dev()), libc::minor(meta.dev()));
    let mounts = fact("/proc/self/mountinfo")?;
    let line = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some(&device))?;
    let (_, kind) = line.split_once(" - ")?;
    kind.split(' ').next().map(str::to_owned)
}

fn library() -> Finding {
    match LIBRARY
        .install()
        .and_then(|library| Ok((library, IMAGE.install()?)))
    {
        Ok((library, _)) => Finding::new("library", library.path().display().to_string()),
        Err(why) => Finding::fails("library", why),
    }
}

/// A run within a run is refused.
fn nested() -> Option<Finding> {
    let supervisor = group_file::enclosing_run()?;
    let by = supervisor.map_or_else(String::new, |pid| format!(" (pid {pid})"));
    Some(
        Finding::fails(
            "this shell",
            format!("runs under 'uzswap run'{by}: start a new one"),
        )
        .change("exit"),
    )
}
