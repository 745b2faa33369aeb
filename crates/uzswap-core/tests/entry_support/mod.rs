//! The life of three neighbours' entries, in steps that a model checker can interleave. Most models use the first page
//! alone; those of blocks, which are made of all three, use the others as well.
//!
//! Real are the folio with its lock and flags, the entry's eight bytes, and the locks that an operation, a
//! writeback and a fork take. The steps between are the engine's, told again. Pool and swap device are stand-ins that
//! do each call at once (their own locking has models of its own), and as unkind as they may be: the location
//! that was freed last is handed out next, and the eviction clock stands still, so that a page that is loaded and
//! stored again looks as it did before. Both complain about whatever is used after it was freed. A fault reads from the
//! device before it holds the folio for good, as the engine's do while they evict.

use std::sync::{Mutex, MutexGuard};

use checker::sync::Arc;
use checker::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
#[cfg(not(shuttle))]
use loom as checker;
#[cfg(shuttle)]
use shuttle as checker;
use uzswap_core::page::folio::{CANCELLED, Folio, RECLAIM};
use uzswap_core::page::{Age, Content, Entry};
use uzswap_pool::Loc;
use uzswap_sync::lock::{Lock, RawLock};

const PRESENT: u64 = 1;
const PROTECTED: u64 = 2;
const VALUE: u32 = 2;

const SIZE: u16 = 700;
const AGE: Age = Age(9);
/// Operations at once in a process.
const NR_SLOTS: usize = 2;

/// A few numbered places: what each holds, and how often it is counted.
#[derive(Clone, Debug, Default)]
pub struct Places([(u64, u32); 5]);

impl Places {
    pub fn take(&mut self, value: u64) -> usize {
        let free = self.0.iter().position(|&(_, count)| count == 0);
        let at = free.expect("room");
        self.0[at] = (value, 1);
        at
    }

    pub fn get(&self, at: usize) -> u64 {
        assert!(self.0[at].1 > 0, "place {at} is read after it was freed");
        self.0[at].0
    }

    pub fn dup(&mut self, at: usize) {
        assert!(self.0[at].1 > 0, "place {at} is counted after it was freed");
        self.0[at].1 += 1;
    }

    pub fn put(&mut self, at: usize) {
        assert!(self.0[at].1 > 0, "place {at} is freed twice");
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0[at].0 = 0xdead;
        }
    }

    pub fn in_use(&self) -> u32 {
        self.0.iter().map(|&(_, count)| count).sum()
    }
}

/// A swap device.
pub struct Device {
    places: Mutex<Places>,
    /// What is in the group file: whether anything new may go there.
    on: AtomicBool,
}

impl Default for Device {
    fn default() -> Self {
        Device {
            places: Mutex::default(),
            on: AtomicBool::new(true),
        }
    }
}

impl Device {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap()
    }

    pub fn in_use(&self) -> u32 {
        self.places().in_use()
    }
}

fn stored(at: usize, writing: bool, content: Content) -> Entry {
    Entry::Stored {
        loc: Loc::from_raw(at as u64 + 1).expect("small and not 0"),
        size: SIZE,
        age: AGE,
        writing,
        content,
    }
}

/// Pages of the folio, and of a block.
const NR: usize = 3;
/// Bits that the object of a block has of each.
const PART: u32 = 8;

/// A process with a few pages, on a device that its children share.
pub struct Process {
    slots: [RawLock; NR_SLOTS],
    writeback: Lock<()>,
    folio: Folio,
    entries: [AtomicU64; NR],
    /// What the processor sees.
    ptes: [AtomicU64; NR],
    pool: Mutex<Places>,
    pub device: Arc<Device>,
}

impl Process {
    pub fn new(
        entries: [Entry; NR],
        ptes: [u64; NR],
        pool: Places,
        device: Arc<Device>,
    ) -> Arc<Process> {
        Arc::new(Process {
            slots: [RawLock::new(), RawLock::new()],
            writeback: Lock::new(()),
            folio: Folio::new(),
            entries: entries.map(|entry| AtomicU64::new(entry.encode())),
            ptes: ptes.map(AtomicU64::new),
            pool: Mutex::new(pool),
            device,
        })
    }

    pub fn resident(value: u64) -> Arc<Process> {
        let pte = PRESENT | value << VALUE;
        let entries = [Entry::Resident, Entry::None, Entry::None];
        Self::new(entries, [pte, 0, 0], Places::default(), Arc::default())
    }

