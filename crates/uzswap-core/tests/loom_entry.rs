//! The life of one page's entry under the model checker: fault × reclaim × writeback × discard × fork. Whatever the
//! order, and whether or not the device takes what is written, a process reads what it wrote last, and at the end no
//! object and no slot is left over.
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release -p uzswap-core --test loom_entry
//!
//! Real are the folio with its lock and flags, the entry's eight bytes, and the locks that an operation, a
//! writeback and a fork take. The steps between are the engine's, told again. Pool and swap device are stand-ins that
//! do each call at once (their own locking has models of its own), and as unkind as they may be: the location
//! that was freed last is handed out next, and the eviction clock stands still, so that a page that is loaded and
//! stored again looks as it did before. Both complain about whatever is used after it was freed.
#![cfg(loom)]

use std::sync::Mutex;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};
use uzswap_core::folio::{CANCELLED, Folio, RECLAIM};
use uzswap_core::lock::{Lock, RawLock};
use uzswap_core::pool::Loc;
use uzswap_core::table::{Age, Entry};

const PRESENT: u64 = 1;
const PROTECTED: u64 = 2;
const VALUE: u32 = 2;

const SIZE: u16 = 700;
const AGE: Age = Age(9);
/// Operations at once in a process.
const NR_SLOTS: usize = 2;

/// A few numbered places: what each holds, and how often it is counted.
#[derive(Clone, Debug, Default)]
struct Places([(u64, u32); 3]);

impl Places {
    fn take(&mut self, value: u64) -> usize {
        let free = self.0.iter().position(|&(_, count)| count == 0);
        let at = free.expect("room");
        self.0[at] = (value, 1);
        at
    }

    fn get(&self, at: usize) -> u64 {
        assert!(self.0[at].1 > 0, "place {at} is read after it was freed");
        self.0[at].0
    }

    fn dup(&mut self, at: usize) {
        assert!(self.0[at].1 > 0, "place {at} is counted after it was freed");
        self.0[at].1 += 1;
    }

    fn put(&mut self, at: usize) {
        assert!(self.0[at].1 > 0, "place {at} is freed twice");
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0[at].0 = 0xdead;
        }
    }

    fn in_use(&self) -> u32 {
        self.0.iter().map(|&(_, count)| count).sum()
    }
}

fn stored(at: usize, writing: bool) -> Entry {
    Entry::Stored {
        loc: Loc::from_raw(at as u64 + 1).expect("small and not 0"),
        size: SIZE,
        age: AGE,
        writing,
    }
}

/// A process with one page, on a device that its children share.
struct Process {
    slots: [RawLock; NR_SLOTS],
    writeback: Lock<()>,
    folio: Folio,
    entry: AtomicU64,
    /// What the processor sees.
    pte: AtomicU64,
    pool: Mutex<Places>,
    device: Arc<Mutex<Places>>,
}

