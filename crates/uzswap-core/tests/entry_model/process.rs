//! *What*: a process of four pages in one folio, in steps that a model checker can interleave.
//!
//! Real are the changes of entries ([`Transition`]) and what they count, the folio with its lock
//! and flags, the blocks, and the locks that an operation, a writeback and a fork take. The kernel
//! and the program are stand-ins, and so are pool and device. The eviction clock stands still, so
//! that a page that is loaded and stored again looks as it did before. A fault reads from the
//! device before it holds the folio for good, as the engine's do while they evict.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use super::checker::sync::Arc;
use super::checker::sync::atomic::{AtomicU64, Ordering::SeqCst};
use super::memory::{Device, Places};
use uzswap_core::PAGE_SIZE;
use uzswap_core::page::folio::{CANCELLED, Folio, FolioGuard, RECLAIM};
use uzswap_core::page::tally::Tally;
use uzswap_core::page::transition::{EntriesMut, Objects, Slots, Transition, exit_range};
use uzswap_core::page::{Age, Content, Entries, Entry, Page, PageRange};
use uzswap_group::counters::Counters;
use uzswap_pool::Loc;
use uzswap_sync::lock::RawLock;

const PRESENT: u64 = 1;
const PROTECTED: u64 = 2;
const VALUE: u32 = 2;

const AGE: Age = Age(9);
/// Operations at once in a process.
const NR_OPS: usize = 2;
/// log2 of the pages of the folio, and of a block.
const ORDER: u8 = 2;
const NR: usize = 1 << ORDER;
/// All pages.
const ALL: PageRange = PageRange { start: 0, end: NR };
/// Pages whose contents a piece of a block holds, and the bits of each.
const PIECE_PAGES: usize = 2;
const PIECE_BITS: usize = 16;
/// Pages from this value on do not get smaller.
const RAW: u64 = 500;

/// What becomes of a write to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Written,
    Failed,
    /// The slots are counted as often as they can be.
    Uncounted,
}

pub const FATES: [Fate; 3] = [Fate::Written, Fate::Failed, Fate::Uncounted];

/// What a thread does to a process, or sees of it. Pages by their index.
#[derive(Clone, Copy)]
pub enum Step {
    Write(usize, u64),
    Read(usize, u64),
    /// One value or the other.
    ReadEither(usize, u64, u64),
    Reclaim,
    WriteBack(Fate),
    Compact,
    Densify,
    Discard(usize),
    Remap(usize, usize),
    ReadAhead(usize),
    SwapOff,
    /// Whether anything of the process is on the device.
    OnDevice(bool),
    /// Nothing at all is on the device.
    DeviceEmpty,
    /// A child does this, and ends.
    Fork(&'static [Step]),
}

/// A copy on the device of a page that was read back: its entry and contents.
type Copied = (Entry, u64);

#[derive(Default)]
pub struct Process {
    ops: [RawLock; NR_OPS],
    writeback: RawLock,
    folio: Folio,
    entries: [AtomicU64; NR],
    /// What the processor sees.
    ptes: [AtomicU64; NR],
    pool: Mutex<Places>,
    copies: Mutex<[Option<Copied>; NR]>,
    uncountable: AtomicBool,
    counters: Counters,
    device: Arc<Device>,
}

impl Entries for Process {
    /// The folio is held, or all operations are: loom fails if anybody else changes the entry now.
    fn get(&self, page: Page) -> Entry {
        let Some(entry) = self.entries.get(page.index()) else {
            return Entry::None;
        };
        #[cfg(shuttle)]
        let bits = entry.load(SeqCst);
        #[cfg(not(shuttle))]
        // SAFETY: loom checks that no store is concurrent.
        let bits = unsafe { entry.unsync_load() };
        Entry::decode(bits)
    }

