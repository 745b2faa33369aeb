//! *What*: the threads that serve requests: each takes a few from the exchange, has its client
//! serve them, and completes them. What cannot be served yet is tried again.
//!
//! *Invariants*: a request that was taken is completed by the worker that took it, whatever
//! happens. A read is tried until the program gives it up, or the data are known to be gone; a
//! write of which nothing was sent for so long only as the program has nowhere else to put it.
//! *Locking*: none but the client's. *Context*: the broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use uzswap_io::exchange::{CELL_LEN, CLUSTER_LEN, Exchange, Op, Taken};
use uzswap_swap::area::HEADER;
use uzswap_sync::primitive::Ordering::Relaxed;

use crate::client::{Client, Job, Outcome};

/// Requests that one worker serves at the same time: a run's.
const MAX_BATCH: usize = 16;
/// Pause before what could not be served is tried again.
const RETRY: Duration = Duration::from_millis(20);
/// A worker that has nothing to do looks again after so long.
const IDLE_NS: u64 = 1_000_000_000;
/// How long a write waits for a server if another device could take it.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long workers are waited for at the end.
const MAX_END: Duration = Duration::from_secs(3);

/// Lets workers serve until the end.
#[derive(Debug, Default)]
pub struct Gate {
    is_closed: AtomicBool,
    nr_serving: AtomicUsize,
}

impl Gate {
    /// Begins to serve. `false`: the end has come.
    fn enter(&self) -> bool {
        // Sequentially consistent with `close`: either this sees it closed, or that sees this
        // serve.
        self.nr_serving.fetch_add(1, SeqCst);
        let is_open = !self.is_closed.load(SeqCst);
        if !is_open {
            self.leave();
        }
        is_open
    }

    fn leave(&self) {
        self.nr_serving.fetch_sub(1, SeqCst);
    }

