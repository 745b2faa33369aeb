//! *What*: `uzswap run --metrics`: serves the run's metrics over HTTP, to whoever may connect.
//!
//! *Invariants*: the counters are only read. One connection at a time, for some seconds
//! ([`PATIENCE`]) and [`MAX_HEAD`] bytes: a slow or hostile client holds up other clients only,
//! never the command. The socket's file goes with the run.
//! *Locking*: none. *Context*: a thread of its own in the supervisor, all signals blocked.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::chosen::{Chosen, Whom};
use crate::group_file::Access;
use crate::group_view::totals::{Totals, When};
use crate::group_view::tsc_hz;
use crate::prometheus::{self, Format};

/// Time that a client has for its request, and for the next piece of it or of the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest head of a request.
const MAX_HEAD: usize = 8 << 10;
/// Header lines of a request, at most.
const MAX_HEADERS: usize = 64;
/// Stack of the thread.
const STACK: usize = 256 << 10;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address and a port.
    Net(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("the path is missing: write unix:/run/job.sock".to_owned()),
            Some(path) => Ok(Address::Unix(path.into())),
            None => text
                .parse()
                .map(Address::Net)
                .map_err(|_| "not an address: write 127.0.0.1:9100 or unix:PATH".to_owned()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Net(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

enum Socket {
    Net(TcpListener),
    Unix(UnixListener),
}

/// A socket that listens.
pub struct Listener {
    socket: Socket,
    name: Name,
}

/// The name of a socket in the file system, removed when dropped.
pub struct Name(Option<PathBuf>);

impl Drop for Name {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

impl Listener {
    /// Listens; a file that a run left behind which was killed is replaced.
    pub fn bind(address: &Address) -> Result<Self> {
        let (bound, name) = match address {
            Address::Net(address) => (TcpListener::bind(address).map(Socket::Net), None),
            Address::Unix(path) => {
                let is_socket = fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
                let refused = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
                if is_socket && UnixStream::connect(path).is_err_and(refused) {
                    let _ = fs::remove_file(path);
                }
                let bound = UnixListener::bind(path).map(Socket::Unix);
                (bound, Some(path.clone()))
            }
        };
        let socket = bound.with_context(|| {
            format!("cannot serve metrics at {address}: choose another --metrics")
        })?;
        Ok(Listener {
            socket,
            name: Name(name),
        })
    }

    /// Answers from a thread, as long as this process lives. The socket's name goes with what this
    /// returns.
    pub fn serve(self) -> Result<Name> {
        let Listener { socket, name } = self;
        std::thread::Builder::new()
            .name("uzswap-metrics".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                let own = match Chosen::open(&Whom::Pid(std::process::id()), Access::Read) {
                    Ok(own) => own,
                    Err(error) => return eprintln!("uzswap: no metrics are served: {error:#}"),
                };
                loop {
                    // A client that has gone, or too many open files: the next one.
                    if socket.answer_one(&own).is_err() {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            })
            .context("cannot start the thread that serves --metrics")?;
        Ok(name)
    }
}

/// A connection.
trait Client: Read + Write {}

impl<T: Read + Write> Client for T {}

impl Socket {
    /// Waits for a client, who may then take no longer than [`PATIENCE`] for a piece.
    fn accept(&self) -> io::Result<Box<dyn Client>> {
        Ok(match self {
            Socket::Net(listener) => {
                let (client, _) = listener.accept()?;
                client.set_read_timeout(Some(PATIENCE))?;
                client.set_write_timeout(Some(PATIENCE))?;
                Box::new(client)
            }
            Socket::Unix(listener) => {
                let (client, _) = listener.accept()?;
                client.set_read_timeout(Some(PATIENCE))?;
                client.set_write_timeout(Some(PATIENCE))?;
                Box::new(client)
            }
        })
    }

    fn answer_one(&self, own: &Chosen) -> Result<()> {
        let mut client = self.accept()?;
        let request = read(&mut client)?;
        answer(&mut client, request, own)
    }
}

/// What a client asks for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// The metrics; without the text for HEAD.
    Metrics { format: Format, head: bool },
    /// Something else: status and reason.
    Other(&'static str),
}

/// Reads a request.
fn read(client: &mut impl Read) -> Result<Request> {
    let began = Instant::now();
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while began.elapsed() < PATIENCE && head.len() < MAX_HEAD {
        match client.read(&mut piece)? {
            0 => break,
            nr => head.extend_from_slice(&piece[..nr]),
        }
        if let Some(request) = parse(&head) {
            return Ok(request);
        }
    }
    bail!("no request")
}

/// The request in `head`; none if its head is not complete.
fn parse(head: &[u8]) -> Option<Request> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Err(_) => return Some(Request::Other("400 Bad Request")),
        Ok(status) if status.is_partial() => return None,
        Ok(_) => {}
    }
    let path = request.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    if !matches!(path, "/" | "/metrics") {
        return Some(Request::Other("404 Not Found"));
    }
    let head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Some(Request::Other("405 Method Not Allowed")),
    };
    let wants_open = request.headers.iter().any(|header| {
        let value = String::from_utf8_lossy(header.value);
        header.name.eq_ignore_ascii_case("accept") && value.contains(Format::OPEN_TYPE)
    });
    let format = match wants_open {
        true => Format::OpenMetrics,
        false => Format::Text,
    };
    Some(Request::Metrics { format, head })
}

fn answer(client: &mut impl Write, request: Request, own: &Chosen) -> Result<()> {
    let (status, kind, text, head) = match request {
        Request::Other(status) => (status, "text/plain", format!("{status}\n"), false),
        Request::Metrics { format, head } => {
            let run = own.part();
            let totals = Totals::of(&run, When::Now, tsc_hz(&run));
            let text = prometheus::text(&run, &totals, format, &surroundings());
            ("200 OK", format.content_type(), text, head)
        }
    };
    let body = if head { "" } else { &text };
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        text.len()
    )?;
    Ok(client.flush()?)
}

/// What Kubernetes' downward API is asked to put into the environment, as labels.
fn surroundings() -> Vec<(&'static str, String)> {
    let known = [
        ("pod", "POD_NAME"),
        ("namespace", "POD_NAMESPACE"),
        ("container", "CONTAINER_NAME"),
        ("node", "NODE_NAME"),
    ];
    let set = known.into_iter().filter_map(|(label, variable)| {
        let value = std::env::var(variable)
            .ok()
            .filter(|value| !value.is_empty())?;
        Some((label, value))
    });
    set.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_the_net_or_of_the_file_system() {
        let net = "127.0.0.1:9100".parse().map(Address::Net).unwrap();
        assert_eq!("127.0.0.1:9100".parse(), Ok(net));
        assert_eq!("unix:/a b".parse(), Ok(Address::Unix("/a b".into())));
        assert!("[::1]:80".parse::<Address>().is_ok());
        for wrong in ["", "9100", "localhost:9100", "unix:", "127.0.0.1"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn requests_are_for_the_metrics_or_refused() {
        let metrics = |format, head| Some(Request::Metrics { format, head });
        let get = |path: &str, accept: &str| {
            parse(format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n").as_bytes())
        };
        assert_eq!(get("/metrics", "*/*"), metrics(Format::Text, false));
        let open = "application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1";
        assert_eq!(
            get("/metrics?x=1", open),
            metrics(Format::OpenMetrics, false)
        );
        assert_eq!(
            get("/etc/passwd", "*/*"),
            Some(Request::Other("404 Not Found"))
        );
        assert_eq!(
            parse(b"HEAD / HTTP/1.0\r\n\r\n"),
            metrics(Format::Text, true)
        );
        assert_eq!(
            parse(b"PUT /metrics HTTP/1.1\r\n\r\n"),
            Some(Request::Other("405 Method Not Allowed"))
        );
        assert_eq!(
            parse(b"\x16\x03\x01\x00"),
            Some(Request::Other("400 Bad Request"))
        );
        assert_eq!(parse(b"GET /metrics HTTP/1.1\r\nHost:"), None);
    }
}
