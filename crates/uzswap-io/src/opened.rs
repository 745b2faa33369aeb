//! *What*: [`Opened`], the medium of a swap device in a program: a descriptor, or a remote device.
//!
//! *Invariants*, *Locking*, *Context*: as each medium's.

use uzswap_sys::Errno;

use crate::device::{Fd, Kind, Medium};
use crate::exchange::Op;
use crate::remote::Remote;

/// What a swap device is open as.
#[derive(Debug)]
pub enum Opened {
    /// A file or a block device.
    Fd(Fd),
    /// Memory of other machines.
    Remote(Remote),
}

impl Medium for Opened {
    fn new(fd: i32) -> Self {
        Opened::Fd(Fd::new(fd))
    }

    fn kind(&self) -> Result<Kind, Errno> {
        match self {
            Opened::Fd(fd) => fd.kind(),
            Opened::Remote(_) => Ok(Kind::Remote),
        }
    }

    fn descriptor(&self) -> i32 {
        match self {
            Opened::Fd(fd) => fd.descriptor(),
            Opened::Remote(_) => -1,
        }
    }

    fn remote(&self) -> Option<Remote> {
        match self {
            Opened::Fd(_) => None,
            Opened::Remote(remote) => Some(*remote),
        }
    }

    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        match self {
            Opened::Fd(fd) => fd.pread(buffer, offset),
            Opened::Remote(remote) => remote.pread(buffer, offset, Op::Read),
        }
    }

    fn pwrite(&self, buffer: &[u8], offset: u64) -> Result<usize, Errno> {
        match self {
            Opened::Fd(fd) => fd.pwrite(buffer, offset),
            Opened::Remote(remote) => remote.pwrite(buffer, offset),
        }
    }

    fn discard(&self, kind: Kind, offset: u64, len: u64) -> Result<(), Errno> {
        match self {
            Opened::Fd(fd) => fd.discard(kind, offset, len),
            Opened::Remote(remote) => remote.discard(offset, len),
        }
    }
}
