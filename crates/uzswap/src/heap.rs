//! *What*: the heap of a pool: objects up to [`MAX_SMALL`] bytes in spans of one size class, larger
//! ones as regions of their own.
//!
//! What the heap knows of an object is outside the pool: to allocate or free one touches no page of
//! the pool, so that freeing what was evicted brings nothing in.
//!
//! *Invariants*
//! - A span belongs to one list, or to the list of free spans. Bit `n` of its map is set if object
//!   number `n` is allocated; `used` is the number of set bits.
//! - A span with a clear bit is in its list, a full one is not. A span that becomes empty is
//!   discarded and free; the only one of its list stays there, with at most [`MAX_KEPT`] bytes.
//! - Spans lie in chunks that stay mapped as long as the pool.
//! - A region begins where a span would: what is known of that span is the region's length.
//!
//! *Locking*: a list's lock guards its spans; then the free spans' lock. All are held across fork.
//! Neither is held while a page of the pool is touched. *Context*: threads of the host.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;

use uzswap_core::{PAGE_SIZE, Partition};
use uzswap_sync::lock::RawLock;
use uzswap_sys::{mem, thread};

use crate::Pool;
use crate::engines::{self, Place};
use crate::error::PoolError;

/// Bytes of a span: one folio, to which regions are aligned.
const SPAN_LEN: usize = 128 << 10;
/// Spans that are mapped at once.
const CHUNK_SPANS: usize = 8;
/// The largest object in a span, bytes.
pub(crate) const MAX_SMALL: usize = 16 << 10;
/// Bytes of an empty span that stay touched, so that an object that comes and goes costs no call.
const MAX_KEPT: usize = 16 << 10;
/// The smallest object, bytes, and the distance of the smallest classes.
const GRANULE: usize = 16;
const NR_CLASSES: usize = class_of(MAX_SMALL) + 1;
/// Lists for each class, so that threads on different processors seldom meet.
const NR_SHARDS: usize = 4;
const NR_LISTS: usize = NR_CLASSES * NR_SHARDS;
const MAP_WORDS: usize = SPAN_LEN / GRANULE / 64;

/// The class of objects of `size` bytes: 16 bytes apart up to 128, then four to each doubling. A
/// class's size is a multiple of every power of two that `size` is a multiple of.
const fn class_of(size: usize) -> usize {
    if size <= 8 * GRANULE {
        return size.saturating_sub(1) / GRANULE;
    }
    let doubling = (size - 1).ilog2() as usize;
    8 + (doubling - 7) * 4 + ((size - 1 - (1 << doubling)) >> (doubling - 2))
}

/// Bytes of the objects of a class.
const fn size_of_class(class: usize) -> usize {
    if class < 8 {
        return (class + 1) * GRANULE;
    }
    let doubling = 7 + (class - 8) / 4;
    (1 << doubling) + (((class - 8) % 4 + 1) << (doubling - 2))
}

/// What the heap knows of a span. Zeroed memory is one that never was.
struct Span {
    /// Objects allocated.
    used: u16,
    /// Words of the map before this one are full.
    first: u16,
    /// Objects from this number on were not touched since the span was last discarded.
    top: u16,
    /// Neighbours in the list, numbers and one; 0: none.
    next: u32,
    previous: u32,
    map: [u64; MAP_WORDS],
}

/// The owner of a span that is the beginning of a region.
const REGION: u16 = u16::MAX;

/// Bytes of the tables for each span.
const ENTRY_LEN: usize = size_of::<Span>() + size_of::<AtomicU16>();

/// A list of spans: the number of the first, and one; 0: it is empty.
struct List {
    lock: RawLock,
    head: UnsafeCell<u32>,
}

impl List {
    const fn new() -> Self {
        List {
            lock: RawLock::new(),
            head: UnsafeCell::new(0),
        }
    }
}

struct Lists {
    of_class: [List; NR_LISTS],
    free: List,
}

// SAFETY: a list's head is accessed under its lock.
unsafe impl Sync for Lists {}

/// The lists of all heaps, by the number of their pool: fork finds them here.
static LISTS: [Lists; Partition::COUNT] = [const {
    Lists {
        of_class: [const { List::new() }; NR_LISTS],
        free: List::new(),
    }
}; Partition::COUNT];

impl Lists {
    fn all(&self) -> impl Iterator<Item = &List> {
        self.of_class.iter().chain([&self.free])
    }
}

