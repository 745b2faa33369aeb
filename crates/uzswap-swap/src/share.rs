//! *What*: what the processes that swap to an area share of it: its description in their group, and
//! the memory of its slot allocator.
//!
//! *Invariants*: the allocator's memory is a memfd, so nothing is left behind when its holders are
//! killed.
//! *Locking*: none here; [`Slots`] has its own. *Context*: before anybody swaps to it.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use uzswap_group::group::DeviceConfig;
use uzswap_slots::Slots;

use crate::area::SwapArea;
use crate::os;

/// Name of the memory file that holds a slot allocator.
const NAME: &CStr = c"uzswap-slots";

/// Describes `area`, whose first slot has number `first`, in `config`, which says already whether
/// its slots remember their writes. Returns its allocator's memory.
///
/// # Errors
/// There is no memory for it.
pub fn share(area: &SwapArea, first: u64, config: &DeviceConfig) -> Result<File> {
    let nr_slots = u32::try_from(area.nr_slots).unwrap_or(u32::MAX);
    let len = config.table_len(nr_slots);
    let table =
        table(nr_slots, len, area.rotational).context("cannot create the swap slot allocator")?;
    let set = |cell: &AtomicU32, value| cell.store(value, Ordering::Relaxed);
    set(&config.direct, area.direct.into());
    set(&config.remote, area.remote.into());
    config.first.store(first, Ordering::Relaxed);
    config.priority.store(area.priority, Ordering::Relaxed);
    config.name.set(&area.path.to_string_lossy());
    config.nr_slots.store(nr_slots.into(), Ordering::Relaxed);
    Ok(table)
}

/// Memory of `len` bytes, with an allocator of `nr_slots` free slots at its beginning.
fn table(nr_slots: u32, len: usize, rotational: bool) -> io::Result<File> {
    let file = os::memory_file(NAME)?;
    file.set_len(len as u64)?;
    let at = os::map_shared(&file, len, true)?.as_ptr();
    // SAFETY: shared memory of that length, page aligned and writable; the allocator attached to it
    // is dropped before it is unmapped.
    unsafe {
        Slots::attach(at.cast(), nr_slots, &|_| true).set_kind(rotational, true);
        libc::munmap(at, len);
    }
    Ok(file)
}
