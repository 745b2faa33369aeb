//! *What*: swap areas on block devices that the user named.
//!
//! *Locking*: O_EXCL claims the device. *Context*: `uzswap run`.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Result, anyhow, bail};

use crate::area::{Limits, SwapArea};
use crate::{disk, plain};

/// The block device `path`, if it is unused and a swap area.
pub fn given(path: &Path, limits: &Limits) -> Result<SwapArea> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        // On a block device O_EXCL claims it, as mount and swapon do.
        .custom_flags(libc::O_EXCL)
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => {
                anyhow!("mounted, or in use as swap or by another device: name another")
            }
            _ => anyhow!("{}", plain(&error)),
        })?;
    if disk::is_memory_device(Path::new("/sys"), file.metadata()?.rdev()) {
        bail!("it is a RAM disk, which is memory itself: name one on a disk");
    }
    let len = file.seek(SeekFrom::End(0))?;
    SwapArea::existing(file, path, limits.of_area(len)?)
}
