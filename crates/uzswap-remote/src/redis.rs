//! *What*: clusters of swap slots as keys of Redis or Valkey servers: `SETRANGE` writes, `GETRANGE`
//! reads, `UNLINK` discards; a key expires unless it is renewed. Servers of a cluster are found by
//! its hash slots, and again when one says that a slot has moved.
//!
//! *Invariants*
//! - A connection on which anything but an answer came is closed, so that a late answer belongs to
//!   nobody.
//! - A write counts when every copy has answered. Its outcome is known if each server has answered
//!   or was sent nothing.
//! - A key is made with a life time, by the command before the first write to it.
//!
//! *Locking*: the topology's lock, a leaf. *Context*: the broker.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use redis::{
    Client as RedisClient, Cmd, Connection, ConnectionAddr, IntoConnectionInfo, Pipeline,
    RedisConnectionInfo, Value,
};
use uzswap_io::exchange::{CLUSTER_LEN, Op};
use uzswap_swap::area::{HEADER, MIN_LEN};
use uzswap_swap::size::Size;

use crate::client::{CONNECT_TIMEOUT, Client, Job, Outcome, READ_TIMEOUT, Server, WRITE_TIMEOUT};
use crate::topology::{Topology, hash_slot, key, redirection};
use crate::url::{Address, Redis};

/// Connections to each server.
const MAX_CONNECTIONS: usize = 4;
/// Redirections of one command that are followed at once; more are tried again later.
const MAX_REDIRECTIONS: usize = 4;
/// A server that cannot be reached is not tried again sooner.
const RETRY: Duration = Duration::from_millis(100);
/// Keys that one pipeline renews or removes.
const MAX_KEYS: usize = 256;
/// Of a server's free memory, so many hundredths are used: the rest is for its bookkeeping.
const USED_PERCENT: u64 = 80;

/// The servers, and what this run's keys are called there.
pub struct Keys {
    place: Redis,
    /// What all keys of this run begin with.
    stem: String,
    topology: Arc<Mutex<Topology>>,
}

/// An answer: a value, or the first word and the rest of an error.
type Answer = Result<Value, (String, String)>;

impl Keys {
    /// Those of `job` at `place`.
    pub fn new(place: Redis, job: &str) -> Self {
        let first = place.servers.first().cloned();
        let first = first.unwrap_or(Address::Unix("".into()));
        Keys {
            stem: format!("{}:{job}", place.prefix),
            place,
            topology: Arc::new(Mutex::new(Topology::single(first))),
        }
    }

    fn redis_client(&self) -> Nodes {
        Nodes {
            place: self.place.clone(),
            stem: self.stem.clone(),
            topology: Arc::clone(&self.topology),
            open: HashMap::new(),
            down: HashMap::new(),
        }
    }
}

impl Server for Keys {
    fn client(&self) -> Box<dyn Client> {
        Box::new(self.redis_client())
    }

    fn max_clients(&self) -> usize {
        MAX_CONNECTIONS
    }

    fn renewal(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.place.ttl_s / 4))
    }

    fn open(&self) -> Result<u64> {
        let mut nodes = self.redis_client();
        let first = nodes.reach_any()?;
        let info = nodes.info(&first)?;
        if info.get("cluster_enabled").is_some_and(|on| on == "1") {
            if self.place.db != 0 {
                bail!("a cluster has no databases: leave /{} out", self.place.db);
            }
            if !nodes.learn() {
                bail!("the cluster is down: some of its hash slots have no server");
            }
        } else {
            *lock(&self.topology) = Topology::single(first);
        }
        let servers = lock(&self.topology).servers();
        if self.place.copies > servers.len() {
            bail!(
                "copies={} needs as many servers, and there is {}",
                self.place.copies,
                servers.len()
            );
        }
        let mut least = u64::MAX;
        for server in &servers {
            let info = nodes.info(server)?;
            may_be_used(server, &info)?;
            least = least.min(free_memory(&info));
        }
        nodes.try_write()?;
        let all = least.saturating_mul(servers.len() as u64) / self.place.copies as u64;
        let bytes = all / 100 * USED_PERCENT;
        if bytes < HEADER + MIN_LEN {
            bail!(
                "the servers have too little free memory ({}): raise maxmemory",
                Size(bytes)
            );
        }
        Ok(bytes)
    }
}

