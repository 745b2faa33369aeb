//! *What*: requests as commands: `SETRANGE` writes, `GETRANGE` reads, `UNLINK` discards, a command
//! for each copy of each cluster of slots that a request touches.
//!
//! *Invariants*
//! - A write counts when every copy has answered. Its outcome is known if each server has answered
//!   or was sent nothing. One that is not known is made again where nothing of it can come later.
//! - A key has a life time: it is made with one by the command before the first write to it that a
//!   connection sends, and by the first after keys may have been lost, and given one by the next.
//! - A read that is late, or whose key is gone, goes to the other copy at once, and once.
//!
//! *Locking*: leaves, of the topology and of the copies. *Context*: the broker's workers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Pipeline, Value};
use uzswap_io::exchange::{CLUSTER_LEN, Op};
use uzswap_swap::area::HEADER;

use crate::client::{Client, Job, Outcome, Probe, READ_TIMEOUT, WRITE_TIMEOUT};
use crate::link::Answer;
use crate::nodes::Nodes;
use crate::topology::redirection;
use crate::url::Address;

/// Rounds of commands that one call makes: redirections, and reads of other copies.
const MAX_ROUNDS: usize = 5;
/// How long lost copies are made anew before other upkeep is looked at again.
const REMAKING: Duration = Duration::from_millis(500);

/// One command of a request, for one copy of one cluster.
struct Piece {
    job: usize,
    cluster: u64,
    copy: usize,
    key: String,
    /// Where in the value, and where in the job's data.
    at: u64,
    begin: usize,
    len: usize,
    outcome: Outcome,
    /// Who has said to ask there, once.
    ask: Option<Address>,
    /// The key is made first, if it is not there.
    makes: bool,
    /// It was a read of the other copy before.
    is_second: bool,
}

/// Commands that were sent to one server.
struct Sent {
    server: Address,
    which: Vec<usize>,
    /// How many commands that are for each.
    lens: Vec<usize>,
    since: Instant,
}

impl Nodes {
    /// The commands of the open ones of `jobs`.
    fn pieces(&self, jobs: &[Job]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let nr_copies = self.shared.place.copies;
        for (at, job) in jobs.iter().enumerate() {
            if job.outcome != Outcome::Open {
                continue;
            }
            let request = job.request();
            let end = (request.offset + request.len).saturating_sub(HEADER);
            let mut next = request.offset.saturating_sub(HEADER);
            while next < end {
                let (cluster, offset) = (next / CLUSTER_LEN, next % CLUSTER_LEN);
                let len = (CLUSTER_LEN - offset).min(end - next);
                let begin = next - (end - request.len);
                let copies = match job.is_read() {
                    true => {
                        let copy = (self.nearer_copy(cluster) + job.nr_tries) % nr_copies;
                        copy..copy + 1
                    }
                    false => 0..nr_copies,
                };
                for copy in copies {
                    pieces.push(Piece {
                        job: at,
                        cluster,
                        copy,
                        key: self.shared.key(cluster, copy),
                        at: offset,
                        begin: usize::try_from(begin).unwrap_or(usize::MAX),
                        len: usize::try_from(len).unwrap_or(0),
                        outcome: Outcome::NotSent,
                        ask: None,
                        makes: false,
                        is_second: false,
                    });
                }
                next += len;
            }
        }
        pieces
    }

    /// The copy that is read first: another one than the first only if that one's server is slow.
    fn nearer_copy(&self, cluster: u64) -> usize {
        let is_slow = |copy| {
            let server = self.shared.server_of(&self.shared.key(cluster, copy));
            server.is_some_and(|server| self.is_slow(&server))
        };
        usize::from(self.shared.place.copies > 1 && is_slow(0) && !is_slow(1))
    }