/// The locks of all heaps, held across fork.
pub(crate) struct Held {
    taken: [bool; Partition::COUNT],
}

/// Takes the locks of all heaps.
pub(crate) fn hold(places: &engines::Held) -> Held {
    let taken = std::array::from_fn(|number| places.is_taken(number));
    for (_, lists) in taken.iter().zip(&LISTS).filter(|(taken, _)| **taken) {
        lists
            .all()
            .for_each(|list| std::mem::forget(list.lock.lock()));
    }
    Held { taken }
}

impl Drop for Held {
    fn drop(&mut self) {
        for (_, lists) in self.taken.iter().zip(&LISTS).filter(|(taken, _)| **taken) {
            for list in lists.all() {
                // SAFETY: taken in `hold`, by this thread or the one that it is a copy of.
                drop(unsafe { list.lock.held() });
            }
        }
    }
}

/// A pool's heap.
#[derive(Default)]
pub(crate) struct Heap {
    /// The table of spans; null in a heap that has none.
    spans: usize,
    /// For each span the list that it belongs to; stays the same while an object is in it.
    owners: usize,
    /// The first address of the pool.
    base: usize,
    nr_spans: usize,
    number: usize,
}

impl Heap {
    /// The heap of the pool in `place`.
    pub(crate) fn new(place: &Place) -> io::Result<Heap> {
        let partition = place.partition();
        let nr_spans = partition.len() / SPAN_LEN;
        let (prot, flags) = (
            mem::PROT_READ | mem::PROT_WRITE,
            mem::MAP_PRIVATE | mem::MAP_ANONYMOUS | mem::MAP_NORESERVE,
        );
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let spans = unsafe { mem::mmap(0, nr_spans * ENTRY_LEN, prot, flags, -1, 0) };
        let spans = spans.map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
        // SAFETY: the mapping above. Huge pages would touch many spans' tables for one.
        let _ = unsafe { mem::madvise(spans, nr_spans * ENTRY_LEN, mem::MADV_NOHUGEPAGE) };
        for list in LISTS[place.number()].all() {
            let _lock = list.lock.lock();
            // SAFETY: under its lock.
            unsafe { *list.head.get() = 0 };
        }
        Ok(Heap {
            spans,
            owners: spans + nr_spans * size_of::<Span>(),
            base: partition.start(),
            nr_spans,
            number: place.number(),
        })
    }

