//! *What*: where a run takes place: the group that it makes or joins, its node there, and the swap
//! devices.
//!
//! *Invariants*: what can be refused is refused before a group is made or joined. A group is whole
//! before anybody else can join it.
//! *Locking*: that of the group's name. *Context*: `uzswap run`.

use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use uzswap_core::MIN_DENSE_ORDER;
use uzswap_group::follow::Follows;
use uzswap_group::group::{self, Config, Group, NR_RUNS};
use uzswap_sync::node::{NR_NODES, Path as NodePath};
use uzswap_sys::clock::Moment;

use crate::args::{FaultMode, OverLimit, Run, Switch};
use crate::group_file::GroupFile;
use crate::group_file::name::{self, GroupName, Named};
use crate::group_view::Part;
use crate::limit;
use crate::ram::{self, Surroundings};
use crate::size::Size;
use crate::status::{USAGE, refused};
use crate::swap;
use crate::swap::remote::Brokers;
use crate::swap::shared::SwapGroup;

/// The place of a run.
#[derive(Debug)]
pub struct Place {
    pub group: GroupFile,
    /// The number of the run.
    pub run: usize,
    swap: SwapGroup,
    /// What serves its remote devices.
    pub brokers: Brokers,
    name: Option<GroupName>,
    /// What the limit follows, if this run made the group and its limit from them.
    pub surroundings: Option<Surroundings>,
}

/// Fails if a limit that the options give is too small.
pub fn check(options: &Run) -> Result<()> {
    let codec = options.knobs.codec();
    let least = limit::min_limit(codec);
    let limits = [
        ("--ram", options.knobs.ram()),
        ("--ram-per-process", options.knobs.ram_per_process()),
    ];
    for (option, limit) in limits {
        if let Some(limit) = limit.filter(|limit| *limit < least) {
            bail!(
                "{option} {limit} is too small: the least that works here with {codec} is {least}"
            );
        }
    }
    Ok(())
}

impl Place {
    /// Makes or joins the group that the options name.
    pub fn take(options: &Run, entered: Moment) -> Result<Self> {
        let Some(name) = &options.group else {
            let group = GroupFile::create()?;
            let (ram, surroundings) = limit_of(options.knobs.ram(), options)?;
            let (swap, brokers) = set_up(&group, options, ram, entered)?;
            follow(&group, &surroundings);
            let run = begin(&group, NodePath::ROOT, &swap)?;
            group.publish();
            return Ok(Place {
                group,
                run,
                swap,
                brokers,
                name: None,
                surroundings,
            });
        };
        let named = Named::lock(name)?;
        let mut surroundings = None;
        let mut brokers = Brokers::default();
        let (group, run, swap) = match named.group() {
            Some(group) => {
                let (run, swap) = join(&group, name, options)?;
                (group, run, swap)
            }
            None => {
                let group = named.create()?;
                let own = options.knobs.ram().filter(|_| name.below().is_empty());
                let ram;
                (ram, surroundings) = limit_of(own, options)?;
                let swap;
                (swap, brokers) = set_up(&group, options, ram, entered)?;
                follow(&group, &surroundings);
                group.names[0].set(name.root());
                let path = add_nodes(&group, name, options)?;
                let run = begin(&group, path, &swap)?;
                group.publish();
                named.keep(&group).context("cannot name the group")?;
                (group, run, swap)
            }
        };
        Ok(Place {
            group,
            run,
            swap,
            brokers,
            name: Some(name.clone()),
            surroundings,
        })
    }

    /// The run.
    pub fn part(&self) -> Part<'_> {
        Part::run(&self.group, self.run)
    }

    /// The run is over; the group as well, if it was the last one.
    pub fn leave(self) {
        let Place {
            group,
            run,
            swap,
            brokers,
            name,
            ..
        } = self;
        // Whoever has lost the name's file, or its directory, goes without the lock.
        let named = name.and_then(|name| Named::lock(&name).ok());
        group.end_run(run);
        if named
            .as_ref()
            .is_none_or(|named| named.free_if_last(&group))
        {
            swap.end(&group);
        }
        brokers.end();
        drop(group);
    }
}

/// Says that the limit follows the surroundings, if it does.
fn follow(group: &Group, surroundings: &Option<Surroundings>) {
    if surroundings.is_some() {
        group.follow.what.store(Follows::Asked, Ordering::Relaxed);
    }
}

/// Configures a new group. Returns its swap devices.
fn set_up(
    group: &Group,
    options: &Run,
    ram: Size,
    entered: Moment,
) -> Result<(SwapGroup, Brokers)> {
    configure(group, options)?;
    limit::begin(group, ram.0);
    let swap = open_swap(options, &group.config)?;
    let hz = entered.hz_since();
    group.config.tsc_hz.store(hz, Ordering::Relaxed);
    Ok(swap)
}

/// Begins a run in the node of `path`.
fn begin(group: &GroupFile, path: NodePath, swap: &SwapGroup) -> Result<usize> {
    let run = group.begin_run(path).with_context(|| {
        format!("this group has {NR_RUNS} runs, as many as it may: wait until one ends")
    })?;
    swap.describe(group.run(run));
    Ok(run)
}