    /// Has nobody begin to serve any more, and waits for those who do, `MAX_END` at most.
    pub fn close(&self) {
        self.is_closed.store(true, SeqCst);
        let began = Instant::now();
        while self.nr_serving.load(SeqCst) > 0 && began.elapsed() < MAX_END {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What a worker works with.
pub struct Worker {
    pub gate: Arc<Gate>,
    pub exchange: &'static Exchange,
    pub client: Box<dyn Client>,
    /// There is no other device.
    pub alone: bool,
    /// It takes nothing else.
    pub only_reads: bool,
}

/// A job, and since when it is on its way.
struct Waiting {
    job: Job,
    since: Instant,
}

impl Worker {
    /// Serves for ever.
    pub fn run(mut self) -> ! {
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut tried = Instant::now();
        loop {
            let mut batch = Vec::new();
            let exchange = self.exchange;
            if waiting.len() < MAX_BATCH {
                exchange.take(MAX_BATCH - waiting.len(), self.only_reads, |taken| {
                    batch.push(Waiting {
                        job: job(exchange, taken),
                        since: Instant::now(),
                    });
                });
            }
            if tried.elapsed() >= RETRY {
                // Reads and others are not mixed: a server may stop reading while its answers
                // are not taken.
                let reads = batch
                    .first()
                    .or(waiting.first())
                    .is_some_and(|it| it.job.is_read());
                let (due, rest): (Vec<_>, Vec<_>) =
                    waiting.drain(..).partition(|it| it.job.is_read() == reads);
                batch.extend(due);
                waiting = rest;
            }
            if batch.is_empty() {
                let ns = match waiting.is_empty() {
                    true => IDLE_NS,
                    false => u64::try_from(RETRY.as_nanos()).unwrap_or(IDLE_NS),
                };
                exchange.sleep(self.only_reads, ns);
                continue;
            }
            if !self.gate.enter() {
                // What was written now would stay on the servers.
                loop {
                    thread::park();
                }
            }
            waiting.extend(self.serve(batch));
            self.gate.leave();
            tried = Instant::now();
        }
    }

    /// Serves a batch. Returns what is to be tried again.
    fn serve(&mut self, batch: Vec<Waiting>) -> Vec<Waiting> {
        let (mut jobs, since): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|it| (it.job, it.since)).unzip();
        self.client.serve(&mut jobs);
        let mut again = Vec::new();
        for (mut job, since) in jobs.into_iter().zip(since) {
            if self.exchange.is_abandoned(&job.taken) {
                self.exchange.complete(job.taken, errno(libc::ETIMEDOUT));
                continue;
            }
            match self.error_of(&job, since) {
                Some(error) => {
                    note_served(self.exchange, &job, error);
                    self.exchange.complete(job.taken, error);
                }
                None => {
                    job.was_sent |= job.outcome == Outcome::Again;
                    job.outcome = Outcome::Open;
                    job.nr_tries += 1;
                    again.push(Waiting { job, since });
                }
            }
        }
        again
    }

    /// The error number with which a job is complete, 0 for none; `None`: it is tried again.
    fn error_of(&self, job: &Job, since: Instant) -> Option<u32> {
        let op = job.request().op;
        match (job.outcome, op) {
            (Outcome::Done, _) => Some(0),
            // The other copy may be there; and after a failover, a replica may catch up.
            (Outcome::Missing, _) if job.nr_tries > 1 => Some(errno(libc::EIO)),
            (Outcome::Full, _) => Some(errno(libc::ENOSPC)),
            (_, Op::Read | Op::ReadCopy) => None,
            // It may still happen: nobody must use the slots.
            (Outcome::Unknown | Outcome::Again, Op::Discard) => Some(errno(libc::ETIMEDOUT)),
            (Outcome::Again, _) if self.alone || since.elapsed() < PATIENCE => None,
            (Outcome::Unknown | Outcome::Again, _) => Some(errno(libc::ECONNRESET)),
            (Outcome::Missing, _) => Some(errno(libc::EIO)),
            (_, Op::Discard) => Some(errno(libc::EAGAIN)),
            _ if self.alone || since.elapsed() < PATIENCE => None,
            _ if job.was_sent => Some(errno(libc::ECONNRESET)),
            // Nothing was sent: the slots can be used again, and the run goes elsewhere.
            _ => Some(errno(libc::ENOSPC)),
        }
    }
}

fn errno(number: i32) -> u32 {
    number.unsigned_abs()
}

/// What a request is about, with what is to be written.
fn job(exchange: &'static Exchange, taken: Taken) -> Job {
    let (mut data, mut firsts) = (Vec::new(), Vec::new());
    // What is tried again is read from the other copy.
    let nr_tries = usize::from(taken.request.op == Op::ReadCopy);
    if taken.request.op == Op::Write {
        let len = usize::try_from(taken.request.len).map_or(CELL_LEN, |len| len.min(CELL_LEN));
        data = vec![0; len];
        // SAFETY: the cell is ours, and as long at least.
        exchange.with_taken(&taken, |from| unsafe {
            std::ptr::copy_nonoverlapping(from, data.as_mut_ptr(), len);
        });
        firsts = clusters(&taken)
            .filter(|cluster| exchange.note_written(*cluster))
            .collect();
    }
    Job {
        taken,
        exchange,
        data,
        outcome: Outcome::Open,
        nr_tries,
        was_sent: false,
        firsts,
    }
}

/// The clusters of slots that a request touches.
fn clusters(taken: &Taken) -> impl Iterator<Item = u64> + use<> {
    let begin = taken.request.offset.saturating_sub(HEADER);
    let end = begin + taken.request.len.max(1);
    begin / CLUSTER_LEN..end.div_ceil(CLUSTER_LEN)
}

/// Notes that the servers answer, and what was discarded.
fn note_served(exchange: &Exchange, job: &Job, error: u32) {
    if error != 0 {
        return;
    }
    exchange.is_up.store(1, Relaxed);
    match job.request().op {
        Op::Discard => {
            for cluster in clusters(&job.taken) {
                exchange.note_gone(cluster);
            }
        }
        Op::Read | Op::ReadCopy | Op::Write => {}
    }
}
