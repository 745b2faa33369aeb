//! *What*: the places that an URL can name:
//!
//! ```text
//! redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]…][/DB][?copies=2&prefix=NAME&ttl=SECONDS]
//! … with &deadline=SECONDS for every kind
//! rediss://…            the same by TLS
//! unix:///SOCKET[?db=N&prefix=NAME&ttl=SECONDS]
//! nbd://HOST[:PORT]/EXPORT    nbds://… by TLS
//! nbd+unix:///EXPORT?socket=SOCKET
//! ```
//!
//! *Invariants*: [`Place::name`] and every error leave secrets out.
//! *Locking*: none. *Context*: `uzswap run`, the broker.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use percent_encoding::percent_decode_str;

const REDIS_PORT: u16 = 6379;
const NBD_PORT: u16 = 10809;
/// Seconds that a key lives unless it is renewed.
const TTL_S: u64 = 3600;
const MIN_TTL_S: u64 = 60;
const DEADLINE: &str = "deadline";
/// Environment variables for what an URL leaves out.
const USER_ENV: &str = "UZSWAP_SWAP_USER";
const PASSWORD_ENV: &str = "UZSWAP_SWAP_PASSWORD";

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// Host and port.
    Tcp(String, u16),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Redis or Valkey servers: one, or any of a cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct Redis {
    /// Those that are named; a cluster tells the others.
    pub servers: Vec<Address>,
    /// By TLS.
    pub tls: bool,
    /// Who logs in, if not the default user.
    pub user: Option<String>,
    /// With this password.
    pub password: Option<String>,
    /// Number of the database.
    pub db: i64,
    /// Keys for each cluster of slots, on different servers.
    pub copies: usize,
    /// What all keys begin with.
    pub prefix: String,
    /// Seconds that a key lives unless it is renewed.
    pub ttl_s: u64,
}

/// An export of an NBD server.
#[derive(Clone, PartialEq, Eq)]
pub struct Nbd {
    /// The server.
    pub server: Address,
    /// By TLS.
    pub tls: bool,
    /// The export's name.
    pub export: String,
}

/// What an URL names.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// Keys of Redis or Valkey servers.
    Redis(Redis),
    /// An export of an NBD server.
    Nbd(Nbd),
}

/// How long a program waits for a request to the place that `text` names.
///
/// # Errors
/// It is not a number of seconds from 1 to 3600.
pub fn deadline(text: &str) -> Result<Duration> {
    let parts = Parts::of(text)?;
    let given = parts.query.iter().find(|(key, _)| *key == DEADLINE);
    let Some((_, value)) = given else {
        return Ok(Duration::from_nanos(uzswap_io::exchange::DEADLINE_NS));
    };
    let seconds = value
        .parse()
        .ok()
        .filter(|seconds| (1..=3600).contains(seconds));
    let seconds =
        seconds.with_context(|| format!("{DEADLINE}={value} is not 1 to 3600 seconds"))?;
    Ok(Duration::from_secs(seconds))
}

/// Whether `text` is an URL of any kind.
#[must_use]
pub fn is_url(text: &str) -> bool {
    text.contains("://")
}

/// Whether the URL `text` has a password in it.
#[must_use]
pub fn has_password(text: &str) -> bool {
    Parts::of(text).is_ok_and(|parts| parts.user.is_some_and(|user| user.contains(':')))
}

/// An URL in its parts, none of which is decoded.
struct Parts<'a> {
    scheme: &'a str,
    user: Option<&'a str>,
    hosts: &'a str,
    path: &'a str,
    query: Vec<(&'a str, &'a str)>,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self> {
        let (scheme, rest) = text.split_once("://").context("not an URL")?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, authority),
        };
        let query = query.split('&').filter(|item| !item.is_empty());
        let query = query.map(|item| item.split_once('=').unwrap_or((item, "")));
        Ok(Parts {
            scheme,
            user,
            hosts,
            path,
            query: query.collect(),
        })
    }

    fn servers(&self, port: u16) -> Result<Vec<Address>> {
        let hosts = self.hosts.split(',').filter(|host| !host.is_empty());
        let servers: Vec<_> = hosts
            .map(|host| server(host, port))
            .collect::<Result<_>>()?;
        if servers.is_empty() {
            bail!("it names no host");
        }
        Ok(servers)
    }
}

