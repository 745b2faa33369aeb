//! The suite `remote`: pages read back from other machines, beside a local disk and beside what the
//! servers give to a client that does nothing else.
//!
//! *What*: servers of this machine ([`servers`]), asked directly and through a delay ([`socket`]),
//! by the readers ([`reader`]) of a load ([`load`]): single pages at random, and streams. Then a
//! job of three times its memory that swaps to each. What many jobs do to a cluster is simulated
//! ([`simulate`]).
//! *Invariants*: all sides of a job read the same data; every slot that comes is checked. Sides
//! take turns within each round.
//! *Locking*: none.
//! *Context*: the bench command.

mod load;
mod reader;
mod servers;
pub mod simulate;
mod socket;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use uzswap_corpus::{find, interrupt};
use uzswap_io::opened::Opened;
use uzswap_io::{Device, SLOT};
use uzswap_remote::url::Address;
use uzswap_swap::{Auto, Limits as SwapLimits, file};

use crate::compare::{self, CurrentRound, Figure, Goal, Measured, pair};
use crate::sides::{self, Side, Sides};
use crate::work::{Data, Phases};
use load::Shape;
use reader::{Bare, OfDevice, Reader};
use servers::{Broker, Kind, Servers};

/// Data that is read, MiB.
const DATA_MIB: u64 = 64;
/// Slots of it.
const NR_SLOTS: u64 = (DATA_MIB << 20) / SLOT as u64;
/// The data of the job, in multiples of its memory.
const TIMES: u64 = 3;
/// The job's memory that its data need beside, MiB.
const MIN_RAM_MIB: u64 = 32;
/// Requests that redis-benchmark makes by each connection.
const NR_BENCH_REQUESTS: u32 = 20_000;
const DISK: (&str, &str) = ("disk", "local disk");
const REDIS_BENCHMARK: (&str, &str) = ("redis-benchmark", "redis-benchmark");
/// A single page takes at most so many times what a bare client waits for it.
const PAGE_GOAL: f64 = 2.0;
/// A stream has at least this share of what a bare client gets.
const STREAM_GOAL: f64 = 0.6;
/// The job takes at most so many times its time on the local disk.
const JOB_GOAL: f64 = 1.5;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Delays added to a round trip, ms.
    pub delays_ms: Vec<f64>,
    /// Data of the job, MiB.
    pub job_mib: u64,
    /// Rounds.
    pub rounds: usize,
    /// How long each reads.
    pub time: Duration,
}

/// A way to a server: its address, and a broker before it.
struct Way {
    kind: Kind,
    delay_ms: f64,
    address: Address,
    broker: Broker,
    device: Device<Opened>,
}

/// Everything that is read from.
struct Places {
    disk: Device<Opened>,
    ways: Vec<Way>,
    /// What all keys begin with.
    stem: String,
}

/// Measures.
///
/// # Errors
/// If no server is installed, one does not work, or no round was completed.
pub fn measure(sides: &mut Sides, options: &Options) -> Result<Measured> {
    let servers = Servers::start(options.job_mib.max(DATA_MIB) * 2)?;
    sides.skipped.extend(servers.skipped.iter().cloned());
    let job = uzswap_remote::process::new_job()?;
    let mut notes = Vec::new();
    let area = file::in_directory(&disk_dir(), &disk_limits()?, &mut notes)
        .with_context(|| format!("no file in {}", disk_dir().display()))?;
    let places = Places {
        disk: device_of(&area.file, area.nr_slots)?,
        ways: ways(&servers, &job, &options.delays_ms)?,
        stem: format!("uzswap:{job}"),
    };
    load::fill(&places.disk, NR_SLOTS)?;
    let mut measured = Measured {
        title: "Swap to other machines".into(),
        notes: vec![format!(
            "Servers on this machine, whose time is among that of all. Pages: {} KiB at random of \
             {DATA_MIB} MiB. Streams: {} reads of {} KiB at a time. A bare client is one connection a \
             thread, which sends the same requests and copies the answers. Job: {} MiB of data that \
             compresses about twofold, in {} MiB of memory, by two threads. Delays are added to each \
             round trip, by a thread that passes everything on.",
            SLOT >> 10,
            uzswap_io::MAX_READS,
            (uzswap_io::MAX_RUN / uzswap_io::MAX_READS * SLOT) >> 10,
            options.job_mib,
            options.job_mib / TIMES,
        )],
        sides: columns(),
        figures: figures(),
        ratios: ratios(),
        goals: goals(),
        ..Measured::default()
    };
    let cases = cases(options);
    let steps = cases.len() * 2 * (places.ways.len() / options.delays_ms.len() + 1);
    measured.fill(options.rounds, steps, |round| {
        // The job of the round before has overwritten what an NBD server has.
        places.fill(options.delays_ms[0])?;
        for case in &cases {
            places.measure(case, options.time, round)?;
        }
        for &delay_ms in &options.delays_ms {
            run_jobs(sides, &places.ways, delay_ms, options, round)?;
        }
        Ok(())
    })?;
    Ok(measured)
}

