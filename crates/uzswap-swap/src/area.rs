//! *What*: a swap area: its size limits, its signature, and its open file.
//!
//! *Invariants*: slots never overlap the header. The signature is therefore there as long as the
//! area is a swap area; anything else that is made of it (a file system, an archive) overwrites it.
//! *Locking*: flock on the file. *Context*: `uzswap run`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use uzswap_io::{HEADER_SLOTS, MAX_DEVICE_SLOTS, SLOT};

use crate::os;
use crate::size::Size;
use crate::{disk, plain};

const SLOT_BYTES: u64 = SLOT as u64;
/// Bytes before the first slot.
pub const HEADER: u64 = HEADER_SLOTS * SLOT_BYTES;
/// The smallest usable area, bytes: one cluster of slots.
pub const MIN_LEN: u64 = 512 * SLOT_BYTES;
/// The kernel's signature of a swap area, the last bytes of its first page.
pub const SIGNATURE: &[u8] = b"SWAPSPACE2";

/// An open swap area.
#[derive(Debug)]
pub struct SwapArea {
    /// Open for reading and writing, close-on-exec. Holds the lock. Of a remote area, the memory of
    /// the exchange with its broker.
    pub file: File,
    /// Its name in messages.
    pub path: PathBuf,
    /// Slots, the header not counted.
    pub nr_slots: u64,
    /// Areas of higher priority are filled first.
    pub priority: i32,
    /// On a rotating disk.
    pub rotational: bool,
    /// Opened with `O_DIRECT`: buffers must be aligned.
    pub direct: bool,
    /// In memory of other machines.
    pub remote: bool,
}

/// How large areas may become.
#[derive(Clone, Debug)]
pub struct Limits {
    /// `--swap-max`, bytes.
    pub max: Option<u64>,
    /// `RLIMIT_FSIZE`, bytes: a write beyond it would raise SIGXFSZ in the program.
    pub file_size: u64,
    /// Disks of this run's areas so far, and the bytes by which each area may still grow.
    pub promised: Vec<(u64, u64)>,
}

impl Limits {
    /// The limits of this process and its children.
    pub fn of_process(max: Option<Size>) -> Result<Limits> {
        if let Some(max) = max.filter(|max| max.0 < MIN_LEN) {
            bail!(
                "--swap-max {max} is too small: give at least {}, or --swap none for no swap",
                Size(MIN_LEN)
            );
        }
        Ok(Limits {
            max: max.map(|max| max.0),
            file_size: os::limit(libc::RLIMIT_FSIZE),
            promised: Vec::new(),
        })
    }

    /// Counts `area`'s growth against the free space of its disk.
    pub fn promise(&mut self, area: &SwapArea) {
        if let Ok(meta) = area.file.metadata()
            && meta.is_file()
        {
            let has = meta.blocks() * 512;
            self.promised
                .push((meta.dev(), meta.len().saturating_sub(has)));
        }
    }

    /// Slots of a new file on disk `dev`, which has `free` bytes: half of these, or `--swap-max`.
    pub fn of_new_file(&self, dev: u64, free: u64) -> Result<u64> {
        let on_disk = self.promised.iter().filter(|(disk, _)| *disk == dev);
        let promised = on_disk.map(|(_, bytes)| bytes).sum();
        let wanted = self.max.unwrap_or((free / 2).saturating_sub(promised));
        let allowed = self.file_size.saturating_sub(HEADER);
        if allowed < MIN_LEN {
            bail!(
                "files may have only {}: raise 'ulimit -f'",
                Size(self.file_size)
            );
        }
        if promised > 0 && wanted < MIN_LEN {
            bail!(
                "another --swap already takes half of the free space of its disk: limit each by --swap-max"
            );
        }
        if free < MIN_LEN || wanted < MIN_LEN {
            bail!("only {} free", Size(free));
        }
        Ok(slots(wanted.min(allowed)))
    }

    /// Slots of an existing area of `len` bytes, header included.
    pub fn of_area(&self, len: u64) -> Result<u64> {
        let len = len.saturating_sub(HEADER);
        if len < MIN_LEN {
            bail!("too small: it needs at least {}", Size(HEADER + MIN_LEN));
        }
        Ok(slots(self.max.map_or(len, |max| max.min(len))))
    }
}

fn slots(bytes: u64) -> u64 {
    (bytes / SLOT_BYTES).min(MAX_DEVICE_SLOTS)
}

/// A slot, aligned for `O_DIRECT`.
#[repr(align(4096))]
struct Slot([u8; SLOT]);

impl SwapArea {
    /// Makes a swap area of the empty `file`.
    pub fn new(file: File, path: &Path, nr_slots: u64) -> Result<SwapArea> {
        file.set_len(HEADER + nr_slots * SLOT_BYTES)
            .map_err(|error| anyhow!("{}", plain(&error)))?;
        SwapArea::settle(file, path, nr_slots, &Slot(signed(nr_slots)))
    }

    /// Opens the swap area of `nr_slots` slots in `file`, if it has the signature of one.
    pub fn existing(file: File, path: &Path, nr_slots: u64) -> Result<SwapArea> {
        let mut first = Slot([0; SLOT]);
        file.read_exact_at(&mut first.0, 0)
            .context("cannot be read")?;
        if !first.0.ends_with(SIGNATURE) {
            bail!(
                "holds data that is not a swap area: prepare it with 'mkswap {}', which destroys the \
                 data, or name another",
                path.display()
            );
        }
        SwapArea::settle(file, path, nr_slots, &first)
    }

    /// Writes the first slot, to find out whether the area is writable, and with `O_DIRECT`.
    fn settle(file: File, path: &Path, nr_slots: u64, first: &Slot) -> Result<SwapArea> {
        let meta = file.metadata()?;
        // The disk of a file is its file system's, a block device is a disk itself.
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
            remote: false,
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

/// The first slot of a swap area in the kernel's format: version 1, last page, label.
#[must_use]
pub fn signed(nr_slots: u64) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    let last = u32::try_from(HEADER_SLOTS + nr_slots - 1).unwrap_or(u32::MAX);
    let mut put = |at: usize, bytes: &[u8]| slot[at..at + bytes.len()].copy_from_slice(bytes);
    put(1024, &1_u32.to_le_bytes());
    put(1028, &last.to_le_bytes());
    put(1052, b"uzswap");
    put(SLOT - SIGNATURE.len(), SIGNATURE);
    slot
}

/// Sets or clears `O_DIRECT`; false if the file does not support it.
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

/// Keeps other groups from using the same file, for as long as it is open anywhere. The runs of a
/// group share the lock.
pub fn lock_first(file: &File) -> Result<()> {
    locked(os::lock(file))?;
    lock(file)
}

/// As [`lock_first`], for what this group has already.
pub fn lock(file: &File) -> Result<()> {
    locked(os::lock_shared(file))
}

fn locked(result: io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            bail!("in use by another uzswap: name another")
        }
        // Without locks nobody else can be detected: assume that there is nobody.
        Err(error) if error.raw_os_error() == Some(libc::ENOLCK) => Ok(()),
        locked => locked.map_err(|error| anyhow!("cannot be locked: {}", plain(&error))),
    }
}
