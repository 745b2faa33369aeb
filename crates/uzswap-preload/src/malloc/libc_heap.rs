//! *What*: a small heap outside the arena, for what libc itself allocates.
//!
//! Slabs of 64 KiB, each cut into blocks of one size class, from one reserved range; free blocks
//! are chained through their first word. It is bounded: when the budget is used up the caller gets
//! managed memory instead.
//!
//! *Invariants*: a slab keeps its class for good; [`CLASS_OF`] says which, 0 while it is not in
//! use. Every block of a slab is allocated, on its class's chain, or above the class's `fresh`
//! mark.
//! *Locking*: one leaf lock a class. [`hold`] takes all of them across a fork.
//! *Context*: the program's.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use uzswap_sync::lock::{Lock, LockGuard};
use uzswap_sys::{mem, thread};

const SLAB: usize = 64 << 10;
const NR_SLABS: usize = 512;
const RANGE: usize = SLAB * NR_SLABS;
/// Largest block.
const MAX_SIZE: usize = SLAB;
/// Eight classes 16 bytes apart, then four to each power of two.
const NR_CLASSES: usize = 8 + 4 * 9;
/// Bytes that may be used before the limit is known.
const MIN_BUDGET: usize = 1 << 20;

/// First address of the range; 0: there is none.
static START: AtomicUsize = AtomicUsize::new(0);
static NR_USED: AtomicUsize = AtomicUsize::new(0);
/// Slabs that may be used.
static BUDGET: AtomicUsize = AtomicUsize::new(MIN_BUDGET / SLAB);
/// Class of each slab, plus 1.
static CLASS_OF: [AtomicU8; NR_SLABS] = [const { AtomicU8::new(0) }; NR_SLABS];
static CLASSES: [Lock<Class>; NR_CLASSES] = [const { Lock::new(Class::new()) }; NR_CLASSES];

/// What is free in a class.
struct Class {
    /// First free block; each holds the address of the next.
    chain: *mut *mut c_void,
    /// Blocks never used yet: the rest of the newest slab.
    fresh: usize,
    fresh_end: usize,
}

// SAFETY: the blocks on the chain belong to the class, whichever thread holds its lock.
unsafe impl Send for Class {}

impl Class {
    const fn new() -> Self {
        Self {
            chain: null_mut(),
            fresh: 0,
            fresh_end: 0,
        }
    }
}

const fn class_of(size: usize) -> usize {
    if size <= 128 {
        return if size == 0 { 0 } else { (size - 1) / 16 };
    }
    let octave = (size - 1).ilog2() as usize;
    let quarter = ((size - 1) >> (octave - 2)) & 3;
    8 + (octave - 7) * 4 + quarter
}

const fn size_of_class(class: usize) -> usize {
    if class < 8 {
        return (class + 1) * 16;
    }
    let (octave, quarter) = (7 + (class - 8) / 4, (class - 8) % 4);
    (5 + quarter) << (octave - 2)
}

const _: () = {
    assert!(
        class_of(MAX_SIZE) == NR_CLASSES - 1,
        "the last class is the largest"
    );
    let mut class = 0;
    while class < NR_CLASSES {
        let size = size_of_class(class);
        assert!(size.is_multiple_of(16), "blocks are aligned for anything");
        assert!(class_of(size) == class, "a class's size is its own");
        assert!(
            class_of(size - 15) == class,
            "and the smallest that needs it"
        );
        class += 1;
    }
};

/// Reserves the range. Without it every allocation is refused.
pub fn set_up() {
    let prot = mem::PROT_READ | mem::PROT_WRITE;
    let flags = mem::MAP_PRIVATE | mem::MAP_ANONYMOUS | mem::MAP_NORESERVE;
    // SAFETY: a fresh mapping where the kernel likes.
    let Ok(addr) = (unsafe { mem::mmap(0, RANGE, prot, flags, -1, 0) }) else {
        return;
    };
    // SAFETY: the range is ours; the advice changes no contents.
    let _ = unsafe { mem::madvise(addr, RANGE, mem::MADV_NOHUGEPAGE) };
    START.store(addr, Ordering::Relaxed);
}