    /// Packs the commands of `pieces` at `which`. Returns how many are for each, too.
    fn pack(&self, which: &[usize], pieces: &[Piece], jobs: &[Job]) -> (Vec<u8>, Vec<usize>) {
        let mut pipeline = Pipeline::with_capacity(which.len());
        let mut lens = Vec::with_capacity(which.len());
        for &at in which {
            let piece = &pieces[at];
            let job = &jobs[piece.job];
            let before = pipeline.len();
            if piece.ask.is_some() {
                pipeline.cmd("ASKING");
            }
            match job.request().op {
                Op::Read | Op::ReadCopy => {
                    pipeline
                        .cmd("GETRANGE")
                        .arg(&piece.key)
                        .arg(piece.at)
                        .arg(piece.at + piece.len as u64 - 1);
                }
                Op::Write => {
                    if piece.makes {
                        let make = pipeline.cmd("SET").arg(&piece.key).arg("");
                        make.arg("EX").arg(self.shared.place.ttl_s).arg("NX");
                        if piece.ask.is_some() {
                            pipeline.cmd("ASKING");
                        }
                    }
                    let data = job.data.get(piece.begin..piece.begin + piece.len);
                    pipeline
                        .cmd("SETRANGE")
                        .arg(&piece.key)
                        .arg(piece.at)
                        .arg(data.unwrap_or_default());
                    if piece.makes {
                        // Another connection's write may have come first, and made the key.
                        if piece.ask.is_some() {
                            pipeline.cmd("ASKING");
                        }
                        pipeline
                            .cmd("EXPIRE")
                            .arg(&piece.key)
                            .arg(self.shared.place.ttl_s);
                    }
                }
                Op::Discard => {
                    pipeline.cmd("UNLINK").arg(&piece.key);
                }
            }
            lens.push(pipeline.len() - before);
        }
        (pipeline.get_packed_pipeline(), lens)
    }

    /// Sends those of `pieces` at `which` to `server`. None if it cannot be reached.
    fn send(
        &mut self,
        server: Address,
        which: Vec<usize>,
        pieces: &mut [Piece],
        jobs: &[Job],
    ) -> Option<Sent> {
        let is_read = which.iter().any(|at| jobs[pieces[*at].job].is_read());
        let may_hedge = is_read
            && self.shared.place.copies > 1
            && which.iter().all(|at| !pieces[*at].is_second)
            && !self.is_slow(&server);
        self.reach(&server)?;
        for &at in &which {
            let piece = &mut pieces[at];
            let job = &jobs[piece.job];
            let is_first = job.firsts.contains(&piece.cluster);
            piece.makes = job.request().op == Op::Write
                && (is_first || !self.made.contains(&(piece.cluster, piece.copy)));
        }
        let (packed, lens) = self.pack(&which, pieces, jobs);
        let time = match (may_hedge, is_read) {
            (true, _) => self.late(&server),
            (_, true) => READ_TIMEOUT,
            _ => WRITE_TIMEOUT,
        };
        let can_fence = self.can_fence;
        let link = self.link(&server)?;
        for &at in &which {
            // From here on it may be on its way.
            pieces[at].outcome = match link.id {
                Some(_) if can_fence => Outcome::Again,
                _ => Outcome::Unknown,
            };
        }
        if link.send(&packed, time, time.max(READ_TIMEOUT)).is_none() {
            self.close(&server);
            return None;
        }
        Some(Sent {
            server,
            which,
            lens,
            since: Instant::now(),
        })
    }

    /// Takes the `len` answers for one piece. `None`: they did not come.
    fn take(&mut self, server: &Address, len: usize) -> Option<Vec<Answer>> {
        let link = self.link(server)?;
        (0..len).map(|_| link.receive()).collect()
    }

    /// Sends the pieces at `open` to their servers, and takes the answers. Returns those that are
    /// to be sent elsewhere.
    fn round(&mut self, open: &[usize], pieces: &mut [Piece], jobs: &[Job]) -> Vec<usize> {
        let mut by_server: HashMap<Address, Vec<usize>> = HashMap::new();
        for &at in open {
            let piece = &mut pieces[at];
            piece.outcome = Outcome::NotSent;
            let server = piece.ask.clone();
            let server = server.or_else(|| self.shared.server_of(&piece.key));
            if let Some(server) = server {
                by_server.entry(server).or_default().push(at);
            }
        }
        let mut sent = Vec::new();
        let mut lost = false;
        for (server, which) in by_server {
            let some = self.send(server, which, pieces, jobs);
            lost |= some.is_none();
            sent.extend(some);
        }
        let mut again = Vec::new();
        for some in sent {
            let mut came = true;
            for (&at, len) in some.which.iter().zip(some.lens) {
                let answers = if came {
                    self.take(&some.server, len)
                } else {
                    None
                };
                came = answers.is_some();
                if let Some(answers) = answers {
                    lost |= self.settle(at, &answers, &some.server, pieces, jobs, &mut again);
                }
            }
            let first = some.which.first().map(|at| pieces[*at].job);
            let is_read = first.is_some_and(|job| jobs[job].is_read());
            match (came, is_read) {
                (true, true) => self.note_latency(&some.server, some.since.elapsed()),
                (true, false) => {}
                (false, _) => {
                    self.close(&some.server);
                    self.note_slow(&some.server);
                    lost = true;
                }
            }
        }
        if lost && self.shared.is_cluster() {
            // A replica may have taken its place.
            self.learn();
        }
        if self.shared.place.copies > 1 {
            self.turn_reads(open, pieces, jobs, &mut again);
        }
        again
    }

