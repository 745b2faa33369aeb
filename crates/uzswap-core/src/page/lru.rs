//! *What*: the LRU lists: the folios with resident pages, coldest last.
//!
//! User space has no accessed bit, so recency comes from two events. A new folio joins the head of
//! the inactive list and leaves at its tail, first in, first out. A page whose refault distance is
//! below the size of the resident set shows that its folio is used more often than the resident
//! ones, and the folio joins the active list (as in the kernel's workingset code). Scans take from
//! the active list only while it holds more than three quarters of all folios, or nothing on the
//! inactive list can go.
//!
//! Other processes see when the folio that goes next was put on its list (`coldest`): whoever needs
//! memory asks the process with the coldest. A host may have a [`Ranking`] of its own decide which
//! of the coldest goes.
//!
//! *Invariants*: a folio is on the list that its `LIST` bits name, or on none. `nr` is the length.
//! `coldest` is right whenever nobody holds the lock.
//! *Locking*: one lock for both lists, taken under a folio's lock; so a scan only try-locks folios.
//! *Context*: signal, worker.

use core::ops::Range;

use core::ptr::null_mut;

use super::address::PAGE_SIZE;
use super::folio::{ACTIVE, FolioGuard, FolioTable, INACTIVE, REFERENCED};
use super::marks::Marks;
use super::ranking::{Candidate, Ranking};
use uzswap_sync::lock::{Lock, LockGuard};
use uzswap_sync::primitive::{
    AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use uzswap_sync::strict_assert;
use uzswap_sys::arch;

const NIL: u32 = u32::MAX;

/// Folios of one list in a row that cannot go (pinned, busy, unreadable) before a scan turns to the
/// other list.
const MAX_REFUSED: usize = 64;
/// Folios that one scan looks at.
const MAX_SCANNED: usize = 4096;
/// log2 of the pages around a folio whose folios go along with it, if they are on the same list:
/// 512 KiB. One call then protects them, and one interrupts the other processors.
const GROUP_ORDER: u32 = 7;

/// One list.
#[derive(Debug)]
struct List {
    head: u32,
    tail: u32,
    nr: usize,
    bit: u32,
    marks: Marks,
    ranked: Ranked,
}

/// What a host's ranking has said of a list.
#[derive(Debug)]
struct Ranked {
    /// The lowest rank that there is, as far as is known.
    lowest: u64,
    /// Folios of higher ranks that were found since then.
    higher: usize,
}

impl List {
    const fn new(bit: u32) -> Self {
        Self {
            head: NIL,
            tail: NIL,
            nr: 0,
            bit,
            marks: Marks::new(),
            ranked: Ranked {
                // Until a round has shown that there are none.
                lowest: 0,
                higher: 0,
            },
        }
    }

    fn push_head(&mut self, folios: &FolioTable, index: u32) {
        let folio = folios.at(index);
        folio.prev.store(NIL, Relaxed);
        folio.next.store(self.head, Relaxed);
        if self.head == NIL {
            self.tail = index;
        } else {
            folios.at(self.head).prev.store(index, Relaxed);
        }
        self.head = index;
        self.nr += 1;
        self.marks.join(arch::ticks());
        folio.set_list(self.bit);
    }

    fn push_tail(&mut self, folios: &FolioTable, index: u32) {
        let folio = folios.at(index);
        folio.next.store(NIL, Relaxed);
        folio.prev.store(self.tail, Relaxed);
        if self.tail == NIL {
            self.head = index;
        } else {
            folios.at(self.tail).next.store(index, Relaxed);
        }
        self.tail = index;
        self.nr += 1;
        folio.set_list(self.bit);
    }

    fn remove(&mut self, folios: &FolioTable, index: u32) {
        let folio = folios.at(index);
        let (prev, next) = (folio.prev.load(Relaxed), folio.next.load(Relaxed));
        if prev == NIL {
            self.head = next;
        } else {
            folios.at(prev).next.store(next, Relaxed);
        }
        if next == NIL {
            self.tail = prev;
        } else {
            folios.at(next).prev.store(prev, Relaxed);
        }
        strict_assert!(self.nr > 0, "a folio left an empty list");
        self.nr = self.nr.saturating_sub(1);
        strict_assert!(
            (self.head == NIL) == (self.nr == 0),
            "length of an LRU list"
        );
        folio.set_list(0);
    }

    /// Has the folio that goes next by `ranking` at the tail. What is passed over goes round to the
    /// head, so that each is looked at once a round: colder ones, and all that are looked at while
    /// there are others of a lower rank.
    fn rank(&mut self, folios: &FolioTable, ranking: &dyn Ranking) {
        let (mut next, mut lowest, mut index) = (self.tail, u64::MAX, self.tail);
        let (mut looked, mut colder) = (0, 0);
        while looked < Candidate::MOST && index != NIL && lowest > 0 {
            let turn = looked;
            looked += 1;
            let rank = ranking.rank(&self.candidate(folios, index, turn));
            if rank < lowest {
                (next, lowest, colder) = (index, rank, turn);
            }
            index = folios.at(index).prev.load(Relaxed);
        }
        self.remove(folios, next);
        let mut passed_over = match self.are_others_lower(lowest, looked) {
            true => looked - 1,
            false => colder,
        };
        while passed_over > 0 && self.tail != NIL {
            let index = self.tail;
            self.remove(folios, index);
            self.push_head(folios, index);
            passed_over -= 1;
        }
        self.push_tail(folios, next);
    }

    /// Whether there probably are folios of a lower rank than the lowest of those `looked` at.
    fn are_others_lower(&mut self, lowest: u64, looked: usize) -> bool {
        let ranked = &mut self.ranked;
        ranked.higher += looked;
        // After a round without them they are gone.
        if lowest <= ranked.lowest || ranked.higher > self.nr {
            *ranked = Ranked { lowest, higher: 0 };
        }
        lowest > ranked.lowest
    }

    fn candidate(&self, folios: &FolioTable, index: u32, turn: usize) -> Candidate {
        let pages = folios.range(index);
        Candidate {
            addr: pages.addr(),
            len: pages.len() * PAGE_SIZE,
            resident: usize::from(folios.at(index).nr_resident_about()) * PAGE_SIZE,
            turn,
            active: self.bit == ACTIVE,
        }
    }
}

#[derive(Debug)]
struct Lists {
    inactive: List,
    active: List,
}

impl Lists {
    /// Whether a scan takes from the active list next, with `refused` folios so far. A refused
    /// folio goes round to the head, so a scan of a list with nothing else would never end.
    fn takes_from_active(&self, refused: usize) -> bool {
        let (inactive, active) = (self.inactive.nr, self.active.nr);
        let prefers = active * 4 > (inactive + active) * 3;
        let preferred = if prefers { active } else { inactive };
        let turns = refused >= MAX_REFUSED.min(preferred);
        let wanted = prefers != turns;
        if wanted { active > 0 } else { inactive == 0 }
    }

    /// When the folio that a scan takes first was put on its list; 0: there is none.
    fn coldest(&mut self) -> u64 {
        let list = match self.takes_from_active(0) {
            true => &mut self.active,
            false => &mut self.inactive,
        };
        match list.nr {
            0 => 0,
            nr => list.marks.oldest(nr).max(1),
        }
    }

    /// The list that `guard`'s folio is on.
    fn list_of(&mut self, guard: &FolioGuard<'_>) -> Option<&mut List> {
        if guard.has(INACTIVE) {
            Some(&mut self.inactive)
        } else if guard.has(ACTIVE) {
            Some(&mut self.active)
        } else {
            None
        }
    }
}

/// Pages that a scan is to take.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// It goes on until it has as many.
    pub least: usize,
    /// Neighbours go along as long as it has no more than that.
    pub most: usize,
}

