//! Zeroed memory that processes could share.

use std::io;
use std::ptr::NonNull;

use anyhow::{Context, Result};

/// A shared mapping, of small pages like those of a file.
pub(super) struct Shared {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: shared references give only the pointer, whose users state what they need.
unsafe impl Sync for Shared {}
// SAFETY: a mapping belongs to no thread.
unsafe impl Send for Shared {}

impl Shared {
    /// Maps `len` bytes.
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

    /// The memory, borrowed exclusively.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: valid for `len` bytes as long as `self`, which is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; whoever uses it borrows `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
