//! *What*: pools as allocators: `Pool` and `&Pool` for collections (`Vec::new_in`, hashbrown), and
//! [`Alloc`] for a whole program.
//!
//! *Invariants*: what a pool allocated is freed by that pool: a collection has a handle of it, or
//! borrows one; [`Alloc`]'s pool is never dropped.
//! *Locking*: the heap's. *Context*: threads of the host.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;
use std::sync::OnceLock;

use allocator_api2::alloc::{AllocError, Allocator};

use crate::Pool;
use crate::heap;

impl Pool {
    fn allocate_block(&self, layout: Layout) -> Option<NonNull<[u8]>> {
        if layout.size() == 0 {
            let dangling = NonNull::new(std::ptr::without_provenance_mut(layout.align()))?;
            return Some(NonNull::slice_from_raw_parts(dangling, 0));
        }
        let memory = self.heap().allocate(self, layout).ok()?;
        Some(NonNull::slice_from_raw_parts(memory, layout.size()))
    }

    fn allocate_zeroed_block(&self, layout: Layout) -> Option<NonNull<[u8]>> {
        let memory = self.allocate_block(layout)?;
        // A fresh region is zero, and stays untouched.
        if !heap::is_region(layout) {
            // SAFETY: allocated just now, with that length.
            unsafe { memory.cast::<u8>().write_bytes(0, layout.size()) };
        }
        Some(memory)
    }