impl Wanted {
    /// About so many, whole groups of neighbours.
    #[must_use]
    pub const fn about(pages: usize) -> Self {
        Wanted {
            least: pages,
            most: usize::MAX,
        }
    }

    /// The same, but no more than `max`.
    #[must_use]
    pub fn at_most(self, max: usize) -> Self {
        Wanted {
            least: self.least.min(max),
            ..self
        }
    }
}

/// The lists of resident folios.
#[derive(Debug)]
pub struct Lru {
    lists: Lock<Lists>,
    /// Where other processes look when the coldest folio was put on its list, ticks; null: nobody
    /// looks.
    coldest: AtomicPtr<AtomicU64>,
    /// The host's; null: it has none.
    ranking: AtomicPtr<&'static dyn Ranking>,
}

/// The lists, locked. When this goes, the others see what became of the coldest.
struct LockedLists<'a> {
    lists: LockGuard<'a, Lists>,
    coldest: Option<&'static AtomicU64>,
}

impl Drop for LockedLists<'_> {
    fn drop(&mut self) {
        let Some(cell) = self.coldest else { return };
        let coldest = self.lists.coldest();
        // Looking first keeps the line, which others read, where it is.
        if cell.load(Relaxed) != coldest {
            cell.store(coldest, Relaxed);
        }
    }
}