fn decoded(text: &str) -> Result<String> {
    let text = percent_decode_str(text).decode_utf8();
    Ok(text
        .map_err(|_| anyhow!("its text is not UTF-8"))?
        .into_owned())
}

/// `HOST`, `HOST:PORT` or `[V6]:PORT`.
fn server(text: &str, default: u16) -> Result<Address> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            let port = port.parse().ok().filter(|port| *port > 0);
            (
                host,
                port.with_context(|| format!("{text} has no port number behind the colon"))?,
            )
        }
        _ => (text, default),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(Address::Tcp(decoded(host)?, port))
}

impl Place {
    /// What `text` names; user and password are taken from the environment where it leaves them
    /// out.
    ///
    /// # Errors
    /// What is wrong with it, without any secret.
    pub fn parse(text: &str) -> Result<Place> {
        let parts = Parts::of(text)?;
        match parts.scheme {
            "redis" | "rediss" | "unix" | "redis+unix" => Redis::of(&parts).map(Place::Redis),
            "nbd" | "nbds" | "nbd+unix" => Nbd::of(&parts).map(Place::Nbd),
            kind => bail!(
                "swap to '{kind}' is not known: name a directory, a file, a block device, or an URL \
                 of redis://, rediss://, unix://, nbd://, nbds:// or nbd+unix://"
            ),
        }
    }

    /// The place in messages: without secrets.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Place::Nbd(nbd) => match &nbd.server {
                Address::Unix(path) => {
                    format!("nbd+unix:///{}?socket={}", nbd.export, path.display())
                }
                tcp if nbd.tls => format!("nbds://{tcp}/{}", nbd.export),
                tcp => format!("nbd://{tcp}/{}", nbd.export),
            },
            Place::Redis(redis) => {
                let servers: Vec<_> = redis.servers.iter().map(ToString::to_string).collect();
                let scheme = match (&redis.servers[..], redis.tls) {
                    ([Address::Unix(_)], _) => "unix",
                    (_, true) => "rediss",
                    (_, false) => "redis",
                };
                format!("{scheme}://{}", servers.join(","))
            }
        }
    }
}

impl Redis {
    fn of(parts: &Parts<'_>) -> Result<Redis> {
        let is_unix = parts.scheme.ends_with("unix");
        let servers = match is_unix {
            true if parts.path.is_empty() => bail!("it names no socket: write unix:///PATH"),
            true => vec![Address::Unix(format!("/{}", decoded(parts.path)?).into())],
            false => parts.servers(REDIS_PORT)?,
        };
        let (user, password) = match parts.user.map(|user| user.split_once(':')) {
            None => (None, None),
            Some(None) => (parts.user, None),
            Some(Some((user, password))) => (Some(user), Some(password)),
        };
        let of_environment = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let user = user
            .map(decoded)
            .transpose()?
            .filter(|user| !user.is_empty());
        let password = password.map(decoded).transpose()?;
        let mut redis = Redis {
            servers,
            tls: parts.scheme == "rediss",
            user: user.or_else(|| of_environment(USER_ENV)),
            password: password.or_else(|| of_environment(PASSWORD_ENV)),
            db: 0,
            copies: 1,
            prefix: "uzswap".to_owned(),
            ttl_s: TTL_S,
        };
        if !is_unix && !parts.path.is_empty() {
            redis.db = parts
                .path
                .parse()
                .map_err(|_| anyhow!("the database '{}' is not a number", parts.path))?;
        }
        for &(key, value) in &parts.query {
            let number = || {
                let number = value.parse::<u64>();
                number.map_err(|_| anyhow!("{key}={value} is not a number"))
            };
            match key {
                DEADLINE => {}
                "copies" => redis.copies = usize::try_from(number()?).unwrap_or(usize::MAX),
                "db" => redis.db = number()?.cast_signed(),
                "prefix" => redis.prefix = decoded(value)?,
                "ttl" => redis.ttl_s = number()?,
                _ => bail!("'{key}' is not known: copies, db, deadline, prefix and ttl are"),
            }
        }
        if !(1..=2).contains(&redis.copies) {
            bail!("copies={} is not 1 or 2", redis.copies);
        }
        if redis.ttl_s < MIN_TTL_S {
            bail!(
                "ttl={} is too short: give at least {MIN_TTL_S} seconds",
                redis.ttl_s
            );
        }
        if redis.prefix.contains(['{', '}']) {
            bail!("a prefix has no braces, or all keys would be on one server");
        }
        Ok(redis)
    }
}

