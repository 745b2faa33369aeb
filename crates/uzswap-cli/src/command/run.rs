//! *What*: `uzswap run`: checks, makes the group, runs the command, reports.
//!
//! *Invariants*: whatever can be refused is refused before the command starts.
//! *Locking*: none. *Context*: the supervisor's only thread.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use uzswap_core::MIN_DENSE_ORDER;
use uzswap_group::group::{self, Config, GROUP_ENV, Group};

use crate::args::{FaultMode, OverLimit, Run, Switch};
use crate::clock::Moment;
use crate::failure::{self, Failure};
use crate::group_file::{self, GroupFile};
use crate::group_view::totals::{Totals, When};
use crate::group_view::{is_alive, pid_of, used_slots};
use crate::kernel;
use crate::limit;
use crate::members::Members;
use crate::outside::Outside;
use crate::preload::Preload;
use crate::ram;
use crate::report::Report;
use crate::size::Size;
use crate::status;
use crate::summary;
use crate::supervise::{self, Child, End};
use crate::swap;
use crate::swap::shared::SwapGroup;
use crate::target::{self, Target};
use crate::thrashing;
use crate::trace::Tracer;

const LD_PRELOAD: &str = "LD_PRELOAD";

/// Runs the command; the exit status is its own.
pub fn run(options: &Run) -> Result<u8> {
    let entered = Moment::now();
    check_not_nested()?;
    let target = find_target(options)?;
    let ram = ram(options)?;
    let stats = create("statistics", "--stats", options.stats.as_deref())?;
    let trace = create("trace", "--trace", options.trace.as_deref())?;
    let preload = Preload::install()?;
    let group = GroupFile::create()?;
    configure(&group, options)?;
    limit::begin(&group, ram);
    let swap = open_swap(options, &group.config)?;
    let hz = entered.hz_since();
    group.config.tsc_hz.store(hz, Ordering::Relaxed);
    group.publish();

    let begin = Moment::now();
    let environment = environment(&target, &preload, group.path());
    let mut tracer = trace
        .map(|file| Tracer::start(file, &group, begin))
        .transpose()?;
    let child = Child::start(&target, &options.command, &environment)?;
    let mut members = Members::of(&group);
    let mut outside = Outside::new(&group);
    let mut over_limit = OutsideLimit::of(options);
    let mut watcher = thrashing::Watcher::new(&group, begin);
    let end = child.wait(|orphans| {
        let looked = members.look(orphans);
        let traced = tracer.as_mut().and_then(Tracer::tick);
        let measured = outside.tick();
        over_limit.check(&group, &outside, &child);
        let next = looked.min(measured).min(watcher.tick());
        traced.map_or(next, |traced| traced.min(next))
    })?;
    if over_limit.ended {
        supervise::end_orphans(|| outside.children());
    }

    let elapsed_s = begin.elapsed().as_secs_f64();
    wait_for_reclaimers(&group);
    group.expire_dead(is_alive);
    let totals = Totals::of(&group, When::AtEnd, begin.hz_since());
    let failure = Failure::of(&group, &totals, outside.causes());
    let status = match &failure {
        _ if over_limit.ended => status::FAILED,
        Some(failure) if failure.pid == child.pid() => status::FAILED,
        _ => end.status(),
    };
    if let Some(tracer) = tracer {
        tracer.end(status);
    }
    swap.end(&group);
    if let Some(failure) = failure {
        eprintln!("uzswap: {}", failure.line);
    }
    if group.nr_started.load(Ordering::Relaxed) == 0 {
        eprintln!("uzswap: nothing was managed: no process loaded uzswap's library");
        if let Some(line) = summary::outside(&group, outside.causes()).filter(|_| !options.quiet) {
            eprintln!("uzswap: {line}");
        }
    } else if !options.quiet {
        for line in summary::lines(&group, &totals, outside.causes(), elapsed_s) {
            eprintln!("uzswap: {line}");
        }
    }
    if let Some(file) = stats {
        let mut report = Report::of_group(&group, &totals, elapsed_s);
        add_outcome(&mut report, options, end, status);
        write_stats(file, &report).context("cannot write the statistics")?;
    }
    Ok(status)
}

/// What is done when memory outside uzswap's control alone exceeds the limit.
struct OutsideLimit {
    /// Whether the command is ended.
    end: bool,
    said: bool,
    /// Whether the command was ended.
    ended: bool,
}

impl OutsideLimit {
    fn of(options: &Run) -> Self {
        OutsideLimit {
            end: options.over_limit == Some(OverLimit::End),
            said: false,
            ended: false,
        }
    }

    /// Ends `child`, or warns once, if the limit is exceeded.
    fn check(&mut self, group: &Group, outside: &Outside<'_>, child: &Child) {
        let Some(bytes) = outside.over_limit().filter(|_| !self.said) else {
            return;
        };
        self.said = true;
        let limit = group.knobs.ram.load(Ordering::Relaxed);
        if self.end {
            let reason = group::FailureReason::Unmanaged;
            group
                .failure
                .record(reason, child.pid(), 0, 0, bytes, limit);
            self.ended = true;
            child.kill();
        } else {
            eprintln!(
                "uzswap: {}: give more --ram, or --over-limit=end to end the command instead",
                failure::outside_alone(bytes, limit, outside.causes())
            );
        }
    }
}

