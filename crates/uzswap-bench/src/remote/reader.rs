//! *What*: how pages are read: from a swap device as programs read it, or by a client that does
//! nothing else, which is the limit.
//!
//! *Invariants*: every slot that was read begins with its own number, or it is an error.
//! *Locking*: none. *Context*: threads of the bench command.

use std::io::{Read, Write};

use anyhow::{Context, Result, bail, ensure};
use uzswap_io::exchange::CLUSTER_LEN;
use uzswap_io::opened::Opened;
use uzswap_io::{Device, Extent, HEADER_SLOTS, Queue, SLOT};
use uzswap_remote::url::Address;

use super::servers::Kind;
use super::socket::{self, Socket};

/// Reads extents, one after the other into a buffer that is aligned to slots.
pub trait Reader: Send {
    /// Reads all of them at the same time.
    ///
    /// # Errors
    /// One cannot be read.
    fn read(&mut self, extents: &[Extent], buffer: &mut [u8]) -> Result<()>;
}

/// Reads a swap device.
pub struct OfDevice<'a> {
    device: &'a Device<Opened>,
    queue: Queue,
}

impl<'a> OfDevice<'a> {
    /// Of `device`.
    pub fn new(device: &'a Device<Opened>) -> Self {
        let queue = Queue::new();
        Self { device, queue }
    }
}

impl Reader for OfDevice<'_> {
    fn read(&mut self, extents: &[Extent], buffer: &mut [u8]) -> Result<()> {
        let queue = Some(&mut self.queue);
        let read = self.device.read_extents(queue, extents, buffer);
        read.map_err(|error| anyhow::anyhow!("cannot read: {error:?}"))
    }
}

/// Asks a server by one connection.
pub struct Bare {
    socket: Socket,
    kind: Kind,
    /// What keys begin with.
    stem: String,
    requests: Vec<u8>,
    /// Of an answer: what came and was not taken yet.
    head: Vec<u8>,
}

impl Bare {
    /// Connects to the server of that kind at `address`; keys begin with `stem`.
    ///
    /// # Errors
    /// It does not answer.
    pub fn connect(kind: Kind, address: &Address, stem: &str) -> Result<Self> {
        let mut socket = socket::connect(address)?;
        if kind == Kind::Nbd {
            shake_hands(&mut socket).context("no NBD server")?;
        }
        Ok(Self {
            socket,
            kind,
            stem: stem.to_owned(),
            requests: Vec::new(),
            head: Vec::new(),
        })
    }

    fn ask(&mut self, extent: Extent, number: u64) {
        let slots = CLUSTER_LEN / SLOT as u64;
        let len = extent.bytes();
        if self.kind == Kind::Nbd {
            let offset = (HEADER_SLOTS + extent.slot) * SLOT as u64;
            self.requests.extend(0x2560_9513_u32.to_be_bytes());
            self.requests.extend([0; 4]);
            self.requests.extend(number.to_be_bytes());
            self.requests.extend(offset.to_be_bytes());
            self.requests
                .extend(u32::try_from(len).unwrap_or(0).to_be_bytes());
            return;
        }
        let key = format!("{}:{}", self.stem, extent.slot / slots);
        let at = extent.slot % slots * SLOT as u64;
        let [first, last] = [at, at + len as u64 - 1].map(|at| at.to_string());
        let words = ["GETRANGE", &key, &first, &last].map(str::as_bytes);
        crate::resp::request(&mut self.requests, &words);
    }

    /// Where in `parts` the next answer belongs, and its data.
    fn take(&mut self, next: usize, parts: &mut [Option<&mut [u8]>]) -> Result<()> {
        let at = match self.kind {
            Kind::Nbd => {
                self.fill(16)?;
                let handle: [u8; 8] = self.head[8..16].try_into()?;
                ensure!(
                    self.head[4..8] == [0; 4],
                    "the server answers with an error"
                );
                self.head.drain(..16);
                usize::try_from(u64::from_be_bytes(handle))?
            }
            _ => {
                let mut want = 4;
                let end = loop {
                    self.fill(want)?;
                    match self.head.windows(2).position(|pair| pair == b"\r\n") {
                        Some(end) => break end,
                        None => want = self.head.len() + 1,
                    }
                };
                let len = parts[next].as_ref().map_or(0, |part| part.len());
                let line = std::str::from_utf8(&self.head[..end])?;
                ensure!(line == format!("${len}"), "the server answers {line}");
                self.head.drain(..end + 2);
                next
            }
        };
        let Some(part) = parts.get_mut(at).and_then(Option::take) else {
            bail!("an answer to nothing");
        };
        let have = self.head.len().min(part.len());
        part[..have].copy_from_slice(&self.head[..have]);
        self.head.drain(..have);
        self.socket.read_exact(&mut part[have..])?;
        if self.kind != Kind::Nbd {
            self.fill(2)?;
            self.head.drain(..2);
        }
        Ok(())
    }

    /// Has at least `len` bytes in the head.
    fn fill(&mut self, len: usize) -> Result<()> {
        while self.head.len() < len {
            let have = self.head.len();
            self.head.resize(have + (16 << 10), 0);
            let came = self.socket.read(&mut self.head[have..]);
            self.head
                .truncate(have + came.as_ref().copied().unwrap_or(0));
            ensure!(came? > 0, "the server has closed the connection");
        }
        Ok(())
    }
}

impl Reader for Bare {
    fn read(&mut self, extents: &[Extent], buffer: &mut [u8]) -> Result<()> {
        self.requests.clear();
        let mut rest = buffer;
        let mut parts = Vec::with_capacity(extents.len());
        for (extent, number) in extents.iter().zip(0..) {
            self.ask(*extent, number);
            parts.push(rest.split_off_mut(..extent.bytes()));
        }
        self.socket.write_all(&self.requests)?;
        for next in 0..extents.len() {
            self.take(next, &mut parts)?;
        }
        Ok(())
    }
}

/// The shortest handshake of an NBD server, for its default export.
fn shake_hands(socket: &mut Socket) -> Result<()> {
    let mut hello = [0; 18];
    socket.read_exact(&mut hello)?;
    ensure!(hello.starts_with(b"NBDMAGICIHAVEOPT"), "it does not say so");
    // Fixed newstyle without zeroes, then NBD_OPT_EXPORT_NAME of an empty name.
    let mut answer = 3_u32.to_be_bytes().to_vec();
    answer.extend(b"IHAVEOPT");
    answer.extend([1_u32, 0].into_iter().flat_map(u32::to_be_bytes));
    socket.write_all(&answer)?;
    // Size and flags.
    socket.read_exact(&mut [0; 10])?;
    Ok(())
}
