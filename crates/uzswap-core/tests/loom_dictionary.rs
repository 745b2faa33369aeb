//! A dictionary's life under the model checker: pages are stored by it, loaded, moved to the device, while another takes its place and it is
//! given back. Whoever decodes finds the dictionary that made the object, and none is given back that an entry names.
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release -p uzswap-core --test loom_dictionary
#![cfg(loom)]

use loom::sync::{Arc, Mutex};
use loom::thread;
use uzswap_core::dictionary::Dictionaries;
use uzswap_core::table::DictNr;

/// What an object is: what the dictionary was that made it.
type Object = u32;

struct Process {
    dictionaries: Dictionaries<loom::cell::Cell<u32>>,
    slots: [Mutex<()>; 2],
    /// Each a folio with one page: its entry, the dictionary's number and the object.
    folios: [Mutex<Option<(DictNr, Object)>>; 2],
}

// SAFETY: the cells are read only, which loom sees to.
unsafe impl Sync for Process {}
// SAFETY: as above.
unsafe impl Send for Process {}

impl Process {
    fn new() -> Arc<Self> {
        let process = Process {
            dictionaries: Dictionaries::new(),
            slots: [Mutex::new(()), Mutex::new(())],
            folios: [Mutex::new(None), Mutex::new(None)],
        };
        process.publish(1);
        Arc::new(process)
    }

    fn publish(&self, content: u32) {
        let made = self.dictionaries.publish(loom::cell::Cell::new(content));
        assert!(made.is_ok());
    }

    /// The page is stored, by the live dictionary if there is one.
    fn store(&self, slot: usize, page: usize) {
        let _slot = self.slots[slot].lock().unwrap();
        let Some(nr) = self.dictionaries.live() else {
            return;
        };
        // SAFETY: the slot is held.
        let made = unsafe { self.dictionaries.get(nr) }
            .expect("it is live")
            .get();
        let mut entry = self.folios[page].lock().unwrap();
        *entry = Some((nr, made));
        self.dictionaries.add(nr);
    }

    /// The page comes back.
    fn load(&self, slot: usize, page: usize) {
        let _slot = self.slots[slot].lock().unwrap();
        let mut entry = self.folios[page].lock().unwrap();
        if let Some((nr, object)) = *entry {
            // SAFETY: the slot is held, and the folio.
            let dictionary = unsafe { self.dictionaries.get(nr) };
            assert_eq!(dictionary.expect("an entry names it").get(), object);
            *entry = None;
            self.dictionaries.sub(nr);
        }
    }

    /// Its object goes somewhere else.
    fn pass_on(&self, slot: usize, page: usize) {
        let _slot = self.slots[slot].lock().unwrap();
        let entry = self.folios[page].lock().unwrap();
        if let Some((nr, _)) = *entry {
            self.dictionaries.add(nr);
            self.dictionaries.sub(nr);
        }
    }

    /// Gives back what nobody needs any more.
    fn give_back(&self) -> usize {
        let unused = DictNr::ALL.map(|nr| self.dictionaries.is_unused(nr));
        if !unused.contains(&true) {
            return 0;
        }
        for slot in &self.slots {
            drop(slot.lock().unwrap());
        }
        let mut taken = 0;
        for (nr, was_unused) in DictNr::ALL.into_iter().zip(unused) {
            if was_unused && self.dictionaries.is_unused(nr) {
                // SAFETY: it was unused before every slot was free.
                let gone = unsafe { self.dictionaries.take(nr) };
                // As if the memory were another's now.
                gone.expect("it was there").set(0);
                taken += 1;
            }
        }
        taken
    }

    fn check_and_end(&self) {
        for page in 0..2 {
            self.load(0, page);
        }
        self.dictionaries.retire();
        self.give_back();
        assert!(!self.dictionaries.any_unused());
        let free = self.dictionaries.free();
        assert_eq!(free, DictNr::new(0), "all were given back");
    }
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn what_is_stored_while_it_is_replaced_can_be_loaded() {
    explore(|| {
        let process = Process::new();
        let other = process.clone();
        let stores = thread::spawn(move || {
            other.store(0, 0);
            other.load(0, 0);
        });
        process.dictionaries.retire();
        process.give_back();
        process.publish(2);
        process.store(1, 1);
        process.give_back();
        stores.join().unwrap();
        process.check_and_end();
    });
}

#[test]
fn an_object_that_moves_keeps_its_dictionary() {
    explore(|| {
        let process = Process::new();
        process.store(0, 0);
        process.dictionaries.retire();
        let other = process.clone();
        let moves = thread::spawn(move || {
            other.pass_on(0, 0);
            other.load(1, 0);
        });
        process.give_back();
        process.give_back();
        moves.join().unwrap();
        process.check_and_end();
    });
}