    /// Its first page is in the pool.
    pub fn evicted(value: u64) -> Arc<Process> {
        let mut pool = Places::default();
        let entry = stored(pool.take(value), false, Content::Page);
        let entries = [entry, Entry::None, Entry::None];
        Self::new(entries, [0; NR], pool, Arc::default())
    }

    /// All are.
    pub fn cold(values: [u64; NR]) -> Arc<Process> {
        let mut pool = Places::default();
        let entries = values.map(|value| stored(pool.take(value), false, Content::Page));
        Self::new(entries, [0; NR], pool, Arc::default())
    }

    fn entry(&self, page: usize) -> Entry {
        Entry::decode(self.entries[page].load(SeqCst))
    }

    fn set(&self, page: usize, entry: Entry) {
        self.entries[page].store(entry.encode(), SeqCst);
    }

    /// What the object of an entry holds.
    fn object(&self, entry: Entry) -> u64 {
        match entry {
            Entry::Stored { loc, .. } => self.pool.lock().unwrap().get(loc.raw() as usize - 1),
            Entry::Swapped { location, .. } => self.device.places().get(location as usize),
            _ => 0,
        }
    }

    /// Frees what an entry that is no longer in the table held.
    fn forget(&self, old: Entry) {
        match old {
            Entry::Stored { loc, .. } => self.pool.lock().unwrap().put(loc.raw() as usize - 1),
            Entry::Swapped { location, .. } => self.device.places().put(location as usize),
            _ => {}
        }
    }

    /// Of the first page.
    pub fn reclaim(&self, slot: usize) {
        let page = 0;
        let _slot = self.slots[slot].lock();
        {
            let Some(guard) = self.folio.try_lock() else {
                return;
            };
            if guard.has(RECLAIM) || self.entry(page) != Entry::Resident {
                return;
            }
            guard.set(RECLAIM);
        }
        let pte = &self.ptes[page];
        pte.fetch_or(PROTECTED, SeqCst);
        let value = pte.load(SeqCst) >> VALUE;
        let entry = stored(self.pool.lock().unwrap().take(value), false, Content::Page);
        let guard = self.folio.lock();
        if guard.has(CANCELLED) {
            self.forget(entry);
            pte.fetch_and(!PROTECTED, SeqCst);
            guard.clear(RECLAIM | CANCELLED);
            return;
        }
        self.set(page, entry);
        pte.store(0, SeqCst);
        guard.clear(RECLAIM);
    }

    fn bring_in(&self, page: usize, value: u64) {
        let old = self.entry(page);
        self.ptes[page].store(PRESENT | value << VALUE, SeqCst);
        self.set(page, Entry::Resident);
        self.forget(old);
    }

    /// Reads the page from the device before its folio is held for good. Returns what its entry was, and what was read; its
    /// place is counted once more for that.
    fn read_early(&self, page: usize) -> Option<(Entry, u64)> {
        let guard = self.folio.try_lock()?;
        let entry = self.entry(page);
        let Entry::Swapped {
            location,
            content: Content::Page,
            ..
        } = entry
        else {
            return None;
        };
        let at = location as usize;
        self.device.places().dup(at);
        drop(guard);
        let read = self.device.places().get(at);
        // What is evicted meanwhile.
        let _ = self.entry(page);
        let again = self.device.places().get(at);
        assert_eq!(read, again, "place {at} is written to while it is read");
        Some((entry, read))
    }

    fn fault(&self, slot: usize, page: usize) {
        let _slot = self.slots[slot].lock();
        let early = self.read_early(page);
        let guard = self.folio.lock();
        let old = self.entry(page);
        if let Some((entry, read)) = early {
            self.forget(entry);
            if entry == old {
                return self.bring_in(page, read);
            }
        }
        if old == Entry::Resident {
            guard.cancel_reclaim();
            self.ptes[page].fetch_and(!PROTECTED, SeqCst);
        } else if old.in_block() {
            let block = self.block();
            let (piece, entry) = block[0];
            let object = self.object(entry);
            let value = |page: usize| object >> (PART * page as u32) & 0xff;
            let in_pool = matches!(entry, Entry::Stored { .. });
            if in_pool && block.len() == NR && !block.iter().any(|(_, entry)| entry.is_dropped()) {
                // It alone. The last page left has no piece.
                if page == piece {
                    self.pass_on(entry, page);
                }
                self.bring_in(page, value(page));
                return;
            }
            // All of it, as far as it has contents.
            for (page, entry) in block {
                if entry.is_dropped() {
                    self.set(page, Entry::None);
                    self.forget(entry);
                } else {
                    self.bring_in(page, value(page));
                }
            }
        } else {
            self.bring_in(page, self.object(old));
        }
    }

