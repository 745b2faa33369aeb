//! *What*: what serves requests: one connection to servers of one kind, used by one thread.
//!
//! *Invariants*: a write that was not sent, or whose outcome is known, says so: only then are its
//! slots used again.
//! *Locking*: none, a client belongs to a worker. *Context*: the broker.

use std::time::Duration;

use anyhow::Result;
use uzswap_io::exchange::{CELL_LEN, Exchange, Request, Taken};

/// Longest time to connect to a server.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest silence of a server while it owes the answer to a read.
pub const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// The same for a write, which nobody else can take over: a server that stands still for some
/// seconds loses none.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not tried yet.
    Open,
    /// It is done.
    Done,
    /// Nothing was sent: there is no connection, or the server is not ready.
    NotSent,
    /// The server has no room.
    Full,
    /// It was sent, and nobody knows what became of it.
    Unknown,
    /// The same, and it can be done again: by then it cannot happen any more by itself.
    Again,
    /// The server does not have the data.
    Missing,
}

/// A request on its way.
pub struct Job {
    /// Its cell, which takes what is read.
    pub taken: Taken,
    pub exchange: &'static Exchange,
    /// What is written; none for others.
    pub data: Vec<u8>,
    /// What became of it.
    pub outcome: Outcome,
    /// Times that it was tried before.
    pub nr_tries: usize,
    /// It was [`Outcome::Again`] once.
    pub was_sent: bool,
    /// Clusters of slots that nothing was written to before it.
    pub firsts: Vec<u64>,
}

impl Job {
    /// What is asked for.
    pub fn request(&self) -> &Request {
        &self.taken.request
    }

    /// Whether it reads.
    pub fn is_read(&self) -> bool {
        self.request().op.is_read()
    }

    /// Bytes that it reads or writes.
    pub fn len(&self) -> usize {
        usize::try_from(self.request().len).map_or(CELL_LEN, |len| len.min(CELL_LEN))
    }

    /// Puts what was read for it, from `begin` on. `false`: that is not its own.
    pub fn put(&self, begin: usize, bytes: &[u8]) -> bool {
        if begin
            .checked_add(bytes.len())
            .is_none_or(|end| end > self.len())
        {
            return false;
        }
        // SAFETY: the cell is ours until the request is complete, and no shorter than the request.
        let put = self.exchange.with_taken(&self.taken, |to| unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.add(begin), bytes.len());
        });
        put.is_some()
    }
}

/// What came of asking all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// All answer.
    pub is_up: bool,
    /// One was away since the last time, or another has taken its place: data may be gone.
    pub has_changed: bool,
}

/// A connection to servers.
pub trait Client: Send {
    /// Serves the open ones of `jobs`, which are all reads, or all others; gives each an outcome.
    fn serve(&mut self, jobs: &mut [Job]);

    /// Asks all servers whether they are there.
    fn probe(&mut self) -> Probe;

    /// Keeps the data of those clusters of slots from being taken for a dead job's.
    fn renew(&mut self, clusters: &[u64]);

    /// Makes anew, for some time, what servers have lost and others still have.
    fn mend(&mut self) {}

    /// Removes all that this run has there, in those clusters of slots.
    fn remove(&mut self, clusters: &[u64]);
}

/// A place that can be used.
pub trait Server: Send + Sync {
    /// A client of it that connects when it is first used.
    fn client(&self) -> Box<dyn Client>;

    /// Clients that it may have at the same time.
    fn max_clients(&self) -> usize;

    /// How often its data must be renewed, if at all.
    fn renewal(&self) -> Option<Duration>;

    /// Bytes that it has room for, header included; checks and prepares it.
    ///
    /// # Errors
    /// It cannot be used: why, and what to do.
    fn open(&self) -> Result<u64>;
}