/// Sets how many bytes may be used.
pub fn set_budget(bytes: usize) {
    let slabs = bytes.clamp(MIN_BUDGET, RANGE) / SLAB;
    BUDGET.store(slabs, Ordering::Relaxed);
}

/// A block of at least `size` bytes, or null: too large, or the budget is used up.
///
/// Not inlined, nor is [`free`]: the program's own calls, by far the most, would save registers for
/// it.
#[inline(never)]
pub fn allocate(size: usize) -> *mut c_void {
    if size > MAX_SIZE {
        return null_mut();
    }
    let class = class_of(size);
    let Some(lock) = CLASSES.get(class) else {
        return null_mut();
    };
    let mut free = lock.lock();
    if !free.chain.is_null() {
        let block = free.chain;
        // SAFETY: a free block of this class holds the next one's address.
        free.chain = unsafe { block.read() }.cast();
        return block.cast();
    }
    let block = size_of_class(class);
    if free.fresh_end - free.fresh < block {
        let Some(slab) = take_slab(class) else {
            return null_mut();
        };
        (free.fresh, free.fresh_end) = (slab, slab + SLAB);
    }
    let at = free.fresh;
    free.fresh += block;
    at as *mut c_void
}

fn take_slab(class: usize) -> Option<usize> {
    let start = START.load(Ordering::Relaxed);
    if start == 0 {
        return None;
    }
    let budget = BUDGET.load(Ordering::Relaxed);
    let next = |used| (used < budget).then_some(used + 1);
    let slab = NR_USED
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
        .ok()?;
    // Whoever frees a block of it got its address from an allocation after this.
    let class = u8::try_from(class + 1).ok()?;
    CLASS_OF.get(slab)?.store(class, Ordering::Relaxed);
    Some(start + slab * SLAB)
}

fn class_at(p: *mut c_void) -> Option<usize> {
    let offset = (p as usize).wrapping_sub(START.load(Ordering::Relaxed));
    if offset >= RANGE {
        return None;
    }
    let class = CLASS_OF.get(offset / SLAB)?.load(Ordering::Relaxed);
    usize::from(class).checked_sub(1)
}

/// Whether the block at `p` is of this heap.
#[inline]
pub fn owns(p: *mut c_void) -> bool {
    (p as usize).wrapping_sub(START.load(Ordering::Relaxed)) < RANGE
}

/// Bytes in the block at `p`; `None` if it is not of this heap.
#[inline]
pub fn usable(p: *mut c_void) -> Option<usize> {
    class_at(p).map(size_of_class)
}

/// Frees a block of this heap.
///
/// # Safety
/// From [`allocate`], and not used afterwards.
#[inline(never)]
pub unsafe fn free(p: *mut c_void) {
    let Some(lock) = class_at(p).and_then(|class| CLASSES.get(class)) else {
        return;
    };
    let mut free = lock.lock();
    let block: *mut *mut c_void = p.cast();
    // SAFETY: the block is ours again, and at least 16 bytes.
    unsafe { block.write(free.chain.cast()) };
    free.chain = block;
}

/// The whole heap, held still across a fork. To be dropped in the parent and in the child.
#[must_use]
pub struct Held {
    _guards: [Option<LockGuard<'static, Class>>; NR_CLASSES],
}

/// Takes every lock, so that a fork copies them free of half-done changes. One that cannot be had
/// soon is passed over: its holder may be this very thread, interrupted by the handler that forks.
pub fn hold() -> Held {
    const TRIES: u32 = 1000;
    let guard = |class: usize| {
        let lock = CLASSES.get(class)?;
        (0..TRIES).find_map(|_| {
            let guard = lock.try_lock();
            if guard.is_none() {
                thread::sched_yield();
            }
            guard
        })
    };
    Held {
        _guards: core::array::from_fn(guard),
    }
}

impl core::fmt::Debug for Held {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Held")
    }
}