    /// The pages that are in the block, the one with the piece first.
    fn block(&self) -> Vec<(usize, Entry)> {
        let entries = (0..NR).map(|page| (page, self.entry(page)));
        let block: Vec<_> = entries.filter(|(_, entry)| entry.in_block()).collect();
        let pieces = block
            .iter()
            .filter(|(_, entry)| !matches!(entry, Entry::Block { .. }));
        assert_eq!(pieces.count(), block.len().min(1), "{block:?}");
        assert!(block.len() != 1, "a piece without an end: {block:?}");
        block
    }

    /// The piece in the entry of `page` goes to the next.
    fn pass_on(&self, entry: Entry, page: usize) {
        let Entry::Stored { loc, .. } = entry else {
            panic!("{entry:?} is in no pool");
        };
        let rest = self.entry(page + 1);
        self.set(page, rest);
        let at = loc.raw() as usize - 1;
        self.set(page + 1, stored(at, false, Content::BlockPiece));
    }

    /// The program writes.
    pub fn write_to(&self, slot: usize, page: usize, value: u64) {
        loop {
            let pte = self.ptes[page].load(SeqCst);
            if pte & (PRESENT | PROTECTED) == PRESENT {
                let new = PRESENT | value << VALUE;
                let written = self.ptes[page].compare_exchange(pte, new, SeqCst, SeqCst);
                if written.is_ok() {
                    return;
                }
            } else {
                self.fault(slot, page);
            }
        }
    }

    /// The program reads.
    pub fn read_from(&self, slot: usize, page: usize) -> u64 {
        loop {
            let pte = self.ptes[page].load(SeqCst);
            if pte & PRESENT != 0 {
                return pte >> VALUE;
            }
            self.fault(slot, page);
        }
    }

    /// Of the first page.
    pub fn write(&self, slot: usize, value: u64) {
        self.write_to(slot, 0, value);
    }

    /// Of the first page.
    pub fn read(&self, slot: usize) -> u64 {
        self.read_from(slot, 0)
    }

    /// madvise(MADV_DONTNEED) or munmap, of the first page.
    pub fn discard(&self, slot: usize) {
        self.discard_page(slot, 0);
    }

    pub fn discard_page(&self, slot: usize, page: usize) {
        let _slot = self.slots[slot].lock();
        loop {
            let guard = self.folio.lock();
            if guard.cancel_reclaim() {
                drop(guard);
                self.folio.wait_reclaim();
                continue;
            }
            let old = self.entry(page);
            if !old.in_block() {
                self.set(page, Entry::None);
                self.ptes[page].store(0, SeqCst);
                self.forget(old);
                return;
            }
            self.set(page, old.dropped());
            let block = self.block();
            if block.iter().all(|(_, entry)| entry.is_dropped()) {
                for (page, entry) in block {
                    self.set(page, Entry::None);
                    self.forget(entry);
                }
            }
            return;
        }
    }

    /// All pages, if they are in the pool, become one block.
    pub fn densify(&self, slot: usize) {
        let _slot = self.slots[slot].lock();
        let Some(guard) = self.folio.try_lock() else {
            return;
        };
        let entries: [Entry; NR] = core::array::from_fn(|page| self.entry(page));
        let cold = |entry: &Entry| matches!(entry, Entry::Stored { writing: false, .. });
        if guard.has(RECLAIM) || !entries.iter().all(cold) {
            return;
        }
        let parts = entries.iter().zip(0..);
        let object = parts
            .map(|(&entry, page)| self.object(entry) << (PART * page))
            .sum();
        let piece = stored(
            self.pool.lock().unwrap().take(object),
            false,
            Content::BlockPiece,
        );
        let rest = Entry::Block {
            order: 1,
            age: AGE,
            dropped: false,
        };
        for (page, entry) in [piece, rest, rest].into_iter().enumerate() {
            self.set(page, entry);
            self.forget(entries[page]);
        }
    }

    /// The first page with an object in the pool, or just the first: found without a lock.
    fn chosen(&self) -> usize {
        let stored = |&page: &usize| matches!(self.entry(page), Entry::Stored { .. });
        (0..NR).find(stored).unwrap_or(0)
    }