    /// Bytes that an allocation has room for: what was asked for, or a little more. For callers
    /// that free by address alone; its layout is then that size with an alignment of 16.
    ///
    /// # Safety
    /// `pointer` was allocated from this pool, with an alignment of at most 16, and is not freed
    /// meanwhile.
    #[must_use]
    pub unsafe fn usable_size(&self, pointer: NonNull<u8>) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.heap().size_of(pointer) }
    }

    /// # Safety
    /// As [`Allocator::deallocate`].
    unsafe fn free_block(&self, pointer: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: the caller's promise.
            unsafe { self.heap().free(self, pointer, layout) };
        }
    }

    /// Moves a block to one of `new` size: a region by its pages, without a copy.
    ///
    /// # Safety
    /// As [`Allocator::grow`] and [`Allocator::shrink`].
    unsafe fn resize_block(
        &self,
        pointer: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Option<NonNull<[u8]>> {
        if heap::is_region(old) && heap::is_region(new) {
            let (addr, len) = (pointer.as_ptr() as usize, old.size().next_multiple_of(4096));
            // SAFETY: the caller's promise; mapped with that length.
            let (addr, _) = unsafe { self.remap_raw(addr, len, new.size()) }.ok()?;
            self.heap().note_region(addr, new.size());
            let moved = NonNull::new(addr as *mut u8)?;
            return Some(NonNull::slice_from_raw_parts(moved, new.size()));
        }
        let moved = self.allocate_block(new)?;
        // SAFETY: two blocks, each at least that long; the caller's promise.
        unsafe {
            let nr = old.size().min(new.size());
            moved.cast::<u8>().copy_from_nonoverlapping(pointer, nr);
            self.free_block(pointer, old);
        }
        Some(moved)
    }

    /// # Safety
    /// As [`Allocator::grow_zeroed`].
    unsafe fn grow_zeroed_block(
        &self,
        pointer: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Option<NonNull<[u8]>> {
        // SAFETY: the caller's promise.
        let grown = unsafe { self.resize_block(pointer, old, new) }?;
        let end = match heap::is_region(old) && heap::is_region(new) {
            // Of the last page before; pages behind are fresh.
            true => old.size().next_multiple_of(4096).min(new.size()),
            false => new.size(),
        };
        // SAFETY: within the block.
        unsafe {
            let rest = grown.cast::<u8>().add(old.size());
            rest.write_bytes(0, end - old.size());
        }
        Some(grown)
    }
}

macro_rules! allocator {
    ($trait:path, $error:ident, $($type:ty),+) => {$(
        // SAFETY: blocks stay valid until they are freed: clones are handles of the same pool, and
        // each keeps it; a borrowed handle outlives the borrow.
        unsafe impl $trait for $type {
            fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, $error> {
                self.allocate_block(layout).ok_or($error)
            }

            fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, $error> {
                self.allocate_zeroed_block(layout).ok_or($error)
            }

            unsafe fn deallocate(&self, pointer: NonNull<u8>, layout: Layout) {
                // SAFETY: the caller's promise.
                unsafe { self.free_block(pointer, layout) }
            }

            unsafe fn grow(
                &self,
                pointer: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, $error> {
                // SAFETY: the caller's promise.
                unsafe { self.resize_block(pointer, old, new) }.ok_or($error)
            }

            unsafe fn grow_zeroed(
                &self,
                pointer: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, $error> {
                // SAFETY: the caller's promise.
                unsafe { self.grow_zeroed_block(pointer, old, new) }.ok_or($error)
            }

            unsafe fn shrink(
                &self,
                pointer: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, $error> {
                // SAFETY: the caller's promise.
                unsafe { self.resize_block(pointer, old, new) }.ok_or($error)
            }
        }
    )+};
}

allocator!(Allocator, AllocError, Pool);

#[cfg(feature = "nightly")]
mod nightly {
    use super::{Layout, NonNull, Pool};
    use std::alloc::{AllocError, Allocator};

    allocator!(Allocator, AllocError, Pool);
}

/// A pool as the allocator of a whole program: once it has one, what is allocated in large pieces
/// comes from there.
///
/// Small allocations stay with the system: they are cold only together with their neighbours, and
/// among them is what the kernel reads without the guard seeing it (the arguments of a program that
/// is started).
///
/// ```no_run
/// #[global_allocator]
/// static ALLOC: uzswap::Alloc = uzswap::Alloc::new();
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     ALLOC.set(uzswap::Pool::builder().limit(1 << 30).build()?);
///     let table = vec![0_u64; 1 << 28]; // 2 GiB, in the pool
///     # drop(table);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Alloc {
    pool: OnceLock<Pool>,
    threshold: usize,
}

impl Alloc {
    /// Allocations from here on come from the pool, bytes.
    pub const THRESHOLD: usize = 16 << 10;

    /// One that allocates from the system until it has a pool.
    #[must_use]
    pub const fn new() -> Self {
        Self::with_threshold(Self::THRESHOLD)
    }

    /// As [`Alloc::new`], with allocations from `threshold` bytes on from the pool.
    #[must_use]
    pub const fn with_threshold(threshold: usize) -> Self {
        Alloc {
            pool: OnceLock::new(),
            threshold,
        }
    }

    /// Gives it a pool, for good.
    ///
    /// # Errors
    /// The pool, if it has one already.
    pub fn set(&self, pool: Pool) -> Result<(), Pool> {
        self.pool.set(pool)
    }

    /// Its pool.
    pub fn pool(&self) -> Option<&Pool> {
        self.pool.get()
    }

    /// The pool, if an allocation of that size comes from there.
    fn pool_for(&self, size: usize) -> Option<&Pool> {
        self.pool.get().filter(|_| size >= self.threshold)
    }

    fn owner(&self, pointer: *mut u8) -> Option<&Pool> {
        self.pool.get().filter(|pool| pool.contains(pointer))
    }
}

impl Default for Alloc {
    fn default() -> Self {
        Self::new()
    }
}

fn raw(block: Option<NonNull<[u8]>>) -> *mut u8 {
    block.map_or(std::ptr::null_mut(), |block| block.cast::<u8>().as_ptr())
}

// SAFETY: each pointer goes back to the one that made it, which its address tells.
unsafe impl GlobalAlloc for Alloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.pool_for(layout.size()) {
            Some(pool) => raw(pool.allocate_block(layout)),
            // SAFETY: the caller's promise.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match self.pool_for(layout.size()) {
            Some(pool) => raw(pool.allocate_zeroed_block(layout)),
            // SAFETY: the caller's promise.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        match (self.owner(pointer), NonNull::new(pointer)) {
            // SAFETY: the caller's promise; the pointer is the pool's.
            (Some(pool), Some(pointer)) => unsafe { pool.free_block(pointer, layout) },
            // SAFETY: the caller's promise.
            _ => unsafe { System.dealloc(pointer, layout) },
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, old: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        let new = unsafe { Layout::from_size_align_unchecked(size, old.align()) };
        let (from, to) = (self.owner(pointer), self.pool_for(size));
        match (from, to, NonNull::new(pointer)) {
            // SAFETY: the caller's promise.
            (None, None, _) => unsafe { System.realloc(pointer, old, size) },
            (Some(pool), Some(_), Some(pointer)) => {
                // SAFETY: the caller's promise; the pointer is the pool's.
                raw(unsafe { pool.resize_block(pointer, old, new) })
            }
            // From one to the other.
            // SAFETY: the caller's promise.
            _ => unsafe {
                let moved = self.alloc(new);
                if !moved.is_null() {
                    moved.copy_from_nonoverlapping(pointer, old.size().min(size));
                    self.dealloc(pointer, old);
                }
                moved
            },
        }
    }
}
