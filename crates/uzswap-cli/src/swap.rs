//! *What*: `--swap` and `--swap-max`: opens the first usable place of each `--swap`. Each unusable
//! one gets a line with its path, the reason and what is tried next.
//!
//! *Invariants*
//! - No data is overwritten: a file must be empty, or it or the block device must have the
//!   signature of a swap area (`mkswap`), as the kernel demands.
//! - Nothing is left behind, however the run ends, unless the user named the file: a file in a
//!   directory has no name.
//! - Memory is not swapped to memory: no tmpfs, no RAM disk, no zram.
//! - Nobody else uses the area while its file is open in any process.
//!
//! *Locking*: flock on each area. *Context*: `uzswap run`.

pub mod shared;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::{Result, bail};
use uzswap_group::group::NR_DEVICES;
use uzswap_swap::{DIR_ENV, Limits, Place, SwapArea, area, default_dirs, open};

use crate::args::Swap;
use crate::size::Size;

/// The swap areas to use.
#[derive(Debug)]
pub struct Choice {
    /// In the order of `--swap`; empty if none is usable or wanted.
    pub areas: Vec<SwapArea>,
    /// One line for each unusable place, for the user.
    pub notes: Vec<String>,
}

/// Opens the areas that `--swap` and `--swap-max` ask for.
///
/// # Errors
/// A named file or device cannot be used or is named twice, or `max` is too small. One line, with
/// what to do.
pub fn choose(swaps: &[Swap], max: Option<Size>) -> Result<Choice> {
    let dirs = default_dirs(std::env::var_os(DIR_ENV));
    choose_from(swaps, &dirs, Limits::of_process(max)?)
}

fn choose_from(swaps: &[Swap], default_dirs: &[PathBuf], mut limits: Limits) -> Result<Choice> {
    check_together(swaps)?;
    let mut choice = Choice {
        areas: Vec::new(),
        notes: Vec::new(),
    };
    for (swap, at) in swaps.iter().zip(1..) {
        let alone = swaps.len() == 1;
        let found = open(&swap.place, alone, default_dirs, &limits, &mut choice.notes)?;
        if let Some(mut area) = found {
            // As with swapon, areas without a priority come last, in order.
            area.priority = swap.priority.map_or(-at, i32::from);
            limits.promise(&area);
            choice.areas.push(area);
        }
    }
    Ok(choice)
}

/// Fails if the places exclude each other.
fn check_together(swaps: &[Swap]) -> Result<()> {
    if swaps.len() > NR_DEVICES {
        bail!(
            "--swap is given {} times: {NR_DEVICES} is the most",
            swaps.len()
        );
    }
    for (swap, at) in swaps.iter().zip(1..) {
        if swap.place == Place::None && (swaps.len() > 1 || swap.priority.is_some()) {
            bail!(
                "--swap none must be given alone: leave out either it or all other places and priorities"
            );
        }
        let again = swaps[at..].iter().any(|next| next.place == swap.place);
        match &swap.place {
            Place::Path(path) if again && !path.is_dir() => {
                bail!("--swap {} is given twice: name another", path.display())
            }
            _ => {}
        }
    }
    Ok(())
}
