//! *What*: [`Region`]: a range of a pool, as bytes.
//!
//! *Invariants*: the range is mapped, and the region's alone, as long as it lives; it keeps its
//! pool.
//! *Locking*: none. *Context*: threads of the host.

use std::ops::{Deref, DerefMut};

use crate::Pool;

/// Bytes of a pool, whole pages, given back when dropped.
#[derive(Debug)]
pub struct Region {
    pool: Pool,
    addr: usize,
    len: usize,
}

impl Region {
    /// # Safety
    /// `[addr, addr + len)` was mapped by the pool's `map_raw`, and is the region's from now on.
    pub(crate) unsafe fn new(pool: Pool, addr: usize, len: usize) -> Self {
        Region { pool, addr, len }
    }

    /// The pool that it is in.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped, initialized (fresh memory is zero), and the region's alone.
        unsafe { std::slice::from_raw_parts(self.addr as *const u8, self.len) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.addr as *mut u8, self.len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: nobody borrows it any more.
        unsafe { self.pool.unmap_raw(self.addr, self.len) };
    }
}