    fn is_ready(&self, _: Page) -> bool {
        true
    }
}

impl EntriesMut for Process {
    fn set(&self, page: Page, entry: Entry) {
        self.entries[page.index()].store(entry.encode(), SeqCst);
    }
}

impl Objects for Process {
    fn free(&self, loc: Loc) {
        let named = |entry: Entry| matches!(entry, Entry::Stored { loc: it, .. } if it == loc);
        assert_eq!(
            self.nr(named),
            0,
            "{loc:?} is freed while an entry names it"
        );
        self.pool().put(loc.raw());
    }

    fn set_owner(&self, loc: Loc, page: Page) {
        self.pool().set_owner(loc.raw(), page.index());
    }
}

impl Slots for Process {
    fn count(&self, location: u64, _: u16) -> bool {
        if self.uncountable.load(Relaxed) {
            return false;
        }
        self.device.places().dup(location);
        true
    }

    fn uncount(&self, location: u64, _: u16) {
        let named = |entry| matches!(entry, Entry::Swapped { location: it, .. } if it == location);
        let named = self.nr(named);
        let mut places = self.device.places();
        places.put(location);
        assert!(
            places.count(location) >= named,
            "{location} is freed while an entry names it"
        );
    }

    fn drop_copy(&self, page: Page) {
        let copy = self.copies.lock().unwrap()[page.index()].take();
        if let Some(location) = copy.and_then(|(entry, _)| location(entry)) {
            self.uncount(location, 0);
        }
    }
}

fn page(index: usize) -> Page {
    Page::from_index(index)
}

/// Where an object is on the device.
fn location(entry: Entry) -> Option<u64> {
    match entry {
        Entry::Swapped { location, .. } => Some(location),
        _ => None,
    }
}

fn object(at: u64, size: usize, content: Content) -> Entry {
    Entry::Stored {
        loc: Loc::from_raw(at).expect("small and not 0"),
        size: size as u16,
        age: AGE,
        writing: false,
        content,
    }
}

impl Process {
    /// Its first pages are in the pool.
    pub fn cold(values: &[u64]) -> Process {
        let process = Process::default();
        let stored = |(at, &value)| process.pack(page(at), value);
        let entries: Vec<_> = values.iter().enumerate().map(stored).collect();
        process.transition().replace(ALL, &entries);
        process
    }

    /// Takes `steps` as operation `op`.
    pub fn run(&self, op: usize, steps: &[Step]) {
        for &step in steps {
            match step {
                Step::Write(at, value) => self.write(op, page(at), value),
                Step::Read(at, value) => assert_eq!(self.read(op, page(at)), value, "page {at}"),
                Step::ReadEither(at, one, other) => {
                    let seen = self.read(op, page(at));
                    assert!(seen == one || seen == other, "page {at}: {seen}");
                }
                Step::Reclaim => self.reclaim(op),
                Step::WriteBack(fate) => self.write_back(op, fate),
                Step::Compact => self.compact(op),
                Step::Densify => self.densify(op),
                Step::Discard(at) => self.discard(op, PageRange::one(page(at))),
                Step::Remap(from, to) => self.remap(op, page(from), page(to)),
                Step::ReadAhead(at) => self.read_ahead(op, page(at)),
                Step::SwapOff => self.swap_off(op),
                Step::OnDevice(is) => {
                    let on_device = |page| location(self.peek(page)).is_some();
                    assert_eq!(ALL.pages().any(on_device), is);
                }
                Step::DeviceEmpty => assert_eq!(self.device.in_use(), 0, "slots are in use"),
                Step::Fork(steps) => {
                    let child = self.fork();
                    child.run(op, steps);
                    child.exit();
                }
            }
        }
    }

    fn transition(&self) -> Transition<'_, Self, Self, Self> {
        Transition {
            entries: self,
            objects: self,
            slots: self,
            counters: &self.counters,
        }
    }

    /// The entry, without its folio: a hint.
    fn peek(&self, page: Page) -> Entry {
        Entry::decode(self.entries[page.index()].load(SeqCst))
    }

