//! *What*: where a pool writes what fits in RAM not even compressed.
//!
//! *Invariants*: as [`uzswap_swap`]: a file in a directory has no name, and goes with the process,
//! however that ends. The engine opens the descriptors that are held here anew, through `/proc`;
//! these stay open for the lock, and the disk space is free when both are closed.
//! *Locking*: flock on the file. *Context*: building and dropping a pool.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use uzswap_group::group::Group;
use uzswap_swap::size::Size;
use uzswap_swap::{Auto, Limits, SwapArea, share};

use crate::error::BuildError;

/// Where to swap to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Swap {
    /// An unnamed file in `UZSWAP_SWAP_DIR`, or else in `/var/tmp`; none if the latter cannot be,
    /// as on a file system in memory.
    #[default]
    Auto,
    /// Nowhere: what does not fit ends in SIGBUS.
    None,
    /// An unnamed file in this directory.
    Dir(PathBuf),
    /// This file, empty or prepared by mkswap(8), or a block device with a swap area.
    File(PathBuf),
}

/// The swap file of a pool.
#[derive(Debug)]
pub(crate) struct SwapFile(#[expect(dead_code, reason = "held open")] Option<(File, File)>);

impl SwapFile {
    /// Opens it, and describes it in `group`.
    pub(crate) fn open(
        swap: &Swap,
        max: Option<u64>,
        group: &Group,
    ) -> Result<SwapFile, BuildError> {
        let auto = Auto::of_environment();
        let (path, is_named) = match (swap, auto) {
            (Swap::None, _) => return Ok(SwapFile(None)),
            (Swap::Dir(path) | Swap::File(path), _) => (path.clone(), true),
            (Swap::Auto, Auto::Named(path)) => (path, true),
            (Swap::Auto, Auto::Default(path)) => (path, false),
        };
        let refused = |reason: String| BuildError::Swap {
            path: path.clone(),
            reason,
        };
        let failed = |error: anyhow::Error| refused(format!("{error:#}"));
        match swap {
            Swap::Dir(path) if path.is_file() => return Err(refused("it is a file".to_owned())),
            Swap::File(path) if path.is_dir() => {
                return Err(refused("it is a directory".to_owned()));
            }
            _ => {}
        }
        let limits = Limits::of_process(max.map(Size)).map_err(failed)?;
        match uzswap_swap::named(&path, &limits, &mut Vec::new()) {
            Ok(area) => SwapFile::share(area, group).map_err(failed),
            Err(error) if is_named => Err(failed(error)),
            Err(_) => Ok(SwapFile(None)),
        }
    }

    fn share(area: SwapArea, group: &Group) -> anyhow::Result<SwapFile> {
        let config = &group.config.swap;
        config.encrypt.store(1, Relaxed);
        let [device, ..] = &config.devices;
        let table = share::share(&area, 0, device)?;
        let run = group.run(0);
        let number = |file: &File| file.as_raw_fd().unsigned_abs();
        run.device_fds[0].store(number(&area.file), Relaxed);
        run.table_fds[0].store(number(&table), Relaxed);
        Ok(SwapFile(Some((area.file, table))))
    }
}
