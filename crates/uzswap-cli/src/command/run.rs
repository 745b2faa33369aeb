//! *What*: `uzswap run`: checks, makes the group, runs the command, reports.
//!
//! *Invariants*: whatever can be refused is refused before the command starts.
//! *Locking*: none. *Context*: the supervisor's only thread.

mod place;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use uzswap_group::environment::GROUP_ENV;
use uzswap_group::group::{self, Group};
use uzswap_sys::clock::Moment;

use crate::args::{OverLimit, Run};
use crate::failure::{self, Failure};
use crate::group_file;
use crate::group_view::totals::{Totals, When};
use crate::group_view::{Part, is_alive, pid_of};
use crate::idle::IdleReclaim;
use crate::kernel;
use crate::members::Members;
use crate::metrics::Listener;
use crate::notebook::Notebook;
use crate::outside::{Outside, Over};
use crate::preload::{IMAGE, Installed, LIBRARY};
use crate::ram::{Advice, Follower, Kills};
use crate::report::Report;
use crate::status;
use crate::summary;
use crate::supervise::{self, Carrier, Child, End};
use crate::target::{self, Target, Way};
use crate::thrashing;
use crate::trace::Tracer;
use place::Place;

const LD_PRELOAD: &str = "LD_PRELOAD";

/// Runs the command; the exit status is its own.
pub fn run(options: &Run) -> Result<u8> {
    let entered = Moment::now();
    check_not_nested()?;
    let target = find_target(options)?;
    place::check(options)?;
    let stats = create("statistics", "--stats", options.stats.as_deref())?;
    let trace = create("trace", "--trace", options.trace.as_deref())?;
    let metrics = options.metrics.as_ref().map(Listener::bind).transpose()?;
    let library = LIBRARY.install()?;
    let image = IMAGE.install()?;
    let mut place = Place::take(options, entered)?;
    let surroundings = place.surroundings.take();
    let mut brokers = std::mem::take(&mut place.brokers);
    let (group, part) = (&place.group, place.part());

    let mut kills = Kills::watch(Path::new("/"));
    let begin = Moment::now();
    let told = group.in_environment([library.path(), image.path()]);
    let environment = environment(&target, &library, told);
    let mut tracer = trace
        .map(|file| Tracer::start(file, part, begin))
        .transpose()?;
    let child = Child::start(
        &target,
        &options.command,
        &environment,
        &Carrier {
            image: image.path(),
            required: !options.allow_unmanaged,
        },
    )?;
    // After the fork, which wants one thread, and with signals blocked, which are for this one.
    let metrics = metrics.map(Listener::serve).transpose()?;
    let notebook = options.jupyter.as_deref().and_then(watch_notebook);
    let mut idle = options.idle_reclaim.map(|age| IdleReclaim::new(part, age));
    let mut members = Members::of(group);
    let mut outside = Outside::new(group, place.run);
    let mut follower = Follower::new(group, place.run, surroundings);
    let mut over_limit = OutsideLimit::of(options);
    let mut watcher = thrashing::Watcher::new(group, place.run, begin);
    let end = child.wait(|orphans| {
        let brokered = brokers.tick(&place.group, orphans);
        let measured = outside.tick();
        let (followed, lowered) = follower.tick();
        if lowered {
            members.hurry();
        }
        let looked = members.look(orphans);
        let traced = tracer.as_mut().and_then(Tracer::tick);
        over_limit.check(&place, &outside, &child);
        say_kills(kills.tick(), group);
        let next = looked.min(measured).min(followed).min(watcher.tick());
        let idle = idle.as_mut().map(IdleReclaim::tick);
        [traced, idle, brokered]
            .into_iter()
            .flatten()
            .fold(next, Duration::min)
    })?;
    drop(metrics);
    say_kills(kills.look(), group);
    if over_limit.ended {
        supervise::end_orphans(|| {
            let mut children = outside.children();
            children.retain(|pid| !brokers.have(*pid));
            children
        });
    }

    let elapsed_s = begin.elapsed().as_secs_f64();
    wait_for_reclaimers(&part);
    // Brokers are children too; they are reaped by who started them.
    match brokers.is_empty() && supervise::nobody_is_left() {
        true => group.expire_run(place.run, std::process::id()),
        false => group.expire_dead(std::process::id(), is_alive),
    }
    let totals = Totals::of(&part, When::AtEnd, begin.hz_since());
    let failure = Failure::of(&part, &totals, outside.causes());
    let status = match &failure {
        _ if over_limit.ended => status::FAILED,
        Some(failure) if failure.pid == child.pid() => status::FAILED,
        _ => end.status(),
    };
    if let Some(tracer) = tracer {
        tracer.end(status);
    }
    if let Some(failure) = failure {
        eprintln!("uzswap: {}", failure.line);
        if let Some(notebook) = notebook.filter(|_| status == status::FAILED)
            && let Err(error) = notebook.tell(&failure.line)
        {
            eprintln!("uzswap: the notebook could not be told: {error:#}");
        }
    }
    // The image has said itself why it could not be put in.
    let said = target.way == Way::Image && status == status::FAILED;
    if part.nr_started() == 0 && !said {
        eprintln!("uzswap: nothing was managed: no process was given uzswap's engine");
        if let Some(line) = summary::outside(&part, outside.causes()).filter(|_| !options.quiet) {
            eprintln!("uzswap: {line}");
        }
    } else if part.nr_started() > 0 && !options.quiet {
        for line in summary::lines(&part, &totals, outside.causes(), elapsed_s) {
            eprintln!("uzswap: {line}");
        }
    }
    if let Some(file) = stats {
        let mut report = Report::of_group(&part, &totals, elapsed_s);
        add_outcome(&mut report, options, end, status);
        write_stats(file, &report).context("cannot write the statistics")?;
    }
    place.brokers = brokers;
    place.leave();
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
    fn check(&mut self, place: &Place, outside: &Outside<'_>, child: &Child) {
        let Some(over) = outside.over_limit().filter(|_| !self.said) else {
            return;
        };
        self.said = true;
        if self.end {
            let reason = group::FailureReason::Unmanaged;
            let run = place.group.run(place.run);
            let Over { bytes, limit, .. } = over;
            run.failure.record(reason, child.pid(), 0, 0, bytes, limit);
            self.ended = true;
            child.kill();
        } else {
            eprintln!(
                "uzswap: {}: {}, or --over-limit=end to end the command instead",
                failure::outside_alone(over, outside.causes()),
                Advice::of(&place.group).more()
            );
        }
    }
}

