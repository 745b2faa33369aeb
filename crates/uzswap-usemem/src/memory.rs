//! The memory that is worked on.
//!
//! *What*: one anonymous private mapping, and the accesses to it.
//! *Invariants*: a page's seal follows from its number and its stamp (the number of accesses to
//! it), and is never 0. In a page of records word 0 is the number, word 1 the stamp and the last
//! word the seal. In a page of a real program word 0 is the seal and the rest has its checksum, so
//! that it compresses as it did there. A page of one word repeats its seal.
//! *Locking*: none: thread `t` touches only the pages of [`Memory::part`] `t`.
//! *Context*: worker threads.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use memmap2::MmapMut;

use crate::contents::{Contents, PAGE, PAGE_WORDS, Page, Real, mix};

/// Upper bound of stamps.
const MAX_STAMP: u64 = 1 << 24;

/// The memory that is worked on.
pub struct Memory<'a> {
    base: *mut u64,
    /// What `base` points to.
    _mapping: MmapMut,
    nr_pages: u64,
    threads: u64,
    seed: u64,
    contents: &'a Contents,
    /// One bit for each page that [`Memory::touch`] has filled.
    touched: Vec<AtomicU64>,
    /// Accesses of each thread so far.
    accessed: Vec<AtomicU64>,
}

// SAFETY: each thread uses `base` only within its own part (Locking).
unsafe impl Sync for Memory<'_> {}

/// The seal of a page.
fn seal(page: u64, stamp: u64) -> u64 {
    1 << 63 | (page << 24) ^ stamp
}

