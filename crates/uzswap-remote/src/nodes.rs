//! *What*: connections to the servers of a place, each made when it is first needed; which of them
//! have which hash slots, and which are slow.
//!
//! *Invariants*: as [`Link`]'s. A server that is slow is asked again within [`SLOW`]. What was sent
//! by a connection that broke, to a server that allows it, happens before another one is used, or
//! never: the server ends the old connection first (`CLIENT KILL`).
//! *Locking*: the topology's lock, a leaf. *Context*: the broker.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use redis::{Cmd, Value};

use crate::client::{READ_TIMEOUT, WRITE_TIMEOUT};
use crate::copies::Copies;
use crate::link::{Answer, Latency, Link};
use crate::topology::{Topology, hash_slot, key, redirection};
use crate::url::{Address, Redis};

/// A server that cannot be reached is not tried again sooner.
const RETRY: Duration = Duration::from_millis(100);
/// A server that was slow is left to others for so long, where there are others.
const SLOW: Duration = Duration::from_secs(1);
/// Keys that one pipeline renews or removes.
const MAX_KEYS: usize = 256;
/// Redirections of one command that are followed at once.
const MAX_REDIRECTIONS: usize = 4;

/// What the connections of one broker share.
pub struct Shared {
    pub place: Redis,
    /// What all keys of this run begin with.
    pub stem: String,
    pub topology: Mutex<Topology>,
    pub copies: Copies,
    /// Times that a server took another's place.
    pub nr_failovers: AtomicU64,
}

impl Shared {
    pub fn topology(&self) -> MutexGuard<'_, Topology> {
        self.topology.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of a copy of `cluster`.
    pub fn key(&self, cluster: u64, copy: usize) -> String {
        key(&self.stem, cluster, copy)
    }

    /// The server that has `name`.
    pub fn server_of(&self, name: &str) -> Option<Address> {
        self.topology().of(hash_slot(name)).cloned()
    }

    pub fn is_cluster(&self) -> bool {
        self.topology().servers().len() > 1
    }
}

/// Connections of one thread.
pub struct Nodes {
    pub shared: Arc<Shared>,
    open: HashMap<Address, Link>,
    /// When those that could not be reached were last tried.
    down: HashMap<Address, Instant>,
    /// When those that were slow were so last.
    slow: HashMap<Address, Instant>,
    latency: HashMap<Address, Latency>,
    /// Clusters and copies whose keys are known to be there.
    pub made: HashSet<(u64, usize)>,
    /// Connections that broke, by the servers' numbers, and may not have ended on the other side.
    broken: HashMap<Address, Vec<i64>>,
    /// Servers end connections when they are told to, as far as is known.
    pub can_fence: bool,
    /// A connection was made anew, or a server took another's place, since this was last cleared:
    /// keys may be gone.
    pub has_changed: bool,
    /// Failovers that this knows of.
    nr_failovers: u64,
}

impl Nodes {
    pub fn new(shared: Arc<Shared>) -> Self {
        Nodes {
            shared,
            open: HashMap::new(),
            down: HashMap::new(),
            slow: HashMap::new(),
            latency: HashMap::new(),
            made: HashSet::new(),
            broken: HashMap::new(),
            can_fence: true,
            has_changed: false,
            nr_failovers: 0,
        }
    }

    /// The connection to `server`; none if it cannot be reached now.
    pub fn reach(&mut self, server: &Address) -> Option<&mut Link> {
        if !self.open.contains_key(server) {
            let tried = self.down.get(server);
            if tried.is_some_and(|tried| tried.elapsed() < RETRY) {
                return None;
            }
            let link = Link::connect(&self.shared.place, server).ok();
            match link.and_then(|link| self.fenced(server, link)) {
                Some(link) => {
                    self.down.remove(server);
                    self.keep(server, link);
                }
                None => {
                    self.down.insert(server.clone(), Instant::now());
                }
            }
        }
        self.open.get_mut(server)
    }

    /// Has `server` end the connections to it that broke. `None`: it does not answer.
    fn fenced(&mut self, server: &Address, mut link: Link) -> Option<Link> {
        for id in self.broken.get(server).into_iter().flatten() {
            let mut kill = redis::cmd("CLIENT");
            kill.arg("KILL").arg("ID").arg(id);
            // A number, also if there is none such any more; an error if the user may not.
            self.can_fence &= link.ask(&kill, READ_TIMEOUT)?.is_ok();
        }
        self.broken.remove(server);
        Some(link)
    }

