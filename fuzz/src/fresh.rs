//! *What*: [`Fresh`], large memory of zeroes that is given back to the kernel before each input.

use std::ptr::NonNull;

use uzswap_sys::mem::{
    MADV_DONTNEED, MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE, madvise, mmap,
};

/// Pages, never given back: a thread has one for all its inputs.
pub struct Fresh {
    start: NonNull<u8>,
    len: usize,
}

impl Fresh {
    /// `len` bytes, rounded up to pages.
    pub fn new(len: usize) -> Self {
        let (prot, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        // SAFETY: a new mapping where the kernel likes.
        let start = unsafe { mmap(0, len, prot, flags, -1, 0) }.expect("address space");
        let start = std::ptr::with_exposed_provenance_mut(start);
        Fresh {
            start: NonNull::new(start).expect("not at 0"),
            len,
        }
    }

    /// Where it begins; all of it is zero.
    pub fn zeroed(&mut self) -> *mut u8 {
        let (start, len) = (self.start.as_ptr(), self.len);
        // SAFETY: our own mapping, which nothing borrows: `&mut self`.
        unsafe { madvise(start.expose_provenance(), len, MADV_DONTNEED) }.expect("our own memory");
        start
    }
}
