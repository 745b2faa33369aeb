//! Zeroed memory that processes could share.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;

use anyhow::{Context, Result};

/// Such a mapping; the kernel gives it small pages, as a file's.
pub(super) struct Shared {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: shared references give atomics alone, and the pointer, whose users say themselves what they need.
unsafe impl Sync for Shared {}
// SAFETY: the mapping belongs to no thread.
unsafe impl Send for Shared {}

impl Shared {
    /// So many bytes.
    pub(super) fn new(len: usize) -> Result<Self> {
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping, where the kernel likes.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("no memory for a map of slots");
        }
        let start = NonNull::new(start.cast()).context("mapped at 0")?;
        Ok(Self { start, len })
    }

    /// Its first byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The memory, which others may have at the same time.
    pub(super) fn counts(&self) -> &[AtomicU8] {
        // SAFETY: valid for `len` bytes as long as `self`, and atomics take any bits.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len) }
    }

    /// The memory, when nobody else has it.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: valid for `len` bytes as long as `self`, which is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and whoever used it borrowed `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
