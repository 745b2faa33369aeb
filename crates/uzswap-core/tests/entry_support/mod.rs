//! The life of one page's entry, in steps that a model checker can interleave.
//!
//! Real are the folio with its lock and flags, the entry's eight bytes, and the locks that an operation, a
//! writeback and a fork take. The steps between are the engine's, told again. Pool and swap device are stand-ins that
//! do each call at once (their own locking has models of its own), and as unkind as they may be: the location
//! that was freed last is handed out next, and the eviction clock stands still, so that a page that is loaded and
//! stored again looks as it did before. Both complain about whatever is used after it was freed.

use std::sync::Mutex;

use checker::sync::Arc;
use checker::sync::atomic::{AtomicU64, Ordering::SeqCst};
#[cfg(not(shuttle))]
use loom as checker;
#[cfg(shuttle)]
use shuttle as checker;
use uzswap_core::folio::{CANCELLED, Folio, RECLAIM};
use uzswap_core::lock::{Lock, RawLock};
use uzswap_core::pool::Loc;
use uzswap_core::table::{Age, Entry, Holds};

const PRESENT: u64 = 1;
const PROTECTED: u64 = 2;
const VALUE: u32 = 2;

const SIZE: u16 = 700;
const AGE: Age = Age(9);
/// Operations at once in a process.
const NR_SLOTS: usize = 2;

/// A few numbered places: what each holds, and how often it is counted.
#[derive(Clone, Debug, Default)]
pub struct Places([(u64, u32); 3]);

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

fn stored(at: usize, writing: bool) -> Entry {
    Entry::Stored {
        loc: Loc::from_raw(at as u64 + 1).expect("small and not 0"),
        size: SIZE,
        age: AGE,
        writing,
        holds: Holds::Page,
    }
}

/// A process with one page, on a device that its children share.
pub struct Process {
    slots: [RawLock; NR_SLOTS],
    writeback: Lock<()>,
    folio: Folio,
    entry: AtomicU64,
    /// What the processor sees.
    pte: AtomicU64,
    pool: Mutex<Places>,
    pub device: Arc<Mutex<Places>>,
}

impl Process {
    pub fn new(entry: Entry, pte: u64, pool: Places, device: Arc<Mutex<Places>>) -> Arc<Process> {
        Arc::new(Process {
            slots: [RawLock::new(), RawLock::new()],
            writeback: Lock::new(()),
            folio: Folio::new(),
            entry: AtomicU64::new(entry.encode()),
            pte: AtomicU64::new(pte),
            pool: Mutex::new(pool),
            device,
        })
    }

    pub fn resident(value: u64) -> Arc<Process> {
        let pte = PRESENT | value << VALUE;
        Self::new(Entry::Resident, pte, Places::default(), Arc::default())
    }

    /// Its page is in the pool.
    pub fn evicted(value: u64) -> Arc<Process> {
        let mut pool = Places::default();
        let at = pool.take(value);
        Self::new(stored(at, false), 0, pool, Arc::default())
    }

    pub fn entry(&self) -> Entry {
        Entry::decode(self.entry.load(SeqCst))
    }

    pub fn set(&self, entry: Entry) {
        self.entry.store(entry.encode(), SeqCst);
    }

    /// Frees what an entry that is no longer in the table held.
    pub fn forget(&self, old: Entry) {
        match old {
            Entry::Stored { loc, .. } => self.pool.lock().unwrap().put(loc.raw() as usize - 1),
            Entry::Swapped { location, .. } => self.device.lock().unwrap().put(location as usize),
            _ => {}
        }
    }

    pub fn reclaim(&self, slot: usize) {
        let _slot = self.slots[slot].lock();
        {
            let Some(guard) = self.folio.try_lock() else {
                return;
            };
            if guard.has(RECLAIM) || self.entry() != Entry::Resident {
                return;
            }
            guard.set(RECLAIM);
        }
        self.pte.fetch_or(PROTECTED, SeqCst);
        let value = self.pte.load(SeqCst) >> VALUE;
        let object = self.pool.lock().unwrap().take(value);
        let guard = self.folio.lock();
        if guard.has(CANCELLED) {
            self.forget(stored(object, false));
            self.pte.fetch_and(!PROTECTED, SeqCst);
            guard.clear(RECLAIM | CANCELLED);
            return;
        }
        self.set(stored(object, false));
        self.pte.store(0, SeqCst);
        guard.clear(RECLAIM);
    }

    pub fn fault(&self, slot: usize) {
        let _slot = self.slots[slot].lock();
        let guard = self.folio.lock();
        let old = self.entry();
        let value = match old {
            Entry::Resident => {
                guard.cancel_reclaim();
                self.pte.fetch_and(!PROTECTED, SeqCst);
                return;
            }
            Entry::Stored { loc, .. } => self.pool.lock().unwrap().get(loc.raw() as usize - 1),
            Entry::Swapped { location, .. } => self.device.lock().unwrap().get(location as usize),
            _ => 0,
        };
        self.pte.store(PRESENT | value << VALUE, SeqCst);
        self.set(Entry::Resident);
        self.forget(old);
    }

