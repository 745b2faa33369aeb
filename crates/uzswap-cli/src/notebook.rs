//! *What*: `uzswap run --jupyter`: tells a notebook why its kernel was ended.
//!
//! While the kernel lives, a thread reads what it publishes, to know which cell is being run. Once
//! it has been ended, its port is free: the supervisor publishes one more message there, an error
//! of that cell, signed with the connection's key. Clients connect anew by themselves, within some
//! 100 ms; Jupyter does not miss the kernel meanwhile, as the process it started is the supervisor.
//!
//! *Invariants*: nobody connects before the kernel listens: a connection to a port where nobody
//! listens may take that very port for its own end, and the kernel could not have it then.
//! *Locking*: one word between the thread and the supervisor. *Context*: the supervisor, and a
//! thread of its own in it, all signals blocked.

mod zmtp;

use std::fs;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use ring::hmac;
use serde::Deserialize;
use serde_json::{Value, json};

use zmtp::{Kind, Peer, SUBSCRIBE};

/// How often the thread looks whether the kernel listens.
const LOOK: Duration = Duration::from_millis(200);
/// Time that clients have to connect anew, from the end of the kernel, and after the first of them.
const FIRST_CLIENT: Duration = Duration::from_secs(3);
const OTHER_CLIENTS: Duration = Duration::from_secs(1);
/// Time that a client has to say that it wants messages.
const SUBSCRIPTION: Duration = Duration::from_millis(500);
/// Stack of the thread.
const STACK: usize = 256 << 10;
/// Separates addresses from the message, in Jupyter's protocol.
const DELIMITER: &[u8] = b"<IDS|MSG>";
/// State of a socket that listens, in `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// What Jupyter writes of a kernel's sockets.
#[derive(Deserialize)]
struct Connection {
    transport: String,
    ip: IpAddr,
    iopub_port: u16,
    key: String,
    signature_scheme: String,
    /// Messages are encrypted.
    curve_publickey: Option<String>,
}

impl Connection {
    fn read(file: &Path) -> Result<Self> {
        let text = fs::read(file)?;
        let connection: Connection = serde_json::from_slice(&text)?;
        if connection.transport != "tcp" {
            bail!("the transport is {}, not tcp", connection.transport);
        }
        if connection.curve_publickey.is_some() {
            bail!("its messages are encrypted");
        }
        if !connection.key.is_empty() && connection.signature_scheme != "hmac-sha256" {
            bail!("signatures are {}", connection.signature_scheme);
        }
        Ok(connection)
    }

    fn address(&self) -> SocketAddr {
        (self.ip, self.iopub_port).into()
    }
}

/// The header of the request that the kernel works on.
type Request = Arc<Mutex<Option<Value>>>;

/// A notebook whose kernel this process supervises.
pub struct Notebook {
    connection: Arc<Connection>,
    request: Request,
}

impl Notebook {
    /// Begins to watch the kernel whose connection `file` describes.
    pub fn watch(file: &Path) -> Result<Self> {
        let connection = Connection::read(file)
            .with_context(|| format!("cannot use the connection file {}", file.display()))?;
        let (connection, request) = (Arc::new(connection), Request::default());
        let notebook = Notebook {
            connection: Arc::clone(&connection),
            request: Arc::clone(&request),
        };
        std::thread::Builder::new()
            .name("uzswap-jupyter".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                while !is_listened_at(connection.iopub_port) {
                    std::thread::sleep(LOOK);
                }
                // It ends with the kernel.
                let _ = follow(connection.address(), &request);
            })
            .context("cannot start the thread that serves --jupyter")?;
        Ok(notebook)
    }

    /// Publishes `line` as an error of the cell that the kernel, which has ended, was working on.
    /// Takes a second.
    pub fn tell(&self, line: &str) -> Result<()> {
        let request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(request) = request.as_ref() else {
            return Ok(());
        };
        let message = message(&self.connection.key, request, line)?;
        let listener = TcpListener::bind(self.connection.address())?;
        listener.set_nonblocking(true)?;
        let mut told = Vec::new();
        let mut end = Instant::now() + FIRST_CLIENT;
        while Instant::now() < end {
            let Ok((stream, _)) = listener.accept() else {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            if let Ok(client) = publish(stream, &message) {
                if told.is_empty() {
                    end = Instant::now() + OTHER_CLIENTS;
                }
                // What closes with something unread in it may take back what was sent.
                told.push(client);
            }
        }
        Ok(())
    }
}

/// Whether somebody on this machine listens at a TCP port.
fn is_listened_at(port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let text = fs::read_to_string(table).unwrap_or_default();
        text.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let is_there = fields.next().is_some_and(|local| local.ends_with(&suffix));
            is_there && fields.nth(1) == Some(LISTENS)
        })
    })
}

