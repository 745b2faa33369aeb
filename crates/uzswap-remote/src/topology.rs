//! *What*: which server of a cluster has which hash slot, and the keys of a cluster of swap slots.
//!
//! A hash slot is a number of the server's, of 16384; it has nothing to do with swap slots.
//!
//! *Invariants*: a key's hash slot depends on its name alone, and the two copies of a cluster of
//! swap slots are half of all hash slots apart: on different servers, if each has one range of them.
//! *Locking*: none. *Context*: the broker.

use std::collections::HashMap;

use redis::Value;

use crate::url::Address;

/// Hash slots of a Redis Cluster.
const NR_HASH_SLOTS: u16 = 16384;

/// The hash slot of `key`, which has no braces.
pub fn hash_slot(key: &str) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(key.as_bytes()) % NR_HASH_SLOTS
}

/// The key of copy `copy` of cluster `cluster`, where names begin with `stem`.
pub fn key(stem: &str, cluster: u64, copy: usize) -> String {
    let first = format!("{stem}:{cluster}");
    if copy == 0 {
        return first;
    }
    // About eight attempts, as an eighth of all hash slots will do.
    let wanted = (hash_slot(&first) + NR_HASH_SLOTS / 2) % NR_HASH_SLOTS;
    let names = (0..).map(|salt| format!("{first}:{salt}"));
    let mut near = names.filter(|name| {
        let apart = hash_slot(name).abs_diff(wanted);
        apart.min(NR_HASH_SLOTS - apart) <= NR_HASH_SLOTS / 16
    });
    near.next().unwrap_or(first)
}

/// Where each hash slot is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// First hash slot, last, and the server that has them.
    ranges: Vec<(u16, u16, Address)>,
    /// Hash slots that moved since.
    moved: HashMap<u16, Address>,
}

impl Topology {
    /// One server that has all.
    pub fn single(address: Address) -> Self {
        Topology {
            ranges: vec![(0, NR_HASH_SLOTS - 1, address)],
            moved: HashMap::new(),
        }
    }

    /// Of the answer to `CLUSTER SLOTS` that `asked` gave.
    pub fn of_answer(answer: &Value, asked: &Address) -> Option<Self> {
        let Value::Array(ranges) = answer else {
            return None;
        };
        let ranges = ranges.iter().map(|range| range_of(range, asked));
        let mut ranges: Vec<_> = ranges.collect::<Option<_>>()?;
        ranges.sort_unstable();
        Some(Topology {
            ranges,
            moved: HashMap::new(),
        })
    }

    /// Whether every hash slot has a server.
    pub fn is_complete(&self) -> bool {
        let mut next = 0;
        for (first, last, _) in &self.ranges {
            if *first != next {
                return false;
            }
            next = last + 1;
        }
        next == NR_HASH_SLOTS
    }

    /// The server that has `slot`.
    pub fn of(&self, slot: u16) -> Option<&Address> {
        let range = || {
            let mut ranges = self.ranges.iter();
            ranges.find(|(first, last, _)| (*first..=*last).contains(&slot))
        };
        self.moved.get(&slot).or_else(|| Some(&range()?.2))
    }

    /// Notes that `slot` is at `address` now.
    pub fn move_to(&mut self, slot: u16, address: Address) {
        self.moved.insert(slot, address);
    }

    /// All servers.
    pub fn servers(&self) -> Vec<Address> {
        let mut all: Vec<_> = self.ranges.iter().map(|(_, _, at)| at.clone()).collect();
        all.extend(self.moved.values().cloned());
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// First and last hash slot, and the primary, of an array that names its copies, too.
fn range_of(range: &Value, asked: &Address) -> Option<(u16, u16, Address)> {
    let Value::Array(fields) = range else {
        return None;
    };
    let [
        Value::Int(first),
        Value::Int(last),
        Value::Array(primary),
        ..,
    ] = &fields[..]
    else {
        return None;
    };
    let [host, Value::Int(port), ..] = &primary[..] else {
        return None;
    };
    let host = match host {
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        Value::SimpleString(host) => host.clone(),
        _ => String::new(),
    };
    let port = u16::try_from(*port).ok()?;
    let address = address(&host, port, asked);
    Some((
        u16::try_from(*first).ok()?,
        u16::try_from(*last).ok()?,
        address,
    ))
}

/// The address of a server that names `host`, possibly nothing: the one that was asked.
fn address(host: &str, port: u16, asked: &Address) -> Address {
    match asked {
        Address::Tcp(own, _) if host.is_empty() || host == "?" => Address::Tcp(own.clone(), port),
        _ => Address::Tcp(host.to_owned(), port),
    }
}

/// Slot and address of a redirection: `MOVED 3999 127.0.0.1:6381`, without its first word.
pub fn redirection(details: &str, asked: &Address) -> Option<(u16, Address)> {
    let (slot, at) = details.split_once(' ')?;
    let (host, port) = at.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((slot.parse().ok()?, address(host, port.parse().ok()?, asked)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_on_different_servers_of_any_even_cluster() {
        for nr_servers in [2, 3, 4, 6, 16] {
            for cluster in 0..500 {
                let server = |copy| {
                    let slot = u32::from(hash_slot(&key("uzswap:77", cluster, copy)));
                    slot * nr_servers / u32::from(NR_HASH_SLOTS)
                };
                assert_ne!(server(0), server(1), "cluster {cluster} of {nr_servers}");
            }
        }
        // As the specification has it.
        assert_eq!(hash_slot("123456789"), 0x31c3);
    }

    #[test]
    fn a_redirection_names_slot_and_server() {
        let asked = Address::Tcp("own".into(), 1);
        let at = |host: &str, port| Address::Tcp(host.into(), port);
        let seen = |details| redirection(details, &asked);
        assert_eq!(
            seen("3999 10.0.0.1:6381"),
            Some((3999, at("10.0.0.1", 6381)))
        );
        assert_eq!(seen("5 :6381"), Some((5, at("own", 6381))));
        assert_eq!(seen("nonsense"), None);
    }
}
