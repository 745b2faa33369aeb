//! The memory that is worked on.
//!
//! *What*: one anonymous private mapping; what pages hold; the three kinds of work.
//! *Invariants*: word 0 of a page is its number, word 1 its stamp (how often it was accessed), the
//! last word, the seal, follows from both and is never 0. Everything between comes from a few template pages. A same-filled page repeats its seal.
//! *Locking*: none: thread `t` touches only the pages of [`Memory::part`] `t`.
//! *Context*: worker threads.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::options::Options;

const PAGE_WORDS: u64 = 512;
/// Enough that neighbours differ, few enough to stay in the processor's cache.
const NR_TEMPLATES: u64 = 64;
/// Pages are made of records of this many bytes.
const RECORD: usize = 64;

/// The memory that is worked on.
pub struct Memory {
    base: *mut u64,
    nr_pages: u64,
    threads: u64,
    seed: u64,
    /// None if pages are to be same-filled.
    templates: Vec<u64>,
    /// One bit for each page that [`Memory::touch`] has filled.
    touched: Vec<AtomicU64>,
    /// Accesses made by each thread so far.
    accessed: Vec<AtomicU64>,
}

// SAFETY: `base` is used only within the part of the thread that uses it (Invariants).
unsafe impl Sync for Memory {}

fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What the last word of a page must be.
fn seal(page: u64, stamp: u64) -> u64 {
    1 << 63 | (page << 24) ^ stamp
}

/// Random bytes at the start of each record, so that lz4 comes near `compressibility`: it spends
/// about five bytes more on a record, for the match with the one before.
fn random_bytes(compressibility: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and 64"
    )]
    let bytes = (64.0 / compressibility - 5.0).clamp(1.0, 64.0) as usize;
    bytes
}

/// Template pages: structured records, each with some bytes that are its own.
fn templates(options: &Options) -> Vec<u64> {
    let random = random_bytes(options.compressibility);
    let mut words = Vec::new();
    for page in 0..NR_TEMPLATES {
        let mut rng = mix(options.seed << 8 ^ page);
        let structure: [u8; RECORD] =
            std::array::from_fn(|i| mix(rng ^ (i as u64 / 8)).to_le_bytes()[i % 8]);
        for _ in 0..4096 / RECORD {
            let mut record = structure;
            for byte in &mut record[..random] {
                rng = mix(rng);
                *byte = rng.to_le_bytes()[0];
            }
            words.extend(
                record
                    .chunks_exact(8)
                    .map(|c| u64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]])),
            );
        }
    }
    words
}

impl Memory {
    /// Maps the memory; nothing is touched yet.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn new(options: &Options, nr_pages: u64, seed: u64) -> Self {
        let len = usize::try_from(nr_pages * PAGE_WORDS * 8).expect("64-bit");
        // SAFETY: a fresh mapping anywhere, no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert!(
            base != libc::MAP_FAILED,
            "mmap: {}",
            std::io::Error::last_os_error()
        );
        Self {
            base: base.cast(),
            nr_pages,
            threads: options.threads.into(),
            seed,
            templates: if options.same_filled {
                Vec::new()
            } else {
                templates(options)
            },
            touched: (0..=nr_pages / 64).map(|_| AtomicU64::new(0)).collect(),
            accessed: (0..options.threads).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Pages of thread `t`; all parts are the same size, so that all threads have the same work.
    fn part(&self, t: u32) -> Range<u64> {
        let size = self.nr_pages / self.threads;
        u64::from(t) * size..(u64::from(t) + 1) * size
    }

    /// Accesses that one pass means for a thread.
    pub fn accesses_per_thread(&self) -> u64 {
        self.nr_pages / self.threads
    }

    fn page(&self, page: u64) -> *mut u64 {
        let offset = usize::try_from(page * PAGE_WORDS).expect("64-bit");
        // SAFETY: callers pass numbers below `nr_pages`.
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
        if self.templates.is_empty() {
            self.repeat(page, seal(page, 0));
            return;
        }
        let from = usize::try_from(page % NR_TEMPLATES * PAGE_WORDS).expect("small");
        let template = &self.templates[from..from + 512];
        let to = self.page(page);
        // SAFETY: the page is this thread's alone, PAGE_WORDS long and inside the mapping.
        unsafe {
            std::ptr::copy_nonoverlapping(template.as_ptr(), to, template.len());
            to.write_volatile(page);
            to.add(1).write_volatile(0);
            to.add(511).write_volatile(seal(page, 0));
        }
    }

    /// Makes a page of one word.
    fn repeat(&self, page: u64, word: u64) {
        // SAFETY: as in `fill_page`; no reference into the page exists.
        unsafe { std::slice::from_raw_parts_mut(self.page(page), 512) }.fill(word);
    }

    fn touched(&self, page: u64) -> &AtomicU64 {
        &self.touched[usize::try_from(page / 64).expect("64-bit")]
    }

    /// Reads, checks and writes one page; returns the stamp that it had.
    fn access(&self, page: u64) -> u64 {
        let p = self.page(page);
        // SAFETY: as in `fill_page`.
        let (number, stamp, last) = unsafe {
            (
                p.read_volatile(),
                p.add(1).read_volatile(),
                p.add(511).read_volatile(),
            )
        };
        if self.templates.is_empty() {
            return self.access_same_filled(page, [number, stamp, last]);
        }
        assert!(
            number == page && last == seal(page, stamp),
            "page {page} holds number {number}, stamp {stamp}, seal {last:#x} instead of {:#x}",
            seal(page, stamp)
        );
        // SAFETY: as in `fill_page`.
        unsafe {
            p.add(1).write_volatile(stamp + 1);
            p.add(511).write_volatile(seal(page, stamp + 1));
        }
        stamp
    }

    fn access_same_filled(&self, page: u64, words: [u64; 3]) -> u64 {
        let stamp = words[0] ^ seal(page, 0);
        assert!(
            stamp < 1 << 24 && words == [words[0]; 3],
            "page {page} holds {words:x?} instead of one word, {:#x} or a little above",
            seal(page, 0)
        );
        self.repeat(page, seal(page, stamp + 1));
        stamp
    }

    /// Writes pages of thread `t`, those that were written before after checking them.
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

    /// Accesses the pages of thread `t` in order, from the first again after the last.
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

    /// Sixteen pages that were written twice.
    fn memory(args: &str) -> Memory {
        let args = args.split_whitespace().map(str::to_owned);
        let options = Options::parse(args).unwrap().unwrap();
        let memory = Memory::new(&options, 16, 1);
        memory.touch(0, 32, false);
        memory
    }

    #[test]
    #[should_panic(expected = "page 7 holds")]
    fn a_page_that_comes_back_empty_is_lost() {
        let memory = memory("64k");
        memory.repeat(7, 0);
        memory.touch(0, 16, false);
    }

    #[test]
    #[should_panic(expected = "page 7 holds")]
    fn a_page_with_another_pages_contents_is_found_out() {
        let memory = memory("--same-filled 64k");
        memory.repeat(7, seal(6, 1));
        memory.touch(0, 16, false);
    }

    #[test]
    #[should_panic(expected = "stamps of thread 0 add up")]
    fn an_older_copy_of_a_page_is_found_out() {
        let options = Options::parse(std::iter::empty()).unwrap().unwrap();
        let memory = Memory::new(&options, 16, 1);
        memory.fill(0);
        memory.sequential(0, 16);
        memory.fill_page(7);
        memory.sequential(0, 16);
    }
}
