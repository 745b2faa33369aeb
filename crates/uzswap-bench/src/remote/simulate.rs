//! *What*: many jobs that swap to one Redis Cluster, simulated: what its servers have to do, how
//! long reads wait, and what the failure of a rack does to both.
//!
//! Every shard is a queue that serves one request at a time, as Redis does; every job reads a page,
//! computes for a time, and reads the next; what it evicts meanwhile is written in the background.
//! The costs are those that `bench remote` has measured; all else is assumed, and named in the
//! notes.
//!
//! *Invariants*: the same seed gives the same figures.
//! *Locking*: none. *Context*: the bench command.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anyhow::Result;

use crate::compare::{self, Figure, Measured, Values, pair};
use crate::random::Random;

const NR_JOBS: usize = 1000;
const NR_NODES: usize = 100;
const NR_SHARDS: usize = 16;
/// Shards whose primaries are in one rack; their replicas are in others.
const RACK: std::ops::Range<usize> = 0..4;
/// Connections of a job to a server: four workers, and upkeep.
const NR_CONNECTIONS: usize = 5;
/// What a job has on the servers, GiB.
const JOB_GIB: usize = 4;

const US: u64 = 1000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
/// A server's time for a GETRANGE of 4 KiB: 65,000 a second.
const READ_NS: u64 = 15 * US;
/// A server's time for a SETRANGE of 16 KiB.
const WRITE_NS: u64 = 12 * US;
/// What the broker adds to a read.
const BROKER_NS: u64 = 17 * US;
/// Assumed: the network's round trip.
const ROUND_TRIP_NS: u64 = 200 * US;
/// Assumed: a replica takes over so long after its primary is gone (`cluster-node-timeout` 2 s).
const FAILOVER_NS: u64 = 3 * S;
/// A read is late after so long, and goes to the other copy; the server is left alone for
/// [`SLOW_NS`].
const LATE_NS: u64 = 2 * MS;
const SLOW_NS: u64 = S;
/// Reads for each write of 16 KiB: as much is written as is read.
const READS_PER_WRITE: usize = 4;
/// Requests that a job may have under way: the cells of its exchange.
const NR_CELLS: usize = 64;

/// When the rack fails, and how long is simulated.
const FAILS_NS: u64 = 3 * S;
const END_NS: u64 = 9 * S;

/// The parts of the time that are told apart.
const PHASES: [(&str, &str); 3] = [
    ("before", "before"),
    ("down", "a rack down"),
    ("after", "replicas in its place"),
];

/// A load: its name, and how long a job computes between two reads.
const LOADS: [(&str, u64); 3] = [
    ("100 reads/s a job", 10 * MS),
    ("400 reads/s a job", 2300 * US),
    ("as fast as it goes", 100 * US),
];

/// What happened in one part of the time.
#[derive(Clone, Debug, Default)]
struct Phase {
    waits_us: Vec<u32>,
    nr_writes: u64,
    busy_ns: [u64; NR_SHARDS],
    /// Jobs' time without a cell.
    stalled_ns: u64,
}

fn phase_of(now: u64) -> usize {
    match now {
        ..FAILS_NS => 0,
        _ if now < FAILS_NS + FAILOVER_NS => 1,
        _ => 2,
    }
}

fn phase_len(phase: usize) -> u64 {
    [FAILS_NS, FAILOVER_NS, END_NS - FAILS_NS - FAILOVER_NS][phase]
}

/// The servers.
struct Shards {
    free_at: [u64; NR_SHARDS],
}

impl Shards {
    fn is_down(shard: usize, at: u64) -> bool {
        RACK.contains(&shard) && (FAILS_NS..FAILS_NS + FAILOVER_NS).contains(&at)
    }

    /// When a request sent `at` is answered: a server that is down answers after its failover.
    fn serve(&mut self, shard: usize, at: u64, cost: u64, phases: &mut [Phase]) -> u64 {
        let mut arrives = at + ROUND_TRIP_NS / 2;
        if Self::is_down(shard, arrives) {
            arrives = FAILS_NS + FAILOVER_NS;
        }
        let begins = self.free_at[shard].max(arrives);
        self.free_at[shard] = begins + cost;
        phases[phase_of(begins)].busy_ns[shard] += cost;
        begins + cost + ROUND_TRIP_NS / 2
    }
}

