//! *What*: the slots of the swap device, counted in memory that all processes of the group share.
//!
//! *Invariants*: a slot is free when its count is zero; its count is the sum of what the processes count
//! of it. *Locking*: none. *Context*: any.

use crate::primitive::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// The shared memory.
pub struct Slots {
    base: *const u8,
    nr: u64,
    user: AtomicU32,
}

// SAFETY: the memory is atomics only and stays mapped.
unsafe impl Sync for Slots {}
// SAFETY: as above.
unsafe impl Send for Slots {}

impl Slots {
    /// Bytes of shared memory for `nr` slots and `users` processes.
    pub const fn len_for(nr: u64, users: u64) -> u64 {
        64 + nr * 4 + users * nr * 2
    }
    /// # Safety
    /// `base` is that many bytes of shared memory, mapped for good.
    pub const unsafe fn new(base: *const u8, nr: u64, user: u32) -> Self {
        Slots {
            base,
            nr,
            user: AtomicU32::new(user),
        }
    }
    pub fn set_user(&self, user: u32) {
        self.user.store(user, Ordering::Relaxed);
    }
    pub fn user(&self) -> usize {
        self.user.load(Ordering::Relaxed) as usize
    }
    fn header(&self) -> &[AtomicU64; 2] {
        // SAFETY: the first 64 bytes.
        unsafe { &*self.base.cast() }
    }
    fn total(&self, slot: u64) -> &AtomicU32 {
        let slot = slot.min(self.nr - 1) as usize;
        // SAFETY: in range.
        unsafe { &*self.base.add(64 + slot * 4).cast() }
    }
    fn own(&self, user: usize, slot: u64) -> &AtomicU16 {
        let slot = slot.min(self.nr - 1) as usize;
        let nr = self.nr as usize;
        // SAFETY: in range.
        unsafe { &*self.base.add(64 + nr * 4 + (user * nr + slot) * 2).cast() }
    }
    fn add(&self, user: usize, slot: u64, n: u16) {
        self.own(user, slot).fetch_add(n, Ordering::Relaxed);
        if self.total(slot).fetch_add(n.into(), Ordering::AcqRel) == 0 {
            let [used, peak] = self.header();
            let now = used.fetch_add(1, Ordering::Relaxed) + 1;
            peak.fetch_max(now, Ordering::Relaxed);
        }
    }
    fn sub(&self, user: usize, slot: u64, n: u16) {
        self.own(user, slot).fetch_sub(n, Ordering::Relaxed);
        if self.total(slot).fetch_sub(n.into(), Ordering::AcqRel) == n.into() {
            let [used, _] = self.header();
            used.fetch_sub(1, Ordering::Relaxed);
        }
    }
    pub fn get(&self, slot: u64) {
        self.add(self.user(), slot, 1);
    }
    pub fn put(&self, slot: u64) {
        self.sub(self.user(), slot, 1);
    }
    pub fn alloc_run(&self, order: u32) -> Option<u64> {
        let len = 1_u64 << order;
        let mut first = 0;
        while first + len <= self.nr {
            let free = (first..first + len).all(|s| self.total(s).load(Ordering::Relaxed) == 0);
            if free && self.try_take(first, len) {
                return Some(first);
            }
            first += len;
        }
        None
    }
    fn try_take(&self, first: u64, len: u64) -> bool {
        for slot in first..first + len {
            let cell = self.total(slot);
            if cell
                .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
            {
                for taken in first..slot {
                    self.put(taken);
                }
                return false;
            }
            self.own(self.user(), slot).fetch_add(1, Ordering::Relaxed);
            let [used, peak] = self.header();
            let now = used.fetch_add(1, Ordering::Relaxed) + 1;
            peak.fetch_max(now, Ordering::Relaxed);
        }
        true
    }
    pub fn put_run(&self, first: u64, order: u32) {
        for slot in first..first + (1 << order) {
            self.put(slot);
        }
    }
    pub fn retire_run(&self, _first: u64, _order: u32) {}
    pub fn fork(&self, child: usize) {
        let parent = self.user();
        for slot in 0..self.nr {
            let n = self.own(parent, slot).load(Ordering::Relaxed);
            if n > 0 {
                self.add(child, slot, n);
            }
        }
    }
    pub fn release(&self, user: usize) {
        for slot in 0..self.nr {
            let n = self.own(user, slot).load(Ordering::Relaxed);
            if n > 0 {
                self.sub(user, slot, n);
            }
        }
    }
    pub fn used(&self) -> (u64, u64) {
        let [used, peak] = self.header();
        (used.load(Ordering::Relaxed), peak.load(Ordering::Relaxed))
    }
}
