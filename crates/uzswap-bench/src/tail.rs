//! The suite `tail`: how long single requests to a server wait that has half of its memory.
//!
//! *What*: a redis server with a thousand bytes for each key, asked by a load of our own, which is
//! outside of the server's limit ([`load`]): in a closed loop, which shows the throughput, and in an
//! open one of the same rate on all sides, which shows the latencies. The kernel's zswap has a
//! quarter of what the server takes natively, beside its pool; uzswap and plain swap have that and
//! the peak of zswap's pool, or, without the kernel, half of what the server takes.
//! *Invariants*: sides take turns within each round, and are asked the same.
//! *Locking*: none.
//! *Context*: the bench command; the kernel's sides need root.

mod load;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result};
use uzswap_corpus::progress::Progress;
use uzswap_corpus::{Scratch, find};

use crate::compare::{self, Figure, Measured, Values};
use crate::sides::{Completed, Job, Limits, NATIVE_FIRST, Side, Sides};
use crate::work;
use load::{Keys, Load, Seen};

/// Peers by default.
pub const DEFAULT_PEERS: [Side; 2] = [Side::Native, Side::KernelZswap];
const JOBS: [(&str, Keys); 2] = [("all keys", Keys::Alike), ("hot keys", Keys::Skewed)];
/// Keys for each MiB of the server's memory.
const KEYS_PER_MIB: u64 = 850;
/// Requests of each loop, in multiples of the keys.
const PASSES: usize = 1;
/// A server that has not ended by then has failed.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Measures, with about `mib` MiB of data, at `rate` requests per second.
///
/// # Errors
/// If the machine is too small, there is no redis server, or no round was completed.
pub fn measure(sides: &mut Sides, mib: u64, rate: u32, rounds: usize) -> Result<Measured> {
    work::check_memory(mib)?;
    let server = find("redis-server")?;
    let mut measured = Measured {
        title: "Requests to a server with half of its memory".into(),
        notes: vec![format!(
            "redis-server with {mib} MiB of values, a fifth of the requests SET, the others GET; of all \
             keys alike, or four of five of a fifth of them. Throughput: one connection with sixteen \
             requests in flight. Latency: an open loop of {rate} requests per second, counted from when \
             each was due."
        )],
        sides: sides.columns(),
        figures: figures(),
        ratios: Sides::ratios(),
        ..Measured::default()
    };
    let mut native_mib = None;
    measured.fill(rounds, JOBS.len() * NATIVE_FIRST.len(), |round| {
        for (name, keys) in JOBS {
            let nr_keys = usize::try_from(mib * KEYS_PER_MIB)?;
            let load = Load {
                nr_keys,
                keys,
                requests: nr_keys * PASSES,
                rate,
                seed: round.number as u64 + 1,
            };
            let mut total_mib = None;
            for side in NATIVE_FIRST {
                round.at(name, side.key());
                let ran = match (side, native_mib) {
                    // One is needed even if `native` is no peer.
                    (Side::Native, None) => run(sides, side, None, &server, load, round.progress)?,
                    (_, None) => None,
                    (_, Some(native_mib)) => {
                        let limits = limits(side, native_mib, total_mib);
                        run(sides, side, Some(limits), &server, load, round.progress)?
                    }
                };
                let Some((run, seen)) = ran else { continue };
                match side {
                    Side::Native => native_mib = native_mib.or(Some(run.anon_mib)),
                    Side::KernelZswap => total_mib = run.ram_mib,
                    _ => {}
                }
                if sides.takes_part(side) {
                    round.add(name, side.key(), values(&run, &seen));
                }
            }
        }
        Ok(())
    })?;
    Ok(measured)
}

fn limits(side: Side, native_mib: u64, total_mib: Option<u64>) -> Limits {
    let beside_pool = matches!(side, Side::KernelZswap | Side::Zram);
    Limits {
        ram_mib: match total_mib.filter(|_| !beside_pool) {
            Some(total_mib) => total_mib,
            None if beside_pool => native_mib / 4,
            None => native_mib / 2,
        },
        pool_mib: None,
        swap_mib: native_mib * 2,
    }
}

/// One run; `limits` are `None` for the native one that is needed. A side that cannot run it is
/// noted as skipped.
fn run(
    sides: &mut Sides,
    side: Side,
    limits: Option<Limits>,
    server: &Path,
    load: Load,
    progress: &Progress,
) -> Result<Option<(Completed, Seen)>> {
    let scratch = Scratch::new()?;
    let job = job(server, scratch.path());
    let socket = scratch.path().join(SOCKET);
    let is_gone = AtomicBool::new(false);
    let (run, seen) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| load.drive(&socket, &is_gone));
        let run = match limits {
            Some(limits) => sides.run(side, limits, &job, progress),
            None => sides.natively(&job, progress),
        };
        is_gone.store(true, Relaxed);
        (run, asking.join())
    });
    let Ok(seen) = seen else {
        anyhow::bail!("the load has panicked");
    };
    // Of two failures the server's says more.
    let failure = match (run, seen) {
        (Ok(None), _) => return Ok(None),
        (Ok(Some(run)), Ok(seen)) => return Ok(Some((run, seen))),
        (Err(why), _) | (Ok(Some(_)), Err(why)) => why,
    };
    if limits.is_none() {
        return Err(failure).context("the native server");
    }
    let line = format!("redis-server under {}: {failure:#}", sides.name(side));
    progress.say(&format!("SKIPPED {line}"));
    if !sides.skipped.contains(&line) {
        sides.skipped.push(line);
    }
    Ok(None)
}

/// Name of the server's socket, in its directory.
const SOCKET: &str = "redis.socket";

fn job(server: &Path, dir: &Path) -> Job {
    let options = "--port 0 --appendonly no --daemonize no --unixsocket";
    let mut argv = vec![server.into()];
    argv.extend(options.split(' ').map(Into::into));
    argv.extend([SOCKET.into(), "--save".into(), "".into()]);
    Job {
        argv,
        dir: Some(dir.to_owned()),
        timeout: Some(TIMEOUT),
        ..Job::default()
    }
}

fn figures() -> Vec<Figure> {
    let latency = "Latency";
    vec![
        Figure::new("p50_us", "half within", "µs").in_chart(latency),
        Figure::new("p99_us", "99 % within", "µs").in_chart(latency),
        Figure::new("p999_us", "99.9 % within", "µs").in_chart(latency),
        Figure::new("per_s", "throughput", "requests per s")
            .more_is_better()
            .in_chart("Throughput"),
        Figure::new("fault_p99_us", "99 % of faults within", "µs"),
        Figure::new("fault_p999_us", "99.9 % of faults within", "µs"),
        Figure::new("cpu_s", "processor time", "CPU s"),
        Figure::new("ram_mib", "RAM", "MiB"),
    ]
}

fn values(run: &Completed, seen: &Seen) -> Values {
    let mut values = compare::values([
        ("p50_us", seen.within_us(500)),
        ("p99_us", seen.within_us(990)),
        ("p999_us", seen.within_us(999)),
        ("per_s", seen.per_s),
        ("cpu_s", run.cpu_s),
        ("ram_mib", run.ram_mib.unwrap_or(run.anon_mib) as f64),
    ]);
    for (key, of) in [("fault_p99_us", "p99"), ("fault_p999_us", "p999")] {
        let ns = run.stats["fault_ns"][of].as_f64();
        values.extend(ns.map(|ns| (key.to_owned(), ns / 1e3)));
    }
    values
}