/// Waits for the reclaimers of processes that have ended: their time is the command's, and the last
/// of its memory goes with them.
fn wait_for_reclaimers(group: &Group) {
    for process in used_slots(group).filter(|process| !is_alive(pid_of(process))) {
        match process.reclaimer.load(Ordering::Acquire) {
            0 => {}
            pid => supervise::wait_for_orphan(pid),
        }
    }
}

/// Creates the file that `option` names.
fn create(what: &str, option: &str, path: Option<&Path>) -> Result<Option<File>> {
    path.map(|path| {
        File::create(path).map_err(|error| {
            anyhow!(
                "cannot write the {what} to {}: {error}: choose another {option} FILE",
                path.display()
            )
        })
    })
    .transpose()
}

fn check_not_nested() -> Result<()> {
    let Some(supervisor) = group_file::enclosing_run() else {
        return Ok(());
    };
    let by = supervisor.map_or_else(String::new, |pid| format!(" (pid {pid})"));
    bail!(
        "this command already runs under 'uzswap run'{by}, which manages its children too: start it \
         without a second 'uzswap run'"
    )
}

/// Finds the command and checks that it can be managed here.
fn find_target(options: &Run) -> Result<Target> {
    let name = options
        .command
        .first()
        .context("no command to run: write it after --")?;
    let target = target::find(name, std::env::var_os("PATH").as_deref())?;
    if !options.allow_unmanaged {
        target.must_be_managed()?;
    }
    if target.unmanaged.is_none()
        && let Some(note) = kernel::check(options.fault_mode)?
        && !options.quiet
    {
        eprintln!("uzswap: {note}");
    }
    Ok(target)
}

/// `--ram` or its default, bytes.
fn ram(options: &Run) -> Result<u64> {
    let codec = options.knobs.codec();
    let least = limit::min_limit(codec);
    if let Some(own) = options.knobs.ram_per_process().filter(|own| *own < least) {
        bail!(
            "--ram-per-process {own} is too small: the least that works here with {codec} is {least}"
        );
    }
    match options.knobs.ram() {
        Some(ram) if ram < least => {
            bail!("--ram {ram} is too small: the least that works here with {codec} is {least}")
        }
        Some(Size(ram)) => Ok(ram),
        None => match ram::default_limit(Path::new("/")).map(Size) {
            Some(ram) if ram >= least => Ok(ram.0),
            Some(ram) => bail!(
                "only {ram} of memory may still be used here, but the least that works with {codec} is \
                 {least}: free some memory, or set --ram"
            ),
            None => bail!("cannot find out how much memory may be used here: set --ram"),
        },
    }
}

fn configure(group: &Group, options: &Run) -> Result<()> {
    options.knobs.store(&group.knobs);
    let densify = group.knobs.densify.load(Ordering::Relaxed) > 0;
    if densify && options.folio < MIN_DENSE_ORDER {
        bail!("--densify needs folios of 16K or more: set --folio 64K, or leave --densify out");
    }
    let config = &group.config;
    let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino());
    config.pid_namespace.store(namespace, Ordering::Relaxed);
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

/// Opens the swap devices and prints why others could not be used.
fn open_swap(options: &Run, config: &Config) -> Result<SwapGroup> {
    let config = &config.swap;
    let swap::Choice { mut areas, notes } = swap::choose(&options.swap, options.swap_max)?;
    for note in notes {
        eprintln!("uzswap: {note}");
    }
    #[cfg(feature = "fault-injection")]
    inject_failures(config)?;
    for area in &mut areas {
        area.rotational = options.swap_rotational.resolve(area.rotational);
    }
    let encrypt = options.swap_encrypt == Switch::On;
    SwapGroup::new(areas, encrypt, config)
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

/// Our environment, with the library in LD_PRELOAD and the group's path. A command that cannot be
/// managed gets ours as it is: of another C library, it would not start.
fn environment(target: &Target, preload: &Preload, group: &Path) -> Vec<(OsString, OsString)> {
    if target.unmanaged.is_some() {
        return std::env::vars_os().collect();
    }
    let inherited = std::env::var_os(LD_PRELOAD);
    let mut environment: Vec<_> = std::env::vars_os()
        .filter(|(name, _)| name != LD_PRELOAD && name != GROUP_ENV)
        .collect();
    environment.push((LD_PRELOAD.into(), preload.ld_preload(inherited.as_deref())));
    environment.push((GROUP_ENV.into(), group.into()));
    environment
}

fn add_outcome(report: &mut Report, options: &Run, end: End, status: u8) {
    let (user_s, system_s) = supervise::cpu_seconds();
    let words: Vec<_> = options
        .command
        .iter()
        .map(|w| OsStr::to_string_lossy(w))
        .collect();
    report.add("command", words);
    report.add("exit_status", status);
    report.add(
        "signal",
        match end {
            End::Signal(signal) => Some(signal),
            End::Exit(_) => None,
        },
    );
    report.add("user_s", user_s);
    report.add("system_s", system_s);
}

fn write_stats(mut file: File, report: &Report) -> Result<()> {
    let mut text = serde_json::to_string_pretty(report)?;
    text.push('\n');
    file.write_all(text.as_bytes())?;
    Ok(())
}