/// A job.
#[derive(Clone)]
struct Job {
    nr_reads: usize,
    /// When its writes under way are answered.
    writes: BinaryHeap<Reverse<u64>>,
    /// Until when each shard is left alone.
    slow_until: [u64; NR_SHARDS],
}

/// Simulates one load. Returns the phases.
fn run(think_ns: u64, copies: usize, seed: u64) -> Vec<Phase> {
    let mut random = Random::new(seed);
    let mut phases = vec![Phase::default(); PHASES.len()];
    let mut shards = Shards {
        free_at: [0; NR_SHARDS],
    };
    let job = Job {
        nr_reads: 0,
        writes: BinaryHeap::new(),
        slow_until: [0; NR_SHARDS],
    };
    let mut jobs = vec![job; NR_JOBS];
    // They begin at different times.
    let mut due: BinaryHeap<_> = (0..NR_JOBS)
        .map(|job| Reverse((below(&mut random, 10 * MS), job)))
        .collect();
    while let Some(Reverse((mut now, nr))) = due.pop() {
        if now >= END_NS {
            break;
        }
        let job = &mut jobs[nr];
        job.nr_reads += 1;
        if job.nr_reads.is_multiple_of(READS_PER_WRITE) {
            while job.writes.peek().is_some_and(|done| done.0 <= now) {
                job.writes.pop();
            }
            if job.writes.len() >= NR_CELLS
                && let Some(Reverse(done)) = job.writes.pop()
            {
                phases[phase_of(now)].stalled_ns += done - now;
                due.push(Reverse((done, nr)));
                continue;
            }
            let first = random.below(NR_SHARDS);
            let answers = (0..copies).map(|copy| {
                let shard = (first + copy * NR_SHARDS / 2) % NR_SHARDS;
                shards.serve(shard, now, WRITE_NS, &mut phases)
            });
            let done = answers.max().unwrap_or(now);
            job.writes.push(Reverse(done));
            phases[phase_of(now)].nr_writes += copies as u64;
        }
        let began = now;
        let mut shard = random.below(NR_SHARDS);
        if copies > 1 && Shards::is_down(shard, now + ROUND_TRIP_NS / 2) {
            if now >= job.slow_until[shard] {
                job.slow_until[shard] = now + LATE_NS + SLOW_NS;
                now += LATE_NS;
            }
            shard = (shard + NR_SHARDS / 2) % NR_SHARDS;
        }
        let done = shards.serve(shard, now, READ_NS, &mut phases) + BROKER_NS;
        let wait_us = u32::try_from((done - began) / US).unwrap_or(u32::MAX);
        phases[phase_of(began)].waits_us.push(wait_us);
        // Between half of the time and one and a half.
        let think = think_ns / 2 + below(&mut random, think_ns);
        due.push(Reverse((done + think, nr)));
    }
    phases
}

fn below(random: &mut Random, ns: u64) -> u64 {
    random.below(usize::try_from(ns).unwrap_or(usize::MAX)) as u64
}

fn values(phase: &mut Phase, len_ns: u64, copies: usize) -> Values {
    phase.waits_us.sort_unstable();
    let within = |per_mille: usize| {
        let at = phase.waits_us.len() * per_mille / 1000;
        phase.waits_us.get(at).copied().map_or(0.0, f64::from)
    };
    let seconds = len_ns as f64 / S as f64;
    let reads = phase.waits_us.len() as f64;
    let shards = NR_SHARDS as f64;
    let busiest = phase.busy_ns.iter().copied().max().unwrap_or(0);
    let bytes = reads * 4096.0 + phase.nr_writes as f64 * 16384.0;
    compare::values([
        ("p50_us", within(500)),
        ("p99_us", within(990)),
        ("reads_per_s", reads / seconds / 1e3),
        (
            "requests_per_s",
            (reads + phase.nr_writes as f64) / seconds / shards / 1e3,
        ),
        ("busy_percent", busiest as f64 * 100.0 / len_ns as f64),
        ("mib_per_s", bytes / seconds / shards / f64::from(1 << 20)),
        (
            "stalled_percent",
            phase.stalled_ns as f64 * 100.0 / (len_ns as f64 * NR_JOBS as f64),
        ),
        ("gib", (NR_JOBS * JOB_GIB * copies / NR_SHARDS) as f64),
        ("connections", (NR_JOBS * NR_CONNECTIONS) as f64),
    ])
}

