//! *What*: `--ram auto`: a limit that follows what the surroundings leave while the command runs.
//!
//! A [`Place`](place::Place) is a cgroup with a limit, or the machine. What each leaves to us is
//! its limit less a margin and less what it holds that is neither ours nor page cache that the
//! kernel can drop; the tightest place counts ([`surroundings`]). [`steady`] keeps the limit from
//! fluttering, [`pace`] says when to look, [`watch`] wakes us early, and [`follow`] does it.
//! [`advice`]: what messages say of it. [`kills`]: what comes of a limit that leaves the cgroup too
//! little.

mod advice;
mod cgroup;
#[cfg(test)]
mod fake_root;
mod follow;
mod kills;
mod pace;
mod place;
mod pressure;
mod steady;
mod surroundings;
mod watch;

pub use advice::Advice;
pub use follow::Follower;
pub use kills::Kills;
pub use surroundings::{Left, Surroundings};

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use uzswap_compress::Codec;

use crate::limit::min_limit;
use crate::size::Size;

/// What the surroundings leave to a run that is about to start. Fails if that is too little.
pub fn at_start(codec: Codec) -> Result<(Left, Surroundings)> {
    let least = min_limit(codec);
    let mut surroundings = Surroundings::open(Path::new("/"));
    let left = surroundings
        .look(Duration::ZERO, 0)
        .context("cannot find out how much memory may be used here: set --ram")?;
    let ram = Size(left.limit);
    if ram < least {
        bail!(
            "only {ram} of memory may still be used here, but the least that works with {codec} is \
             {least}: free some memory, or set --ram"
        );
    }
    Ok((left, surroundings))
}
