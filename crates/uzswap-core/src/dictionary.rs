//! *What*: which dictionaries a process has, by which of them new objects are made, and how many entries need each.
//!
//! ```text
//! free ──publish──► live ──retire──► retired ──take, once no entry is left──► free
//! ```
//!
//! At most one is live: by it what is stored now is made. What is retired only decodes.
//!
//! *Invariants*
//! - Entries are counted with their folio held, the new before the old is forgotten.
//! - Who makes something by a dictionary holds a slot from before it asked which is live until the entry says so. Who decodes by one
//!   holds a slot, and the folio of an entry that says so. So one that was retired, and had no entry left at some time, and had none after
//!   each slot had been free once since, is nobody's: only then it is taken.
//! - A place changes its state by one thread at a time, the one that trains, which holds a slot then: a fork child finds no change half done.
//!
//! *Locking*: none of its own: the slots that its users hold, as above. *Context*: signal, worker.
//! `tests/loom_dictionary.rs` tries every order of its users.

use crate::table::DictNr;
use uzswap_sync::primitive::{AtomicU32, AtomicU64, Ordering, UnsafeCell};

/// [`Dictionaries::live`]: there is none.
const NONE: u32 = u32::MAX;

/// A place.
const FREE: u32 = 0;
const LIVE: u32 = 1;
const RETIRED: u32 = 2;

#[derive(Debug)]
struct Place<T> {
    state: AtomicU32,
    /// Entries in the page table that name it.
    entries: AtomicU64,
    /// Written while the place is free only.
    dictionary: UnsafeCell<Option<T>>,
}

/// The dictionaries of a process. `T` is what one is made of.
#[derive(Debug)]
pub struct Dictionaries<T> {
    places: [Place<T>; DictNr::COUNT],
    /// The number of the live one.
    live: AtomicU32,
}

// SAFETY: what is in a place is written before it is published, and taken out when nobody has it: see the invariants.
unsafe impl<T: Send + Sync> Sync for Dictionaries<T> {}

impl<T> Default for Dictionaries<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Dictionaries<T> {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self {
            places: core::array::from_fn(|_| Place {
                state: AtomicU32::new(FREE),
                entries: AtomicU64::new(0),
                dictionary: UnsafeCell::new(None),
            }),
            live: AtomicU32::new(NONE),
        }
    }

    fn place(&self, nr: DictNr) -> &Place<T> {
        let [first, ..] = &self.places;
        self.places.get(usize::from(nr.nr())).unwrap_or(first)
    }

    /// The number of the live one.
    #[inline]
    #[must_use]
    pub fn live(&self) -> Option<DictNr> {
        // Acquire: pairs with the release in `publish`.
        let live = self.live.load(Ordering::Acquire);
        DictNr::new(u8::try_from(live).ok()?)
    }

    /// What it is made of.
    ///
    /// # Safety
    /// The caller holds a slot, and holds it longer than this: since before it was told that the dictionary is live, or found it in
    /// an entry whose folio it holds too.
    #[must_use]
    pub unsafe fn get(&self, nr: DictNr) -> Option<&T> {
        let dictionary = self.place(nr).dictionary.get();
        // SAFETY: nobody writes to it meanwhile, by the invariants.
        dictionary.with(|dictionary| unsafe { (*dictionary).as_ref() })
    }

    /// An entry more names it.
    #[inline]
    pub fn add(&self, nr: DictNr) {
        self.place(nr).entries.fetch_add(1, Ordering::Relaxed);
    }

    /// An entry less names it. `true`: it was the last, and there will be no more.
    #[inline]
    pub fn sub(&self, nr: DictNr) -> bool {
        let place = self.place(nr);
        // Release: who finds none left has all that was done with it behind them.
        place.entries.fetch_sub(1, Ordering::Release) == 1
            && place.state.load(Ordering::Relaxed) == RETIRED
    }

    /// Makes `dictionary` the live one, as none is. It comes back if there are too many.
    ///
    /// # Errors
    /// There is no place.
    pub fn publish(&self, dictionary: T) -> Result<DictNr, T> {
        let Some(nr) = self.free() else {
            return Err(dictionary);
        };
        let place = self.place(nr);
        place.dictionary.get_mut().with(|cell| {
            // SAFETY: nobody reads what is in a free place.
            unsafe { *cell = Some(dictionary) }
        });
        place.state.store(LIVE, Ordering::Relaxed);
        // Release: whoever is told of it finds what it is made of.
        self.live.store(nr.nr().into(), Ordering::Release);
        Ok(nr)
    }

    /// A place for one more.
    #[must_use]
    pub fn free(&self) -> Option<DictNr> {
        let is_free = |nr: &DictNr| self.place(*nr).state.load(Ordering::Relaxed) == FREE;
        DictNr::ALL.into_iter().find(is_free)
    }

    /// Nothing more is made by the live one.
    pub fn retire(&self) {
        if let Some(nr) = self.live() {
            self.live.store(NONE, Ordering::Relaxed);
            self.place(nr).state.store(RETIRED, Ordering::Relaxed);
        }
    }

    /// Whether no entry names it, and none will unless somebody is about to write one: not after each slot was free once.
    #[must_use]
    pub fn is_unused(&self, nr: DictNr) -> bool {
        let place = self.place(nr);
        // Acquire: pairs with the release in `sub`.
        place.state.load(Ordering::Relaxed) == RETIRED && place.entries.load(Ordering::Acquire) == 0
    }

    /// Whether there is such a one.
    #[must_use]
    pub fn any_unused(&self) -> bool {
        DictNr::ALL.into_iter().any(|nr| self.is_unused(nr))
    }

    /// Takes it out of its place, which is free then.
    ///
    /// # Safety
    /// It was unused, then each slot was free once, and it still is.
    pub unsafe fn take(&self, nr: DictNr) -> Option<T> {
        let place = self.place(nr);
        let dictionary = place.dictionary.get_mut().with(|cell| {
            // SAFETY: nobody has it, by the caller's promise.
            unsafe { (*cell).take() }
        });
        place.state.store(FREE, Ordering::Relaxed);
        dictionary
    }
}
