//! Pages of real programs, from the files that `uzswap bench corpus` writes.
//!
//! *What*: finds the files, maps them, and deals their extents to a memory.
//! *Invariants*: the files are only read, and mapped, so they are in the page cache and not in the
//! memory that is worked on. Every program is dealt equally often, and so is every extent of a
//! program.
//! *Locking*: none.
//! *Context*: start-up; then worker threads, which only read.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use memmap2::{Mmap, MmapOptions};

use crate::contents::{PAGE, Real, mix};

/// Size of an extent, whose pages were neighbours in the program, bytes.
pub const EXTENT: usize = 64 << 10;
/// Extension of the files.
pub const EXTENSION: &str = "pages";

/// The files of the corpus in `dir`, one per program, sorted by name.
///
/// # Errors
/// With one line for the user, if there is none or one is cut short.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let shown = dir.display();
    let entries =
        fs::read_dir(dir).map_err(|why| format!("cannot read the corpus {shown}: {why}"))?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == EXTENSION))
        .collect();
    if paths.is_empty() {
        return Err(format!(
            "{shown} holds no .{EXTENSION} files: make them with 'uzswap bench corpus {shown}'"
        ));
    }
    for path in &paths {
        let len = fs::metadata(path)
            .map_err(|why| cannot_read(path, &why))?
            .len();
        if len == 0 || len % EXTENT as u64 != 0 {
            return Err(format!(
                "{} is cut short: make the corpus again with 'uzswap bench corpus {shown}'",
                path.display()
            ));
        }
    }
    paths.sort();
    Ok(paths)
}

fn cannot_read(path: &Path, why: &std::io::Error) -> String {
    format!("cannot read {}: {why}", path.display())
}

/// A corpus, dealt by a seed.
#[derive(Debug)]
pub struct Corpus {
    programs: Vec<Program>,
}

/// The sample of one program.
#[derive(Debug)]
struct Program {
    bytes: Mmap,
    /// Its extents in the order in which they are dealt.
    order: Vec<usize>,
    /// Checksum of each page; `None` if it is same-filled.
    sums: Vec<Option<u32>>,
}

impl Corpus {
    /// Maps the files of `dir`, reads them once and shuffles their extents by `seed`.
    ///
    /// # Errors
    /// With one line for the user.
    pub fn open(dir: &Path, seed: u64) -> Result<Self, String> {
        let open = |path| Program::open(path, seed).map_err(|why| cannot_read(path, &why));
        let programs = files(dir)?
            .iter()
            .map(|path| open(path))
            .collect::<Result<_, _>>()?;
        Ok(Self { programs })
    }

    /// The contents of page number `page`; `None` if it is same-filled.
    pub fn page(&self, page: usize) -> Option<Real<'_>> {
        let (extent, within) = (page / (EXTENT / PAGE), page % (EXTENT / PAGE));
        let program = &self.programs[extent % self.programs.len()];
        let dealt = program.order[extent / self.programs.len() % program.order.len()];
        let number = dealt * (EXTENT / PAGE) + within;
        Some(Real {
            bytes: &program.bytes[number * PAGE..(number + 1) * PAGE],
            sum: program.sums[number]?,
        })
    }
}

impl Program {
    fn open(path: &Path, seed: u64) -> std::io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: a file gets its name when it is complete (`uzswap bench corpus`), and is not
        // written after that.
        let bytes = unsafe { MmapOptions::new().populate().map(&file) }?;
        let sums = bytes
            .chunks_exact(PAGE)
            .map(|page| (!repeats_a_word(page)).then(|| Real::sum_of(page)))
            .collect();
        Ok(Self {
            order: shuffled(bytes.len() / EXTENT, seed),
            bytes,
            sums,
        })
    }
}

fn repeats_a_word(page: &[u8]) -> bool {
    page[8..] == page[..PAGE - 8]
}

/// The numbers below `nr`, shuffled by `seed`.
fn shuffled(nr: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..nr).collect();
    let mut rng = mix(seed);
    for last in (1..nr).rev() {
        rng = mix(rng);
        #[expect(clippy::cast_possible_truncation, reason = "64-bit")]
        order.swap(last, rng as usize % (last + 1));
    }
    order
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::contents::Contents;

    /// Number of extents of a [`TestCorpus`].
    pub const EXTENTS: u64 = 6;

    /// A corpus of two made-up programs of three extents each; one page of each extent is zero.
    pub struct TestCorpus {
        dir: PathBuf,
        bytes: Vec<u8>,
    }

    impl TestCorpus {
        pub fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("usemem-{}-{name}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            let pages = (0..EXTENTS * 16).map(|page| match page % 16 {
                3 => [0; PAGE],
                _ => {
                    std::array::from_fn(|i| mix((page << 32) ^ (i as u64 / 8)).to_le_bytes()[i % 8])
                }
            });
            let bytes = pages.flatten().collect::<Vec<u8>>();
            for (name, half) in ["one", "two"].iter().zip(bytes.chunks(bytes.len() / 2)) {
                fs::write(dir.join(name).with_extension(EXTENSION), half).unwrap();
            }
            Self { dir, bytes }
        }

        pub fn contents(&self) -> Contents {
            Contents::Corpus(Corpus::open(&self.dir, 5).unwrap())
        }

        pub fn pages(&self) -> impl Iterator<Item = &[u8]> {
            self.bytes.chunks(PAGE)
        }
    }

    impl Drop for TestCorpus {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }

    /// How often each extent is dealt to the first `nr` extents of a memory.
    fn dealt(corpus: &Corpus, made: &TestCorpus, nr: usize) -> Vec<usize> {
        let mut times = vec![0; made.bytes.len() / EXTENT];
        for extent in 0..nr {
            let first = corpus.page(extent * 16).unwrap();
            let which = made.pages().position(|page| page == first.bytes).unwrap();
            assert_eq!(
                which % 16,
                0,
                "an extent begins where one of the program did"
            );
            times[which / 16] += 1;
        }
        times
    }

    #[test]
    fn every_extent_of_every_program_is_dealt_equally_often() {
        let made = TestCorpus::new("dealt");
        let [one, other] = [1, 2].map(|seed| Corpus::open(&made.dir, seed).unwrap());
        assert_eq!(dealt(&one, &made, 12), [2; 6]);
        let half = dealt(&one, &made, 8);
        assert_eq!(half[..3].iter().sum::<usize>(), 4, "{half:?}");
        let first = |corpus: &Corpus| {
            corpus
                .programs
                .iter()
                .map(|p| p.order.clone())
                .collect::<Vec<_>>()
        };
        assert_ne!(first(&one), first(&other), "the seed matters");
    }

    #[test]
    fn what_is_no_corpus_is_refused_in_one_line() {
        let made = TestCorpus::new("refused");
        let cut = made.dir.join("two.pages");
        let refused = |dir: &Path| {
            let why = Corpus::open(dir, 1).unwrap_err();
            assert!(!why.contains('\n'), "{why}");
            why
        };
        fs::write(&cut, [1; 4096]).unwrap();
        assert!(refused(&made.dir).contains("two.pages is cut short"));
        fs::remove_file(&cut).unwrap();
        fs::remove_file(made.dir.join("one.pages")).unwrap();
        assert!(refused(&made.dir).contains("holds no .pages files"));
        assert!(refused(&made.dir.join("none")).contains("cannot read the corpus"));
    }
}