    fn keep(&mut self, server: &Address, link: Link) {
        self.open.insert(server.clone(), link);
        self.forget();
    }

    /// Learns of what other threads have found.
    pub fn refresh(&mut self) {
        let nr = self.shared.nr_failovers.load(Relaxed);
        if nr != self.nr_failovers {
            self.nr_failovers = nr;
            self.forget();
        }
    }

    /// Keys may be gone.
    fn forget(&mut self) {
        self.made.clear();
        self.has_changed = true;
    }

    /// The connection to `server`, as far as there is one.
    pub fn link(&mut self, server: &Address) -> Option<&mut Link> {
        self.open.get_mut(server)
    }

    /// Closes the connection to `server`.
    pub fn close(&mut self, server: &Address) {
        if let Some(link) = self.open.remove(server) {
            self.broken
                .entry(server.clone())
                .or_default()
                .extend(link.id);
        }
    }

    /// How long an answer of `server` to a read is waited for, where another server could be asked.
    pub fn late(&self, server: &Address) -> Duration {
        self.latency.get(server).map_or(READ_TIMEOUT, Latency::late)
    }

    /// Notes that `server` took so long to answer a read.
    pub fn note_latency(&mut self, server: &Address, took: Duration) {
        match self.latency.get_mut(server) {
            Some(latency) => latency.note(took),
            None => self.latency.entry(server.clone()).or_default().note(took),
        }
    }

    /// Notes that an answer of `server` is late.
    pub fn note_slow(&mut self, server: &Address) {
        self.slow.insert(server.clone(), Instant::now());
    }

    /// Whether others are asked before `server`.
    pub fn is_slow(&self, server: &Address) -> bool {
        let since = self.slow.get(server);
        since.is_some_and(|since| since.elapsed() < SLOW) || self.down.contains_key(server)
    }

    /// The first of the servers that are named which answers.
    pub fn reach_any(&mut self) -> Result<Address> {
        let mut why = anyhow!("no server is named");
        for server in self.shared.place.servers.clone() {
            match Link::connect(&self.shared.place, &server) {
                Ok(link) => {
                    self.keep(&server, link);
                    return Ok(server);
                }
                Err(error) => why = refusal(&server, &error),
            }
        }
        Err(why)
    }

    /// What `INFO` says.
    pub fn info(&mut self, server: &Address) -> Result<HashMap<String, String>> {
        if !self.open.contains_key(server) {
            let link = Link::connect(&self.shared.place, server);
            self.keep(server, link.map_err(|error| refusal(server, &error))?);
        }
        let answer = self.ask(server, &redis::cmd("INFO"), READ_TIMEOUT);
        let text = match answer {
            Some(Ok(Value::BulkString(text))) => String::from_utf8_lossy(&text).into_owned(),
            Some(Ok(Value::VerbatimString { text, .. })) => text,
            Some(Err((code, _))) if code == "NOAUTH" => return Err(no_password(server)),
            Some(Err((code, details))) => bail!("{server} refuses INFO: {code} {details}"),
            _ => bail!("{server} does not answer INFO"),
        };
        let fields = text.lines().filter_map(|line| line.trim().split_once(':'));
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        Ok(fields.map(owned).collect())
    }

    /// One command, and its answer. `None`: there was none, and the connection is closed.
    pub fn ask(&mut self, server: &Address, command: &Cmd, time: Duration) -> Option<Answer> {
        let answer = self.reach(server)?.ask(command, time);
        if answer.is_none() {
            self.close(server);
        }
        answer
    }

    /// One command on the key `name`, wherever that is.
    pub fn ask_of(&mut self, name: &str, command: &Cmd) -> Option<Answer> {
        for _ in 0..=MAX_REDIRECTIONS {
            let server = self.shared.server_of(name)?;
            match self.ask(&server, command, WRITE_TIMEOUT)? {
                Err((code, details)) if self.follow(&code, &details, &server) => {}
                answer => return Some(answer),
            }
        }
        None
    }

