//! *What*: the image's program headers, from its file, which uzswap has written.
//!
//! *Invariants*: none: what the file says is where the image goes, in a process that cannot run
//! otherwise. *Locking*: none. *Context*: the tracer.

use core::ffi::CStr;

use uzswap_core::page::narrow;
use uzswap_sys::Errno;
use uzswap_sys::file::{self, AT_FDCWD, O_CLOEXEC, O_RDONLY};
use uzswap_sys::mem::{PROT_EXEC, PROT_READ, PROT_WRITE};

const MAX_SEGMENTS: usize = 8;
const PT_LOAD: u32 = 1;

/// A part of the image.
#[derive(Clone, Copy, Default)]
pub struct Segment {
    /// First address.
    pub start: usize,
    /// Bytes.
    pub len: usize,
    /// Bytes from the file; the others are zero.
    pub file_len: usize,
    /// Where they are in the file.
    pub offset: usize,
    /// `PROT_` bits.
    pub prot: usize,
}

/// The image.
pub struct Image {
    /// Its first instruction.
    pub entry: usize,
    segments: [Segment; MAX_SEGMENTS],
    nr: usize,
}

impl Image {
    /// Reads the headers of the file at `path`, which ends in a zero byte.
    ///
    /// # Errors
    /// As open(2); `ENOEXEC`: it is not an image.
    pub fn read(path: &[u8]) -> Result<Image, Errno> {
        let path = CStr::from_bytes_until_nul(path).map_err(|_| Errno::ENOENT)?;
        let fd = file::openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0)?;
        let mut head = [0_u8; 1024];
        let read = file::pread(fd, &mut head, 0);
        let _ = file::close(fd);
        read?;
        Self::parse(&head).ok_or(Errno::ENOEXEC)
    }

    fn parse(head: &[u8]) -> Option<Image> {
        const HEADER_LEN: usize = 56;
        let word = |at: usize| Some(narrow(u64::from_le_bytes(*head.get(at..)?.first_chunk()?)));
        let half = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let count = u16::from_le_bytes(*head.get(56..)?.first_chunk()?);
        let first = word(32)?;
        let mut image = Image {
            entry: word(24)?,
            segments: [Segment::default(); MAX_SEGMENTS],
            nr: 0,
        };
        for n in 0..usize::from(count) {
            let at = first + n * HEADER_LEN;
            if half(at)? != PT_LOAD {
                continue;
            }
            *image.segments.get_mut(image.nr)? = Segment {
                offset: word(at + 8)?,
                start: word(at + 16)?,
                file_len: word(at + 32)?,
                len: word(at + 40)?,
                prot: prot(half(at + 4)?),
            };
            image.nr += 1;
        }
        (image.nr > 0).then_some(image)
    }

    /// Its parts.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().take(self.nr)
    }
}

/// Flags of a program header as mmap(2) takes them.
fn prot(flags: u32) -> usize {
    [(4, PROT_READ), (2, PROT_WRITE), (1, PROT_EXEC)]
        .into_iter()
        .filter(|(flag, _)| flags & flag != 0)
        .fold(0, |bits, (_, bit)| bits | bit.unsigned_abs() as usize)
}
