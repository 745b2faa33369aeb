//! The page-entry state machine under the model checker: whatever the order, what the program wrote
//! last is what it reads.
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release -p uzswap-core --test loom_folio
//!
//! The page's hardware side is one atomic word: present, write-protected, contents. A program
//! thread reads and writes it only as the processor would let it, and faults otherwise.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};
use uzswap_core::arena::hazard::Hazards;
use uzswap_core::page::PageRange;
use uzswap_core::page::folio::{CANCELLED, Folio, RECLAIM};

const PAGE: PageRange = PageRange { start: 5, end: 6 };

const PRESENT: u64 = 1;
const PROTECTED: u64 = 2;
const VALUE: u32 = 2;

const RESIDENT: u64 = 1;
const STORED: u64 = 2;

struct Machine {
    folio: Folio,
    hazards: Hazards,
    /// The page table's entry and the pool object, changed under the folio's lock only.
    entry: AtomicU64,
    object: AtomicU64,
    /// What the processor sees.
    pte: AtomicU64,
}

impl Machine {
    fn resident(value: u64) -> Arc<Machine> {
        Arc::new(Machine {
            folio: Folio::new(),
            hazards: Hazards::new(),
            entry: AtomicU64::new(RESIDENT),
            object: AtomicU64::new(0),
            pte: AtomicU64::new(PRESENT | value << VALUE),
        })
    }

    /// One reclaim of the folio: isolate, protect, store, publish and drop, or roll back.
    fn reclaim(&self) {
        {
            let Some(guard) = self.folio.try_lock() else {
                return;
            };
            if guard.is_pinned() || guard.has(RECLAIM) || self.entry.load(SeqCst) != RESIDENT {
                return;
            }
            guard.set(RECLAIM);
            if self.hazards.covers(PAGE) {
                guard.clear(RECLAIM);
                return;
            }
        }
        self.pte.fetch_or(PROTECTED, SeqCst);
        let seen = self.pte.load(SeqCst);
        assert!(seen & PRESENT != 0, "a page vanished under its reclaimer");
        let guard = self.folio.lock();
        if guard.has(CANCELLED) {
            self.pte.fetch_and(!PROTECTED, SeqCst);
            guard.clear(RECLAIM | CANCELLED);
            return;
        }
        self.object.store(seen >> VALUE, SeqCst);
        self.entry.store(STORED, SeqCst);
        self.pte.store(0, SeqCst);
        guard.clear(RECLAIM);
    }

    /// What the fault handler does.
    fn fault(&self) {
        let guard = self.folio.lock();
        match self.entry.load(SeqCst) {
            RESIDENT => {
                guard.cancel_reclaim();
                self.pte.fetch_and(!PROTECTED, SeqCst);
            }
            STORED => {
                let value = self.object.load(SeqCst);
                self.pte.store(PRESENT | value << VALUE, SeqCst);
                self.entry.store(RESIDENT, SeqCst);
            }
            _ => {
                self.pte.store(PRESENT, SeqCst);
                self.entry.store(RESIDENT, SeqCst);
            }
        }
    }

    /// The program writes.
    fn write(&self, value: u64) {
        loop {
            let pte = self.pte.load(SeqCst);
            if pte & (PRESENT | PROTECTED) == PRESENT {
                let new = PRESENT | value << VALUE;
                if self.pte.compare_exchange(pte, new, SeqCst, SeqCst).is_ok() {
                    return;
                }
            } else {
                self.fault();
            }
        }
    }

    /// The program reads.
    fn read(&self) -> u64 {
        loop {
            let pte = self.pte.load(SeqCst);
            if pte & PRESENT != 0 {
                return pte >> VALUE;
            }
            self.fault();
        }
    }

    /// madvise(MADV_DONTNEED) or munmap.
    fn discard(&self) {
        loop {
            let guard = self.folio.lock();
            if guard.cancel_reclaim() {
                drop(guard);
                self.folio.wait_reclaim();
                continue;
            }
            self.entry.store(0, SeqCst);
            self.pte.store(0, SeqCst);
            return;
        }
    }

    /// A system call that writes to the page if that stays in for it, by a hazard instead of a pin.
    fn system_call_tries_to_write(&self, value: u64) -> bool {
        let hazard = self.hazards.announce(0, PAGE).unwrap();
        let kept = !self.folio.has(RECLAIM) && self.entry.load(SeqCst) == RESIDENT;
        if kept {
            let pte = self.pte.load(SeqCst);
            assert_eq!(pte & (PRESENT | PROTECTED), PRESENT, "EFAULT");
            self.pte.store(PRESENT | value << VALUE, SeqCst);
        }
        hazard.withdraw();
        kept
    }

    /// A system call that writes to the page: pin, the kernel's write, unpin.
    fn system_call_writes(&self, value: u64) {
        {
            let guard = self.folio.lock();
            guard.pin();
            let guard = if guard.cancel_reclaim() {
                drop(guard);
                self.folio.wait_reclaim();
                self.folio.lock()
            } else {
                guard
            };
            let _ = &guard;
            if self.entry.load(SeqCst) == STORED {
                let old = self.object.load(SeqCst);
                self.pte.store(PRESENT | old << VALUE, SeqCst);
                self.entry.store(RESIDENT, SeqCst);
            }
        }
        let pte = self.pte.load(SeqCst);
        assert_eq!(pte & (PRESENT | PROTECTED), PRESENT, "EFAULT");
        self.pte.store(PRESENT | value << VALUE, SeqCst);
        self.folio.lock().unpin();
    }
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

#[test]
fn a_write_during_reclaim_is_never_lost() {
    model(|| {
        let machine = Machine::resident(7);
        let reclaimer = {
            let machine = machine.clone();
            loom::thread::spawn(move || machine.reclaim())
        };
        machine.write(8);
        machine.write(9);
        assert_eq!(machine.read(), 9);
        reclaimer.join().unwrap();
        assert_eq!(machine.read(), 9);
    });
}

#[test]
fn two_reclaimers_never_hold_one_folio() {
    model(|| {
        let machine = Machine::resident(7);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let machine = machine.clone();
                loom::thread::spawn(move || machine.reclaim())
            })
            .collect();
        machine.write(8);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(machine.read(), 8);
    });
}

#[test]
fn a_discard_during_reclaim_waits_for_it_and_zero_is_read() {
    model(|| {
        let machine = Machine::resident(7);
        let reclaimer = {
            let machine = machine.clone();
            loom::thread::spawn(move || machine.reclaim())
        };
        machine.discard();
        assert_eq!(machine.read(), 0);
        reclaimer.join().unwrap();
        assert_eq!(machine.read(), 0);
    });
}

#[test]
fn a_pinned_page_stays_for_the_system_call() {
    model(|| {
        let machine = Machine::resident(7);
        let reclaimer = {
            let machine = machine.clone();
            loom::thread::spawn(move || {
                machine.reclaim();
                machine.reclaim();
            })
        };
        machine.system_call_writes(5);
        assert_eq!(machine.read(), 5);
        reclaimer.join().unwrap();
        assert_eq!(machine.read(), 5);
    });
}

#[test]
fn an_announced_page_stays_for_the_system_call() {
    model(|| {
        let machine = Machine::resident(7);
        let reclaimer = {
            let machine = machine.clone();
            loom::thread::spawn(move || {
                machine.reclaim();
                machine.reclaim();
            })
        };
        let expected = if machine.system_call_tries_to_write(5) {
            5
        } else {
            7
        };
        assert_eq!(machine.read(), expected);
        reclaimer.join().unwrap();
        assert_eq!(machine.read(), expected);
    });
}