/// Watches the kernel of a notebook; one that cannot be watched runs all the same.
fn watch_notebook(connection: &Path) -> Option<Notebook> {
    let notebook = Notebook::watch(connection);
    let said = |error| eprintln!("uzswap: the notebook will not be told of a limit: {error:#}");
    notebook.map_err(said).ok()
}

/// Says that the kernel has killed so many processes in the cgroup.
fn say_kills(kills: Option<u64>, group: &Group) {
    let Some(nr) = kills else { return };
    let what = if nr == 1 { "process" } else { "processes" };
    eprintln!(
        "uzswap: the kernel has killed {nr} {what} in the cgroup, which ran out of memory: {}",
        Advice::of(group).less()
    );
}

/// Waits for the reclaimers of processes that have ended: their time is the command's, and the last
/// of its memory goes with them.
fn wait_for_reclaimers(part: &Part<'_>) {
    for process in part
        .used_slots()
        .filter(|process| !is_alive(pid_of(process)))
    {
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
    if !matches!(target.way, Way::Unmanaged(_))
        && let Some(note) = kernel::check(options.fault_mode)?.slower
        && !options.quiet
    {
        eprintln!("uzswap: {note}");
    }
    Ok(target)
}

/// Our environment, with the library in LD_PRELOAD, where the command is served by that, and the
/// group's path. A command that cannot be managed gets ours as it is.
fn environment(target: &Target, library: &Installed, group: OsString) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<_> = std::env::vars_os().collect();
    match target.way {
        Way::Unmanaged(_) => return environment,
        Way::Image => {}
        Way::Library => {
            let inherited = std::env::var_os(LD_PRELOAD);
            environment.retain(|(name, _)| name != LD_PRELOAD);
            environment.push((LD_PRELOAD.into(), library.ld_preload(inherited.as_deref())));
        }
    }
    environment.retain(|(name, _)| name != GROUP_ENV);
    environment.push((GROUP_ENV.into(), group));
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
