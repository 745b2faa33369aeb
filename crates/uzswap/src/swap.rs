//! *What*: where a pool writes what fits in RAM not even compressed.
//!
//! *Invariants*: as [`uzswap_swap`]: a file in a directory has no name, and goes with the process,
//! however that ends. The engine opens the descriptors that are held here anew, through `/proc`;
//! these stay open for the lock, and the disk space is free when both are closed.
//! *Locking*: flock on the file. *Context*: building and dropping a pool.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use uzswap_group::group::Group;
use uzswap_swap::size::Size;
use uzswap_swap::{Auto, Limits, SwapArea, file, share};

use crate::error::BuildError;

/// Where to swap to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Swap {
    /// An unnamed file in `UZSWAP_SWAP_DIR` or `/var/tmp`; none if that cannot be, as on a file
    /// system in memory.
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
        let refused = |path: &Path, reason: String| BuildError::Swap {
            path: path.to_owned(),
            reason,
        };
        let limits = Limits::of_process(max.map(Size))
            .map_err(|error| refused(Path::new(""), format!("{error:#}")))?;
        let mut notes = Vec::new();
        let auto = Auto::of_environment();
        let path = match (swap, &auto) {
            (Swap::None, _) => return Ok(SwapFile(None)),
            (Swap::Dir(path), _) if !path.is_dir() => {
                return Err(refused(path, "there is no such directory".to_owned()));
            }
            (Swap::Dir(path) | Swap::File(path), _) | (Swap::Auto, Auto::Named(path)) => path,
            (Swap::Auto, Auto::Default(dir)) => {
                return match file::in_directory(dir, &limits, &mut notes) {
                    Ok(area) => SwapFile::share(area, group)
                        .map_err(|error| refused(dir, format!("{error:#}"))),
                    Err(_) => Ok(SwapFile(None)),
                };
            }
        };
        uzswap_swap::named(path, &limits, &mut notes)
            .and_then(|area| SwapFile::share(area, group))
            .map_err(|error| refused(path, format!("{error:#}")))
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
