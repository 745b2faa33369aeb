//! What the tests of the swap slots share: a device in memory that processes share, and random
//! numbers.
#![allow(dead_code, reason = "each test uses its part")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32};
use uzswap_slots::Slots;

/// Zeroed memory that other processes can map.
pub struct Shared {
    start: NonNull<u8>,
    len: usize,
    #[cfg(not(miri))]
    file: std::fs::File,
}

// SAFETY: the memory is reached as atomics alone.
unsafe impl Sync for Shared {}
// SAFETY: as above; the mapping belongs to no thread.
unsafe impl Send for Shared {}

#[cfg(not(miri))]
impl Shared {
    pub fn new(len: usize) -> Self {
        use std::os::fd::FromRawFd;
        let fd = uzswap_sys::file::memfd_create(c"slots", 0).unwrap();
        // SAFETY: just opened, and nobody else's.
        let file = unsafe { std::fs::File::from_raw_fd(fd) };
        file.set_len(len as u64).unwrap();
        Self::of(file, len)
    }

    /// The memory that another process named with [`Shared::path`].
    pub fn open(path: &str, len: usize) -> Self {
        let mut options = std::fs::File::options();
        Self::of(options.read(true).write(true).open(path).unwrap(), len)
    }

    pub fn path(&self) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    fn of(file: std::fs::File, len: usize) -> Self {
        use std::os::fd::AsRawFd;
        use uzswap_sys::mem;
        let (prot, fd) = (mem::PROT_READ | mem::PROT_WRITE, file.as_raw_fd());
        // SAFETY: a mapping where the kernel likes.
        let start = unsafe { mem::mmap(0, len, prot, mem::MAP_SHARED, fd, 0) };
        Self {
            start: NonNull::new(std::ptr::with_exposed_provenance_mut(start.unwrap())).unwrap(),
            len,
            file,
        }
    }
}

#[cfg(not(miri))]
impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped in `of`, and whoever used it borrowed `self`.
        unsafe { uzswap_sys::mem::munmap(self.start.as_ptr() as usize, self.len).unwrap() };
    }
}

#[cfg(miri)]
impl Shared {
    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len, 4096).unwrap()
    }

    pub fn new(len: usize) -> Self {
        // SAFETY: not of length 0.
        let start = unsafe { std::alloc::alloc_zeroed(Self::layout(len)) };
        Self {
            start: NonNull::new(start).unwrap(),
            len,
        }
    }
}

#[cfg(miri)]
impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), Self::layout(self.len)) };
    }
}

impl Shared {
    /// The memory as words, as many as fit.
    pub fn words(&self) -> &[AtomicU32] {
        // SAFETY: aligned to a page, long enough, and atomics take any bits.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len / 4) }
    }

    /// The memory as bytes.
    pub fn counts(&self) -> &[AtomicU8] {
        // SAFETY: valid for `len` bytes, and atomics take any bits.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len) }
    }

    /// The memory as bytes, when nobody else has it.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: valid for `len` bytes, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// One device in memory of its own.
pub struct Ground {
    pub memory: Shared,
    nr_slots: u32,
}

impl Ground {
    pub fn new(nr_slots: u32) -> Self {
        let memory = Shared::new(Slots::memory_len(nr_slots));
        Self { memory, nr_slots }
    }

    /// The device whose memory another process made.
    #[cfg(not(miri))]
    pub fn open(path: &str, nr_slots: u32) -> Self {
        let memory = Shared::open(path, Slots::memory_len(nr_slots));
        Self { memory, nr_slots }
    }

    pub fn slots<'m>(&'m self, is_alive: &'m (dyn Fn(usize) -> bool + Sync)) -> Slots<'m> {
        // SAFETY: zeroed at first, aligned to a page, long enough, and used for nothing else.
        unsafe { Slots::attach(self.memory.start.as_ptr(), self.nr_slots, is_alive) }
    }
}

/// Everybody lives.
pub fn all_alive(_: usize) -> bool {
    true
}

/// xorshift64*, so that a seed tells a run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }
}

/// A seed for this run: `UZSWAP_SEED`, or from the clock; printed so that a failure can be
/// repeated.
pub fn seed() -> u64 {
    let seed = std::env::var("UZSWAP_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(1, |now| u64::from(now.subsec_nanos()))
        });
    println!("UZSWAP_SEED={seed}");
    seed
}

/// Whether the long form of the tests was asked for.
pub fn long() -> bool {
    std::env::var_os("UZSWAP_LONG").is_some()
}
