//! What the pool's tests share: a mapping to live in, a page table to move
//! objects under, and sizes as compressed pages have them.
#![allow(dead_code, reason = "each test uses its part")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "test arithmetic on small numbers"
)]

use std::sync::Mutex;
use uzswap_pool::{Loc, Pool, PoolError, PoolMemory, Relocate};
use uzswap_sync::charge::{Charge, Membership, Reserve};
use uzswap_sync::ledger::Ledger;
use uzswap_sync::primitive::AtomicU64;

/// A pool in memory of its own.
pub struct TestPool {
    pub pool: Box<Pool>,
    pub charge: Charge,
    /// Of the charge, bytes.
    pub limit: &'static AtomicU64,
    ledger: &'static Ledger,
    data: Range,
    metadata: Range,
}

struct Range {
    start: *mut u8,
    len: usize,
}

// SAFETY: the pointers name mappings that live as long as the pool does.
unsafe impl Sync for TestPool {}

impl TestPool {
    pub fn new(data_len: usize, limit: u64) -> Self {
        let data = Range::map(data_len);
        let metadata = Range::map(Pool::metadata_len(data_len));
        let pool = Box::new(Pool::new());
        let memory = PoolMemory {
            data: data.start,
            data_len: data.len,
            metadata: metadata.start,
            metadata_len: metadata.len,
        };
        // SAFETY: fresh mappings, this pool's alone, unmapped after it.
        unsafe { pool.init(memory) }.unwrap();
        let ledger: &Ledger = Box::leak(Box::default());
        let cell = |bytes| -> &'static AtomicU64 { Box::leak(Box::new(AtomicU64::new(bytes))) };
        let (limit, own_limit) = (cell(limit << 12), cell(0));
        let charge = Charge::new(0);
        charge.follow(&Membership {
            share: ledger.begin(0),
            ledger,
            limit,
            own_limit,
            at_ceiling: false,
        });
        Self {
            pool,
            charge,
            limit,
            ledger,
            data,
            metadata,
        }
    }

    /// Shares everything with a new child.
    pub fn fork(&self) {
        // SAFETY: nobody else uses the pool.
        let nr = unsafe { self.pool.share(&self.charge) };
        let child = self.ledger.begin(1);
        self.ledger.share_with_child(0, child, nr);
    }

    /// The child is gone.
    pub fn end_child(&self) {
        let child = self.ledger.share(1);
        child.expire(child.owner());
        assert!(self.ledger.is_last_of_family(self.charge.share()));
    }

    /// The resident pages of objects, and what they hold.
    #[cfg(not(miri))]
    pub fn pages(&self) -> Vec<(usize, u32)> {
        self.data.pages()
    }

    #[cfg(miri)]
    pub fn pages(&self) -> Vec<(usize, u32)> {
        (0..1 << 10).map(|nr| (nr, 0)).collect()
    }

    pub fn alloc(&self, size: usize, owner: u32) -> Result<Loc, PoolError> {
        self.pool
            .alloc(size, owner, &mut Reserve::empty(&self.charge))
    }

    /// Stores an object full of its pattern, under an entry that is held and empty.
    pub fn store(
        &self,
        entry: &mut Option<Stored>,
        size: usize,
        owner: u32,
        version: u32,
    ) -> Result<(), PoolError> {
        let loc = self.alloc(size, owner)?;
        // SAFETY: `size` bytes at `loc` are this object's.
        unsafe { fill(self.pool.data_ptr(loc), size, owner, version) };
        *entry = Some(Stored { loc, size, version });
        Ok(())
    }

    /// Frees the object of an entry that is held.
    pub fn clear(&self, entry: &mut Option<Stored>) -> Option<Stored> {
        let old = entry.take()?;
        // SAFETY: the entry was held and is empty now.
        unsafe { self.pool.free(old.loc, &self.charge) };
        Some(old)
    }

    /// Pages of the pool that the kernel has made resident.
    #[cfg(not(miri))]
    pub fn resident(&self) -> u64 {
        self.data.resident() + self.metadata.resident()
    }

    /// What is charged is what is there, no page more or less. Nothing else may
    /// be using the pool.
    pub fn assert_charged_is_resident(&self) {
        let charged = self.charge.used() + self.charge.share().shared();
        assert_eq!(self.charge.share().shared(), self.pool.shared_pages());
        assert_eq!(charged, self.pool.total_pages());
        #[cfg(not(miri))]
        assert_eq!(charged, self.resident());
    }
}

#[cfg(not(miri))]
impl Range {
    fn map(len: usize) -> Self {
        use uzswap_sys::mem;
        let flags = mem::MAP_PRIVATE | mem::MAP_ANONYMOUS | mem::MAP_NORESERVE;
        // SAFETY: a mapping where the kernel likes.
        let start = unsafe { mem::mmap(0, len, mem::PROT_READ | mem::PROT_WRITE, flags, -1, 0) };
        Self {
            start: std::ptr::with_exposed_provenance_mut(start.unwrap()),
            len,
        }
    }