fn disk_dir() -> std::path::PathBuf {
    match Auto::of_environment() {
        Auto::Named(dir) | Auto::Default(dir) => dir,
    }
}

fn disk_limits() -> Result<SwapLimits> {
    let mut limits = SwapLimits::of_process(None)?;
    limits.max = Some((DATA_MIB + 1) << 20);
    Ok(limits)
}

/// The device in a file that lives as long as the process.
fn device_of(file: &std::fs::File, nr_slots: u64) -> Result<Device<Opened>> {
    use std::os::fd::IntoRawFd;
    let fd = file.try_clone()?.into_raw_fd();
    let device = Device::over(<Opened as uzswap_io::device::Medium>::new(fd), nr_slots);
    device.map_err(|errno| anyhow::anyhow!("no device: error {}", errno.0))
}

/// Every server, with every delay.
fn ways(servers: &Servers, job: &str, delays_ms: &[f64]) -> Result<Vec<Way>> {
    let mut ways = Vec::new();
    for (kind, server) in servers.all() {
        for &delay_ms in delays_ms {
            let address = address(servers, server, delay_ms)?;
            let broker = Broker::start(&kind.url(&address), job)?;
            ways.push(Way {
                kind,
                delay_ms,
                address,
                device: broker.device()?,
                broker,
            });
        }
    }
    Ok(ways)
}

/// Where `server` is reached with that delay.
fn address(servers: &Servers, server: &Address, delay_ms: f64) -> Result<Address> {
    if delay_ms == 0.0 {
        return Ok(server.clone());
    }
    let each_way = Duration::from_secs_f64(delay_ms / 2e3);
    socket::delay(server, each_way, servers.scratch.path())
}

/// One row of reads.
struct Case {
    name: String,
    shape: Shape,
    threads: usize,
    delay_ms: f64,
}

fn cases(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for &delay_ms in &options.delays_ms {
        for shape in [Shape::Pages, Shape::Stream] {
            for &threads in &options.threads {
                let what = match shape {
                    Shape::Pages => "pages",
                    Shape::Stream => "streams",
                };
                let s = if threads == 1 { "" } else { "s" };
                cases.push(Case {
                    name: format!("{what}, {threads} thread{s}{}", delayed(delay_ms)),
                    shape,
                    threads,
                    delay_ms,
                });
            }
        }
    }
    cases
}

fn delayed(delay_ms: f64) -> String {
    match delay_ms {
        0.0 => String::new(),
        ms => format!(", + {ms} ms"),
    }
}

impl Places {
    /// Writes the data to each server, by its way of that delay: the other ways find the same.
    fn fill(&self, delay_ms: f64) -> Result<()> {
        let ways = self.ways.iter().filter(|way| way.delay_ms == delay_ms);
        for way in ways.filter(|way| way.kind != Kind::Unix) {
            load::fill(&way.device, NR_SLOTS)?;
        }
        Ok(())
    }

