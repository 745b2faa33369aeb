//! *What*: the swap cache: which pages read back from a swap device still have their copy there, so
//! that a page that has not changed need not be written again.
//!
//! Nobody watches for writes: a record has a fingerprint of the copy, and an object to be written
//! is compared with it. A record may be stale in any way (the page was changed, dropped, moved,
//! remapped); it then costs room on the device until it is found, but never a wrong byte.
//!
//! A record has one place in a table, by its page's number, and is never displaced: a page read
//! back while its place is taken is written again, as without a cache. If new records displaced old
//! ones, few would live until their page is next written.
//!
//! *Invariants*: zeroed memory is an empty cache. A record counts the slots of its copy once;
//! taking it passes the count to the caller.
//! *Locking*: one lock per leaf of the table, and one for charging leaves, never two at a time;
//! only a swap cluster's lock is taken below them.
//! *Context*: signal, worker.

#[cfg(not(loom))]
mod copies;

use crate::page::{Entry, PAGE_SIZE, Page};
use uzswap_io::Fingerprint;
use uzswap_sync::lock::Lock;
use uzswap_sync::primitive::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// Records in a leaf: as many as fill a page.
const LEAF_RECORDS: usize = if cfg!(loom) { 2 } else { 127 };

/// A page's copy on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedCopy {
    /// The page.
    pub page: Page,
    /// Its entry before it was read back, which can name the copy again.
    pub entry: Entry,
    /// The fingerprint of the object's body.
    pub fingerprint: Fingerprint,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    /// An entry's eight bytes; 0: none.
    entry: u64,
    page: u32,
    fingerprint: Fingerprint,
}

const EMPTY: Record = Record {
    entry: 0,
    page: 0,
    fingerprint: Fingerprint::ZERO,
};

/// A page of the table.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(align(4096)))]
pub struct Leaf {
    /// Nonzero once the leaf's memory is charged.
    charged: AtomicU32,
    records: Lock<[Record; LEAF_RECORDS]>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Leaf>() == PAGE_SIZE);

impl Default for Leaf {
    fn default() -> Self {
        Leaf {
            charged: AtomicU32::new(0),
            records: Lock::new([EMPTY; LEAF_RECORDS]),
        }
    }
}

/// The table of records.
#[derive(Debug)]
pub struct SwapCache<'a> {
    leaves: &'a [Leaf],
    charging: Lock<()>,
}

impl<'a> SwapCache<'a> {
    /// Bytes of a table with a place for each of `pages`, the limit of the process.
    #[must_use]
    pub const fn memory_len(pages: usize) -> usize {
        pages.div_ceil(LEAF_RECORDS) * PAGE_SIZE
    }

    /// An empty cache.
    #[must_use]
    pub fn new(leaves: &'a [Leaf]) -> Self {
        SwapCache {
            leaves,
            charging: Lock::new(()),
        }
    }

    fn place(&self, page: Page) -> Option<(&'a Leaf, usize)> {
        let place = page.index() % (self.leaves.len() * LEAF_RECORDS).max(1);
        Some((self.leaves.get(place / LEAF_RECORDS)?, place % LEAF_RECORDS))
    }

    /// Keeps a copy, whose count passes to the cache. `charge` takes one page for the table.
    /// `false`: there is no room, and the count stays the caller's.
    #[must_use]
    pub fn keep(&self, copy: CachedCopy, charge: impl FnOnce() -> bool) -> bool {
        let Some((leaf, place)) = self.place(copy.page) else {
            return false;
        };
        if !self.ready(leaf, charge) {
            return false;
        }
        let mut records = leaf.records.lock();
        match records.get_mut(place) {
            Some(record) if record.entry == EMPTY.entry => {
                *record = Record {
                    entry: copy.entry.encode(),
                    page: copy.page.owner(),
                    fingerprint: copy.fingerprint,
                };
                true
            }
            _ => false,
        }
    }

    /// Takes the copy of `page` out. Its count passes to the caller.
    pub fn take(&self, page: Page) -> Option<CachedCopy> {
        let (leaf, place) = self.place(page)?;
        // Acquire: pairs with the release in `ready`; before that, nothing was kept there.
        if leaf.charged.load(Acquire) == 0 {
            return None;
        }
        let mut records = leaf.records.lock();
        let record = records.get_mut(place)?;
        if record.page != page.owner() {
            return None;
        }
        taken(record)
    }