    fn pte(&self, page: Page) -> &AtomicU64 {
        &self.ptes[page.index()]
    }

    fn pool(&self) -> MutexGuard<'_, Places> {
        self.pool.lock().unwrap()
    }

    fn nr(&self, of: impl Fn(Entry) -> bool) -> u32 {
        ALL.pages().filter(|&page| of(self.get(page))).count() as u32
    }

    /// Puts an object into the pool.
    fn put(&self, page: Page, value: u64, size: usize, content: Content) -> Entry {
        let at = self.pool().take(value, page.index());
        object(at, size, content)
    }

    /// Compresses a page.
    fn pack(&self, page: Page, value: u64) -> Entry {
        if value == 0 {
            return Entry::Filled { word: 0, age: AGE };
        }
        let size = if value < RAW { 700 } else { PAGE_SIZE };
        self.put(page, value, size, Content::Page)
    }

    /// What the object of an entry holds.
    fn object(&self, entry: Entry) -> u64 {
        match entry {
            Entry::Stored { loc, .. } => self.pool().get(loc.raw()),
            Entry::Swapped { location, .. } => self.device.places().get(location),
            Entry::Filled { word, .. } => word,
            _ => 0,
        }
    }

    /// Evicts what the folio has in the arena.
    fn reclaim(&self, op: usize) {
        let _op = self.ops[op].lock();
        let resident: Vec<Page> = {
            let Some(guard) = self.folio.try_lock() else {
                return;
            };
            let is_resident = |page: &Page| self.get(*page) == Entry::Resident;
            let resident: Vec<_> = ALL.pages().filter(is_resident).collect();
            if guard.has(RECLAIM) || resident.is_empty() {
                return;
            }
            guard.set(RECLAIM);
            resident
        };
        let store = |&page: &Page| {
            let pte = self.pte(page).fetch_or(PROTECTED, SeqCst);
            (page, self.pack(page, pte >> VALUE))
        };
        let stored: Vec<_> = resident.iter().map(store).collect();
        let guard = self.folio.lock();
        if guard.has(CANCELLED) {
            for (page, entry) in stored {
                if let Entry::Stored { loc, .. } = entry {
                    self.free(loc);
                }
                self.pte(page).fetch_and(!PROTECTED, SeqCst);
            }
            guard.clear(RECLAIM | CANCELLED);
            return;
        }
        let mut tally = Tally::default();
        for (page, entry) in stored {
            self.transition().store(page, entry);
            tally.add(entry);
            self.pte(page).store(0, SeqCst);
        }
        tally.count(&self.counters);
        guard.clear(RECLAIM);
    }

    /// The page is in the arena. Its copy on the device is kept, unless another is.
    fn install(&self, page: Page, value: u64) {
        self.pte(page).store(PRESENT | value << VALUE, SeqCst);
        self.transition().make_resident(page, |old| {
            let mut copies = self.copies.lock().unwrap();
            let copy = &mut copies[page.index()];
            let keeps = copy.is_none() && location(old).is_some() && !old.in_block();
            if keeps {
                *copy = Some((old, value));
            }
            keeps
        });
    }

    /// Reads the page from the device before its folio is held for good. Returns what its entry
    /// was, and what was read; its place is counted once more for that.
    fn read_early(&self, page: Page) -> Option<(Entry, u64)> {
        let guard = self.folio.try_lock()?;
        let entry = self.get(page);
        let at = location(entry).filter(|_| !entry.in_block())?;
        self.device.places().dup(at);
        drop(guard);
        let read = self.device.places().get(at);
        // What is evicted meanwhile.
        let _ = self.peek(page);
        let again = self.device.places().get(at);
        assert_eq!(read, again, "place {at} is written to while it is read");
        Some((entry, read))
    }

    fn fault(&self, op: usize, page: Page) {
        let _op = self.ops[op].lock();
        let early = self.read_early(page);
        let guard = self.folio.lock();
        let entry = self.get(page);
        if let Some((noted, read)) = early {
            let at = location(noted).expect("read from the device");
            self.device.places().put(at);
            if noted == entry {
                return self.install(page, read);
            }
        }
        if entry == Entry::Resident {
            guard.cancel_reclaim();
            self.pte(page).fetch_and(!PROTECTED, SeqCst);
        } else {
            self.bring_in(&guard, page);
        }
    }

    /// Brings in a page that is not resident: of a block alone, if it may leave that.
    fn bring_in(&self, _: &FolioGuard<'_>, page: Page) {
        let entry = self.get(page);
        if !entry.in_block() {
            return self.install(page, self.object(entry));
        }
        let block: Vec<_> = self.pages_in(self.block_of(page)).collect();
        let pieces = block.iter().map(|&page| self.get(page));
        let pieces = pieces.filter(|entry| !matches!(entry, Entry::Block { .. }));
        let pieces: Vec<_> = pieces.map(|entry| self.object(entry)).collect();
        assert_eq!(pieces.len(), NR / PIECE_PAGES, "{block:?}");
        let value = |page: Page| {
            let (piece, part) = (page.index() / PIECE_PAGES, page.index() % PIECE_PAGES);
            pieces[piece] >> (PIECE_BITS * part) & ((1 << PIECE_BITS) - 1)
        };
        if let Some(way) = exit_range(self, page) {
            self.transition().exit_block(way);
            return self.install(page, value(page));
        }
        for page in block {
            if self.get(page).is_dropped() {
                self.transition().forget_dropped(page);
            } else {
                self.install(page, value(page));
            }
        }
    }

    /// The program writes.
    fn write(&self, op: usize, page: Page, value: u64) {
        loop {
            let pte = self.pte(page).load(SeqCst);
            if pte & (PRESENT | PROTECTED) == PRESENT {
                let new = PRESENT | value << VALUE;
                let written = self.pte(page).compare_exchange(pte, new, SeqCst, SeqCst);
                if written.is_ok() {
                    return;
                }
            } else {
                self.fault(op, page);
            }
        }
    }

    /// The program reads.
    pub fn read(&self, op: usize, page: Page) -> u64 {
        loop {
            let pte = self.pte(page).load(SeqCst);
            if pte & PRESENT != 0 {
                return pte >> VALUE;
            }
            self.fault(op, page);
        }
    }

    /// Waits until nobody is evicting the folio.
    fn undisturbed(&self) -> FolioGuard<'_> {
        loop {
            let guard = self.folio.lock();
            if !guard.cancel_reclaim() {
                return guard;
            }
            drop(guard);
            self.folio.wait_reclaim();
        }
    }

    /// madvise(MADV_DONTNEED) or munmap.
    fn discard(&self, op: usize, range: PageRange) {
        let _op = self.ops[op].lock();
        let _guard = self.undisturbed();
        for page in range.pages() {
            self.transition().discard(page, range);
            self.pte(page).store(0, SeqCst);
        }
    }

    /// mremap of a page to a fresh one.
    fn remap(&self, op: usize, from: Page, to: Page) {
        let _op = self.ops[op].lock();
        let guard = self.undisturbed();
        if let Some(entry) = self.transition().take(from, to) {
            drop(guard);
            let _guard = self.folio.lock();
            return self.transition().give(to, entry);
        }
        if self.get(from) != Entry::Resident {
            self.bring_in(&guard, from);
        }
        let value = self.pte(from).load(SeqCst) >> VALUE;
        self.install(to, value);
        self.transition().discard(from, PageRange::one(from));
        self.pte(from).store(0, SeqCst);
    }

    /// All pages, if they are in the pool, become one block.
    fn densify(&self, op: usize) {
        let _op = self.ops[op].lock();
        let Some(guard) = self.folio.try_lock() else {
            return;
        };
        let is_cold = |entry: Entry| match entry {
            Entry::Stored { writing, .. } => !writing && !entry.in_block(),
            Entry::Filled { .. } => true,
            _ => false,
        };
        if guard.has(RECLAIM) || self.nr(is_cold) < NR as u32 {
            return;
        }
        let entry = |at: usize| {
            if at >= NR / PIECE_PAGES {
                return Entry::Block {
                    order: ORDER,
                    age: AGE,
                    dropped: false,
                };
            }
            let part =
                |part| self.object(self.get(page(PIECE_PAGES * at + part))) << (PIECE_BITS * part);
            let piece = (0..PIECE_PAGES).map(part).sum();
            self.put(page(at), piece, 700, Content::BlockPiece)
        };
        let entries: [Entry; NR] = core::array::from_fn(entry);
        self.transition().replace(ALL, &entries);
    }

    /// Chooses, packs, writes and publishes an object.
    fn write_back(&self, op: usize, fate: Fate) {
        let _op = self.ops[op].lock();
        let _turn = self.writeback.lock();
        if self.device.off.load(SeqCst) {
            return;
        }
        // Found without a lock: the first page with an object in the pool.
        let chosen = ALL.pages().map(|page| (page, self.peek(page)));
        let Some((page, Entry::Stored { size, age, .. })) =
            { chosen }.find(|(_, entry)| matches!(entry, Entry::Stored { .. }))
        else {
            return;
        };
        let taken = self.device.places().take(0xbad, 0);
        if let Some(value) = self.begin_write(page, size, age) {
            if fate != Fate::Failed {
                self.device.places().write(taken, value);
            }
            let _guard = self.folio.lock();
            if fate == Fate::Failed {
                self.transition().abort_write(page);
            } else {
                self.uncountable.store(fate == Fate::Uncounted, Relaxed);
                self.transition().finish_write(page, taken);
                self.uncountable.store(false, Relaxed);
            }
        }
        // Counted once for the writeback; what the entry names is counted for it.
        self.device.places().put(taken);
    }

    /// Returns what is to be written.
    fn begin_write(&self, page: Page, size: u16, age: Age) -> Option<u64> {
        let _guard = self.folio.try_lock()?;
        let entry = self.get(page);
        let content = match entry {
            Entry::Stored {
                size: s,
                age: a,
                content,
                ..
            } if (s, a) == (size, age) => content,
            _ => return None,
        };
        let value = self.object(entry);
        let same = |copy: &mut Copied| content.is_page() && copy.1 == value;
        let copy = self.copies.lock().unwrap()[page.index()].take_if(same);
        if let Some((copy, _)) = copy {
            self.transition().use_copy(page, copy);
            return None;
        }
        self.drop_copy(page);
        self.transition().begin_write(page);
        Some(value)
    }

    /// The pool is compacted: an object moves.
    fn compact(&self, op: usize) {
        let _op = self.ops[op].lock();
        let Some((at, owner)) = self.pool().first() else {
            return;
        };
        let Some(_guard) = self.folio.try_lock() else {
            return;
        };
        let owner = page(owner);
        if let Entry::Stored {
            loc, size, content, ..
        } = self.get(owner)
            && loc.raw() == at
        {
            let value = self.object(self.get(owner));
            if let Entry::Stored { loc: to, .. } = self.put(owner, value, size.into(), content) {
                self.transition().relocate(owner, to);
                self.free(loc);
            }
        }
    }

    /// Reads what is on the device of a page, before it is asked for.
    fn read_ahead(&self, op: usize, page: Page) {
        let _op = self.ops[op].lock();
        if let Some(_guard) = self.folio.try_lock() {
            self.fetch(page, Some(Content::ReadAhead));
        }
    }

    /// Puts what is on the device of a page into the pool, as it is.
    fn fetch(&self, page: Page, read_ahead: Option<Content>) {
        let old = self.get(page);
        let Entry::Swapped {
            size, content, age, ..
        } = old
        else {
            return;
        };
        if read_ahead.is_some() && old.in_block() {
            return;
        }
        let content = read_ahead.unwrap_or(content);
        if let Entry::Stored { loc, .. } = self.put(page, self.object(old), size.into(), content) {
            self.transition().fetch(page, loc, age, content, |_| false);
        }
    }

    /// The device is turned off, and everything on it comes back into the pool as it is.
    fn swap_off(&self, op: usize) {
        self.device.off.store(true, SeqCst);
        {
            // Who chose the device before it was off is done with it after this.
            let _op = self.ops[op].lock();
            drop(self.writeback.lock());
        }
        let turn = self.ops[op].lock();
        {
            let _guard = self.folio.lock();
            for page in ALL.pages() {
                self.fetch(page, None);
                self.drop_copy(page);
            }
        }
        drop(turn);
        // A read that was begun before counts what is not there any more.
        self.ops.iter().for_each(|op| drop(op.lock()));
    }

    /// Stops all operations and makes a copy of everything; what is on the device is counted for
    /// the copy, too.
    pub fn fork(&self) -> Process {
        let _ops: Vec<_> = self.ops.iter().map(RawLock::lock).collect();
        self.check();
        let entries: [Entry; NR] = core::array::from_fn(|at| self.get(page(at)));
        let copies = *self.copies.lock().unwrap();
        let kept = copies.iter().flatten().map(|copy| copy.0);
        for location in kept.chain(entries).filter_map(location) {
            self.device.places().dup(location);
        }
        let child = Process {
            entries: entries.map(|entry| AtomicU64::new(entry.encode())),
            ptes: core::array::from_fn(|at| AtomicU64::new(self.ptes[at].load(SeqCst))),
            pool: Mutex::new(self.pool().clone()),
            copies: Mutex::new(copies),
            device: self.device.clone(),
            ..Process::default()
        };
        for (from, to) in self.counters.cells().iter().zip(child.counters.cells()) {
            to.store(from.load(Relaxed), Relaxed);
        }
        child.check();
        child
    }

    /// The process ends. Nothing is left.
    pub fn exit(&self) {
        self.check();
        self.discard(0, ALL);
        self.check();
    }

    /// Nothing is under way, and counters and pool are what the entries say.
    fn check(&self) {
        assert!(!self.folio.lock().has(RECLAIM));
        for page in ALL.pages() {
            match self.get(page) {
                Entry::Stored { loc, writing, .. } => {
                    assert!(!writing);
                    let owner = self.pool().owner(loc.raw());
                    assert_eq!(owner, page.index(), "{loc:?} has another owner");
                }
                entry => assert_eq!(
                    entry == Entry::Resident,
                    self.pte(page).load(SeqCst) & PRESENT != 0
                ),
            }
        }
        let is_object = |entry| matches!(entry, Entry::Stored { .. });
        let is_filled = |entry| matches!(entry, Entry::Filled { .. });
        let is_swapped = |entry: Entry| location(entry).is_some() && !entry.is_dropped();
        let is_stored = |entry: Entry| entry.is_evicted() && !is_swapped(entry);
        let is_block = |entry: Entry| entry.in_block() && entry.is_evicted();
        let is_raw = |entry| match entry {
            Entry::Stored { size, content, .. } => {
                content.is_page() && usize::from(size) == PAGE_SIZE
            }
            _ => false,
        };
        assert_eq!(self.pool().in_use(), self.nr(is_object), "objects");
        let check = |kind, counter: &core::sync::atomic::AtomicU64, nr| {
            assert_eq!(counter.load(Relaxed), u64::from(nr), "{kind} pages");
        };
        let c = &self.counters;
        check("stored", &c.stored_pages, self.nr(is_stored));
        check("swapped", &c.swapped_pages, self.nr(is_swapped));
        check("block", &c.block_pages, self.nr(is_block));
        check("same-filled", &c.same_filled_pages, self.nr(is_filled));
        let incompressible = &c.stored_incompressible_pages;
        check("incompressible", incompressible, self.nr(is_raw));
    }
}