fn lock(topology: &Mutex<Topology>) -> std::sync::MutexGuard<'_, Topology> {
    topology.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fails if a server would lose what it is given.
fn may_be_used(server: &Address, info: &HashMap<String, String>) -> Result<()> {
    let get = |key: &str| info.get(key).map_or("", String::as_str);
    if get("role") == "slave" {
        bail!("{server} is a replica, which cannot be written: name its primary");
    }
    let policy = get("maxmemory_policy");
    if !policy.is_empty() && policy != "noeviction" {
        let how = match server {
            Address::Tcp(host, port) => format!("-h {host} -p {port}"),
            Address::Unix(path) => format!("-s {}", path.display()),
        };
        bail!(
            "{server} may evict keys (maxmemory-policy {policy}), and with them the program's \
             memory: 'redis-cli {how} CONFIG SET maxmemory-policy noeviction' mends it"
        );
    }
    Ok(())
}

/// Bytes that a server may still take: up to its limit, or half of what the machine has left.
fn free_memory(info: &HashMap<String, String>) -> u64 {
    let number = |key: &str| {
        info.get(key)
            .and_then(|value| value.parse().ok())
            .unwrap_or(0_u64)
    };
    let used = number("used_memory");
    match number("maxmemory") {
        0 => number("total_system_memory").saturating_sub(used) / 2,
        max => max.saturating_sub(used),
    }
}

/// One command of a request, for one copy of one cluster.
struct Piece {
    job: usize,
    key: String,
    cluster: u64,
    /// Where in the value, and where in the job's data.
    at: u64,
    begin: usize,
    len: usize,
    outcome: Outcome,
    /// Who has said to ask there, once.
    ask: Option<Address>,
}

/// Connections to the servers, each made when it is first needed.
struct Nodes {
    place: Redis,
    stem: String,
    topology: Arc<Mutex<Topology>>,
    open: HashMap<Address, Connection>,
    /// When those that could not be reached were last tried.
    down: HashMap<Address, Instant>,
}

