//! The load on the server: GET and SET by one connection, in a closed loop for the throughput, then
//! in an open loop for the latency.
//!
//! *What*: fills the server; asks it with [`DEPTH`] requests in flight throughout, which tells how
//! many it serves; then sends requests at random moments of a given mean rate, whether or not it
//! has answered. The latency of a request is counted from the moment at which it was due, so one
//! that waits behind a slow one counts as slow as well.
//! *Invariants*: the requests and their moments are the same on every side. Each value names its
//! key, which is checked. The server is told to end in any case.
//! *Locking*: none. *Context*: a thread of the bench command, outside the server's limit.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::random::Random;
use crate::resp;
use crate::timer;

/// Requests in flight in the closed loop, and while it is filled.
const DEPTH: usize = 16;
/// Bytes of a value, about.
const VALUE_LEN: usize = 1000;
/// Of a hundred requests, those that write.
const SET_PERCENT: usize = 20;
/// How long a server may take to listen.
const MAX_START: Duration = Duration::from_secs(60);

/// Which keys are asked for.
#[derive(Clone, Copy, Debug)]
pub enum Keys {
    /// All alike.
    Alike,
    /// One in five for four of five requests.
    Skewed,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Keys that the server holds.
    pub nr_keys: usize,
    pub keys: Keys,
    /// Requests of each loop.
    pub requests: usize,
    /// Mean rate of the open loop, per second.
    pub rate: u32,
    pub seed: u64,
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Requests served in a second by the closed loop.
    pub per_s: f64,
    /// Latencies of the open loop, the shortest first.
    latencies: Vec<Duration>,
}

impl Seen {
    /// The latency within which so many of a thousand requests are served, µs.
    pub fn within_us(&self, per_mille: usize) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let at = self.latencies.len() * per_mille / 1000;
        self.latencies[at.min(last)].as_secs_f64() * 1e6
    }
}

impl Load {
    /// Drives the server that will listen at `socket`, and ends it. Gives up once `is_gone`.
    ///
    /// # Errors
    /// If the server is gone, or answers wrongly.
    pub fn drive(&self, socket: &Path, is_gone: &AtomicBool) -> Result<Seen> {
        let mut server = Server::connect(socket, is_gone)?;
        let seen = self.ask(&mut server);
        // Whatever was seen: without this it would run on. By another connection, as this one may
        // be amidst an answer.
        let told = Server::connect(socket, is_gone).and_then(|server| server.shut_down());
        let seen = seen?;
        told?;
        Ok(seen)
    }

    fn ask(&self, server: &mut Server) -> Result<Seen> {
        let mut random = Random::new(self.seed);
        server.closed_loop((0..self.nr_keys).map(|key| Request { key, is_set: true }))?;
        let began = Instant::now();
        server.closed_loop((0..self.requests).map(|_| self.request(&mut random)))?;
        let per_s = self.requests as f64 / began.elapsed().as_secs_f64();
        let mut latencies = self.open_loop(server, &mut random)?;
        latencies.sort_unstable();
        Ok(Seen { per_s, latencies })
    }

    fn request(&self, random: &mut Random) -> Request {
        let is_set = random.below(100) < SET_PERCENT;
        let key = match self.keys {
            // Hot keys lie between cold ones, as in a server that has been up for long.
            Keys::Skewed if random.below(5) < 4 => random.below(self.nr_keys / 5) * 5,
            _ => random.below(self.nr_keys),
        };
        Request { key, is_set }
    }

    fn open_loop(&self, server: &mut Server, random: &mut Random) -> Result<Vec<Duration>> {
        timer::be_on_time();
        server.stream.set_nonblocking(true)?;
        let mut latencies = Vec::with_capacity(self.requests);
        let mut in_flight = VecDeque::new();
        let mut due = Instant::now();
        let mut sent = 0;
        while latencies.len() < self.requests {
            server.wait((sent < self.requests).then_some(due))?;
            while sent < self.requests && due <= Instant::now() {
                let request = self.request(random);
                request.write(&mut server.to_send);
                in_flight.push_back((request, due));
                due += self.pause(random);
                sent += 1;
            }
            server.send()?;
            server.receive()?;
            let now = Instant::now();
            while let Some((request, due)) = in_flight.front() {
                if !server.take_answer(request)? {
                    break;
                }
                latencies.push(now - *due);
                in_flight.pop_front();
            }
        }
        Ok(latencies)
    }

    /// Time between two requests of a Poisson process.
    fn pause(&self, random: &mut Random) -> Duration {
        const STEPS: usize = 1 << 30;
        let uniform = (random.below(STEPS) + 1) as f64 / STEPS as f64;
        Duration::from_secs_f64(-uniform.ln() / f64::from(self.rate))
    }
}

#[derive(Clone, Copy)]
struct Request {
    key: usize,
    is_set: bool,
}

impl Request {
    fn write(&self, to: &mut Vec<u8>) {
        let key = self.name();
        if self.is_set {
            resp::request(to, &[b"SET", key.as_bytes(), &self.value()]);
        } else {
            resp::request(to, &[b"GET", key.as_bytes()]);
        }
    }

    fn name(&self) -> String {
        format!("account:{}", self.key)
    }

    /// A record that lz4 compresses to about a half.
    fn value(&self) -> Vec<u8> {
        let mut random = Random::new(self.key as u64 + 1);
        let mut value = format!("{{\"id\":\"{}\",\"events\":[", self.name()).into_bytes();
        while value.len() < VALUE_LEN {
            let kind = ["deposit", "transfer", "withdrawal", "interest"][random.below(4)];
            let event = format!(
                "{{\"kind\":\"{kind}\",\"at\":{},\"cents\":{}}},",
                1_700_000_000 + random.below(10_000_000),
                random.below(1_000_000)
            );
            value.extend_from_slice(event.as_bytes());
        }
        value
    }