impl Nbd {
    fn of(parts: &Parts<'_>) -> Result<Nbd> {
        let mut socket = None;
        for &(key, value) in &parts.query {
            match key {
                DEADLINE => {}
                "socket" => socket = Some(decoded(value)?),
                _ => bail!("'{key}' is not known: deadline and socket are"),
            }
        }
        let server = match (parts.scheme, socket) {
            ("nbd+unix", Some(socket)) => Address::Unix(socket.into()),
            ("nbd+unix", None) => bail!("it names no socket: write nbd+unix:///EXPORT?socket=PATH"),
            (_, Some(_)) => bail!("a socket goes with nbd+unix://"),
            (_, None) => match parts.servers(NBD_PORT)?.as_slice() {
                [server] => server.clone(),
                _ => bail!("it names several hosts: name one"),
            },
        };
        Ok(Nbd {
            server,
            tls: parts.scheme == "nbds",
            export: decoded(parts.path)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redis(text: &str) -> Redis {
        match Place::parse(text) {
            Ok(Place::Redis(redis)) => redis,
            Ok(Place::Nbd(_)) => panic!("{text} is NBD"),
            Err(error) => panic!("{text}: {error}"),
        }
    }

    #[test]
    fn an_url_says_where_and_how() {
        let all = redis("redis://u:p%40ss@a:1,b,[::1]:3/2?copies=2&prefix=x&ttl=90");
        let tcp = |host: &str, port| Address::Tcp(host.to_owned(), port);
        assert_eq!(all.servers, [tcp("a", 1), tcp("b", 6379), tcp("::1", 3)]);
        assert_eq!(all.user.as_deref(), Some("u"));
        assert_eq!(all.password.as_deref(), Some("p@ss"));
        assert_eq!((all.db, all.copies, all.ttl_s), (2, 2, 90));
        assert_eq!((all.prefix.as_str(), all.tls), ("x", false));
        let unix = redis("unix:///run/redis.sock?db=3");
        assert_eq!(unix.servers, [Address::Unix("/run/redis.sock".into())]);
        assert_eq!((unix.db, unix.copies), (3, 1));
        assert!(redis("rediss://h").tls);
        let nbd = |text: &str| match Place::parse(text) {
            Ok(Place::Nbd(nbd)) => (nbd.server.to_string(), nbd.export),
            _ => panic!("{text}"),
        };
        assert_eq!(nbd("nbd://h/e"), ("h:10809".into(), "e".into()));
        assert_eq!(nbd("nbd+unix:///e?socket=/s"), ("/s".into(), "e".into()));
    }

    #[test]
    fn no_name_and_no_error_has_a_secret() {
        for text in [
            "redis://u:secret@h:x",
            "redis://u:secret@h/x",
            "redis://u:secret@h?copies=3",
            "redis://u:secret@/",
            "redis://:secret@h?no=1",
            "ftp://u:secret@h",
            "nbd://u:secret@h,i/x",
        ] {
            let Err(error) = Place::parse(text) else {
                panic!("{text} is good")
            };
            assert!(!format!("{error:#}").contains("secret"), "{error:#}");
            assert!(has_password(text));
        }
        let name = Place::parse("redis://u:secret@h,i:7").map(|place| place.name());
        assert_eq!(name.ok().as_deref(), Some("redis://h:6379,i:7"));
        assert!(!has_password("redis://u@h") && !has_password("/var/a:b@c"));
    }
}