    /// Has all sides read as `case` says.
    fn measure(&self, case: &Case, time: Duration, round: &mut CurrentRound<'_>) -> Result<()> {
        if case.delay_ms == 0.0 {
            self.side(case, DISK, time, round, None, || {
                Ok(Box::new(OfDevice::new(&self.disk)))
            })?;
        }
        let ways = self.ways.iter().filter(|way| way.delay_ms == case.delay_ms);
        for way in ways {
            let device = || -> Result<Box<dyn Reader>> { Ok(Box::new(OfDevice::new(&way.device))) };
            self.side(
                case,
                way.kind.side(),
                time,
                round,
                Some(&way.broker),
                device,
            )?;
            self.side(case, way.kind.bare_side(), time, round, None, || {
                let bare = Bare::connect(way.kind, &way.address, &self.stem)?;
                Ok(Box::new(bare))
            })?;
            if way.kind == Kind::Redis && case.shape == Shape::Pages {
                redis_benchmark(case, &way.address, &self.stem, round)?;
            }
        }
        Ok(())
    }

    fn side<'r>(
        &self,
        case: &Case,
        (side, name): (&str, &str),
        time: Duration,
        round: &mut CurrentRound<'_>,
        broker: Option<&Broker>,
        reader: impl Fn() -> Result<Box<dyn Reader + 'r>>,
    ) -> Result<()> {
        if interrupt::happened() {
            return Ok(());
        }
        round.at(&case.name, name);
        let readers = (0..case.threads).map(|_| reader());
        let readers = readers
            .collect::<Result<Vec<_>>>()
            .context(name.to_owned())?;
        let before_ns = broker.map(Broker::cpu_ns);
        let seen = load::drive(readers, case.shape, NR_SLOTS, time)
            .with_context(|| format!("{}, {name}", case.name))?;
        let mut values = compare::values([
            ("p50_us", seen.within_us(500)),
            ("p99_us", seen.within_us(990)),
            ("mib_per_s", seen.mib_per_s()),
        ]);
        if let (Some(broker), Some(before_ns)) = (broker, before_ns) {
            let us = (broker.cpu_ns() - before_ns) as f64 / 1e3;
            values.insert("broker_us".into(), us / seen.pages as f64);
        }
        round.add(&case.name, side, values);
        round.progress.step();
        Ok(())
    }
}

/// What redis-benchmark finds, if it is installed: one page, again and again.
fn redis_benchmark(
    case: &Case,
    address: &Address,
    stem: &str,
    round: &mut CurrentRound<'_>,
) -> Result<()> {
    let (Ok(program), Address::Tcp(host, port)) = (find("redis-benchmark"), address) else {
        return Ok(());
    };
    if case.delay_ms != 0.0 || interrupt::happened() {
        return Ok(());
    }
    let clients = case.threads.to_string();
    let out = Command::new(program)
        .args(["-h", host, "-p", &port.to_string(), "-c", &clients, "--csv"])
        .args(["-n", &NR_BENCH_REQUESTS.to_string()])
        .args(["GETRANGE", &format!("{stem}:0"), "0", "4095"])
        .output()
        .context("cannot run redis-benchmark")?;
    // "test","rps","avg","min","p50","p95","p99","max", the times in ms.
    let text = String::from_utf8_lossy(&out.stdout);
    let last = text.lines().last().unwrap_or("");
    let fields: Vec<f64> = last
        .split("\",\"")
        .filter_map(|field| field.trim_matches('"').parse().ok())
        .collect();
    if let [rps, _, _, p50_ms, _, p99_ms, ..] = fields[..] {
        let values = compare::values([
            ("p50_us", p50_ms * 1e3),
            ("p99_us", p99_ms * 1e3),
            ("mib_per_s", rps * SLOT as f64 / f64::from(1 << 20)),
        ]);
        round.add(&case.name, REDIS_BENCHMARK.0, values);
    }
    Ok(())
}