impl Nodes {
    fn connect(&self, server: &Address) -> redis::RedisResult<Connection> {
        let address = match server {
            Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
            Address::Tcp(host, port) if self.place.tls => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: false,
                tls_params: None,
            },
            Address::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
        };
        let mut settings = RedisConnectionInfo::default()
            .set_db(self.place.db)
            .set_skip_set_lib_name();
        if let Some(user) = &self.place.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.place.password {
            settings = settings.set_password(password);
        }
        let info = address.into_connection_info()?.set_redis_settings(settings);
        let mut connection = RedisClient::open(info)?.get_connection_with_timeout(CONNECT_TIMEOUT)?;
        if self.place.tls {
            // The handshake comes with the first bytes: certificates are refused here.
            connection.set_read_timeout(Some(CONNECT_TIMEOUT))?;
            connection.set_write_timeout(Some(CONNECT_TIMEOUT))?;
            let () = redis::cmd("PING").query(&mut connection)?;
        }
        Ok(connection)
    }

    /// The connection to `server`; none if it cannot be reached now.
    fn reach(&mut self, server: &Address) -> Option<&mut Connection> {
        if !self.open.contains_key(server) {
            let tried = self.down.get(server);
            if tried.is_some_and(|tried| tried.elapsed() < RETRY) {
                return None;
            }
            match self.connect(server) {
                Ok(connection) => {
                    self.down.remove(server);
                    self.open.insert(server.clone(), connection);
                }
                Err(_) => {
                    self.down.insert(server.clone(), Instant::now());
                }
            }
        }
        self.open.get_mut(server)
    }

    /// The first of the servers that are named which answers.
    fn reach_any(&mut self) -> Result<Address> {
        let mut why = anyhow!("no server is named");
        for server in self.place.servers.clone() {
            match self.connect(&server) {
                Ok(connection) => {
                    self.open.insert(server.clone(), connection);
                    return Ok(server);
                }
                Err(error) => why = refusal(&server, &error),
            }
        }
        Err(why)
    }

    /// What `INFO` says.
    fn info(&mut self, server: &Address) -> Result<HashMap<String, String>> {
        if !self.open.contains_key(server) {
            let connection = self
                .connect(server)
                .map_err(|error| refusal(server, &error))?;
            self.open.insert(server.clone(), connection);
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
    fn ask(&mut self, server: &Address, command: &Cmd, time: Duration) -> Option<Answer> {
        let connection = self.reach(server)?;
        let answer = send(connection, &command.get_packed_command(), time)
            .and_then(|()| receive(connection));
        if answer.is_none() {
            self.open.remove(server);
        }
        answer
    }

    /// Asks the servers for the topology of the cluster. `false`: none knows it whole.
    fn learn(&mut self) -> bool {
        let mut servers = lock(&self.topology).servers();
        servers.extend(self.place.servers.iter().cloned());
        for server in servers {
            let command = redis::cmd("CLUSTER").arg("SLOTS").clone();
            let Some(Ok(answer)) = self.ask(&server, &command, READ_TIMEOUT) else {
                continue;
            };
            let learned = Topology::of_answer(&answer, &server);
            if let Some(learned) = learned.filter(Topology::is_complete) {
                *lock(&self.topology) = learned;
                return true;
            }
        }
        false
    }

    /// Writes and removes a key, to find out whether that is allowed.
    fn try_write(&mut self) -> Result<()> {
        let name = format!("{}:probe", self.stem);
        let server = self
            .server_of(&name)
            .context("no server has the key's hash slot")?;
        let mut set = redis::cmd("SET");
        set.arg(&name).arg("").arg("EX").arg(60);
        for command in [set, redis::cmd("UNLINK").arg(&name).clone()] {
            match self.ask(&server, &command, WRITE_TIMEOUT) {
                Some(Ok(_)) => {}
                Some(Err((code, details))) => {
                    bail!(
                        "{server} does not let keys '{}:*' be written: {code} {details}",
                        self.place.prefix
                    )
                }
                None => bail!("{server} does not answer"),
            }
        }
        Ok(())
    }

    fn server_of(&self, name: &str) -> Option<Address> {
        lock(&self.topology).of(hash_slot(name)).cloned()
    }

    /// The commands of the open ones of `jobs`.
    fn pieces(&self, jobs: &[Job]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (at, job) in jobs.iter().enumerate() {
            if job.outcome != Outcome::Open {
                continue;
            }
            let request = job.request();
            let copies = match request.op {
                Op::Read | Op::ReadCopy => {
                    let copy = job.nr_tries % self.place.copies;
                    copy..copy + 1
                }
                _ => 0..self.place.copies,
            };
            let end = (request.offset + request.len).saturating_sub(HEADER);
            let mut next = request.offset.saturating_sub(HEADER);
            while next < end {
                let (cluster, offset) = (next / CLUSTER_LEN, next % CLUSTER_LEN);
                let len = (CLUSTER_LEN - offset).min(end - next);
                let begin = next - (end - request.len);
                for copy in copies.clone() {
                    pieces.push(Piece {
                        job: at,
                        key: key(&self.stem, cluster, copy),
                        cluster,
                        at: offset,
                        begin: usize::try_from(begin).unwrap_or(usize::MAX),
                        len: usize::try_from(len).unwrap_or(0),
                        outcome: Outcome::NotSent,
                        ask: None,
                    });
                }
                next += len;
            }
        }
        pieces
    }

    /// Sends those of `pieces` at `which` to `server`, packed as one. Returns how many commands
    /// that are for each; none if it cannot be reached.
    fn send_pieces(
        &mut self,
        server: &Address,
        which: &[usize],
        pieces: &mut [Piece],
        jobs: &[Job],
    ) -> Option<Vec<usize>> {
        let ttl_s = self.place.ttl_s;
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
                    if job.firsts.contains(&piece.cluster) {
                        let make = pipeline.cmd("SET").arg(&piece.key).arg("");
                        make.arg("EX").arg(ttl_s).arg("NX");
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
                }
                Op::Discard => {
                    pipeline.cmd("UNLINK").arg(&piece.key);
                }
            }
            lens.push(pipeline.len() - before);
        }
        let time = match which.iter().any(|at| jobs[pieces[*at].job].is_read()) {
            true => READ_TIMEOUT,
            false => WRITE_TIMEOUT,
        };
        let packed = pipeline.get_packed_pipeline();
        let connection = self.reach(server)?;
        for &at in which {
            // From here on it may be on its way.
            pieces[at].outcome = Outcome::Unknown;
        }
        if send(connection, &packed, time).is_none() {
            self.open.remove(server);
            return None;
        }
        Some(lens)
    }

    /// Sends the pieces at `open` to their servers, and takes the answers. Returns those that were
    /// sent elsewhere.
    fn round(&mut self, open: &[usize], pieces: &mut [Piece], jobs: &mut [Job]) -> Vec<usize> {
        let mut by_server: HashMap<Address, Vec<usize>> = HashMap::new();
        for &at in open {
            let piece = &mut pieces[at];
            piece.outcome = Outcome::NotSent;
            let server = piece.ask.clone().or_else(|| self.server_of(&piece.key));
            if let Some(server) = server {
                by_server.entry(server).or_default().push(at);
            }
        }
        let mut sent = Vec::new();
        let mut lost = false;
        for (server, which) in by_server {
            match self.send_pieces(&server, &which, pieces, jobs) {
                Some(lens) => sent.push((server, which, lens)),
                None => lost = true,
            }
        }
        let mut again = Vec::new();
        for (server, which, lens) in sent {
            for (at, len) in which.into_iter().zip(lens) {
                let answers = self.open.get_mut(&server).and_then(|connection| {
                    (0..len)
                        .map(|_| receive(connection))
                        .collect::<Option<Vec<_>>>()
                });
                let Some(answers) = answers else {
                    self.open.remove(&server);
                    lost = true;
                    continue;
                };
                let piece = &mut pieces[at];
                piece.ask = None;
                // The last is the command's own; an error of one before it says the same.
                let error = answers.iter().find_map(|answer| answer.as_ref().err());
                match (error, answers.last()) {
                    (None, Some(Ok(value))) => piece.outcome = settle(piece, value, jobs),
                    (Some((code, details)), _) => {
                        piece.outcome = outcome_of(code);
                        match (code.as_str(), redirection(details, &server)) {
                            ("MOVED", Some((slot, to))) => {
                                lock(&self.topology).move_to(slot, to);
                                again.push(at);
                            }
                            ("ASK", Some((_, to))) => {
                                piece.ask = Some(to);
                                again.push(at);
                            }
                            ("READONLY" | "CLUSTERDOWN" | "MASTERDOWN", _) => lost = true,
                            _ => {}
                        }
                    }
                    _ => {}
                }
            }
        }
        if lost && self.is_cluster() {
            // A replica may have taken its place.
            self.learn();
        }
        again
    }

    fn is_cluster(&self) -> bool {
        lock(&self.topology).servers().len() > 1
    }

    /// Executes what `command` makes of each key of `clusters`, in pipelines.
    fn for_keys(&mut self, clusters: &[u64], command: impl Fn(&str) -> Cmd) {
        let mut by_server: HashMap<Address, Vec<Cmd>> = HashMap::new();
        for cluster in clusters {
            for copy in 0..self.place.copies {
                let name = key(&self.stem, *cluster, copy);
                if let Some(server) = self.server_of(&name) {
                    by_server.entry(server).or_default().push(command(&name));
                }
            }
        }
        for (server, commands) in by_server {
            for some in commands.chunks(MAX_KEYS) {
                let Some(connection) = self.reach(&server) else {
                    break;
                };
                let packed: Vec<u8> = some.iter().flat_map(Cmd::get_packed_command).collect();
                let answers = send(connection, &packed, WRITE_TIMEOUT)
                    .and_then(|()| some.iter().map(|_| receive(connection)).collect());
                let answers: Option<Vec<Answer>> = answers;
                match answers {
                    None => {
                        self.open.remove(&server);
                    }
                    Some(answers) => {
                        for (code, details) in answers.into_iter().filter_map(Result::err) {
                            if let ("MOVED", Some((slot, to))) =
                                (code.as_str(), redirection(&details, &server))
                            {
                                lock(&self.topology).move_to(slot, to);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What an answer means for a piece; what was read goes to its job.
fn settle(piece: &Piece, value: &Value, jobs: &mut [Job]) -> Outcome {
    let job = &mut jobs[piece.job];
    if !job.is_read() {
        return Outcome::Done;
    }
    let to = job.data.get_mut(piece.begin..piece.begin + piece.len);
    match (value, to) {
        (Value::BulkString(bytes), Some(to)) if bytes.len() == to.len() => {
            to.copy_from_slice(bytes);
            Outcome::Done
        }
        // The key, or its end, is gone.
        _ => Outcome::Missing,
    }
}

/// What an error means: the server has done nothing.
fn outcome_of(code: &str) -> Outcome {
    match code {
        "OOM" => Outcome::Full,
        _ => Outcome::NotSent,
    }
}

fn send(connection: &mut Connection, packed: &[u8], time: Duration) -> Option<()> {
    connection.set_read_timeout(Some(time)).ok()?;
    connection.set_write_timeout(Some(time)).ok()?;
    connection.send_packed_command(packed).ok()
}

/// The next answer; none if the connection is of no use any more.
fn receive(connection: &mut Connection) -> Option<Answer> {
    match connection.recv_response() {
        Ok(Value::ServerError(error)) => {
            let details = error.details().unwrap_or("").to_owned();
            Some(Err((error.code().to_owned(), details)))
        }
        Ok(value) => Some(Ok(value)),
        Err(error) => {
            let code = error.code()?.to_owned();
            Some(Err((code, error.detail().unwrap_or("").to_owned())))
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

impl Client for Nodes {
    fn serve(&mut self, jobs: &mut [Job]) {
        let mut pieces = self.pieces(jobs);
        let mut open: Vec<_> = (0..pieces.len()).collect();
        for _ in 0..=MAX_REDIRECTIONS {
            open = self.round(&open, &mut pieces, jobs);
            if open.is_empty() {
                break;
            }
        }
        for job in jobs.iter_mut().filter(|job| job.outcome == Outcome::Open) {
            job.outcome = Outcome::Done;
        }
        for piece in &pieces {
            let job = &mut jobs[piece.job];
            job.outcome = worse(job.outcome, piece.outcome);
        }
    }

    fn probe(&mut self) -> bool {
        let servers = lock(&self.topology).servers();
        let ping = redis::cmd("PING");
        let dead: Vec<_> = servers
            .into_iter()
            .filter(|server| !matches!(self.ask(server, &ping, READ_TIMEOUT), Some(Ok(_))))
            .collect();
        if !dead.is_empty() && self.is_cluster() {
            self.learn();
        }
        dead.is_empty()
    }

    fn renew(&mut self, clusters: &[u64]) {
        let ttl_s = self.place.ttl_s;
        self.for_keys(clusters, |name| {
            redis::cmd("EXPIRE").arg(name).arg(ttl_s).clone()
        });
    }

    fn remove(&mut self, clusters: &[u64]) {
        // Twice, as the first time may learn where keys have moved to.
        for _ in 0..2 {
            self.for_keys(clusters, |name| redis::cmd("UNLINK").arg(name).clone());
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
        Outcome::Unknown => 4,
    };
    if rank(one) >= rank(other) { one } else { other }
}
