//! *What*: an export of an NBD server: the transmission phase with simple replies, as
//! <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md> has them.
//!
//! *Invariants*: a connection on which anything went wrong is closed, so that a late reply belongs
//! to nobody. An export is written to only if it is a swap area, or begins with nothing but zeroes.
//! *Locking*: none. *Context*: the broker.

use std::io::{self, BufReader, Read, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use uzswap_io::exchange::Op;
use uzswap_swap::area::{HEADER, MIN_LEN, SIGNATURE, signed};
use uzswap_swap::size::Size;

use crate::client::{Client, Job, Outcome, Probe, READ_TIMEOUT, Server, WRITE_TIMEOUT};
use crate::handshake::{self, Negotiated, read_array, read_u32, read_u64};
use crate::stream::Stream;
use crate::url::Nbd;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

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
        let Negotiated { stream, len, flags } = handshake::negotiate(nbd)?;
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
        let stream = self.stream.get_mut();
        let sent = stream
            .write_all(&self.requests)
            .and_then(|()| stream.flush());
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
        export.stream.get_mut().flush()?;
        match export.reply() {
            Ok((0, _)) => Ok(export.len),
            Ok((error, _)) => bail!("the server does not let it be written: error {error}"),
            Err(error) => bail!("the server does not let it be written: {error}"),
        }
    }
}