    /// Turns reads that have failed to the other copy, once each.
    fn turn_reads(
        &self,
        open: &[usize],
        pieces: &mut [Piece],
        jobs: &[Job],
        again: &mut Vec<usize>,
    ) {
        for &at in open {
            let piece = &mut pieces[at];
            let has_failed = piece.outcome != Outcome::Done && !again.contains(&at);
            if has_failed && jobs[piece.job].is_read() && !piece.is_second {
                piece.is_second = true;
                piece.copy = 1 - piece.copy;
                piece.key = self.shared.key(piece.cluster, piece.copy);
                again.push(at);
            }
        }
    }

    /// Settles the piece at `at` by its answers; one that is redirected goes to `again`. Returns
    /// whether the topology may have changed.
    fn settle(
        &mut self,
        at: usize,
        answers: &[Answer],
        server: &Address,
        pieces: &mut [Piece],
        jobs: &[Job],
        again: &mut Vec<usize>,
    ) -> bool {
        let piece = &mut pieces[at];
        piece.ask = None;
        // Of a read there is one, but for ASKING's; an error of any says what became of all.
        let error = answers.iter().find_map(|answer| answer.as_ref().err());
        let Some((code, details)) = error else {
            if let Some(Ok(value)) = answers.last() {
                piece.outcome = settled(piece, value, jobs);
            }
            self.note_keys(piece, answers);
            return false;
        };
        piece.outcome = match code.as_str() {
            "OOM" => Outcome::Full,
            // The server has done nothing.
            _ => Outcome::NotSent,
        };
        match (code.as_str(), redirection(details, server)) {
            ("MOVED", Some(_)) => {
                self.follow(code, details, server);
                again.push(at);
            }
            ("ASK", Some((_, to))) => {
                piece.ask = Some(to);
                again.push(at);
            }
            _ => {}
        }
        ["READONLY", "CLUSTERDOWN", "MASTERDOWN"].contains(&code.as_str())
    }

    /// Notes what the answers say of the key itself.
    fn note_keys(&mut self, piece: &Piece, answers: &[Answer]) {
        let copies = &self.shared.copies;
        let is_kept_twice = self.shared.place.copies > 1;
        if piece.makes {
            if is_kept_twice && answers.iter().any(|it| matches!(it, Ok(Value::Okay))) {
                copies.note_made(piece.cluster, piece.copy);
            }
            self.made.insert((piece.cluster, piece.copy));
        } else if is_kept_twice && piece.outcome == Outcome::Missing {
            copies.note_lost(piece.cluster, piece.copy);
        }
    }

    /// Makes lost copies anew, for some time.
    fn remake_lost(&mut self) {
        let shared = Arc::clone(&self.shared);
        let began = Instant::now();
        while let Some((cluster, copy)) = shared.copies.begin_remake() {
            let done = self.remake_copy(cluster, copy).is_some();
            shared.copies.end_remake((cluster, copy), done);
            if !done || began.elapsed() >= REMAKING {
                break;
            }
        }
    }

    /// Makes one copy anew from the other. `None`: a server does not answer.
    fn remake_copy(&mut self, cluster: u64, copy: usize) -> Option<()> {
        let [from, to] = [1 - copy, copy].map(|copy| self.shared.key(cluster, copy));
        let get = redis::cmd("GETRANGE").arg(&from).arg(0).arg(-1).clone();
        let Ok(Value::BulkString(bytes)) = self.ask_of(&from, &get)? else {
            return None;
        };
        if bytes.is_empty() {
            // It was discarded meanwhile, or is lost as well: nothing can be done for it.
            return Some(());
        }
        let mut set = redis::cmd("SET");
        set.arg(&to).arg(bytes);
        set.arg("EX").arg(self.shared.place.ttl_s);
        self.ask_of(&to, &set)?.ok()?;
        Some(())
    }