impl Default for Lru {
    fn default() -> Self {
        Self::new()
    }
}

impl Lru {
    /// Empty lists.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            lists: Lock::new(Lists {
                inactive: List::new(INACTIVE),
                active: List::new(ACTIVE),
            }),
            coldest: AtomicPtr::new(null_mut()),
            ranking: AtomicPtr::new(null_mut()),
        }
    }

    /// From now on what is evicted next is decided by `ranking`.
    pub fn rank_by(&self, ranking: &'static &'static dyn Ranking) {
        let address = core::ptr::from_ref(ranking).cast_mut();
        // Release: pairs with the acquire in `scan`: what it looks at is seen.
        self.ranking.store(address, Release);
    }

    /// From now on other processes see there when the coldest folio was put on its list.
    pub fn show_coldest(&self, at: &'static AtomicU64) {
        self.coldest
            .store(core::ptr::from_ref(at).cast_mut(), Relaxed);
        drop(self.lock());
    }

    fn lock(&self) -> LockedLists<'_> {
        LockedLists {
            lists: self.lists.lock(),
            // SAFETY: null, or what `show_coldest` was given, which lives for good.
            coldest: unsafe { self.coldest.load(Relaxed).as_ref() },
        }
    }

    /// Adds a folio to the head of the inactive list, unless it is on a list.
    pub fn add(&self, folios: &FolioTable, guard: &FolioGuard<'_>, index: u32) {
        let mut locked = self.lock();
        let lists = &mut *locked.lists;
        if !guard.has(INACTIVE | ACTIVE) {
            lists.inactive.push_head(folios, index);
        }
    }

    /// Moves a folio to the head of the active list, from any list or none.
    pub fn activate(&self, folios: &FolioTable, guard: &FolioGuard<'_>, index: u32) {
        let mut locked = self.lock();
        let lists = &mut *locked.lists;
        if let Some(list) = lists.list_of(guard) {
            list.remove(folios, index);
        }
        lists.active.push_head(folios, index);
    }

    /// Moves a folio to the tail of the inactive list, where it goes next.
    pub fn deactivate(&self, folios: &FolioTable, guard: &FolioGuard<'_>, index: u32) {
        let mut locked = self.lock();
        let lists = &mut *locked.lists;
        if let Some(list) = lists.list_of(guard) {
            list.remove(folios, index);
            lists.inactive.push_tail(folios, index);
        }
    }

    /// Takes a folio off its list.
    pub fn remove(&self, folios: &FolioTable, guard: &FolioGuard<'_>, index: u32) {
        let mut locked = self.lock();
        let lists = &mut *locked.lists;
        if let Some(list) = lists.list_of(guard) {
            list.remove(folios, index);
        }
    }

    /// Takes the coldest folios off their lists, with those of their neighbours that are on the
    /// same one, and passes each, locked, to `isolate`, neighbours in rising order, until there are
    /// as many pages as `wanted` says. `isolate` returns how many pages it took; `None`: it is
    /// full. Busy and pinned folios go round to the head.
    pub fn scan<'a>(
        &self,
        folios: &'a FolioTable,
        wanted: Wanted,
        mut isolate: impl FnMut(u32, &FolioGuard<'a>) -> Option<usize>,
    ) {
        // SAFETY: null, or what `rank_by` was given, which lives for good.
        let ranking = unsafe { self.ranking.load(Acquire).as_ref() }.copied();
        let mut locked = self.lock();
        let lists = &mut *locked.lists;
        let mut left = lists.inactive.nr + lists.active.nr;
        // At most one round; the bound limits the time under the lock.
        left = left.min(MAX_SCANNED);
        let mut looked = 0;
        let mut taken = 0;
        let mut refused = 0;
        while taken < wanted.least && looked < left {
            looked += 1;
            let from_active = lists.takes_from_active(refused);
            let list = if from_active {
                &mut lists.active
            } else {
                &mut lists.inactive
            };
            // What was refused comes round, and would be chosen again.
            if let Some(ranking) = ranking.filter(|_| refused == 0) {
                list.rank(folios, ranking);
            }
            let index = list.tail;
            if index == NIL {
                break;
            }
            list.remove(folios, index);
            let guard = folios.at(index).try_lock();
            let Some(guard) = guard.filter(|guard| !guard.is_pinned()) else {
                list.push_head(folios, index);
                refused += 1;
                continue;
            };
            if from_active && guard.has(REFERENCED) {
                guard.clear(REFERENCED);
                list.push_head(folios, index);
                continue;
            }
            // Neighbours have ranks of their own.
            let (below, above) = match ranking {
                None => group_around(index, folios.order()),
                Some(_) => Default::default(),
            };
            let own = taken + usize::from(guard.nr_resident());
            let max = wanted.most.saturating_sub(own);
            taken += take_neighbours(list, folios, below, max, &mut isolate);
            match isolate(index, &guard) {
                None => {
                    list.push_tail(folios, index);
                    break;
                }
                // Nothing of it can go now, for example because mprotect made it unreadable.
                Some(0) => {
                    list.push_head(folios, index);
                    refused += 1;
                }
                Some(got) => taken += got,
            }
            let max = wanted.most.saturating_sub(taken);
            taken += take_neighbours(list, folios, above, max, &mut isolate);
        }
    }
}