impl<'a> Memory<'a> {
    /// Maps memory for `threads` threads; nothing is touched yet.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn new(contents: &'a Contents, threads: u32, nr_pages: u64, seed: u64) -> Self {
        let len = usize::try_from(nr_pages).expect("64-bit") * PAGE;
        let mut mapping = MmapMut::map_anon(len).expect("memory is mapped");
        Self {
            base: mapping.as_mut_ptr().cast(),
            _mapping: mapping,
            nr_pages,
            threads: threads.into(),
            seed,
            contents,
            touched: (0..=nr_pages / 64).map(|_| AtomicU64::new(0)).collect(),
            accessed: (0..threads).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Pages of thread `t`; all parts are the same size, so that all threads have the same work.
    fn part(&self, t: u32) -> Range<u64> {
        let size = self.nr_pages / self.threads;
        u64::from(t) * size..(u64::from(t) + 1) * size
    }

    /// Accesses of a thread in one pass.
    pub fn accesses_per_thread(&self) -> u64 {
        self.nr_pages / self.threads
    }

    fn page(&self, page: u64) -> *mut u64 {
        let offset = usize::try_from(page).expect("64-bit") * PAGE_WORDS;
        // SAFETY: callers pass page numbers below `nr_pages`.
        unsafe { self.base.add(offset) }
    }

    /// Writes every page of thread `t` for the first time.
    pub fn fill(&self, t: u32) {
        for page in self.part(t) {
            self.fill_page(page);
        }
    }

    fn fill_page(&self, page: u64) {
        self.touched(page).fetch_or(1 << (page % 64), Relaxed);
        let to = self.page(page);
        // SAFETY: the page is this thread's alone, PAGE_WORDS long and inside the mapping; its
        // contents are as long.
        unsafe {
            match self.contents.page(page) {
                Page::OneWord => self.repeat(page, seal(page, 0)),
                Page::Template(words) => {
                    to.copy_from_nonoverlapping(words.as_ptr(), PAGE_WORDS);
                    to.write_volatile(page);
                    to.add(1).write_volatile(0);
                    to.add(PAGE_WORDS - 1).write_volatile(seal(page, 0));
                }
                Page::Real(real) => {
                    to.cast::<u8>()
                        .copy_from_nonoverlapping(real.bytes.as_ptr(), PAGE);
                    to.write_volatile(seal(page, 0));
                }
            }
        }
    }

    /// Fills a page with one word.
    fn repeat(&self, page: u64, word: u64) {
        // SAFETY: as in `fill_page`; no reference into the page exists.
        unsafe { std::slice::from_raw_parts_mut(self.page(page), PAGE_WORDS) }.fill(word);
    }

    fn touched(&self, page: u64) -> &AtomicU64 {
        &self.touched[usize::try_from(page / 64).expect("64-bit")]
    }

    /// Reads, checks and writes one page; returns its stamp before.
    fn access(&self, page: u64) -> u64 {
        match self.contents.page(page) {
            Page::OneWord => self.access_one_word(page),
            Page::Template(_) => self.access_template(page),
            Page::Real(real) => self.access_real(page, real),
        }
    }

    fn access_template(&self, page: u64) -> u64 {
        let p = self.page(page);
        let [number, stamp, last] = self.words(page);
        assert!(
            number == page && last == seal(page, stamp),
            "page {page} holds number {number}, stamp {stamp}, seal {last:#x} instead of {:#x}",
            seal(page, stamp)
        );
        // SAFETY: as in `fill_page`.
        unsafe {
            p.add(1).write_volatile(stamp + 1);
            p.add(PAGE_WORDS - 1).write_volatile(seal(page, stamp + 1));
        }
        stamp
    }

    fn access_real(&self, page: u64, real: Real<'_>) -> u64 {
        let p = self.page(page);
        // SAFETY: as in `fill_page`; the slice is gone before the page is written.
        let sum = Real::sum_of(unsafe { std::slice::from_raw_parts(p.cast(), PAGE) });
        let [word, ..] = self.words(page);
        let stamp = word ^ seal(page, 0);
        assert!(
            stamp < MAX_STAMP && sum == real.sum,
            "page {page} holds seal {word:#x} instead of {:#x} or a little above, and its rest has the checksum {sum:#x} instead of {:#x}",
            seal(page, 0),
            real.sum
        );
        // SAFETY: as in `fill_page`.
        unsafe { p.write_volatile(seal(page, stamp + 1)) };
        stamp
    }

    fn access_one_word(&self, page: u64) -> u64 {
        let words = self.words(page);
        let stamp = words[0] ^ seal(page, 0);
        assert!(
            stamp < MAX_STAMP && words == [words[0]; 3],
            "page {page} holds {words:x?} instead of one word, {:#x} or a little above",
            seal(page, 0)
        );
        self.repeat(page, seal(page, stamp + 1));
        stamp
    }

    /// The first two words of a page, and the last.
    fn words(&self, page: u64) -> [u64; 3] {
        let p = self.page(page);
        // SAFETY: as in `fill_page`.
        [0, 1, PAGE_WORDS - 1].map(|at| unsafe { p.add(at).read_volatile() })
    }

    /// Writes pages of thread `t`, after checking those that were written before.
    pub fn touch(&self, t: u32, accesses: u64, random: bool) {
        let part = self.part(t);
        let size = part.end - part.start;
        let mut rng = mix(self.seed ^ u64::from(t) << 32);
        for at in 0..accesses {
            let page = part.start
                + if random {
                    rng = mix(rng);
                    rng % size
                } else {
                    at % size
                };
            if self.touched(page).load(Relaxed) & 1 << (page % 64) == 0 {
                self.fill_page(page);
            } else {
                self.access(page);
            }
        }
    }

    /// Accesses pages of thread `t` at random.
    pub fn random(&self, t: u32, accesses: u64) {
        let part = self.part(t);
        let size = part.end - part.start;
        let mut rng = mix(self.seed ^ u64::from(t) << 32);
        for _ in 0..accesses {
            rng = mix(rng);
            self.access(part.start + rng % size);
        }
        self.accessed[t as usize].fetch_add(accesses, Relaxed);
    }

    /// Accesses the pages of thread `t` sequentially, and from the first again after the last.
    pub fn sequential(&self, t: u32, accesses: u64) {
        let part = self.part(t);
        let size = part.end - part.start;
        let accessed = &self.accessed[t as usize];
        for first in (0..accesses).step_by(usize::try_from(size).expect("64-bit")) {
            let nr = size.min(accesses - first);
            let stamps = (part.start..part.start + nr).map(|page| self.access(page));
            let sum: u64 = stamps.sum();
            let before = accessed.fetch_add(nr, Relaxed);
            assert!(
                nr < size || sum == before,
                "stamps of thread {t} add up to {sum} after {before} accesses"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::tests::{EXTENTS, TestCorpus};
    use crate::options::Options;

    fn contents(args: &str) -> Contents {
        let args = args.split_whitespace().map(str::to_owned);
        Contents::of(&Options::parse(args).unwrap().unwrap()).unwrap()
    }

    /// Sixteen pages, written twice.
    fn memory(contents: &Contents) -> Memory<'_> {
        let memory = Memory::new(contents, 1, 16, 1);
        memory.touch(0, 32, false);
        memory
    }

    #[test]
    #[should_panic(expected = "page 7 holds")]
    fn an_empty_page_is_detected() {
        let contents = contents("64k");
        let memory = memory(&contents);
        memory.repeat(7, 0);
        memory.touch(0, 16, false);
    }

    #[test]
    #[should_panic(expected = "page 7 holds")]
    fn another_pages_contents_are_detected() {
        let contents = contents("--same-filled 64k");
        let memory = memory(&contents);
        memory.repeat(7, seal(6, 1));
        memory.touch(0, 16, false);
    }

    #[test]
    #[should_panic(expected = "stamps of thread 0 add up")]
    fn a_stale_page_is_detected() {
        let contents = contents("");
        let memory = Memory::new(&contents, 1, 16, 1);
        memory.fill(0);
        memory.sequential(0, 16);
        memory.fill_page(7);
        memory.sequential(0, 16);
    }

    /// The first word of a page, and the rest.
    fn held<'a>(memory: &'a Memory<'_>, page: u64) -> (u64, &'a [u8]) {
        // SAFETY: nobody writes to the page meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(memory.page(page).cast::<u8>(), PAGE) };
        (memory.words(page)[0], &bytes[8..])
    }

    #[test]
    fn pages_of_real_programs_keep_all_but_their_seal() {
        let corpus = TestCorpus::new("stay");
        let contents = corpus.contents();
        let pages = EXTENTS * 16;
        let memory = Memory::new(&contents, 1, pages, 1);
        memory.fill(0);
        memory.sequential(0, pages);
        memory.random(0, 100);
        memory.sequential(0, pages);
        let mut found: Vec<&[u8]> = Vec::new();
        for page in 0..pages {
            let (word, rest) = held(&memory, page);
            let stamp = word ^ seal(page, 0);
            assert!((2..=102).contains(&stamp), "page {page}: {word:#x}");
            if rest.chunks(8).all(|chunk| chunk == word.to_le_bytes()) {
                continue;
            }
            found.push(rest);
        }
        // The memory has as many extents as the corpus, so each page is in it once.
        let mut wanted: Vec<&[u8]> = corpus.pages().map(|page| &page[8..]).collect();
        let same_filled = wanted.extract_if(.., |rest| rest.iter().all(|&byte| byte == 0));
        assert_eq!(same_filled.count() as u64, pages - found.len() as u64);
        found.sort_unstable();
        wanted.sort_unstable();
        assert!(found == wanted);
    }

    #[test]
    #[should_panic(expected = "page 7 holds")]
    fn a_flipped_byte_of_a_real_page_is_detected() {
        let corpus = TestCorpus::new("flipped");
        let contents = corpus.contents();
        let memory = memory(&contents);
        // SAFETY: this is the only thread, and byte 1000 is in the page.
        unsafe { *memory.page(7).cast::<u8>().add(1000) ^= 1 };
        memory.touch(0, 16, false);
    }
}