    /// Chooses, packs, writes (which `succeeds` or not) and publishes an object.
    pub fn write_back(&self, slot: usize, succeeds: bool) {
        let _slot = self.slots[slot].lock();
        let _turn = self.writeback.lock();
        if !self.device.on.load(SeqCst) {
            return;
        }
        let page = self.chosen();
        let Entry::Stored { size, age, .. } = self.entry(page) else {
            return;
        };
        let taken = self.device.places().take(0xbad);
        if let Some(value) = self.pack(page, size, age) {
            if succeeds {
                self.device.places().0[taken].0 = value;
            }
            self.publish(page, taken, succeeds);
        }
        // Counted once for the writeback; what the entry names is counted for it.
        self.device.places().put(taken);
    }

    fn pack(&self, page: usize, size: u16, age: Age) -> Option<u64> {
        let _guard = self.folio.try_lock()?;
        let entry = self.entry(page);
        match entry {
            Entry::Stored {
                loc,
                size: size_now,
                age: age_now,
                content,
                ..
            } if (size_now, age_now) == (size, age) => {
                self.set(page, stored(loc.raw() as usize - 1, true, content));
                Some(self.object(entry))
            }
            _ => None,
        }
    }

    fn publish(&self, page: usize, taken: usize, succeeds: bool) {
        let _guard = self.folio.lock();
        let old = self.entry(page);
        let Entry::Stored {
            writing: true,
            content,
            ..
        } = old
        else {
            return;
        };
        if !succeeds {
            self.set(page, old.without_writeback());
            return;
        }
        self.device.places().dup(taken);
        self.set(
            page,
            Entry::Swapped {
                location: taken as u64,
                size: SIZE,
                age: AGE,
                content,
            },
        );
        self.forget(old);
    }

    /// The pool is compacted: an object moves.
    pub fn compact(&self, slot: usize) {
        let _slot = self.slots[slot].lock();
        let Some(_guard) = self.folio.try_lock() else {
            return;
        };
        let page = self.chosen();
        let old = self.entry(page);
        if let Entry::Stored {
            writing, content, ..
        } = old
        {
            let value = self.object(old);
            let at = self.pool.lock().unwrap().take(value);
            self.set(page, stored(at, writing, content));
            self.forget(old);
        }
    }

    /// The device is turned off, and everything on it comes back into the pool as it is.
    pub fn swap_off(&self, slot: usize) {
        self.device.on.store(false, SeqCst);
        {
            // Who chose the device before it was off is done with it after this.
            let _slot = self.slots[slot].lock();
            drop(self.writeback.lock());
        }
        let turn = self.slots[slot].lock();
        for page in 0..NR {
            let _guard = self.folio.lock();
            let old = self.entry(page);
            if let Entry::Swapped { content, .. } = old {
                let value = self.object(old);
                let at = self.pool.lock().unwrap().take(value);
                self.set(page, stored(at, false, content));
                self.forget(old);
            }
        }
        drop(turn);
        // A read that was begun before counts what is not there any more.
        self.slots.iter().for_each(|slot| drop(slot.lock()));
    }

    /// Whether anything of it is on the device.
    pub fn is_on_device(&self) -> bool {
        (0..NR).any(|page| matches!(self.entry(page), Entry::Swapped { .. }))
    }

    /// Stops all operations and makes a copy of everything; what is on the device is counted for the copy, too.
    pub fn fork(&self) -> Arc<Process> {
        let _slots: Vec<_> = self.slots.iter().map(RawLock::lock).collect();
        let entries: [Entry; NR] = core::array::from_fn(|page| self.entry(page));
        for entry in entries {
            if let Entry::Swapped { location, .. } = entry {
                self.device.places().dup(location as usize);
            }
        }
        let ptes = core::array::from_fn(|page| self.ptes[page].load(SeqCst));
        // Whoever was reclaiming, writing back or densifying was waited for.
        assert!(!self.folio.lock().has(RECLAIM));
        assert_eq!(entries, entries.map(Entry::without_writeback));
        self.block();
        let pool = self.pool.lock().unwrap().clone();
        Process::new(entries, ptes, pool, self.device.clone())
    }

    /// The process ends. Nothing is left.
    pub fn exit(&self) {
        (0..NR).for_each(|page| self.discard_page(0, page));
        assert_eq!(
            self.pool.lock().unwrap().in_use(),
            0,
            "an object is left over"
        );
    }
}

/// All processes have ended.
pub fn nothing_is_left(device: &Device) {
    assert_eq!(device.in_use(), 0, "a slot is left over");
}

/// Does `f` to the process on another thread.
pub fn on_a_thread(
    process: &Arc<Process>,
    f: impl FnOnce(&Process) + Send + 'static,
) -> checker::thread::JoinHandle<()> {
    let process = process.clone();
    checker::thread::spawn(move || f(&process))
}