    /// Takes out every copy whose entry is `meant`, and passes it with its count to `to`.
    pub fn drain(&self, meant: impl Fn(Entry) -> bool, mut to: impl FnMut(CachedCopy)) {
        for leaf in self.leaves {
            // Acquire: as in `take`.
            if leaf.charged.load(Acquire) == 0 {
                continue;
            }
            for record in leaf.records.lock().iter_mut() {
                if meant(Entry::decode(record.entry))
                    && let Some(copy) = taken(record)
                {
                    to(copy);
                }
            }
        }
    }

    /// Whether the leaf's memory is charged; calls `charge` if it is not yet.
    fn ready(&self, leaf: &Leaf, charge: impl FnOnce() -> bool) -> bool {
        if leaf.charged.load(Acquire) != 0 {
            return true;
        }
        let _turn = self.charging.lock();
        if leaf.charged.load(Relaxed) == 0 {
            if !charge() {
                return false;
            }
            // Release: pairs with the acquire loads above: the leaf's memory is charged.
            leaf.charged.store(1, Release);
        }
        true
    }
}

fn taken(record: &mut Record) -> Option<CachedCopy> {
    let Record {
        entry,
        page,
        fingerprint,
    } = core::mem::replace(record, EMPTY);
    (entry != EMPTY.entry).then(|| CachedCopy {
        page: Page::from_index(page as usize),
        entry: Entry::decode(entry),
        fingerprint,
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::page::{Age, Content};
    use std::collections::HashMap;

    fn copy(page: usize, location: u64) -> CachedCopy {
        CachedCopy {
            page: Page::from_index(page),
            entry: Entry::Swapped {
                location,
                size: 700,
                age: Age(9),
                content: Content::Page,
            },
            fingerprint: Fingerprint::ZERO,
        }
    }

    /// Random histories against a map from places to copies. No copy comes out that was not put in,
    /// none twice, and none is lost: its slots would never be free again.
    #[test]
    fn every_copy_comes_out_once_and_for_its_own_page() {
        let leaves: Vec<Leaf> = (0..3).map(|_| Leaf::default()).collect();
        let places = leaves.len() * LEAF_RECORDS;
        let cache = SwapCache::new(&leaves);
        let mut model: HashMap<usize, CachedCopy> = HashMap::new();
        let mut x = 0x2545_f491_4f6c_dd1d_u64;
        for turn in 0..if cfg!(miri) { 500 } else { 50_000 } {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let page = (x >> 8) as usize % (3 * places);
            match x % 8 {
                0..4 => {
                    let new = copy(page, turn);
                    let kept = cache.keep(new, || true);
                    assert_eq!(kept, !model.contains_key(&(page % places)), "page {page}");
                    if kept {
                        model.insert(page % places, new);
                    }
                }
                4..7 => {
                    let expected = model.get(&(page % places)).copied();
                    let expected = expected.filter(|copy| copy.page.index() == page);
                    assert_eq!(cache.take(Page::from_index(page)), expected);
                    if expected.is_some() {
                        model.remove(&(page % places));
                    }
                }
                _ if turn % 64 == 0 => {
                    let mut out = 0;
                    // As on one device of several, now and then of all.
                    let meant = |entry| match entry {
                        Entry::Swapped { location, .. } => turn % 128 == 0 || location % 3 == 0,
                        _ => false,
                    };
                    cache.drain(meant, |copy| {
                        out += 1;
                        assert!(meant(copy.entry));
                        assert_eq!(model.remove(&(copy.page.index() % places)), Some(copy));
                    });
                    let left = model.values().filter(|copy| meant(copy.entry));
                    assert_eq!(left.count(), 0, "left behind beside {out}");
                }
                _ => {}
            }
        }
    }

    #[test]
    fn a_leaf_is_charged_once_and_not_used_before() {
        let leaves = [Leaf::default()];
        let cache = SwapCache::new(&leaves);
        assert!(!cache.keep(copy(1, 5), || false), "no memory for it");
        assert_eq!(cache.take(Page::from_index(1)), None);
        let mut charged = 0;
        for page in 0..LEAF_RECORDS {
            assert!(cache.keep(copy(page, 5), || {
                charged += 1;
                true
            }));
        }
        assert_eq!(charged, 1, "pages charged for one leaf");
    }
}