/// Reads what a kernel publishes, and keeps the header of the request that it works on.
fn follow(address: SocketAddr, request: &Mutex<Option<Value>>) -> std::io::Result<()> {
    let mut kernel = Peer::greet(TcpStream::connect(address)?, Kind::Subscriber)?;
    kernel.send(&[&[SUBSCRIBE]])?;
    kernel.set_patience(None)?;
    loop {
        if let Some(begun) = begun(&kernel.receive()?) {
            *request.lock().unwrap_or_else(PoisonError::into_inner) = Some(begun);
        }
    }
}

/// The header of a request to run a cell, if a message says that its work begins.
fn begun(frames: &[Vec<u8>]) -> Option<Value> {
    let at = frames.iter().position(|frame| frame == DELIMITER)?;
    let [_, header, parent, _, content, ..] = frames.get(at + 1..)? else {
        return None;
    };
    let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    let (header, parent, content) = (parse(header)?, parse(parent)?, parse(content)?);
    let begins = header["msg_type"] == "status"
        && content["execution_state"] == "busy"
        && parent["msg_type"] == "execute_request";
    begins.then_some(parent)
}

/// Sends a message to a client that has connected, once it wants messages.
fn publish(stream: TcpStream, message: &[Vec<u8>]) -> std::io::Result<Peer> {
    stream.set_nonblocking(false)?;
    let mut client = Peer::greet(stream, Kind::Publisher)?;
    client.set_patience(Some(SUBSCRIPTION))?;
    while client.receive()?.first().and_then(|frame| frame.first()) != Some(&SUBSCRIBE) {}
    let frames: Vec<_> = message.iter().map(Vec::as_slice).collect();
    client.send(&frames)?;
    Ok(client)
}

/// An error of the cell that `request` had run, in Jupyter's protocol, 5.3.
fn message(key: &str, request: &Value, line: &str) -> Result<Vec<Vec<u8>>> {
    let header = json!({
        "msg_id": random_id()?,
        "session": random_id()?,
        "username": request["username"].as_str().unwrap_or_default(),
        "date": utc(SystemTime::now()),
        "msg_type": "error",
        "version": "5.3",
    });
    let content = json!({
        "ename": "uzswap",
        "evalue": line,
        "traceback": [format!("uzswap: {line}")],
    });
    let parts = [header, request.clone(), json!({}), content];
    let parts = parts.map(|part| part.to_string().into_bytes());
    let mut message = vec![b"error".to_vec(), DELIMITER.to_vec(), sign(key, &parts)];
    message.extend(parts);
    Ok(message)
}

fn sign(key: &str, parts: &[Vec<u8>]) -> Vec<u8> {
    if key.is_empty() {
        return Vec::new();
    }
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    hex(hmac::sign(&key, &parts.concat()).as_ref()).into_bytes()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn random_id() -> Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(hex(&bytes))
}

/// A time as ISO 8601 has it.
fn utc(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let (days, second) = (seconds / 86400, seconds % 86400);
    // Years begin with March here, so that the day of a leap year is the last.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!(
        "{:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        era * 400 + year + later,
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(parts: [&Value; 4]) -> Vec<Vec<u8>> {
        let mut frames = vec![b"topic".to_vec(), DELIMITER.to_vec(), b"signature".to_vec()];
        frames.extend(parts.map(|part| part.to_string().into_bytes()));
        frames
    }

    #[test]
    fn a_cell_begins_with_a_busy_kernel() {
        let (header, busy) = (
            json!({"msg_type": "status"}),
            json!({"execution_state": "busy"}),
        );
        let cell = json!({"msg_type": "execute_request", "msg_id": "7"});
        let none = json!({});
        assert_eq!(
            begun(&frames([&header, &cell, &none, &busy])),
            Some(cell.clone())
        );
        let idle = json!({"execution_state": "idle"});
        assert_eq!(begun(&frames([&header, &cell, &none, &idle])), None);
        let other = json!({"msg_type": "kernel_info_request"});
        assert_eq!(begun(&frames([&header, &other, &none, &busy])), None);
        assert_eq!(begun(&[b"no message".to_vec()]), None);
        assert_eq!(begun(&[DELIMITER.to_vec(), Vec::new()]), None);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59Z");
    }

    #[test]
    fn messages_are_signed_as_jupyter_does() {
        // RFC 4231, test case 2, in two parts.
        let parts = [b"what do ya want ".to_vec(), b"for nothing?".to_vec()];
        let signature = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(sign("Jefe", &parts), signature.as_bytes());
        assert!(sign("", &parts).is_empty());
    }
}