    fn resident(&self) -> u64 {
        self.pages_there().count() as u64
    }

    fn pages_there(&self) -> impl Iterator<Item = usize> {
        let mut pages = vec![0; self.len / 4096];
        uzswap_sys::mem::mincore(self.start.addr(), self.len, &mut pages).unwrap();
        let nr = pages.len();
        (0..nr).filter(move |&nr| pages[nr] & 1 != 0)
    }

    fn pages(&self) -> Vec<(usize, u32)> {
        let checksum = |nr: usize| {
            // SAFETY: a page of the mapping, which nobody writes to meanwhile.
            let page = unsafe { std::slice::from_raw_parts(self.start.add(nr * 4096), 4096) };
            page.iter()
                .fold(0u32, |sum, &byte| sum.rotate_left(5) ^ u32::from(byte))
        };
        self.pages_there().map(|nr| (nr, checksum(nr))).collect()
    }
}

#[cfg(not(miri))]
impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`; the pool is not used any more.
        unsafe { uzswap_sys::mem::munmap(self.start.addr(), self.len) }.unwrap();
    }
}

#[cfg(miri)]
impl Range {
    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len, 4096).unwrap()
    }

    fn map(len: usize) -> Self {
        // SAFETY: the length is not 0.
        let start = unsafe { std::alloc::alloc_zeroed(Self::layout(len)) };
        Self { start, len }
    }
}

#[cfg(miri)]
impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: allocated in `map`.
        unsafe { std::alloc::dealloc(self.start, Self::layout(self.len)) };
    }
}

/// A small, seeded source of numbers (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    /// The size of a compressed page as our dumps of real programs have them:
    /// mean 1.2 KiB, 2 % incompressible.
    pub fn compressed_size(&mut self) -> usize {
        if self.below(50) == 0 {
            return 4096;
        }
        // The mean of three uniform numbers is a bell around the half; stretched
        // to lean towards small sizes.
        let bell = (0..3).map(|_| self.below(1 << 20)).sum::<u64>() as f64 / (3 << 20) as f64;
        (40.0 + 4000.0 * bell * bell) as usize
    }
}

/// Fills an object with bytes that tell its owner and version.
///
/// # Safety
/// `data` is writable for `size` bytes and nobody else's.
pub unsafe fn fill(data: *mut u8, size: usize, owner: u32, version: u32) {
    for at in 0..size {
        // SAFETY: by this function's contract.
        unsafe { data.add(at).write(pattern(owner, version, at)) };
    }
}

/// Whether the bytes are what [`fill`] wrote.
///
/// # Safety
/// `data` is readable for `size` bytes and nobody writes there.
pub unsafe fn is_intact(data: *const u8, size: usize, owner: u32, version: u32) -> bool {
    // SAFETY: by this function's contract.
    (0..size).all(|at| unsafe { data.add(at).read() } == pattern(owner, version, at))
}

fn pattern(owner: u32, version: u32, at: usize) -> u8 {
    let mixed = owner
        .wrapping_mul(0x9e37_79b1)
        .wrapping_add(version.wrapping_mul(0x85eb_ca6b))
        .wrapping_add((at as u32).wrapping_mul(0xc2b2_ae35));
    (mixed >> 24) as u8
}

/// A page table: an entry with a lock for each owner.
pub struct Table {
    entries: Vec<Mutex<Option<Stored>>>,
}

#[derive(Clone, Copy, Debug)]
pub struct Stored {
    pub loc: Loc,
    pub size: usize,
    pub version: u32,
}

impl Table {
    pub fn new(owners: u32) -> Self {
        Self {
            entries: (0..owners).map(|_| Mutex::new(None)).collect(),
        }
    }

    /// How many entries name an object that `is_one`.
    pub fn count(&self, is_one: impl Fn(&Stored) -> bool) -> u64 {
        let all = self.entries.iter().map(|entry| *entry.lock().unwrap());
        all.flatten().filter(is_one).count() as u64
    }

    pub fn hold(&self, owner: u32) -> std::sync::MutexGuard<'_, Option<Stored>> {
        self.entries[owner as usize].lock().unwrap()
    }
}

impl<'a> Relocate for &'a Table {
    type Held = std::sync::MutexGuard<'a, Option<Stored>>;

    fn try_hold(&mut self, owner: u32, old: Loc) -> Option<Self::Held> {
        let held = self.entries[owner as usize].try_lock().ok()?;
        held.is_some_and(|stored| stored.loc == old).then_some(held)
    }

    fn publish(&mut self, mut held: Self::Held, new: Loc) {
        held.as_mut().unwrap().loc = new;
    }
}