    fn check(&self, answer: &[u8]) -> Result<()> {
        let is_right = if self.is_set {
            answer == b"OK"
        } else {
            answer == self.value()
        };
        ensure!(is_right, "the server's {} is not what was set", self.name());
        Ok(())
    }
}

/// A connection to the server.
struct Server {
    stream: UnixStream,
    to_send: Vec<u8>,
    received: Vec<u8>,
    /// Of `received`, what was taken.
    taken: usize,
}

impl Server {
    fn connect(socket: &Path, is_gone: &AtomicBool) -> Result<Self> {
        let began = Instant::now();
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => {
                    return Ok(Self {
                        stream,
                        to_send: Vec::new(),
                        received: Vec::new(),
                        taken: 0,
                    });
                }
                Err(why) => {
                    let waits = !is_gone.load(Relaxed) && began.elapsed() < MAX_START;
                    ensure!(waits, "the server does not listen: {why}");
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it. It closes the connection, rather than answer.
    fn shut_down(mut self) -> Result<()> {
        resp::request(&mut self.to_send, &[b"SHUTDOWN", b"NOSAVE"]);
        self.send()?;
        ensure!(self.receive().is_err(), "the server does not end");
        Ok(())
    }

    /// Has these served with [`DEPTH`] in flight.
    fn closed_loop(&mut self, requests: impl Iterator<Item = Request>) -> Result<()> {
        let mut in_flight = VecDeque::with_capacity(DEPTH);
        let mut requests = requests.peekable();
        while requests.peek().is_some() || !in_flight.is_empty() {
            while in_flight.len() < DEPTH
                && let Some(request) = requests.next()
            {
                request.write(&mut self.to_send);
                in_flight.push_back(request);
            }
            self.send()?;
            self.receive()?;
            while let Some(request) = in_flight.front() {
                if !self.take_answer(request)? {
                    break;
                }
                in_flight.pop_front();
            }
        }
        Ok(())
    }

    /// Sends what is to be sent, as far as the server takes it.
    fn send(&mut self) -> Result<()> {
        while !self.to_send.is_empty() {
            match self.stream.write(&self.to_send) {
                Ok(nr) => drop(self.to_send.drain(..nr)),
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(why).context("the server is gone"),
            }
        }
        Ok(())
    }

    /// Receives what has come; on a blocking connection something.
    fn receive(&mut self) -> Result<()> {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => anyhow::bail!("the server is gone"),
            Ok(nr) => self.received.extend_from_slice(&buffer[..nr]),
            Err(why) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&why.kind()) => {}
            Err(why) => return Err(why).context("the server is gone"),
        }
        Ok(())
    }

    /// Takes and checks the next answer, which is that to `request`. `false`: it is not there yet.
    fn take_answer(&mut self, request: &Request) -> Result<bool> {
        let Some((answer, len)) = resp::answer(&self.received[self.taken..])? else {
            self.received.drain(..self.taken);
            self.taken = 0;
            return Ok(false);
        };
        request.check(answer)?;
        self.taken += len;
        Ok(true)
    }

    /// Waits for an answer, until `due` at most.
    fn wait(&self, due: Option<Instant>) -> Result<()> {
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = left.map(|left| libc::timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        });
        let sends = if self.to_send.is_empty() {
            0
        } else {
            libc::POLLOUT
        };
        let mut fds = libc::pollfd {
            fd: self.stream.as_raw_fd(),
            events: libc::POLLIN | sends,
            revents: 0,
        };
        let timeout = timeout
            .as_ref()
            .map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: one descriptor, in a local; the time is a local or null.
        let done = unsafe { libc::ppoll(&raw mut fds, 1, timeout, std::ptr::null()) };
        let why = std::io::Error::last_os_error();
        ensure!(
            done >= 0 || why.kind() == ErrorKind::Interrupted,
            "cannot wait for the server: {why}"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_asked_on_every_side() {
        let load = Load {
            nr_keys: 1000,
            keys: Keys::Skewed,
            requests: 0,
            rate: 1000,
            seed: 3,
        };
        let asked = || {
            let mut random = Random::new(load.seed);
            let requests = (0..2000).map(|_| {
                let Request { key, is_set } = load.request(&mut random);
                (key, is_set, load.pause(&mut random))
            });
            requests.collect::<Vec<_>>()
        };
        let all = asked();
        assert_eq!(all, asked());
        let sets = all.iter().filter(|(_, is_set, _)| *is_set).count();
        assert!((300..500).contains(&sets), "{sets} of 2000 write");
        let hot = all.iter().filter(|(key, ..)| key % 5 == 0).count();
        assert!(hot > 1600, "{hot} of 2000 go to a fifth of the keys");
        let mean = all.iter().map(|(.., pause)| *pause).sum::<Duration>() / 2000;
        let mean_us = mean.as_micros();
        assert!((900..1100).contains(&mean_us), "{mean_us} µs between two");
    }

    #[test]
    fn percentiles_are_of_the_sorted_latencies() {
        let seen = Seen {
            per_s: 0.0,
            latencies: (1..=1000).map(Duration::from_micros).collect(),
        };
        assert!((seen.within_us(500) - 501.0).abs() < 0.1);
        assert!((seen.within_us(999) - 1000.0).abs() < 0.1);
        assert!((seen.within_us(1000) - 1000.0).abs() < 0.1);
    }
}
