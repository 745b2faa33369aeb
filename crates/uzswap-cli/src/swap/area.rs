//! *What*: a swap area: its limits, its signature, and the descriptor that the device is made on.
//! *Invariants*: slot data never touches the header, so the signature is there for as long as the area is
//! one; whatever else comes to live there (a file system, an archive) overwrites it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use uzswap_io::{HEADER_SLOTS, MAX_DEVICE_SLOTS, SLOT};

use super::{disk, plain};
use crate::size::Size;

const SLOT_BYTES: u64 = SLOT as u64;
/// Bytes before the first slot.
pub const HEADER: u64 = HEADER_SLOTS * SLOT_BYTES;
/// The least that is worth using, bytes: one cluster of slots.
pub const LEAST: u64 = 512 * SLOT_BYTES;
/// The kernel's signature of a swap area, the last bytes of its first page.
const SIGNATURE: &[u8] = b"SWAPSPACE2";

/// An open swap area.
#[derive(Debug)]
pub struct SwapArea {
    /// Open for reading and writing, close-on-exec; what holds the area for us.
    pub file: File,
    /// What to call it.
    pub path: PathBuf,
    /// Slots, the header not counted.
    pub nr_slots: u64,
    /// The higher, the earlier it is filled.
    pub priority: i32,
    /// On a disk that turns.
    pub rotational: bool,
    /// Opened with `O_DIRECT`: buffers must be aligned.
    pub direct: bool,
}

/// How large an area may become.
#[derive(Clone, Debug)]
pub struct Limits {
    /// `--swap-max`, bytes.
    pub max: Option<u64>,
    /// `RLIMIT_FSIZE`, bytes: writing beyond it would signal the program.
    pub file_size: u64,
    /// Disks that areas of this run are on already, and bytes by which these may grow.
    pub promised: Vec<(u64, u64)>,
}

impl Limits {
    /// Of this process and what comes from it.
    pub fn of_process(max: Option<Size>) -> Result<Limits> {
        if let Some(max) = max.filter(|max| max.0 < LEAST) {
            bail!(
                "--swap-max {max} is too small: the least is {}; --swap none for no swap",
                Size(LEAST)
            );
        }
        let mut limit = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: the call fills the structure; if it fails, the structure says that there is no limit.
        let _ = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
        Ok(Limits {
            max: max.map(|max| max.0),
            file_size: limit.rlim_cur,
            promised: Vec::new(),
        })
    }

    /// `area` is taken: what others take of its disk is beside it.
    pub fn promise(&mut self, area: &SwapArea) {
        if let Ok(meta) = area.file.metadata()
            && meta.is_file()
        {
            let has = meta.blocks() * 512;
            self.promised
                .push((meta.dev(), meta.len().saturating_sub(has)));
        }
    }

    /// Slots of a new file on disk `dev`, where `free` bytes are: half of these, or `--swap-max`.
    pub fn of_new_file(&self, dev: u64, free: u64) -> Result<u64> {
        let on_disk = self.promised.iter().filter(|(disk, _)| *disk == dev);
        let promised = on_disk.map(|(_, bytes)| bytes).sum();
        let wanted = self.max.unwrap_or((free / 2).saturating_sub(promised));
        let allowed = self.file_size.saturating_sub(HEADER);
        if allowed < LEAST {
            bail!("files are limited to {} (ulimit -f)", Size(self.file_size));
        }
        if promised > 0 && wanted < LEAST {
            bail!(
                "another --swap takes half of what is free on its disk already: limit each by --swap-max"
            );
        }
        if free < LEAST || wanted < LEAST {
            bail!("only {} free", Size(free));
        }
        Ok(slots(wanted.min(allowed)))
    }

    /// Slots of an area that is there already, `len` bytes with its header.
    pub fn of_area(&self, len: u64) -> Result<u64> {
        let len = len.saturating_sub(HEADER);
        if len < LEAST {
            bail!("too small: the least is {}", Size(HEADER + LEAST));
        }
        Ok(slots(self.max.map_or(len, |max| max.min(len))))
    }
}