    /// The program writes.
    pub fn write(&self, slot: usize, value: u64) {
        loop {
            let pte = self.pte.load(SeqCst);
            if pte & (PRESENT | PROTECTED) == PRESENT {
                let new = PRESENT | value << VALUE;
                if self.pte.compare_exchange(pte, new, SeqCst, SeqCst).is_ok() {
                    return;
                }
            } else {
                self.fault(slot);
            }
        }
    }

    /// The program reads.
    pub fn read(&self, slot: usize) -> u64 {
        loop {
            let pte = self.pte.load(SeqCst);
            if pte & PRESENT != 0 {
                return pte >> VALUE;
            }
            self.fault(slot);
        }
    }

    /// madvise(MADV_DONTNEED) or munmap.
    pub fn discard(&self, slot: usize) {
        let _slot = self.slots[slot].lock();
        loop {
            let guard = self.folio.lock();
            if guard.cancel_reclaim() {
                drop(guard);
                self.folio.wait_reclaim();
                continue;
            }
            let old = self.entry();
            self.set(Entry::None);
            self.pte.store(0, SeqCst);
            self.forget(old);
            return;
        }
    }

    /// Chooses, packs, writes (which `succeeds` or not) and publishes one object.
    pub fn write_back(&self, slot: usize, succeeds: bool) {
        let _slot = self.slots[slot].lock();
        let _turn = self.writeback.lock();
        // Chosen without a lock.
        let Entry::Stored { size, age, .. } = self.entry() else {
            return;
        };
        let taken = self.device.lock().unwrap().take(0xbad);
        if let Some(value) = self.pack(size, age) {
            if succeeds {
                self.device.lock().unwrap().0[taken].0 = value;
            }
            self.publish(taken, succeeds);
        }
        // Counted once for the writeback; what the entry names is counted for it.
        self.device.lock().unwrap().put(taken);
    }

    pub fn pack(&self, size: u16, age: Age) -> Option<u64> {
        let _guard = self.folio.try_lock()?;
        let entry = self.entry();
        match entry {
            Entry::Stored {
                loc,
                size: size_now,
                age: age_now,
                ..
            } if (size_now, age_now) == (size, age) => {
                let at = loc.raw() as usize - 1;
                self.set(stored(at, true));
                Some(self.pool.lock().unwrap().get(at))
            }
            _ => None,
        }
    }

    pub fn publish(&self, taken: usize, succeeds: bool) {
        let _guard = self.folio.lock();
        let old = self.entry();
        if !matches!(old, Entry::Stored { writing: true, .. }) {
            return;
        }
        if !succeeds {
            self.set(old.kept());
            return;
        }
        self.device.lock().unwrap().dup(taken);
        self.set(Entry::Swapped {
            location: taken as u64,
            size: SIZE,
            age: AGE,
            holds: Holds::Page,
        });
        self.forget(old);
    }

    /// The pool is compacted: the object moves.
    pub fn compact(&self, slot: usize) {
        let _slot = self.slots[slot].lock();
        let Some(_guard) = self.folio.try_lock() else {
            return;
        };
        let old = self.entry();
        if let Entry::Stored { loc, writing, .. } = old {
            let mut pool = self.pool.lock().unwrap();
            let value = pool.get(loc.raw() as usize - 1);
            let at = pool.take(value);
            drop(pool);
            self.set(stored(at, writing));
            self.forget(old);
        }
    }

    /// Stops all operations and makes a copy of everything; what is on the device is counted for the copy, too.
    pub fn fork(&self) -> Arc<Process> {
        let _slots: Vec<_> = self.slots.iter().map(RawLock::lock).collect();
        let entry = self.entry();
        if let Entry::Swapped { location, .. } = entry {
            self.device.lock().unwrap().dup(location as usize);
        }
        let pte = self.pte.load(SeqCst);
        // Whoever was reclaiming or writing back was waited for.
        assert!(!self.folio.lock().has(RECLAIM));
        assert_eq!(self.entry(), entry.kept());
        let pool = self.pool.lock().unwrap().clone();
        Process::new(entry, pte, pool, self.device.clone())
    }

    /// The process ends. Nothing is left.
    pub fn exit(&self) {
        self.discard(0);
        assert_eq!(
            self.pool.lock().unwrap().in_use(),
            0,
            "an object is left over"
        );
    }
}

/// All processes have ended.
pub fn nothing_is_left(device: &Mutex<Places>) {
    assert_eq!(device.lock().unwrap().in_use(), 0, "a slot is left over");
}

/// Does `f` to the process on another thread.
pub fn on_a_thread(
    process: &Arc<Process>,
    f: impl FnOnce(&Process) + Send + 'static,
) -> checker::thread::JoinHandle<()> {
    let process = process.clone();
    checker::thread::spawn(move || f(&process))
}
