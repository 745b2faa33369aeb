//! *What*: one connection to a Redis server, and how soon such servers answer.
//!
//! *Invariants*: after anything but an answer the connection is of no use any more: whoever has it
//! drops it, so that a late answer belongs to nobody.
//! *Locking*: none. *Context*: the broker.

use std::time::Duration;

use redis::{
    Client as RedisClient, Cmd, Connection, ConnectionAddr, IntoConnectionInfo,
    RedisConnectionInfo, RedisResult, Value,
};

use crate::client::{CONNECT_TIMEOUT, READ_TIMEOUT};
use crate::url::{Address, Redis};

/// An answer: a value, or the first word and the rest of an error.
pub type Answer = Result<Value, (String, String)>;

/// A connection.
pub struct Link {
    connection: Connection,
    read_timeout: Duration,
    write_timeout: Duration,
    /// The server's number of the connection, by which another one can end it.
    pub id: Option<i64>,
}

impl Link {
    /// Connects to `server`, one of `place`.
    pub fn connect(place: &Redis, server: &Address) -> RedisResult<Link> {
        let address = match server {
            Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
            Address::Tcp(host, port) if place.tls => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: false,
                tls_params: None,
            },
            Address::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
        };
        let mut settings = RedisConnectionInfo::default()
            .set_db(place.db)
            .set_skip_set_lib_name();
        if let Some(user) = &place.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &place.password {
            settings = settings.set_password(password);
        }
        let info = address.into_connection_info()?.set_redis_settings(settings);
        let connection = RedisClient::open(info)?.get_connection_with_timeout(CONNECT_TIMEOUT)?;
        let mut link = Link {
            connection,
            read_timeout: Duration::ZERO,
            write_timeout: Duration::ZERO,
            id: None,
        };
        // TLS shakes hands with the first bytes: certificates are refused here.
        link.set_timeouts(CONNECT_TIMEOUT, CONNECT_TIMEOUT)?;
        match redis::cmd("CLIENT").arg("ID").query(&mut link.connection) {
            Ok(id) => link.id = Some(id),
            // A user who may not ask.
            Err(error) if !error.is_io_error() => {}
            Err(error) => return Err(error),
        }
        Ok(link)
    }

    fn set_timeouts(&mut self, read: Duration, write: Duration) -> RedisResult<()> {
        if self.read_timeout != read {
            self.connection.set_read_timeout(Some(read))?;
            self.read_timeout = read;
        }
        if self.write_timeout != write {
            self.connection.set_write_timeout(Some(write))?;
            self.write_timeout = write;
        }
        Ok(())
    }

    /// Sends commands, whose answers are waited for as long as `read`.
    pub fn send(&mut self, packed: &[u8], read: Duration, write: Duration) -> Option<()> {
        self.set_timeouts(read, write).ok()?;
        self.connection.send_packed_command(packed).ok()
    }

    /// The next answer; none if the connection is of no use any more.
    pub fn receive(&mut self) -> Option<Answer> {
        match self.connection.recv_response() {
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

    /// One command, and its answer.
    pub fn ask(&mut self, command: &Cmd, time: Duration) -> Option<Answer> {
        self.send(&command.get_packed_command(), time, time)?;
        self.receive()
    }
}

/// How soon a server answers: mean and deviation, as TCP has them of its round trips.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    mean: Duration,
    deviation: Duration,
}

impl Latency {
    /// Nothing is late sooner: another connection takes some time, too.
    const MIN_LATE: Duration = Duration::from_millis(2);

    /// Notes one answer.
    pub fn note(&mut self, took: Duration) {
        if self.mean.is_zero() {
            (self.mean, self.deviation) = (took, took / 2);
        } else {
            self.deviation = (self.deviation * 3 + self.mean.abs_diff(took)) / 4;
            self.mean = (self.mean * 7 + took) / 8;
        }
    }

    /// An answer that takes longer is late: beyond the slowest hundredth, about.
    pub fn late(&self) -> Duration {
        if self.mean.is_zero() {
            return READ_TIMEOUT;
        }
        (self.mean + self.deviation * 4).clamp(Self::MIN_LATE, READ_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_is_what_steady_answers_are_not() {
        let mut latency = Latency::default();
        assert_eq!(latency.late(), READ_TIMEOUT, "nothing is known");
        let ms = Duration::from_millis;
        for turn in 0..100 {
            latency.note(ms(10 + turn % 3));
        }
        assert!(latency.late() > ms(12) && latency.late() < ms(20));
        // And follows them.
        for _ in 0..100 {
            latency.note(ms(100));
        }
        assert!(latency.late() > ms(99));
        for _ in 0..100 {
            latency.note(Duration::from_micros(50));
        }
        assert_eq!(latency.late(), Latency::MIN_LATE);
    }
}
