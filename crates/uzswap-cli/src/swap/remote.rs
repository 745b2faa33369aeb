//! *What*: remote swap areas and the brokers that serve them: starts a process for each, starts it
//! again when it dies, and ends it with the run.
//!
//! *Invariants*
//! - What the user named is reached before the command starts, or the run ends.
//! - A URL's secrets go to the broker by a pipe: they are in no argument and no message.
//! - A broker ends when its supervisor does, however that ends: the pipe ends with it.
//!
//! *Locking*: none. *Context*: the supervisor's only thread.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use uzswap_group::group::{DeviceState, Group};
use uzswap_io::exchange::Exchange;
use uzswap_remote::order::{Answer, Order};
use uzswap_remote::process;
use uzswap_remote::url::{self, Place};
use uzswap_swap::{Limits, SwapArea};

use crate::args::Url;
use crate::supervise::Orphan;

/// How often the state of the servers is looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// A broker that dies is not started again sooner after its start.
const MIN_LIFE: Duration = Duration::from_millis(100);
/// How long brokers may take to remove what is on the servers, at the end of a run.
const MAX_END: Duration = Duration::from_secs(10);

/// The place of an URL, in messages.
pub fn name(url: &Url) -> String {
    Place::parse(&url.0).map_or_else(|_| "URL".to_owned(), |place| place.name())
}

/// A broker, and what it serves.
#[derive(Debug)]
pub struct Broker {
    child: Child,
    started: Instant,
    url: Url,
    name: String,
    /// What tells its data from those of other runs.
    job: String,
    alone: bool,
    /// The memory that it shares with the programs.
    memory: File,
    exchange: &'static Exchange,
    /// Its servers were reached, as of the last look.
    was_up: bool,
    /// It has died, and was not started again yet.
    is_dead: bool,
}

impl Broker {
    /// Starts a broker for the place that `url` names; there is no other if it is `alone`. Returns
    /// the area, too.
    ///
    /// # Errors
    /// It cannot be used: one line, with what to do.
    pub fn start(url: &Url, limits: &Limits, alone: bool) -> Result<(SwapArea, Broker)> {
        let place = Place::parse(&url.0).map_err(|error| anyhow!("--swap URL: {error:#}"))?;
        let name = place.name();
        let on_command_line = |word: std::ffi::OsString| word.to_string_lossy().contains(&url.0);
        if url::has_password(&url.0) && std::env::args_os().any(on_command_line) {
            bail!(
                "--swap {name}: a password on the command line can be seen by everybody: write the \
                 URL into a file and give --swap @FILE, or set UZSWAP_SWAP"
            );
        }
        let deadline = url::deadline(&url.0).map_err(|error| anyhow!("--swap {name}: {error}"))?;
        let (memory, exchange) = process::new_exchange().context("cannot make the exchange")?;
        let ns = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
        exchange.deadline_ns.store(ns, Relaxed);
        let job = process::new_job().context("cannot get random numbers")?;
        let (child, answer) = spawn(url, &memory, &job, alone, false)?;
        let mut broker = Broker {
            child,
            started: Instant::now(),
            url: url.clone(),
            name: name.clone(),
            job,
            alone,
            memory,
            exchange,
            was_up: true,
            is_dead: false,
        };
        match answer {
            Answer::Ready { bytes } => {
                let area = SwapArea {
                    file: broker.memory.try_clone()?,
                    path: Path::new(&name).to_owned(),
                    nr_slots: limits
                        .of_area(bytes)
                        .map_err(|error| anyhow!("--swap {name}: {error:#}"))?,
                    priority: 0,
                    rotational: false,
                    direct: false,
                    remote: true,
                };
                Ok((area, broker))
            }
            Answer::Refused(why) => {
                broker.end(Instant::now() + MAX_END);
                bail!("--swap {name}: {why}")
            }
        }
    }

    /// Starts it again after its death.
    fn start_again(&mut self) -> Result<()> {
        // A server that makes brokers die at once is not to be flooded.
        std::thread::sleep(MIN_LIFE.saturating_sub(self.started.elapsed()));
        let (child, _) = spawn(&self.url, &self.memory, &self.job, self.alone, true)?;
        self.child = child;
        self.started = Instant::now();
        Ok(())
    }

    /// Ends it, and waits until it has removed what is on the servers, but no longer than until
    /// `deadline`.
    fn end(&mut self, deadline: Instant) {
        drop(self.child.stdin.take());
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                eprintln!(
                    "uzswap: {} does not answer: what is left there expires by itself, or with the \
                     server",
                    self.name
                );
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Starts a broker for the place that `url` names, and waits for its answer.
fn spawn(url: &Url, memory: &File, job: &str, alone: bool, again: bool) -> Result<(Child, Answer)> {
    process::start(&Order {
        url: url.0.clone(),
        supervisor: std::process::id(),
        exchange: memory.as_raw_fd().unsigned_abs(),
        job: job.to_owned(),
        alone,
        again,
    })
}

/// The brokers of a run.
#[derive(Debug, Default)]
pub struct Brokers(Vec<Broker>);

impl Brokers {
    /// Those of a new run.
    pub fn new(brokers: Vec<Broker>) -> Self {
        Brokers(brokers)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether process `pid` is one of them.
    pub fn have(&self, pid: u32) -> bool {
        self.0.iter().any(|broker| broker.child.id() == pid)
    }

    /// Starts those again that are among the processes which have ended, and has devices whose
    /// servers are back used again. Returns the time until the next look; none without any.
    pub fn tick(&mut self, group: &Group, ended: &[Orphan]) -> Option<Duration> {
        for broker in &mut self.0 {
            let has_died = ended.iter().any(|orphan| orphan.pid == broker.child.id());
            if has_died || broker.is_dead {
                let started = broker.start_again();
                // Said once: it is tried again at the next look.
                if let (Err(error), false) = (&started, broker.is_dead) {
                    eprintln!("uzswap: {}: {error:#}; trying again", broker.name);
                }
                broker.is_dead = started.is_err();
                continue;
            }
            let is_up = broker.exchange.is_up.load(Relaxed) != 0;
            if is_up != broker.was_up && broker.started.elapsed() > PERIOD * 3 {
                broker.was_up = is_up;
                let what = if is_up {
                    "answers again"
                } else {
                    "does not answer: what is there is waited for"
                };
                eprintln!("uzswap: {} {what}", broker.name);
            }
            if is_up {
                use_again(group, &broker.name);
            }
        }
        (!self.0.is_empty()).then_some(PERIOD)
    }

    /// Ends all.
    pub fn end(self) {
        let deadline = Instant::now() + MAX_END;
        for mut broker in self.0 {
            broker.end(deadline);
        }
    }
}

/// Has the device of that name written to again, if it had failed.
fn use_again(group: &Group, name: &str) {
    let devices = group.config.swap.devices();
    let its = |it: &&uzswap_group::group::DeviceConfig| {
        let mut buffer = [0; uzswap_group::group::Text::LEN];
        it.remote.load(Relaxed) != 0 && name.starts_with(it.name.get(&mut buffer))
    };
    for device in devices.filter(its) {
        let (failed, on) = (DeviceState::Failed, DeviceState::On);
        device.failures.store(0, Relaxed);
        if device.state.turn(failed, on) {
            eprintln!("uzswap: {name} is written to again");
        }
    }
}