/// The folios that go along with folio `index`: those below it and those above.
fn group_around(index: u32, order: u32) -> (Range<u32>, Range<u32>) {
    let nr = 1 << GROUP_ORDER.saturating_sub(order);
    let first = index & !(nr - 1);
    (first..index, index + 1..first + nr)
}

/// Takes those folios of a group off `list` that are on it, idle and not used again, and passes
/// each to `isolate`, up to `max` pages. Returns the pages taken.
fn take_neighbours<'a>(
    list: &mut List,
    folios: &'a FolioTable,
    group: Range<u32>,
    max: usize,
    isolate: &mut impl FnMut(u32, &FolioGuard<'a>) -> Option<usize>,
) -> usize {
    let mut taken = 0;
    for index in group {
        // Without the lock a hint: most are on no list or on the other.
        let folio = folios.at(index);
        if !folio.is_on(list.bit) {
            continue;
        }
        let Some(guard) = folio.try_lock() else {
            continue;
        };
        if !guard.has(list.bit) || guard.has(REFERENCED) || guard.is_pinned() {
            continue;
        }
        if taken + usize::from(guard.nr_resident()) > max {
            break;
        }
        list.remove(folios, index);
        match isolate(index, &guard) {
            None | Some(0) => list.push_head(folios, index),
            Some(got) => taken += got,
        }
    }
    taken
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use uzswap_sys::mem::{MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap};

    /// Folios of 2 MiB.
    fn folios() -> FolioTable {
        folios_of(9)
    }

    fn folios_of(order: u32) -> FolioTable {
        let room = |len| {
            let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
            // SAFETY: a fresh mapping at an address of the kernel's choice, kept.
            unsafe { mmap(0, len, PROT_READ | PROT_WRITE, flags, -1, 0) }.unwrap() as *mut u8
        };
        let (folios, bitmap) = (
            room(FolioTable::len_for(order)),
            room(FolioTable::bitmap_len_for(order)),
        );
        // SAFETY: fresh memory of those lengths.
        unsafe { FolioTable::new(folios, bitmap, order) }
    }

    /// Scans for one folio of a page while those in `stays` cannot go.
    fn taken(lru: &Lru, folios: &FolioTable, stays: core::ops::Range<u32>) -> Option<u32> {
        let mut taken = None;
        let wanted = Wanted { least: 1, most: 1 };
        lru.scan(folios, wanted, |index, _| {
            if stays.contains(&index) {
                return Some(0);
            }
            taken = Some(index);
            Some(1)
        });
        taken
    }

    #[test]
    fn neighbours_go_along_up_to_the_bound() {
        const NR_EACH: u16 = 20;
        // Folios of 64 KiB: eight of them are a group.
        let order = 4;
        for (most, expected) in [(0, 3), (59, 3), (100, 5), (usize::MAX, 8)] {
            let (lru, folios) = (Lru::new(), folios_of(order));
            for index in 0..8 {
                let guard = folios.at(index).lock();
                guard.add_resident(NR_EACH);
                lru.add(&folios, &guard, index);
            }
            let mut taken = Vec::new();
            let wanted = Wanted { least: 41, most };
            lru.scan(&folios, wanted, |index, guard| {
                taken.push(index);
                Some(guard.nr_resident().into())
            });
            assert_eq!(taken.len(), expected, "at most {most}: {taken:?}");
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), expected, "each once");
        }
    }

    #[test]
    fn what_cannot_go_does_not_stand_before_what_can() {
        for (nr_active, nr_inactive) in [(9, 1), (1, 9), (1000, 1), (2, 300)] {
            let (lru, folios) = (Lru::new(), folios());
            for index in 0..nr_active + nr_inactive {
                let guard = folios.at(index).lock();
                lru.add(&folios, &guard, index);
                if index < nr_active {
                    lru.activate(&folios, &guard, index);
                }
            }
            let case = format!("{nr_active} active, {nr_inactive} inactive");
            let all = nr_active + nr_inactive;
            let found = taken(&lru, &folios, 0..nr_active);
            assert!(found.is_some_and(|at| at >= nr_active), "{case}");
            let found = taken(&lru, &folios, nr_active..all);
            assert!(found.is_some_and(|at| at < nr_active), "{case}");
            assert_eq!(taken(&lru, &folios, 0..all), None, "{case}");
        }
    }

    /// Addresses count alone: the highest goes first.
    struct FromTheTop;

    // SAFETY: a subtraction.
    unsafe impl Ranking for FromTheTop {
        fn rank(&self, folio: &Candidate) -> u64 {
            u64::MAX - folio.addr as u64
        }
    }

    /// The first folios stay if anything else can go.
    struct Stay {
        pages: usize,
    }

    // SAFETY: a comparison.
    unsafe impl Ranking for Stay {
        fn rank(&self, folio: &Candidate) -> u64 {
            u64::from(folio.addr < crate::page::ARENA_BASE + self.pages * PAGE_SIZE)
        }
    }

    #[test]
    fn a_ranking_chooses_of_the_coldest() {
        let order = |nr, ranking: Option<&'static &'static dyn Ranking>| {
            let (lru, folios) = (Lru::new(), folios_of(0));
            for index in 0..nr {
                let guard = folios.at(index).lock();
                guard.add_resident(1);
                lru.add(&folios, &guard, index);
            }
            if let Some(ranking) = ranking {
                lru.rank_by(ranking);
            }
            let next = || taken(&lru, &folios, 0..0);
            std::iter::from_fn(next).collect::<Vec<_>>()
        };
        assert_eq!(order(20, None), (0..20).collect::<Vec<_>>());
        let ranking: &dyn Ranking = &FromTheTop;
        let ranking = Box::leak(Box::new(ranking));
        assert_eq!(order(20, Some(ranking)), (0..20).rev().collect::<Vec<_>>());
        // More than are looked at stand before the rest.
        let nr = u32::try_from(Candidate::MOST).unwrap();
        let ranking: &dyn Ranking = Box::leak(Box::new(Stay {
            pages: Candidate::MOST + 50,
        }));
        let order = order(nr + 100, Some(Box::leak(Box::new(ranking))));
        let first = (nr + 50..nr + 100).collect::<Vec<_>>();
        assert_eq!(order[1..51], first, "one goes until others have been seen");
        assert_eq!(order.len(), Candidate::MOST + 100);
    }

    #[test]
    fn what_a_ranking_wants_to_go_and_cannot_does_not_stand_before_the_rest() {
        let (lru, folios) = (Lru::new(), folios_of(4));
        for index in 0..40 {
            let guard = folios.at(index).lock();
            guard.add_resident(1);
            lru.add(&folios, &guard, index);
        }
        let ranking: &dyn Ranking = &FromTheTop;
        lru.rank_by(Box::leak(Box::new(ranking)));
        let found = taken(&lru, &folios, 5..40);
        assert!(found.is_some_and(|at| at < 5), "{found:?}");
    }
}
