//! *What*: the fixed newstyle handshake of an NBD server, by TLS if asked for, as
//! <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md> has it.
//!
//! *Invariants*: nothing but the request for TLS is sent before that is there.
//! *Locking*: none. *Context*: the broker.

use std::io::{self, Read, Write};

use anyhow::{Context, Result, anyhow, bail};

use crate::client::CONNECT_TIMEOUT;
use crate::stream::Stream;
use crate::url::Nbd;

const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u32 = 2;
const OPT_STARTTLS: u32 = 5;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_ERROR: u32 = 1 << 31;
const REP_TLS_REQUIRED: u32 = REP_ERROR | 5;
const REP_UNKNOWN: u32 = REP_ERROR | 6;
const INFO_EXPORT: u16 = 0;
/// The longest reply to an option that a server may send us.
const MAX_OPTION_LEN: u32 = 64 << 10;

/// An export that was agreed on.
pub struct Negotiated {
    pub stream: Stream,
    pub len: u64,
    pub flags: u16,
}

pub fn read_array<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_u16(stream: &mut impl Read) -> io::Result<u16> {
    read_array(stream).map(u16::from_be_bytes)
}

pub fn read_u32(stream: &mut impl Read) -> io::Result<u32> {
    read_array(stream).map(u32::from_be_bytes)
}

pub fn read_u64(stream: &mut impl Read) -> io::Result<u64> {
    read_array(stream).map(u64::from_be_bytes)
}

/// Sends an option with its data.
fn send(stream: &mut Stream, option: u32, data: &[u8]) -> Result<()> {
    let len = u32::try_from(data.len()).context("the export's name is too long")?;
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend(data);
    stream.write_all(&bytes)?;
    Ok(stream.flush()?)
}

/// Kind and data of the next reply to an option.
fn reply(stream: &mut Stream) -> Result<(u32, Vec<u8>)> {
    const AGAINST: &str = "the server does not keep to the protocol";
    if read_u64(stream)? != OPTION_REPLY_MAGIC {
        bail!(AGAINST);
    }
    let (_option, kind, len) = (read_u32(stream)?, read_u32(stream)?, read_u32(stream)?);
    if len > MAX_OPTION_LEN {
        bail!(AGAINST);
    }
    let mut data = vec![0; len as usize];
    stream.read_exact(&mut data)?;
    Ok((kind, data))
}

/// Connects to a server, and agrees on an export.
///
/// # Errors
/// Why there is none, and what to do.
pub fn negotiate(nbd: &Nbd) -> Result<Negotiated> {
    let mut stream = Stream::connect(&nbd.server)
        .map_err(|error| anyhow!("no server answers at {}: {error}", nbd.server))?;
    stream.set_timeout(CONNECT_TIMEOUT)?;
    let not_nbd = |_| anyhow!("what answers at {} is no NBD server", nbd.server);
    if read_u64(&mut stream).map_err(not_nbd)? != INIT_MAGIC
        || read_u64(&mut stream).map_err(not_nbd)? != OPTION_MAGIC
    {
        bail!("what answers at {} is no NBD server of today", nbd.server);
    }
    if read_u16(&mut stream)? & FIXED_NEWSTYLE == 0 {
        bail!("the server is too old: it has no fixed newstyle handshake");
    }
    let flags = u32::from(FIXED_NEWSTYLE) | NO_ZEROES;
    stream.write_all(&flags.to_be_bytes())?;
    if nbd.tls {
        send(&mut stream, OPT_STARTTLS, &[])?;
        if reply(&mut stream)?.0 != REP_ACK {
            bail!("the server has no TLS: start it with certificates, or write nbd://");
        }
        stream = stream.encrypted(&nbd.server)?;
    }
    let name = nbd.export.as_bytes();
    let name_len = u32::try_from(name.len()).context("the export's name is too long")?;
    // No more is asked of the export than what comes anyway.
    let go = [&name_len.to_be_bytes(), name, &0_u16.to_be_bytes()].concat();
    send(&mut stream, OPT_GO, &go).with_context(|| format!("cannot agree with {}", nbd.server))?;
    let mut export = None;
    loop {
        let (kind, data) = reply(&mut stream)?;
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
            REP_TLS_REQUIRED => bail!("the server wants TLS: write nbds://"),
            error => {
                let text = String::from_utf8_lossy(&data);
                bail!("the server refuses the export ({error:#x}): {text}")
            }
        }
    }
    let (len, flags) = export.context("the server does not tell the export's size")?;
    Ok(Negotiated { stream, len, flags })
}