/// Runs the job with every swap of that delay.
fn run_jobs(
    sides: &mut Sides,
    ways: &[Way],
    delay_ms: f64,
    options: &Options,
    round: &mut CurrentRound<'_>,
) -> Result<()> {
    let name = format!("job{}", delayed(delay_ms));
    if delay_ms == 0.0 {
        let dir = disk_dir().display().to_string();
        run_job(sides, &name, DISK.0, &dir, options, round)?;
    }
    for way in ways.iter().filter(|way| way.delay_ms == delay_ms) {
        let url = way.kind.url(&way.address);
        run_job(sides, &name, way.kind.side().0, &url, options, round)?;
    }
    Ok(())
}

fn run_job(
    sides: &mut Sides,
    name: &str,
    side: &str,
    swap: &str,
    options: &Options,
    round: &mut CurrentRound<'_>,
) -> Result<()> {
    round.at(name, side);
    let work = Phases {
        mib: options.job_mib,
        threads: 2,
        seed: round.number + 1,
        data: Data::Records(2),
        accesses: Some(options.job_mib * 256 / 8),
    };
    let limits = sides::Limits {
        ram_mib: (options.job_mib / TIMES).max(MIN_RAM_MIB),
        pool_mib: None,
        swap_mib: options.job_mib * 2,
    };
    let mut job = work.job(&sides.uzswap);
    job.options = ["--swap", swap].map(Into::into).into();
    let Some(run) = sides.run(Side::Uzswap, limits, &job, round.progress)? else {
        return Ok(());
    };
    let mut values = crate::work::values(&run)?;
    values.retain(|key, _| ["random_us", "sequential_us"].contains(&key.as_str()));
    values.extend(compare::values([
        ("wall_s", run.wall_s),
        ("cpu_s", run.cpu_s),
    ]));
    round.add(name, side, values);
    Ok(())
}

fn columns() -> Vec<(String, String)> {
    let mut columns = vec![pair(DISK)];
    for kind in Kind::ALL {
        columns.extend([pair(kind.side()), pair(kind.bare_side())]);
        columns.extend((kind == Kind::Redis).then(|| pair(REDIS_BENCHMARK)));
    }
    columns
}

fn figures() -> Vec<Figure> {
    vec![
        Figure::new("p50_us", "half within", "µs").in_chart("Waiting for a page"),
        Figure::new("p99_us", "99 % within", "µs"),
        Figure::new("mib_per_s", "throughput", "MiB per s")
            .more_is_better()
            .in_chart("Throughput"),
        Figure::new("broker_us", "the broker's processor time", "µs per page"),
        Figure::new("wall_s", "time", "s").in_chart("A job of three times its memory"),
        Figure::new("random_us", "random", "µs per access"),
        Figure::new("sequential_us", "sequential", "µs per access"),
        Figure::new("cpu_s", "processor time", "CPU s"),
    ]
}

fn ratios() -> Vec<(String, String)> {
    let to_bare = Kind::ALL.map(|kind| pair((kind.side().0, kind.bare_side().0)));
    let to_disk = Kind::ALL.map(|kind| pair((kind.side().0, DISK.0)));
    [to_bare, to_disk].concat()
}

fn goals() -> Vec<Goal> {
    let mut goals = Vec::new();
    for kind in Kind::ALL {
        let to_bare = (kind.side().0, kind.bare_side().0);
        goals.push(Goal::new(
            "p50_us",
            Some("pages, 1 thread"),
            to_bare,
            PAGE_GOAL,
        ));
        for job in ["1 thread", "2 threads", "8 threads"] {
            let job = format!("streams, {job}");
            goals.push(Goal::new("mib_per_s", Some(&job), to_bare, STREAM_GOAL));
        }
        let to_disk = (kind.side().0, DISK.0);
        goals.push(Goal::new("wall_s", Some("job"), to_disk, JOB_GOAL));
    }
    goals
}
