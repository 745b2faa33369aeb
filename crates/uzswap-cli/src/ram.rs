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
pub use surroundings::Surroundings;