    /// Notes that a hash slot has moved, if an error says so.
    pub fn follow(&self, code: &str, details: &str, server: &Address) -> bool {
        match (code, redirection(details, server)) {
            ("MOVED", Some((slot, to))) => {
                self.shared.topology().move_to(slot, to);
                true
            }
            _ => false,
        }
    }

    /// Asks the servers for the topology of the cluster. `false`: none knows it whole.
    pub fn learn(&mut self) -> bool {
        let mut servers = self.shared.topology().servers();
        servers.extend(self.shared.place.servers.iter().cloned());
        for server in servers {
            let command = redis::cmd("CLUSTER").arg("SLOTS").clone();
            let Some(Ok(answer)) = self.ask(&server, &command, READ_TIMEOUT) else {
                continue;
            };
            let learned = Topology::of_answer(&answer, &server);
            if let Some(learned) = learned.filter(Topology::is_complete) {
                let before = std::mem::replace(&mut *self.shared.topology(), learned);
                if before.servers() != self.shared.topology().servers() {
                    self.shared.nr_failovers.fetch_add(1, Relaxed);
                    self.refresh();
                }
                return true;
            }
        }
        false
    }

    /// Writes and removes a key, to find out whether that is allowed.
    pub fn try_write(&mut self) -> Result<()> {
        let name = format!("{}:probe", self.shared.stem);
        let server = self.shared.server_of(&name);
        let server = server.context("no server has the key's hash slot")?;
        let mut set = redis::cmd("SET");
        set.arg(&name).arg("").arg("EX").arg(60);
        for command in [set, redis::cmd("UNLINK").arg(&name).clone()] {
            match self.ask(&server, &command, WRITE_TIMEOUT) {
                Some(Ok(_)) => {}
                Some(Err((code, details))) => {
                    bail!(
                        "{server} does not let keys '{}:*' be written: {code} {details}",
                        self.shared.place.prefix
                    )
                }
                None => bail!("{server} does not answer"),
            }
        }
        Ok(())
    }

    /// Executes what `command` makes of each key of `clusters`, in pipelines, and passes cluster
    /// and copy of each, and the answer, to `each`.
    pub fn for_keys(
        &mut self,
        clusters: &[u64],
        command: impl Fn(&str) -> Cmd,
        mut each: impl FnMut(u64, usize, &Value),
    ) {
        type Asked = ((u64, usize), Cmd);
        let mut by_server: HashMap<Address, Vec<Asked>> = HashMap::new();
        for cluster in clusters {
            for copy in 0..self.shared.place.copies {
                let name = self.shared.key(*cluster, copy);
                if let Some(server) = self.shared.server_of(&name) {
                    let asked = ((*cluster, copy), command(&name));
                    by_server.entry(server).or_default().push(asked);
                }
            }
        }
        for (server, asked) in by_server {
            for some in asked.chunks(MAX_KEYS) {
                let commands = some.iter().map(|(_, command)| command);
                let packed: Vec<u8> = commands.flat_map(Cmd::get_packed_command).collect();
                let Some(link) = self.reach(&server) else {
                    break;
                };
                let answers = link
                    .send(&packed, WRITE_TIMEOUT, WRITE_TIMEOUT)
                    .and_then(|()| some.iter().map(|_| link.receive()).collect());
                let answers: Option<Vec<Answer>> = answers;
                let Some(answers) = answers else {
                    self.close(&server);
                    continue;
                };
                for (((cluster, copy), _), answer) in some.iter().zip(answers) {
                    match answer {
                        Ok(value) => each(*cluster, *copy, &value),
                        Err((code, details)) => {
                            self.follow(&code, &details, &server);
                        }
                    }
                }
            }
        }
    }
}

/// Why a server cannot be used, in words that say what to do.
fn refusal(server: &Address, error: &redis::RedisError) -> anyhow::Error {
    match error.code() {
        Some("WRONGPASS" | "NOAUTH" | "NOPERM") => no_password(server),
        _ if error.kind() == redis::ErrorKind::AuthenticationFailed => no_password(server),
        _ => anyhow!("no Redis server answers at {server}: {error}"),
    }
}

fn no_password(server: &Address) -> anyhow::Error {
    anyhow!(
        "{server} refuses user or password: put them into the URL by --swap @FILE, or into \
         UZSWAP_SWAP_USER and UZSWAP_SWAP_PASSWORD"
    )
}