impl Process {
    fn new(entry: Entry, pte: u64, pool: Places, device: Arc<Mutex<Places>>) -> Arc<Process> {
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

    fn resident(value: u64) -> Arc<Process> {
        let pte = PRESENT | value << VALUE;
        Self::new(Entry::Resident, pte, Places::default(), Arc::default())
    }

    /// Its page is in the pool.
    fn evicted(value: u64) -> Arc<Process> {
        let mut pool = Places::default();
        let at = pool.take(value);
        Self::new(stored(at, false), 0, pool, Arc::default())
    }

    fn entry(&self) -> Entry {
        Entry::decode(self.entry.load(SeqCst))
    }

    fn set(&self, entry: Entry) {
        self.entry.store(entry.encode(), SeqCst);
    }

    /// Frees what an entry that is no longer in the table held.
    fn forget(&self, old: Entry) {
        match old {
            Entry::Stored { loc, .. } => self.pool.lock().unwrap().put(loc.raw() as usize - 1),
            Entry::Swapped { location, .. } => self.device.lock().unwrap().put(location as usize),
            _ => {}
        }
    }

    fn reclaim(&self, slot: usize) {
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
        let object = self
            .pool
            .lock()
            .unwrap()
            .take(self.pte.load(SeqCst) >> VALUE);
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

    fn fault(&self, slot: usize) {
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
    fn write(&self, slot: usize, value: u64) {
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
    fn read(&self, slot: usize) -> u64 {
        loop {
            let pte = self.pte.load(SeqCst);
            if pte & PRESENT != 0 {
                return pte >> VALUE;
            }
            self.fault(slot);
        }
    }

    /// madvise(MADV_DONTNEED) or munmap.
    fn discard(&self, slot: usize) {
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
    fn write_back(&self, slot: usize, succeeds: bool) {
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

    fn pack(&self, size: u16, age: Age) -> Option<u64> {
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

    fn publish(&self, taken: usize, succeeds: bool) {
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
        });
        self.forget(old);
    }

    /// The pool is compacted: the object moves.
    fn compact(&self, slot: usize) {
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
    fn fork(&self) -> Arc<Process> {
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
    fn exit(&self) {
        self.discard(0);
        assert_eq!(
            self.pool.lock().unwrap().in_use(),
            0,
            "an object is left over"
        );
    }
}

/// All processes have ended.
fn nothing_is_left(device: &Mutex<Places>) {
    assert_eq!(device.lock().unwrap().in_use(), 0, "a slot is left over");
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(5);
    builder.check(f);
}

fn on_a_thread(
    process: &Arc<Process>,
    f: impl FnOnce(&Process) + 'static,
) -> loom::thread::JoinHandle<()> {
    let process = process.clone();
    loom::thread::spawn(move || f(&process))
}

/// A page is loaded, changed and stored again, in the same place, with the same size and age, while its
/// old contents are on their way to the device.
#[test]
fn what_changes_during_a_write_is_not_replaced_by_what_was_written() {
    for succeeds in [true, false] {
        model(move || {
            let process = Process::evicted(7);
            let other = on_a_thread(&process, move |p| p.write_back(1, succeeds));
            process.write(0, 8);
            process.reclaim(0);
            assert_eq!(process.read(0), 8);
            other.join().unwrap();
            assert_eq!(process.read(0), 8);
            process.exit();
            nothing_is_left(&process.device);
        });
    }
}

/// Eviction and writeback by one thread, while another writes and reads.
#[test]
fn a_program_reads_what_it_wrote_wherever_that_is() {
    model(|| {
        let process = Process::resident(7);
        let other = on_a_thread(&process, |p| {
            p.reclaim(1);
            p.write_back(1, true);
        });
        process.write(0, 8);
        assert_eq!(process.read(0), 8);
        other.join().unwrap();
        assert_eq!(process.read(0), 8);
        process.exit();
        nothing_is_left(&process.device);
    });
}

#[test]
fn a_discard_during_a_write_leaves_zeroes_and_no_slot() {
    model(|| {
        let process = Process::evicted(7);
        let other = on_a_thread(&process, |p| p.write_back(1, true));
        process.discard(0);
        assert_eq!(process.read(0), 0);
        other.join().unwrap();
        assert_eq!(process.read(0), 0);
        process.exit();
        nothing_is_left(&process.device);
    });
}

#[test]
fn an_object_moves_while_it_is_written() {
    model(|| {
        let process = Process::evicted(7);
        let other = on_a_thread(&process, |p| p.write_back(1, true));
        process.compact(0);
        other.join().unwrap();
        assert_eq!(process.read(0), 7);
        process.exit();
        nothing_is_left(&process.device);
    });
}

/// A fork in the middle of a writeback; both change the page, the child writes back, and either ends first.
#[test]
fn parent_and_child_keep_their_own_and_leave_no_slot() {
    model(|| {
        let process = Process::evicted(7);
        let other = on_a_thread(&process, |p| p.write_back(1, true));
        let child = process.fork();
        let in_child = on_a_thread(&child, |child| {
            assert_eq!(child.read(0), 7);
            child.write(0, 9);
            child.reclaim(0);
            child.write_back(0, true);
            assert_eq!(child.read(0), 9);
            child.exit();
        });
        process.write(0, 8);
        other.join().unwrap();
        in_child.join().unwrap();
        assert_eq!(process.read(0), 8);
        process.exit();
        nothing_is_left(&process.device);
    });
}