    fn lists(&self) -> &'static Lists {
        &LISTS[self.number]
    }

    /// What the heap knows of a span: for whoever holds the lock of its list, or has it alone.
    fn span(&self, number: u32) -> *mut Span {
        debug_assert!((number as usize) < self.nr_spans);
        // SAFETY: within the table, of which zeroed memory is spans.
        unsafe { (self.spans as *mut Span).add(number as usize) }
    }

    fn owner(&self, number: u32) -> &AtomicU16 {
        debug_assert!((number as usize) < self.nr_spans);
        // SAFETY: within the table of owners, which lies behind that of spans.
        unsafe { &*(self.owners as *const AtomicU16).add(number as usize) }
    }

    fn address(&self, number: u32) -> usize {
        self.base + number as usize * SPAN_LEN
    }

    /// Allocates.
    ///
    /// # Errors
    /// As [`Pool::map`].
    pub(crate) fn allocate(&self, pool: &Pool, layout: Layout) -> Result<NonNull<u8>, PoolError> {
        let addr = match class_of_layout(layout) {
            Some(class) => self.allocate_small(pool, class)?,
            None => {
                let addr = map_aligned(pool, layout)?;
                self.note_region(addr, layout.size());
                addr
            }
        };
        NonNull::new(addr as *mut u8).ok_or(PoolError::NotOurs)
    }

    /// Frees.
    ///
    /// # Safety
    /// `pointer` was allocated with `layout` by this heap, and is not used any more.
    pub(crate) unsafe fn free(&self, pool: &Pool, pointer: NonNull<u8>, layout: Layout) {
        let addr = pointer.as_ptr() as usize;
        match class_of_layout(layout) {
            // SAFETY: the caller's promise.
            Some(class) => unsafe { self.free_small(pool, class, addr) },
            // SAFETY: the caller's promise; mapped with that length.
            None => unsafe { pool.unmap_raw(addr, layout.size().next_multiple_of(PAGE_SIZE)) },
        }
    }

    /// A region of `size` bytes, in whole pages, begins at `addr`, and nobody else knows of it yet.
    pub(crate) fn note_region(&self, addr: usize, size: usize) {
        let Ok(number) = u32::try_from((addr - self.base) / SPAN_LEN) else {
            std::process::abort();
        };
        self.owner(number).store(REGION, Relaxed);
        // SAFETY: no heap span lies where a region does.
        let [len, ..] = unsafe { &mut (*self.span(number)).map };
        *len = size.next_multiple_of(PAGE_SIZE) as u64;
    }

    /// Bytes that an object has room for, from which its layout follows if it needs no more than
    /// the usual alignment.
    ///
    /// # Safety
    /// `pointer` was allocated by this heap, and is not freed meanwhile.
    pub(crate) unsafe fn size_of(&self, pointer: NonNull<u8>) -> usize {
        let offset = pointer.as_ptr() as usize - self.base;
        let number = u32::try_from(offset / SPAN_LEN).unwrap_or(0);
        match self.owner(number).load(Relaxed) {
            REGION => {
                // SAFETY: written before the object was known; its owner does not change it now.
                let [len, ..] = unsafe { &(*self.span(number)).map };
                usize::try_from(*len).unwrap_or(0)
            }
            list => size_of_class(usize::from(list) / NR_SHARDS),
        }
    }

    fn allocate_small(&self, pool: &Pool, class: usize) -> Result<usize, PoolError> {
        let shard = thread::sched_getcpu() as usize % NR_SHARDS;
        let number = class * NR_SHARDS + shard;
        let list = &self.lists().of_class[number];
        let _lock = list.lock.lock();
        // SAFETY: under its lock.
        let head = unsafe { &mut *list.head.get() };
        if *head == 0 {
            let fresh = self.take_span(pool)?;
            // SAFETY: nobody else has it.
            let span = unsafe { &mut *self.span(fresh) };
            (span.used, span.first, span.top) = (0, 0, 0);
            // It may say how long a region was.
            span.map[0] = 0;
            let owner = u16::try_from(number).unwrap_or(u16::MAX);
            self.owner(fresh).store(owner, Relaxed);
            self.push(head, fresh);
        }
        let first = *head - 1;
        // SAFETY: in the list whose lock is held.
        let span = unsafe { &mut *self.span(first) };
        let size = size_of_class(class);
        let capacity = SPAN_LEN / size;
        let Some(at) = take_bit(span, capacity) else {
            // A span in a list has room.
            std::process::abort();
        };
        span.used += 1;
        span.top = span.top.max(u16::try_from(at + 1).unwrap_or(u16::MAX));
        if usize::from(span.used) == capacity {
            self.remove(head, first);
        }
        Ok(self.address(first) + at * size)
    }

    /// # Safety
    /// As [`Heap::free`], of a small object.
    unsafe fn free_small(&self, pool: &Pool, class: usize, addr: usize) {
        let offset = addr - self.base;
        let Ok(number) = u32::try_from(offset / SPAN_LEN) else {
            std::process::abort();
        };
        let list = self.owner(number).load(Relaxed);
        let list = &self.lists().of_class[usize::from(list)];
        let _lock = list.lock.lock();
        // SAFETY: under its lock.
        let head = unsafe { &mut *list.head.get() };
        // SAFETY: in the list whose lock is held.
        let span = unsafe { &mut *self.span(number) };
        let size = size_of_class(class);
        let at = offset % SPAN_LEN / size;
        let (word, bit) = (at / 64, 1 << (at % 64));
        if span.map[word] & bit == 0 {
            eprintln!("uzswap: freed twice, or never allocated: {addr:#x}");
            std::process::abort();
        }
        let was_full = usize::from(span.used) == SPAN_LEN / size;
        span.map[word] &= !bit;
        span.used -= 1;
        span.first = span.first.min(u16::try_from(word).unwrap_or(0));
        if was_full {
            self.push(head, number);
        }
        if span.used > 0 {
            return;
        }
        let is_only = span.next == 0 && span.previous == 0;
        if !is_only || usize::from(span.top) * size > MAX_KEPT {
            span.top = 0;
            // SAFETY: nothing in it is allocated.
            unsafe { pool.discard_raw(self.address(number), SPAN_LEN) };
        }
        if !is_only {
            self.remove(head, number);
            self.give_span(number);
        }
    }

    /// A span that nobody has.
    fn take_span(&self, pool: &Pool) -> Result<u32, PoolError> {
        let free = &self.lists().free;
        let _lock = free.lock.lock();
        // SAFETY: under its lock.
        let head = unsafe { &mut *free.head.get() };
        if *head == 0 {
            let (addr, _) = pool.map_raw(CHUNK_SPANS * SPAN_LEN)?;
            let first = u32::try_from((addr - self.base) / SPAN_LEN).unwrap_or(u32::MAX);
            for at in (0..CHUNK_SPANS).rev() {
                self.push(head, first + u32::try_from(at).unwrap_or(0));
            }
        }
        let number = *head - 1;
        self.remove(head, number);
        Ok(number)
    }

    fn give_span(&self, number: u32) {
        let free = &self.lists().free;
        let _lock = free.lock.lock();
        // SAFETY: under its lock.
        self.push(unsafe { &mut *free.head.get() }, number);
    }

    /// The caller holds the lock of the list that begins at `head`.
    fn push(&self, head: &mut u32, number: u32) {
        // SAFETY: the caller holds the list's lock and has the span.
        unsafe {
            if *head != 0 {
                (*self.span(*head - 1)).previous = number + 1;
            }
            let span = &mut *self.span(number);
            (span.next, span.previous) = (*head, 0);
        }
        *head = number + 1;
    }

    /// The caller holds the lock of the list that begins at `head`.
    fn remove(&self, head: &mut u32, number: u32) {
        // SAFETY: the span and its neighbours are in the list, whose lock the caller holds.
        unsafe {
            let span = &mut *self.span(number);
            let (next, previous) = (span.next, span.previous);
            (span.next, span.previous) = (0, 0);
            match previous {
                0 => *head = next,
                previous => (*self.span(previous - 1)).next = next,
            }
            if next != 0 {
                (*self.span(next - 1)).previous = previous;
            }
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if self.spans != 0 {
            // SAFETY: the mapping that `new` made; the pool is gone.
            let _ = unsafe { mem::munmap(self.spans, self.nr_spans * ENTRY_LEN) };
        }
    }
}

