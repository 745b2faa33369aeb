//! What the tests of the swap slots share: a device in memory that processes share, and random numbers.
#![allow(dead_code, reason = "each test uses its part")]

use std::ptr::NonNull;
use uzswap_core::swap::Slots;

/// The memory of one device, shared with processes forked from this one.
pub struct Ground {
    memory: NonNull<u8>,
    len: usize,
    nr_slots: u32,
}

// SAFETY: the memory is reached through `Slots` alone, which consists of atomics.
unsafe impl Sync for Ground {}
// SAFETY: as above; the mapping belongs to no thread.
unsafe impl Send for Ground {}

fn layout(len: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(len, 4096).unwrap()
}

impl Ground {
    pub fn new(nr_slots: u32) -> Self {
        let len = Slots::memory_len(nr_slots);
        Self {
            memory: map(len),
            len,
            nr_slots,
        }
    }

    pub fn slots<'m>(&'m self, is_alive: &'m (dyn Fn(usize) -> bool + Sync)) -> Slots<'m> {
        // SAFETY: zeroed at first, aligned to a page, long enough, and used for nothing else.
        unsafe { Slots::attach(self.memory.as_ptr(), self.nr_slots, is_alive) }
    }
}

#[cfg(not(miri))]
fn map(len: usize) -> NonNull<u8> {
    use uzswap_sys::mem;
    let flags = mem::MAP_SHARED | mem::MAP_ANONYMOUS | mem::MAP_NORESERVE;
    // SAFETY: a mapping where the kernel likes.
    let start = unsafe { mem::mmap(0, len, mem::PROT_READ | mem::PROT_WRITE, flags, -1, 0) };
    NonNull::new(std::ptr::with_exposed_provenance_mut(start.unwrap())).unwrap()
}

#[cfg(miri)]
fn map(len: usize) -> NonNull<u8> {
    // SAFETY: not of length 0.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout(len)) }).unwrap()
}

impl Drop for Ground {
    fn drop(&mut self) {
        #[cfg(not(miri))]
        // SAFETY: mapped in `map`, and whoever used it borrowed `self`.
        unsafe {
            uzswap_sys::mem::munmap(self.memory.as_ptr() as usize, self.len).unwrap();
        }
        #[cfg(miri)]
        // SAFETY: allocated in `map` with the same layout.
        unsafe {
            std::alloc::dealloc(self.memory.as_ptr(), layout(self.len));
        }
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

/// A seed for this run: `UZSWAP_SEED`, or from the clock; printed so that a failure can be repeated.
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
