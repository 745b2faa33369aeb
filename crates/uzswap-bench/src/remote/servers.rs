//! *What*: the servers that are measured, and brokers before them.
//!
//! *Invariants*: a server ends with the benchmark, however that ends; so does a broker.
//! *Locking*: none. *Context*: the bench command.

use std::fs;
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use uzswap_corpus::{Scratch, find};
use uzswap_io::Device;
use uzswap_io::exchange::Exchange;
use uzswap_io::opened::Opened;
use uzswap_io::remote::Remote;
use uzswap_remote::order::{Answer, Order};
use uzswap_remote::process;
use uzswap_remote::url::Address;

use super::socket;
use crate::sides::keep;

/// How long a server may take to listen.
const MAX_START: Duration = Duration::from_secs(20);

/// A server, running.
struct Server(Child);

impl Server {
    fn start(command: &mut Command) -> Result<Server> {
        keep(command);
        let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let name = command.get_program().display();
        Ok(Server(
            started.with_context(|| format!("cannot start {name}"))?,
        ))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The keeper ends the server. A kill that fails finds it gone.
        // SAFETY: no memory effects; the child is not reaped yet.
        unsafe { libc::kill(self.0.id().cast_signed(), libc::SIGTERM) };
        let _ = self.0.wait();
    }
}

/// A kind of server, and how it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Redis by TCP.
    Redis,
    /// The same by a Unix socket.
    Unix,
    /// nbdkit with the plugin `memory`, by TCP.
    Nbd,
}

impl Kind {
    /// All kinds, in the order of columns.
    pub const ALL: [Kind; 3] = [Kind::Redis, Kind::Unix, Kind::Nbd];

    /// Key and name of its side.
    pub const fn side(self) -> (&'static str, &'static str) {
        match self {
            Kind::Redis => ("redis", "redis"),
            Kind::Unix => ("unix", "redis, unix socket"),
            Kind::Nbd => ("nbd", "NBD"),
        }
    }

    /// The same of a client without uzswap.
    pub const fn bare_side(self) -> (&'static str, &'static str) {
        match self {
            Kind::Redis => ("redis-bare", "bare GETRANGE"),
            Kind::Unix => ("unix-bare", "bare GETRANGE, unix socket"),
            Kind::Nbd => ("nbd-bare", "bare NBD read"),
        }
    }

    /// The URL of what listens at `address`.
    pub fn url(self, address: &Address) -> String {
        match (self, address) {
            (Kind::Nbd, at) => format!("nbd://{at}/"),
            (_, Address::Unix(path)) => format!("unix://{}", path.display()),
            (_, at) => format!("redis://{at}"),
        }
    }
}

/// The servers of this machine.
pub struct Servers {
    running: Vec<Server>,
    addresses: Vec<(Kind, Address)>,
    /// Which are missing, and why.
    pub skipped: Vec<String>,
    /// Where their sockets are.
    pub scratch: Scratch,
}

impl Servers {
    /// Starts those that are installed, with room for `mib` MiB.
    ///
    /// # Errors
    /// One that is installed does not start.
    pub fn start(mib: u64) -> Result<Servers> {
        let mut servers = Servers {
            running: Vec::new(),
            addresses: Vec::new(),
            skipped: Vec::new(),
            scratch: Scratch::new()?,
        };
        let ports = [socket::free_port()?, socket::free_port()?];
        let [redis, nbd] = ports.map(|port| Address::Tcp("127.0.0.1".into(), port));
        let [redis_port, nbd_port] = ports.map(|port| port.to_string());
        let socket = servers.scratch.path().join("redis");
        if let Some(program) = servers.find("redis-server") {
            let mut command = Command::new(program);
            command.args(["--port", &redis_port, "--bind", "127.0.0.1"]);
            command.args(["--save", "", "--appendonly", "no", "--unixsocket"]);
            command
                .arg(&socket)
                .arg("--dir")
                .arg(servers.scratch.path());
            servers.running.push(Server::start(&mut command)?);
            servers.listens(Kind::Redis, redis)?;
            servers.listens(Kind::Unix, Address::Unix(socket))?;
        }
        if let Some(program) = servers.find("nbdkit") {
            let mut command = Command::new(program);
            command.args(["-f", "-p", &nbd_port, "-i", "127.0.0.1", "memory"]);
            command.arg(format!("{}M", mib + 1));
            servers.running.push(Server::start(&mut command)?);
            servers.listens(Kind::Nbd, nbd)?;
        }
        Ok(servers)
    }

    fn find(&mut self, name: &str) -> Option<std::path::PathBuf> {
        let found = find(name);
        if let Err(why) = &found {
            let line = format!("{why:#}");
            eprintln!("SKIPPED {line}");
            self.skipped.push(line);
        }
        found.ok()
    }

    /// Waits until a server listens at `address`.
    fn listens(&mut self, kind: Kind, address: Address) -> Result<()> {
        let began = Instant::now();
        while socket::connect(&address).is_err() {
            if began.elapsed() > MAX_START {
                bail!("the server at {address} does not listen");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.addresses.push((kind, address));
        Ok(())
    }

    /// What is there.
    pub fn all(&self) -> impl Iterator<Item = (Kind, &Address)> {
        self.addresses.iter().map(|(kind, at)| (*kind, at))
    }
}

/// A broker before a server, which this process uses as programs do.
pub struct Broker {
    child: Child,
    exchange: &'static Exchange,
    /// Slots that the server has room for.
    nr_slots: u64,
    /// The memory behind `exchange`, which the broker opens.
    _memory: fs::File,
}

impl Broker {
    /// Starts one for the place at `url`, whose data are named after `job`.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn start(url: &str, job: &str) -> Result<Broker> {
        let (memory, exchange) = process::new_exchange()?;
        let (child, answer) = process::start(&Order {
            url: url.to_owned(),
            supervisor: std::process::id(),
            exchange: memory.as_raw_fd().unsigned_abs(),
            job: job.to_owned(),
            alone: true,
            again: false,
        })?;
        let mut broker = Broker {
            child,
            exchange,
            nr_slots: 0,
            _memory: memory,
        };
        match answer {
            Answer::Ready { bytes } => broker.nr_slots = bytes / uzswap_io::SLOT as u64,
            Answer::Refused(why) => bail!("{url}: {why}"),
        }
        Ok(broker)
    }

    /// The device that it serves.
    ///
    /// # Errors
    /// It is too large.
    pub fn device(&self) -> Result<Device<Opened>> {
        let at = std::ptr::from_ref(self.exchange).addr();
        // SAFETY: made by `new_exchange`, page aligned, of that length, and never unmapped.
        let remote = unsafe { Remote::attach(at) };
        let nr_slots = self.nr_slots.min(uzswap_io::MAX_DEVICE_SLOTS);
        let device = Device::over(Opened::Remote(remote), nr_slots);
        device.map_err(|errno| anyhow::anyhow!("no device: error {}", errno.0))
    }

    /// Processor time of its threads so far, ns.
    pub fn cpu_ns(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let of = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        tasks.into_iter().flatten().flatten().filter_map(of).sum()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It removes what it has written, and ends.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