/// Takes the first clear bit below `capacity`.
fn take_bit(span: &mut Span, capacity: usize) -> Option<usize> {
    for word in usize::from(span.first)..capacity.div_ceil(64) {
        let free = span.map[word].trailing_ones() as usize;
        if free < 64 && word * 64 + free < capacity {
            span.map[word] |= 1 << free;
            span.first = u16::try_from(word).unwrap_or(0);
            return Some(word * 64 + free);
        }
    }
    None
}

/// The class for a layout; `None`: it becomes a region.
fn class_of_layout(layout: Layout) -> Option<usize> {
    let size = layout
        .size()
        .max(1)
        .checked_next_multiple_of(layout.align())?;
    (size <= MAX_SMALL && layout.align() <= PAGE_SIZE).then(|| class_of(size))
}

/// Whether a layout becomes a region that may be moved by its pages.
pub(crate) fn is_region(layout: Layout) -> bool {
    class_of_layout(layout).is_none() && layout.align() <= SPAN_LEN
}

/// Maps a region for a large object.
fn map_aligned(pool: &Pool, layout: Layout) -> Result<usize, PoolError> {
    let len = layout.size().next_multiple_of(PAGE_SIZE);
    if layout.align() <= SPAN_LEN {
        return Ok(pool.map_raw(len)?.0);
    }
    let (addr, mapped) = pool.map_raw(len.saturating_add(layout.align()))?;
    let start = addr.next_multiple_of(layout.align());
    let (before, behind) = (start - addr, addr + mapped - (start + len));
    // SAFETY: mapped just now; nobody has these parts.
    unsafe {
        if before > 0 {
            pool.unmap_raw(addr, before);
        }
        if behind > 0 {
            pool.unmap_raw(start + len, behind);
        }
    }
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_fits_its_class_and_not_the_one_before() {
        for size in 1..=MAX_SMALL {
            let class = class_of(size);
            assert!(size <= size_of_class(class), "{size}");
            assert!(class == 0 || size > size_of_class(class - 1), "{size}");
        }
        assert_eq!(size_of_class(NR_CLASSES - 1), MAX_SMALL);
    }

    #[test]
    fn objects_are_aligned_as_asked() {
        for align in (0..=12).map(|shift| 1_usize << shift) {
            for size in 1..=MAX_SMALL {
                let layout = Layout::from_size_align(size, align).unwrap();
                if let Some(class) = class_of_layout(layout) {
                    assert!(size_of_class(class).is_multiple_of(align), "{layout:?}");
                    assert!(size_of_class(class) >= size);
                }
            }
        }
    }
}