fn slots(bytes: u64) -> u64 {
    (bytes / SLOT_BYTES).min(MAX_DEVICE_SLOTS)
}

/// One slot where `O_DIRECT` wants it.
#[repr(align(4096))]
struct Slot([u8; SLOT]);

impl SwapArea {
    /// Makes the new, empty `file` a swap area.
    pub fn new(file: File, path: &Path, nr_slots: u64) -> Result<SwapArea> {
        file.set_len(HEADER + nr_slots * SLOT_BYTES)
            .map_err(|error| anyhow::anyhow!("{}", plain(&error)))?;
        SwapArea::settle(file, path, nr_slots, &Slot(signed(nr_slots)))
    }

    /// Takes `file`, which bears a swap area of `nr_slots` slots or is refused.
    pub fn existing(file: File, path: &Path, nr_slots: u64) -> Result<SwapArea> {
        let mut first = Slot([0; SLOT]);
        file.read_exact_at(&mut first.0, 0)
            .context("cannot be read")?;
        if !first.0.ends_with(SIGNATURE) {
            bail!(
                "holds something that is no swap area: prepare it with 'mkswap {}', which loses what is \
                 in it, or name another",
                path.display()
            );
        }
        SwapArea::settle(file, path, nr_slots, &first)
    }

    /// Writes the first slot, to see whether the area can be written at all, and whether directly.
    fn settle(file: File, path: &Path, nr_slots: u64, first: &Slot) -> Result<SwapArea> {
        let meta = file.metadata()?;
        // A block device is what its own number says, a file what its file system is on.
        let dev = if meta.is_file() {
            meta.dev()
        } else {
            meta.rdev()
        };
        let mut area = SwapArea {
            direct: set_direct(&file, true),
            rotational: disk::is_rotational(Path::new("/sys"), dev),
            path: path.to_owned(),
            file,
            nr_slots,
            priority: 0,
        };
        let mut written = area.file.write_all_at(&first.0, 0);
        if area.direct && written.is_err() {
            area.direct = !set_direct(&area.file, false);
            written = area.file.write_all_at(&first.0, 0);
        }
        match written {
            Ok(()) => Ok(area),
            Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => {
                bail!("in use as swap by the kernel: name another, or 'swapoff' it first")
            }
            Err(error) => bail!("{}", plain(&error)),
        }
    }
}

/// The first slot of a swap area, as the kernel has it: version 1, the last page, a label.
fn signed(nr_slots: u64) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    let last = u32::try_from(HEADER_SLOTS + nr_slots - 1).unwrap_or(u32::MAX);
    let mut put = |at: usize, bytes: &[u8]| slot[at..at + bytes.len()].copy_from_slice(bytes);
    put(1024, &1_u32.to_le_bytes());
    put(1028, &last.to_le_bytes());
    put(1052, b"uzswap");
    put(SLOT - SIGNATURE.len(), SIGNATURE);
    slot
}

/// Switches `O_DIRECT`; false if this file has no such thing.
fn set_direct(file: &File, on: bool) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: a command without pointers on a descriptor that is open.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    let flags = if on {
        flags | libc::O_DIRECT
    } else {
        flags & !libc::O_DIRECT
    };
    // SAFETY: as above.
    unsafe { libc::fcntl(fd, libc::F_SETFL, flags) == 0 }
}

/// Keeps other runs from using the same file, for as long as it is open anywhere.
pub fn lock(file: &File) -> Result<()> {
    // SAFETY: no pointers; the descriptor is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => {
            bail!("in use by another uzswap: name another")
        }
        // A file system without locks: nobody else can be told, so do as if asked nothing.
        error if error.raw_os_error() == Some(libc::ENOLCK) => Ok(()),
        error => bail!("cannot be locked: {}", plain(&error)),
    }
}