    /// Clusters that `job` changes.
    fn changed(job: &Job) -> impl Iterator<Item = (u64, bool)> {
        let request = job.request();
        let begin = request.offset.saturating_sub(HEADER);
        let end = match job.is_read() {
            true => begin,
            false => begin + request.len,
        };
        let clusters = begin / CLUSTER_LEN..end.div_ceil(CLUSTER_LEN);
        clusters.map(|cluster| (cluster, job.firsts.contains(&cluster)))
    }

    /// Begins the writes of `jobs`: those to clusters that are being remade are not sent now.
    fn begin_writes(&self, jobs: &mut [Job]) -> Vec<u64> {
        let mut begun = Vec::new();
        if self.shared.place.copies == 1 {
            return begun;
        }
        let copies = &self.shared.copies;
        for job in jobs.iter_mut().filter(|job| job.outcome == Outcome::Open) {
            for (cluster, is_first) in Self::changed(job).collect::<Vec<_>>() {
                if !copies.begin_write(cluster, is_first) {
                    job.outcome = Outcome::NotSent;
                    break;
                }
                begun.push(cluster);
                if job.request().op == Op::Discard {
                    copies.forget(cluster);
                }
            }
        }
        begun
    }
}

/// What an answer means for a piece; what was read goes to its job.
fn settled(piece: &Piece, value: &Value, jobs: &[Job]) -> Outcome {
    let job = &jobs[piece.job];
    match value {
        _ if !job.is_read() => Outcome::Done,
        Value::BulkString(bytes) if bytes.len() == piece.len && job.put(piece.begin, bytes) => {
            Outcome::Done
        }
        // The key, or its end, is gone.
        _ => Outcome::Missing,
    }
}

impl Client for Nodes {
    fn serve(&mut self, jobs: &mut [Job]) {
        self.refresh();
        let begun = self.begin_writes(jobs);
        let mut pieces = self.pieces(jobs);
        let mut open: Vec<_> = (0..pieces.len()).collect();
        for _ in 0..MAX_ROUNDS {
            open = self.round(&open, &mut pieces, jobs);
            if open.is_empty() {
                break;
            }
        }
        for cluster in begun {
            self.shared.copies.end_write(cluster);
        }
        for job in jobs.iter_mut().filter(|job| job.outcome == Outcome::Open) {
            job.outcome = Outcome::Done;
        }
        for piece in &pieces {
            let job = &mut jobs[piece.job];
            job.outcome = worse(job.outcome, piece.outcome);
        }
        for job in jobs.iter_mut().filter(|job| !job.is_read()) {
            let may_repeat = job.outcome == Outcome::Again || job.was_sent;
            if may_repeat && !self.can_fence {
                job.outcome = Outcome::Unknown;
            }
        }
    }

    fn probe(&mut self) -> Probe {
        self.refresh();
        let servers = self.shared.topology().servers();
        let ping = redis::cmd("PING");
        let mut is_up = true;
        for server in servers {
            is_up &= matches!(self.ask(&server, &ping, READ_TIMEOUT), Some(Ok(_)));
        }
        if !is_up && self.shared.is_cluster() {
            self.learn();
        }
        Probe {
            is_up,
            has_changed: std::mem::take(&mut self.has_changed),
        }
    }

    fn renew(&mut self, clusters: &[u64]) {
        let ttl_s = self.shared.place.ttl_s;
        let shared = Arc::clone(&self.shared);
        let expire = |name: &str| redis::cmd("EXPIRE").arg(name).arg(ttl_s).clone();
        self.for_keys(clusters, expire, |cluster, copy, value| {
            if *value == Value::Int(0) && shared.place.copies > 1 {
                shared.copies.note_lost(cluster, copy);
            }
        });
    }

    fn mend(&mut self) {
        self.remake_lost();
    }

    fn remove(&mut self, clusters: &[u64]) {
        // Twice, as the first time may learn where keys have moved to.
        for _ in 0..2 {
            let unlink = |name: &str| redis::cmd("UNLINK").arg(name).clone();
            self.for_keys(clusters, unlink, |_, _, _| {});
        }
    }
}

/// Of the outcomes of two parts of a request, the one that says more of the whole.
fn worse(one: Outcome, other: Outcome) -> Outcome {
    let rank = |outcome| match outcome {
        Outcome::Done => 0,
        Outcome::Open | Outcome::NotSent => 1,
        Outcome::Full => 2,
        Outcome::Missing => 3,
        Outcome::Again => 4,
        Outcome::Unknown => 5,
    };
    if rank(one) >= rank(other) { one } else { other }
}
