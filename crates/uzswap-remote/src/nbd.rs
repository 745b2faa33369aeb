//! *What*: an export of an NBD server: the fixed newstyle handshake, and the transmission phase with
//! simple replies, as <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md> has them.
//!
//! *Invariants*: a connection on which anything went wrong is closed, so that a late reply belongs
//! to nobody. An export is written to only if it is a swap area, or begins with nothing but zeroes.
//! *Locking*: none. *Context*: the broker.

use std::io::{self, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use uzswap_io::exchange::Op;
use uzswap_swap::area::{HEADER, MIN_LEN, SIGNATURE, signed};
use uzswap_swap::size::Size;

use crate::client::{
    CONNECT_TIMEOUT, Client, Job, Outcome, Probe, READ_TIMEOUT, Server, WRITE_TIMEOUT,
};
use crate::url::{Address, Nbd};

const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u32 = 2;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_ERROR: u32 = 1 << 31;
const REP_TLS_REQUIRED: u32 = REP_ERROR | 5;
const REP_UNKNOWN: u32 = REP_ERROR | 6;
const INFO_EXPORT: u16 = 0;
/// The longest reply to an option that a server may send us.
const MAX_OPTION_LEN: u32 = 64 << 10;

const READ_ONLY: u16 = 1 << 1;
const SEND_TRIM: u16 = 1 << 5;
const CAN_MULTI_CONN: u16 = 1 << 8;

const CMD_READ: u16 = 0;
const CMD_WRITE: u16 = 1;
const CMD_TRIM: u16 = 4;
const ENOSPC: u32 = 28;

/// Connections to a server that keeps them consistent with each other.
const MAX_CONNECTIONS: usize = 4;
/// Bytes of replies that are taken at once.
const REPLIES: usize = 64 << 10;

/// A stream of either kind of socket.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn connect(address: &Address) -> io::Result<Stream> {
        match address {
            Address::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
            Address::Tcp(host, port) => {
                let mut last = io::ErrorKind::NotFound.into();
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            return Ok(Stream::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    fn set_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => {
                stream.set_write_timeout(Some(time))?;
                stream.set_read_timeout(Some(time))
            }
            Stream::Unix(stream) => {
                stream.set_write_timeout(Some(time))?;
                stream.set_read_timeout(Some(time))
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(buffer),
            Stream::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn read_array<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_u16(stream: &mut impl Read) -> io::Result<u16> {
    read_array(stream).map(u16::from_be_bytes)
}

fn read_u32(stream: &mut impl Read) -> io::Result<u32> {
    read_array(stream).map(u32::from_be_bytes)
}

fn read_u64(stream: &mut impl Read) -> io::Result<u64> {
    read_array(stream).map(u64::from_be_bytes)
}

/// An export, open.
struct Export {
    stream: BufReader<Stream>,
    len: u64,
    flags: u16,
    /// Requests that are not sent yet.
    requests: Vec<u8>,
    /// What a read brings.
    data: Vec<u8>,
}

impl Export {
    fn connect(nbd: &Nbd) -> Result<Export> {
        let mut stream = Stream::connect(&nbd.server)
            .map_err(|error| anyhow!("no server answers at {}: {error}", nbd.server))?;
        stream.set_timeout(CONNECT_TIMEOUT)?;
        let not_nbd = |_| anyhow!("what answers at {} is no NBD server", nbd.server);
        if read_u64(&mut stream).map_err(not_nbd)? != INIT_MAGIC
            || read_u64(&mut stream).map_err(not_nbd)? != OPTION_MAGIC
        {
            bail!("what answers at {} is no NBD server of today", nbd.server);
        }
        let theirs = read_u16(&mut stream)?;
        if theirs & FIXED_NEWSTYLE == 0 {
            bail!("the server is too old: it has no fixed newstyle handshake");
        }
        let mut hello = (u32::from(FIXED_NEWSTYLE) | NO_ZEROES)
            .to_be_bytes()
            .to_vec();
        let name = nbd.export.as_bytes();
        let name_len = u32::try_from(name.len()).context("the export's name is too long")?;
        hello.extend(OPTION_MAGIC.to_be_bytes());
        hello.extend(OPT_GO.to_be_bytes());
        hello.extend((name_len + 6).to_be_bytes());
        hello.extend(name_len.to_be_bytes());
        hello.extend(name);
        hello.extend(0_u16.to_be_bytes());
        stream.write_all(&hello)?;
        let mut export = None;
        loop {
            if read_u64(&mut stream)? != OPTION_REPLY_MAGIC {
                bail!("the server does not keep to the protocol");
            }
            let (_option, kind, len) = (
                read_u32(&mut stream)?,
                read_u32(&mut stream)?,
                read_u32(&mut stream)?,
            );
            if len > MAX_OPTION_LEN {
                bail!("the server does not keep to the protocol");
            }
            let mut data = vec![0; len as usize];
            stream.read_exact(&mut data)?;
            match kind {
                REP_ACK => break,
                REP_INFO => {
                    if let Some((kind, rest)) = data.split_first_chunk()
                        && u16::from_be_bytes(*kind) == INFO_EXPORT
                        && let Some((len, rest)) = rest.split_first_chunk()
                        && let Some((flags, _)) = rest.split_first_chunk()
                    {
                        export = Some((u64::from_be_bytes(*len), u16::from_be_bytes(*flags)));
                    }
                }
                REP_UNKNOWN => bail!("the server has no export '{}'", nbd.export),
                REP_TLS_REQUIRED => bail!("the server wants TLS, which is not there yet for NBD"),
                error => {
                    let text = String::from_utf8_lossy(&data);
                    bail!("the server refuses the export ({error:#x}): {text}")
                }
            }
        }
        let (len, flags) = export.context("the server does not tell the export's size")?;
        Ok(Export {
            stream: BufReader::with_capacity(REPLIES, stream),
            len,
            flags,
            requests: Vec::new(),
            data: Vec::new(),
        })
    }

    /// Adds a request to those that are sent next.
    fn add(&mut self, kind: u16, handle: u64, offset: u64, len: u32) {
        let mut request = [0; 28];
        request[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        request[6..8].copy_from_slice(&kind.to_be_bytes());
        request[8..16].copy_from_slice(&handle.to_be_bytes());
        request[16..24].copy_from_slice(&offset.to_be_bytes());
        request[24..].copy_from_slice(&len.to_be_bytes());
        self.requests.extend(request);
    }

    /// Sends what was added.
    fn flush(&mut self) -> io::Result<()> {
        let sent = self.stream.get_mut().write_all(&self.requests);
        self.requests.clear();
        sent
    }

    /// Sends a request.
    fn send(&mut self, kind: u16, handle: u64, offset: u64, len: u32) -> io::Result<()> {
        self.add(kind, handle, offset, len);
        self.flush()
    }

    /// The error, 0 for none, and the handle of the next reply.
    fn reply(&mut self) -> io::Result<(u32, u64)> {
        if read_u32(&mut self.stream)? != REPLY_MAGIC {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok((read_u32(&mut self.stream)?, read_u64(&mut self.stream)?))
    }

    /// Sends all, then takes the replies, in whatever order they come.
    fn serve(&mut self, jobs: &mut [Job]) -> io::Result<()> {
        let reads = jobs.iter().any(Job::is_read);
        let time = if reads { READ_TIMEOUT } else { WRITE_TIMEOUT };
        self.stream.get_ref().set_timeout(time)?;
        let mut under_way = 0;
        for (job, handle) in jobs.iter_mut().zip(0..) {
            if job.outcome != Outcome::Open {
                continue;
            }
            let request = *job.request();
            let kind = match request.op {
                Op::Read | Op::ReadCopy => CMD_READ,
                Op::Write => CMD_WRITE,
                Op::Discard if self.flags & SEND_TRIM == 0 => {
                    job.outcome = Outcome::Done;
                    continue;
                }
                Op::Discard => CMD_TRIM,
            };
            let len = u32::try_from(request.len).unwrap_or(0);
            // From here on it may be on its way.
            job.outcome = Outcome::Unknown;
            self.add(kind, handle, request.offset, len);
            if kind == CMD_WRITE {
                self.requests.extend(&job.data);
            }
            under_way += 1;
        }
        self.flush()?;
        for _ in 0..under_way {
            let (error, handle) = self.reply()?;
            let job = usize::try_from(handle).ok().and_then(|at| jobs.get_mut(at));
            let Some(job) = job.filter(|job| job.outcome == Outcome::Unknown) else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            if error == 0 && job.is_read() {
                self.data.resize(job.len(), 0);
                self.stream.read_exact(&mut self.data)?;
                job.put(0, &self.data);
            }
            job.outcome = match error {
                0 => Outcome::Done,
                ENOSPC => Outcome::Full,
                _ if job.is_read() => Outcome::Missing,
                _ => Outcome::Unknown,
            };
        }
        Ok(())
    }
}

/// A connection that is made when it is needed.
struct NbdClient {
    nbd: Nbd,
    export: Option<Export>,
}

impl NbdClient {
    fn export(&mut self) -> Option<&mut Export> {
        if self.export.is_none() {
            self.export = Export::connect(&self.nbd).ok();
        }
        self.export.as_mut()
    }
}

impl Client for NbdClient {
    fn serve(&mut self, jobs: &mut [Job]) {
        let served = self.export().map(|export| export.serve(jobs));
        if !matches!(served, Some(Ok(()))) {
            self.export = None;
        }
        for job in jobs.iter_mut().filter(|job| job.outcome == Outcome::Open) {
            job.outcome = Outcome::NotSent;
        }
    }

    fn probe(&mut self) -> Probe {
        // Nothing of the protocol is a mere question: a byte of the header is read.
        let is_up = self.export().is_some_and(|export| {
            let asked = export.stream.get_ref().set_timeout(READ_TIMEOUT);
            let sent = asked.and_then(|()| export.send(CMD_READ, 0, 0, 512));
            let reply = sent.and_then(|()| export.reply());
            let read = reply.and_then(|_| read_array::<512>(&mut export.stream));
            read.is_ok()
        });
        if !is_up {
            self.export = None;
        }
        Probe {
            is_up,
            has_changed: false,
        }
    }

    fn renew(&mut self, _clusters: &[u64]) {}

    fn remove(&mut self, clusters: &[u64]) {
        let Some(export) = self.export().filter(|it| it.flags & SEND_TRIM != 0) else {
            return;
        };
        let _ = export.stream.get_ref().set_timeout(READ_TIMEOUT);
        for cluster in clusters {
            let begin = HEADER + cluster * uzswap_io::exchange::CLUSTER_LEN;
            let len = uzswap_io::exchange::CLUSTER_LEN.min(export.len.saturating_sub(begin));
            let len = u32::try_from(len).unwrap_or(0);
            let sent = export.send(CMD_TRIM, *cluster, begin, len);
            if len == 0 || sent.and_then(|()| export.reply()).is_err() {
                return;
            }
        }
    }
}

impl Server for Nbd {
    fn client(&self) -> Box<dyn Client> {
        Box::new(NbdClient {
            nbd: self.clone(),
            export: None,
        })
    }

    fn max_clients(&self) -> usize {
        // A server that does not say that its connections see each other's writes gets one.
        match Export::connect(self) {
            Ok(export) if export.flags & CAN_MULTI_CONN != 0 => MAX_CONNECTIONS,
            _ => 1,
        }
    }

    fn renewal(&self) -> Option<Duration> {
        None
    }

    fn open(&self) -> Result<u64> {
        let mut export = Export::connect(self)?;
        if export.flags & READ_ONLY != 0 {
            bail!("the export is read-only");
        }
        if export.len < HEADER + MIN_LEN {
            bail!(
                "the export is too small ({}): it needs at least {}",
                Size(export.len),
                Size(HEADER + MIN_LEN)
            );
        }
        export.send(CMD_READ, 0, 0, u32::try_from(HEADER)?)?;
        let (error, _) = export
            .reply()
            .context("the server does not let it be read")?;
        if error != 0 {
            bail!("the server does not let it be read: error {error}");
        }
        let mut header = vec![0; usize::try_from(HEADER)?];
        export.stream.read_exact(&mut header)?;
        let first = &header[..uzswap_io::SLOT];
        if !first.ends_with(SIGNATURE) && header.iter().any(|byte| *byte != 0) {
            bail!(
                "the export holds data that is not a swap area: prepare it with mkswap, which \
                 destroys the data, or name another"
            );
        }
        let sign = signed((export.len - HEADER) / uzswap_io::SLOT as u64);
        export.send(CMD_WRITE, 1, 0, u32::try_from(sign.len())?)?;
        export.stream.get_mut().write_all(&sign)?;
        match export.reply() {
            Ok((0, _)) => Ok(export.len),
            Ok((error, _)) => bail!("the server does not let it be written: error {error}"),
            Err(error) => bail!("the server does not let it be written: {error}"),
        }
    }
}
