//! *What*: clusters of swap slots as keys of Redis or Valkey servers: which servers may be used,
//! and what they have room for. How keys are read and written: `pieces`, by the connections of
//! `nodes`.
//!
//! *Invariants*: a server that would lose what it is given is refused.
//! *Locking*: the topology's lock, a leaf. *Context*: the broker.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, bail};
use uzswap_swap::area::{HEADER, MIN_LEN};
use uzswap_swap::size::Size;

use crate::client::{Client, Server};
use crate::copies::Copies;
use crate::nodes::{Nodes, Shared};
use crate::topology::Topology;
use crate::url::{Address, Redis};

/// Connections to each server.
const MAX_CONNECTIONS: usize = 4;
/// Of a server's free memory, so many hundredths are used: the rest is for its bookkeeping.
const USED_PERCENT: u64 = 80;

/// The servers, and what this run's keys are called there.
pub struct Keys(Arc<Shared>);

impl Keys {
    /// Those of `job` at `place`.
    pub fn new(place: Redis, job: &str) -> Self {
        let first = place.servers.first().cloned();
        let first = first.unwrap_or(Address::Unix("".into()));
        Keys(Arc::new(Shared {
            stem: format!("{}:{job}", place.prefix),
            place,
            topology: Mutex::new(Topology::single(first)),
            copies: Copies::default(),
            nr_failovers: AtomicU64::new(0),
        }))
    }

    fn nodes(&self) -> Nodes {
        Nodes::new(Arc::clone(&self.0))
    }
}

impl Server for Keys {
    fn client(&self) -> Box<dyn Client> {
        Box::new(self.nodes())
    }

    fn max_clients(&self) -> usize {
        MAX_CONNECTIONS
    }

    fn renewal(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.0.place.ttl_s / 4))
    }

    fn open(&self) -> Result<u64> {
        let mut nodes = self.nodes();
        let first = nodes.reach_any()?;
        let info = nodes.info(&first)?;
        if info.get("cluster_enabled").is_some_and(|on| on == "1") {
            if self.0.place.db != 0 {
                bail!("a cluster has no databases: leave /{} out", self.0.place.db);
            }
            if !nodes.learn() {
                bail!("the cluster is down: some of its hash slots have no server");
            }
        } else {
            *self.0.topology() = Topology::single(first);
        }
        let servers = self.0.topology().servers();
        if self.0.place.copies > servers.len() {
            bail!(
                "copies={} needs as many servers, and there is {}",
                self.0.place.copies,
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
        let all = least.saturating_mul(servers.len() as u64) / self.0.place.copies as u64;
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
