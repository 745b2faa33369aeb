//! *What*: `--swap` and `--swap-max`: opens the place of each `--swap`.
//!
//! *Invariants*
//! - A place that the user named is used, or the run ends: data never goes to a disk that nobody
//!   chose.
//! - No data is overwritten: a file must be empty, or it or the block device must have the
//!   signature of a swap area (`mkswap`), as the kernel demands.
//! - Nothing is left behind, however the run ends, unless the user named the file: a file in a
//!   directory has no name.
//! - Memory is not swapped to memory: no tmpfs, no RAM disk, no zram.
//! - Nobody else uses the area while its file is open in any process.
//!
//! *Locking*: flock on each area. *Context*: `uzswap run`.

pub mod remote;
pub mod shared;
#[cfg(test)]
mod tests;

use anyhow::{Result, anyhow, bail};
use uzswap_group::group::NR_DEVICES;
use uzswap_swap::{Auto, Limits, SwapArea, area, file};

use crate::args::{Place, Swap};
use crate::size::Size;
use remote::Broker;

/// The swap areas to use.
#[derive(Debug)]
pub struct Choice {
    /// In the order of `--swap`; empty if none is wanted, or `auto` finds none.
    pub areas: Vec<SwapArea>,
    /// What serves the remote ones among them.
    pub brokers: Vec<Broker>,
    /// Lines for the user.
    pub notes: Vec<String>,
}

/// Opens the areas that `--swap` and `--swap-max` ask for.
///
/// # Errors
/// A named place cannot be used or is named twice, or `max` is too small. One line, with what to
/// do.
pub fn choose(swaps: &[Swap], max: Option<Size>) -> Result<Choice> {
    let auto = Auto::of_environment();
    choose_from(swaps, &auto, Limits::of_process(max)?)
}

fn choose_from(swaps: &[Swap], auto: &Auto, mut limits: Limits) -> Result<Choice> {
    check_together(swaps)?;
    let mut choice = Choice {
        areas: Vec::new(),
        brokers: Vec::new(),
        notes: Vec::new(),
    };
    for (swap, at) in swaps.iter().zip(1..) {
        let area = match &swap.place {
            Place::Remote(url) => {
                let (area, broker) = Broker::start(url, &limits, swaps.len() == 1)?;
                choice.brokers.push(broker);
                Some(area)
            }
            place => open(place, auto, &limits, &mut choice.notes)?,
        };
        if let Some(mut area) = area {
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
            Place::Remote(url) if again => {
                bail!("--swap {} is given twice: name another", remote::name(url))
            }
            Place::Path(path) if again && !path.is_dir() => {
                bail!("--swap {} is given twice: name another", path.display())
            }
            _ => {}
        }
    }
    Ok(())
}

/// The area at `place`; none, with a note, if `auto` finds none.
fn open(
    place: &Place,
    auto: &Auto,
    limits: &Limits,
    notes: &mut Vec<String>,
) -> Result<Option<SwapArea>> {
    let (how, path) = match (place, auto) {
        (Place::None | Place::Remote(_), _) => return Ok(None),
        (Place::Path(path), _) => ("--swap ", path),
        (Place::Auto, Auto::Named(dir)) => ("UZSWAP_SWAP_DIR=", dir),
        (Place::Auto, Auto::Default(dir)) => {
            let area = file::in_directory(dir, limits, notes);
            if let Err(reason) = &area {
                notes.push(format!(
                    "no swap in {}: {reason:#}; going on without it (name a place by --swap PATH)",
                    dir.display()
                ));
            }
            return Ok(area.ok());
        }
    };
    let area = uzswap_swap::named(path, limits, notes);
    area.map(Some)
        .map_err(|reason| anyhow!("{how}{}: {reason:#}", path.display()))
}