/// Joins a group that runs: its number there, and its swap devices.
fn join(group: &GroupFile, name: &GroupName, options: &Run) -> Result<(usize, SwapGroup)> {
    if let Some(option) = options.of_group.first() {
        return Err(refused!(
            USAGE,
            "group {} runs already, and {option} is for all of it: leave {option} out, or change what \
             can be changed with 'uzswap set {}'",
            name.root(),
            name.root()
        ));
    }
    if options.over_limit == Some(OverLimit::Allow)
        && group.config.over_limit_allow.load(Ordering::Relaxed) == 0
    {
        return Err(refused!(
            USAGE,
            "group {} runs already, with --over-limit=end: leave --over-limit out",
            name.root()
        ));
    }
    if group.config.pid_namespace.load(Ordering::Relaxed) != pid_namespace() {
        return Err(refused!(
            USAGE,
            "group {} runs in another pid namespace: start this command in that namespace, or take \
             another name",
            name.root()
        ));
    }
    let swap = SwapGroup::join(group)?;
    let path = add_nodes(group, name, options)?;
    Ok((begin(group, path, &swap)?, swap))
}

/// The node of `name`, with those that have to be made; `--ram` is the limit of the last of them.
fn add_nodes(group: &Group, name: &GroupName, options: &Run) -> Result<NodePath> {
    let (mut path, missing) = name::walk(group, name);
    let is_new = !group.is_published();
    let of_root = is_new && name.below().is_empty();
    let ram = options.knobs.ram().filter(|_| !of_root);
    if let Some(ram) = ram.filter(|_| missing.is_empty()) {
        return Err(refused!(
            USAGE,
            "group {name} has a limit already: leave --ram {ram} out, or change it with 'uzswap set \
             {name} max={}'",
            ram.to_string().replace(' ', "")
        ));
    }
    for child in missing {
        path = group.add_node(path, child).ok_or_else(|| {
            refused!(
                USAGE,
                "group {name} cannot be made: {} has {NR_NODES} groups, as many as it may",
                name.root()
            )
        })?;
    }
    if let Some(Size(bytes)) = ram {
        limit::begin_node(group, path, bytes);
        if let Some(line) = limit::above_parent(group, path) {
            eprintln!("uzswap: {line}");
        }
    }
    Ok(path)
}

/// The limit of a new group: `given`, or what the surroundings leave, which it follows.
fn limit_of(given: Option<Size>, options: &Run) -> Result<(Size, Option<Surroundings>)> {
    if let Some(ram) = given {
        return Ok((ram, None));
    }
    let (left, surroundings) = ram::at_start(options.knobs.codec())?;
    Ok((Size(left.limit), Some(surroundings)))
}

fn configure(group: &Group, options: &Run) -> Result<()> {
    options.knobs.store(&group.knobs);
    let densify = group.knobs.densify.load(Ordering::Relaxed) > 0;
    if densify && options.folio < MIN_DENSE_ORDER {
        bail!("--densify needs folios of 16K or more: set --folio 64K, or leave --densify out");
    }
    let config = &group.config;
    config
        .pid_namespace
        .store(pid_namespace(), Ordering::Relaxed);
    let set = |cell: &AtomicU32, value| cell.store(value, Ordering::Relaxed);
    set(&config.folio_order, options.folio);
    set(&config.densifier, densify.into());
    set(&config.background, options.background_reclaim.into());
    let allow = options.over_limit == Some(OverLimit::Allow);
    set(&config.over_limit_allow, allow.into());
    let fault_mode = match options.fault_mode {
        FaultMode::Auto => group::FaultMode::Auto,
        FaultMode::Signal => group::FaultMode::Signal,
        FaultMode::Thread => group::FaultMode::Thread,
        FaultMode::Segv => group::FaultMode::Segv,
    };
    config.fault_mode.store(fault_mode, Ordering::Relaxed);
    Ok(())
}

/// Inode number of this process's pid namespace.
fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino())
}

/// Opens the swap devices and prints why others could not be used.
fn open_swap(options: &Run, config: &Config) -> Result<(SwapGroup, Brokers)> {
    let config = &config.swap;
    let swap::Choice {
        mut areas,
        brokers,
        notes,
    } = swap::choose(&options.swap, options.swap_max)?;
    for note in notes {
        eprintln!("uzswap: {note}");
    }
    #[cfg(feature = "fault-injection")]
    inject_failures(config)?;
    for area in &mut areas {
        area.rotational = options.swap_rotational.resolve(area.rotational);
    }
    let encrypt = options.swap_encrypt == Switch::On;
    let brokers = Brokers::new(brokers);
    Ok((SwapGroup::new(areas, encrypt, config)?, brokers))
}

/// Makes the devices fail as the environment says: all by one plan, or each by its own, separated
/// by `;` in the order in which the devices are filled.
#[cfg(feature = "fault-injection")]
fn inject_failures(config: &uzswap_group::group::SwapConfig) -> Result<()> {
    use uzswap_io::inject::{PLAN_ENV, Plan};
    let Ok(plans) = std::env::var(PLAN_ENV) else {
        return Ok(());
    };
    let all: Vec<_> = plans.split(';').collect();
    for (at, device) in config.devices.iter().enumerate() {
        let plan = all[at.min(all.len() - 1)];
        if Plan::parse(plan).is_none() || plan.len() > uzswap_group::group::Text::LEN {
            bail!("{PLAN_ENV}={plan}: not a plan: see uzswap_io::inject");
        }
        device.failure_plan.set(plan);
    }
    eprintln!("uzswap: the swap device fails by plan: {plans}");
    Ok(())
}