/// Simulates every load, by one copy and two.
///
/// # Errors
/// Interrupted.
pub fn measure(rounds: usize) -> Result<Measured> {
    let mut measured = Measured {
        title: "Many jobs that swap to one cluster, simulated".into(),
        notes: notes(),
        sides: PHASES.map(pair).to_vec(),
        figures: figures(),
        ratios: vec![pair(("down", "before"))],
        ..Measured::default()
    };
    measured.fill(rounds, LOADS.len() * 2, |round| {
        for copies in [1, 2] {
            for (load, think_ns) in LOADS {
                let name = format!("{load}, copies={copies}");
                round.at(&name, "simulated");
                let mut phases = run(think_ns, copies, round.number as u64 + 1);
                for (nr, (phase, (key, _))) in phases.iter_mut().zip(PHASES).enumerate() {
                    round.add(&name, key, values(phase, phase_len(nr), copies));
                }
                round.progress.step();
            }
        }
        Ok(())
    })?;
    Ok(measured)
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "{NR_JOBS} jobs on {NR_NODES} nodes; {NR_SHARDS} primaries, each with a replica in another \
             rack. After {} s the rack of {} primaries fails, silently; replicas take over after {} s.",
            FAILS_NS / S,
            RACK.len(),
            FAILOVER_NS / S
        ),
        format!(
            "Measured (bench remote): a server takes {} µs for a read of 4 KiB and {} µs for a write of \
             16 KiB; the broker adds {} µs to a read.",
            READ_NS / US,
            WRITE_NS / US,
            BROKER_NS / US
        ),
        format!(
            "Assumed: a round trip of {} µs, and a network that is never the limit; keys spread evenly; \
             each job reads one page at a time, at random; as many bytes are written as read; each has \
             {JOB_GIB} GiB on the servers; with two copies a read is late after {} ms, and the server \
             is left alone for {} s.",
            ROUND_TRIP_NS / US,
            LATE_NS / MS,
            SLOW_NS / S
        ),
    ]
}

fn figures() -> Vec<Figure> {
    vec![
        Figure::new("p50_us", "half of the reads within", "µs").in_chart("Waiting for a page"),
        Figure::new("p99_us", "99 % of the reads within", "µs"),
        Figure::new("reads_per_s", "reads of all jobs", "thousands a second")
            .more_is_better()
            .in_chart("Reads"),
        Figure::new(
            "requests_per_s",
            "requests to a server",
            "thousands a second",
        ),
        Figure::new("busy_percent", "the busiest server works", "%"),
        Figure::new("mib_per_s", "bytes of a server", "MiB a second"),
        Figure::new(
            "stalled_percent",
            "jobs that wait for writes",
            "% of their time",
        ),
        Figure::new("gib", "memory of a server", "GiB"),
        Figure::new("connections", "connections of a server", "connections"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(think_ns: u64, copies: usize) -> Vec<Values> {
        let mut phases = run(think_ns, copies, 1);
        let all = phases.iter_mut().enumerate();
        all.map(|(nr, phase)| values(phase, phase_len(nr), copies))
            .collect()
    }

    #[test]
    fn two_copies_keep_jobs_going_where_one_has_them_wait_for_the_failover() {
        let [one, two] = [1, 2].map(|copies| of(LOADS[0].1, copies));
        // Without load a read takes the round trip, the server and the broker.
        let alone = ((ROUND_TRIP_NS + READ_NS + BROKER_NS) / US) as f64;
        for phases in [&one, &two] {
            assert!(
                (alone..alone * 1.1).contains(&phases[0]["p50_us"]),
                "{phases:?}"
            );
        }
        assert!(
            one[1]["reads_per_s"] < one[0]["reads_per_s"] / 10.0,
            "{one:?}"
        );
        assert!(
            two[1]["reads_per_s"] > two[0]["reads_per_s"] * 0.9,
            "{two:?}"
        );
        // The other copies' servers serve twice as many reads.
        assert!(
            two[1]["busy_percent"] > two[0]["busy_percent"] * 1.3,
            "{two:?}"
        );
        assert_eq!(two[0]["gib"], 2.0 * one[0]["gib"]);
        assert_eq!(of(LOADS[0].1, 2), two, "the same seed");
    }
}
