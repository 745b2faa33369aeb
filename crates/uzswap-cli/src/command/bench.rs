//! `uzswap bench` and `uzswap report`: their command lines. What they do is in `uzswap-bench`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use uzswap_bench::results::{Results, Suite};
use uzswap_bench::sides::{Side, Sides};
use uzswap_bench::{alloc, apps, batch, disk, same_filled, store, usemem, work};
use uzswap_compress::Codec;
use uzswap_corpus::{self as corpus, codecs, interrupt};

use super::with_status;
use crate::command_line;
use crate::compressor::Compressor;
use crate::size::Size;
use crate::status::INTERRUPTED;

#[derive(Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Sample the memory of real programs into a directory, for 'codecs', 'usemem' and 'disk'
    Corpus {
        /// Directory to write to
        dir: PathBuf,
        /// Most memory of each program
        #[arg(long, value_name = "SIZE", default_value = "16M")]
        each: Size,
    },
    /// How small and how fast each codec makes pages of real programs
    Codecs {
        #[command(flatten)]
        codecs: CodecsOptions,
        #[command(flatten)]
        common: Common,
    },
    /// The same memory-bound work natively, under the kernel's zswap (needs root) and under uzswap
    Usemem {
        #[command(flatten)]
        data: DataOptions,
        #[command(flatten)]
        sides: SidesOptions,
        #[command(flatten)]
        common: Common,
    },
    /// Several times as much data as memory, too much even compressed, beside the kernel's zswap and swap (need root)
    Disk {
        #[command(flatten)]
        data: DataOptions,
        /// How many times the memory the data are
        #[arg(long, value_name = "N", default_value_t = disk::TIMES, value_parser = clap::value_parser!(u64).range(2..=100))]
        times: u64,
        #[command(flatten)]
        sides: SidesOptions,
        #[command(flatten)]
        common: Common,
    },
    /// Memory reclaimed in folios of 4K, 64K and 2M: throughput, and the time for a page
    Store {
        #[command(flatten)]
        sides: SidesOptions,
        #[command(flatten)]
        common: Common,
    },
    /// Pages compressed by workers beside the program, in batches, and by the program's own threads
    Batch {
        #[command(flatten)]
        sides: SidesOptions,
        #[command(flatten)]
        common: Common,
    },
    /// Pages that repeat one word, recognised or compressed
    SameFilled {
        #[command(flatten)]
        sides: SidesOptions,
        #[command(flatten)]
        common: Common,
    },
    /// The swap slot allocator against one lock around a linear scan
    Alloc {
        #[command(flatten)]
        wanted: AllocOptions,
        #[command(flatten)]
        common: Common,
    },
    /// Real programs natively, under the kernel's zswap (needs root) and under uzswap
    Apps {
        #[command(flatten)]
        sides: SidesOptions,
        #[command(flatten)]
        common: Common,
    },
    /// Compiling a C project with two compilers at once, likewise
    Build {
        #[command(flatten)]
        sides: SidesOptions,
        #[command(flatten)]
        common: Common,
    },
    /// The least memory at which real programs keep 95 % of their speed; takes long
    Saving {
        #[command(flatten)]
        sides: SidesOptions,
        #[command(flatten)]
        common: Common,
    },
    /// Everything but 'saving'
    All {
        #[command(flatten)]
        codecs: CodecsOptions,
        #[command(flatten)]
        sides: SidesOptions,
        #[command(flatten)]
        common: Common,
    },
    /// The program that the suites on memory run
    #[command(hide = true, disable_help_flag = true)]
    Work {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
struct Common {
    /// Less data, for a first impression
    #[arg(long)]
    quick: bool,

    /// Rounds that medians are taken over [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,

    /// Write every figure to FILE, for 'uzswap report'
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Common {
    fn rounds(&self) -> usize {
        self.rounds
            .map_or(if self.quick { 1 } else { 3 }, usize::from)
    }
}

#[derive(Debug, Args)]
struct CodecsOptions {
    /// What 'bench corpus' has made [default: made now, and removed]
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,

    /// Codec to measure; may be given again [default: lz4, some levels of zstd and deflate]
    #[arg(long = "codec", value_name = "CODEC")]
    codecs: Vec<Codec>,
}

#[derive(Debug, Args)]
struct DataOptions {
    /// Fill memory with pages of real programs: what 'bench corpus' has made [default: records, of one and the same ratio]
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct AllocOptions {
    /// Only with so many threads [default: 1,2,8,32]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,

    /// Only runs of 2^N slots [default: 0,4,9]
    #[arg(long = "order", value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(0..=9))]
    orders: Vec<u8>,

    /// Only where threads free their oldest run, or a random one [default: oldest,random]
    #[arg(long, value_name = "WHICH", value_delimiter = ',')]
    frees: Vec<alloc::Frees>,

    /// Only with so many percent of the device in use [default: 25,75,95,99, with --quick 75]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(10..=99))]
    in_use: Vec<u8>,

    /// Only how often no run of 16 slots is found on a fragmented device
    #[arg(long, conflicts_with_all = ["threads", "orders", "frees", "in_use"])]
    fallbacks: bool,
}

impl DataOptions {
    fn dir(&self) -> Option<&Path> {
        self.corpus.as_deref()
    }
}

impl AllocOptions {
    fn wanted(&self) -> alloc::Wanted {
        alloc::Wanted {
            threads: self.threads.iter().copied().map(usize::from).collect(),
            orders: self.orders.clone(),
            frees: self.frees.clone(),
            in_use: self.in_use.iter().copied().map(usize::from).collect(),
            fallbacks: self.fallbacks,
        }
    }
}

#[derive(Debug, Args)]
struct SidesOptions {
    /// Beside whom; may be given again [default: what the suite is about, as far as this machine has it]
    #[arg(long = "peer", value_name = "PEER", value_delimiter = ',')]
    peers: Vec<Peer>,

    /// Compressor of the kernel's zswap
    #[arg(long, value_name = "NAME", default_value = "lzo")]
    kernel_compressor: String,

    /// Compressor of uzswap
    #[arg(long, value_name = "CODEC", default_value = "auto")]
    compressor: Compressor,

    /// Only this program, where the suite is about several; may be given again
    #[arg(long = "program", value_name = "NAME")]
    programs: Vec<String>,

    /// MiB of data, where the suite has data of its own [default: 1024 to 2048, with --quick less]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    mib: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// The running kernel's zswap, with the same total memory; needs root
    KernelZswap,
    /// The running kernel's swap to a file; needs root
    KernelSwap,
    /// The running kernel's zram; needs root
    Zram,
    /// The work without any limit
    Native,
}

#[derive(Debug, Args)]
pub struct Report {
    /// What 'bench --json' or 'run --trace' has written
    file: PathBuf,

    /// The page to write
    #[arg(long, short, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

/// Runs suites, prints their tables and writes their figures.
pub fn bench(options: &Bench) -> Result<u8> {
    if let What::Work { args } = &options.what {
        return Ok(work::main(args.iter().cloned()));
    }
    interrupt::catch();
    with_status(match &options.what {
        What::Work { .. } => unreachable!("done above"),
        What::Corpus { dir, each } => make_corpus(dir, each.0),
        What::Codecs { codecs, common } => suites(common, &[Run::Codecs(codecs)]),
        What::Usemem {
            data,
            sides,
            common,
        } => suites(common, &[Run::Beside(Name::Usemem(data.dir()), sides)]),
        What::Disk {
            data,
            times,
            sides,
            common,
        } => suites(
            common,
            &[Run::Beside(Name::Disk(data.dir(), *times), sides)],
        ),
        What::Store { sides, common } => suites(common, &[Run::Beside(Name::Store, sides)]),
        What::Batch { sides, common } => suites(common, &[Run::Beside(Name::Batch, sides)]),
        What::SameFilled { sides, common } => {
            suites(common, &[Run::Beside(Name::SameFilled, sides)])
        }
        What::Alloc { wanted, common } => suites(common, &[Run::Alloc(wanted.wanted())]),
        What::Apps { sides, common } => suites(common, &[Run::Beside(Name::Apps, sides)]),
        What::Build { sides, common } => suites(common, &[Run::Beside(Name::Build, sides)]),
        What::Saving { sides, common } => suites(common, &[Run::Beside(Name::Saving, sides)]),
        What::All {
            codecs,
            sides,
            common,
        } => {
            let mut runs = vec![Run::Codecs(codecs)];
            runs.push(Run::Alloc(alloc::Wanted::default()));
            runs.extend(ALL.map(|name| Run::Beside(name, sides)));
            suites(common, &runs)
        }
    })
}

/// A suite to run.
enum Run<'a> {
    Codecs(&'a CodecsOptions),
    Alloc(alloc::Wanted),
    Beside(Name<'a>, &'a SidesOptions),
}

/// A suite that compares sides.
#[derive(Clone, Copy)]
enum Name<'a> {
    /// With the pages of real programs of a directory.
    Usemem(Option<&'a Path>),
    /// Likewise, so many times the memory.
    Disk(Option<&'a Path>, u64),
    Store,
    Batch,
    SameFilled,
    Apps,
    Build,
    Saving,
}

/// Those of 'all'.
const ALL: [Name<'_>; 7] = [
    Name::Usemem(None),
    Name::Disk(None, disk::TIMES),
    Name::Store,
    Name::Batch,
    Name::SameFilled,
    Name::Apps,
    Name::Build,
];

fn make_corpus(dir: &Path, each: u64) -> Result<u8> {
    let made = corpus::make(dir, usize::try_from(each)?)?;
    println!("{made} programs in {}", dir.display());
    Ok(if interrupt::happened() {
        INTERRUPTED
    } else {
        0
    })
}

fn suites(common: &Common, runs: &[Run<'_>]) -> Result<u8> {
    let mut results = Results::new(env!("CARGO_PKG_VERSION"), command_line::this());
    let mut outcome = Ok(());
    for run in runs {
        if outcome.is_ok() && !interrupt::happened() {
            outcome = match run {
                Run::Codecs(options) => run_codecs(options, common, &mut results),
                Run::Alloc(wanted) => run_alloc(wanted, common, &mut results),
                Run::Beside(name, options) => run_beside(*name, options, common, &mut results),
            };
        }
    }
    results.complete = outcome.is_ok() && !interrupt::happened();
    // What was measured before something failed is kept.
    for suite in &results.suites {
        println!("{}", suite.section());
    }
    if let (Some(path), false) = (&common.json, results.suites.is_empty()) {
        results.write(path)?;
    }
    match outcome {
        Err(error) if !interrupt::happened() => Err(error),
        _ if interrupt::happened() => Ok(INTERRUPTED),
        _ => Ok(0),
    }
}

fn run_codecs(options: &CodecsOptions, common: &Common, results: &mut Results) -> Result<()> {
    let each = if common.quick { 2 << 20 } else { 16 << 20 };
    let dumps = if let Some(dir) = &options.corpus {
        corpus::load(dir, each)?
    } else {
        let scratch = corpus::Scratch::new()?;
        corpus::make(scratch.path(), each)?;
        corpus::load(scratch.path(), each)?
    };
    let wanted = if options.codecs.is_empty() {
        codecs::CODECS
            .iter()
            .map(|name| name.parse())
            .collect::<Result<_, _>>()?
    } else {
        options.codecs.clone()
    };
    let measured = codecs::measure(&wanted, dumps, common.rounds())?;
    results.suites.push(Suite::Codecs(measured));
    Ok(())
}

fn run_alloc(wanted: &alloc::Wanted, common: &Common, results: &mut Results) -> Result<()> {
    let measured = alloc::measure(wanted, common.quick, common.rounds())?;
    results.suites.push(Suite::Alloc(measured));
    Ok(())
}

fn run_beside(
    name: Name<'_>,
    options: &SidesOptions,
    common: &Common,
    results: &mut Results,
) -> Result<()> {
    let usual: &[Side] = match name {
        Name::Usemem(_) => &usemem::USUAL,
        Name::Disk(..) => &disk::USUAL,
        Name::Apps | Name::Build | Name::Saving => &apps::USUAL,
        Name::Store | Name::Batch | Name::SameFilled => &[],
    };
    let mut sides = options.sides(usual)?;
    let suite = measure(name, &mut sides, options, common);
    for line in sides.skipped {
        // The suites of 'all' leave out the same for the same reason.
        if !results.skipped.contains(&line) {
            results.skipped.push(line);
        }
    }
    results.suites.push(suite?);
    Ok(())
}

fn measure(
    name: Name<'_>,
    sides: &mut Sides,
    options: &SidesOptions,
    common: &Common,
) -> Result<Suite> {
    let rounds = common.rounds();
    let mib = |full: u64| {
        options
            .mib
            .unwrap_or(if common.quick { full / 4 } else { full })
    };
    let size = if common.quick {
        apps::Size::Quick
    } else {
        apps::Size::Full
    };
    Ok(match name {
        Name::Usemem(corpus) => Suite::Usemem(usemem::measure(sides, mib(2048), corpus, rounds)?),
        Name::Disk(corpus, times) => {
            let options = disk::Options {
                mib: options.mib,
                times,
                corpus,
                rounds,
                quick: common.quick,
            };
            Suite::Disk(disk::measure(sides, options)?)
        }
        Name::Store => Suite::Store(store::measure(sides, mib(2048), rounds)?),
        Name::Batch => Suite::Batch(batch::measure(sides, mib(1024), rounds)?),
        Name::SameFilled => Suite::SameFilled(same_filled::measure(sides, mib(1024), rounds)?),
        Name::Apps => {
            let title = "Real programs with less memory";
            Suite::Apps(apps::measure(
                title,
                sides,
                &apps::chosen(&options.programs)?,
                size,
                rounds,
            )?)
        }
        Name::Build => {
            let title = "Compiling a C project with less memory";
            Suite::Build(apps::measure(title, sides, &[apps::build()], size, rounds)?)
        }
        Name::Saving => Suite::Saving(apps::saving(
            sides,
            &apps::chosen(&options.programs)?,
            size,
            rounds,
        )?),
    })
}

impl SidesOptions {
    /// Who takes part, if `usual` is what the suite is about.
    fn sides(&self, usual: &[Side]) -> Result<Sides> {
        let asked: Vec<Side> = self.peers.iter().map(|&peer| peer.into()).collect();
        Sides::new(
            &std::env::current_exe().context("cannot find the uzswap binary")?,
            &self.compressor.to_string(),
            &self.kernel_compressor,
            &asked,
            usual,
        )
    }
}

impl From<Peer> for Side {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::KernelZswap => Side::KernelZswap,
            Peer::KernelSwap => Side::KernelSwap,
            Peer::Zram => Side::Zram,
            Peer::Native => Side::Native,
        }
    }
}

/// Makes the page.
pub fn report(options: &Report) -> Result<u8> {
    with_status(
        uzswap_bench::report::of_file(&options.file).and_then(|page| {
            std::fs::write(&options.output, page)
                .with_context(|| format!("cannot write {}", options.output.display()))?;
            Ok(0)
        }),
    )
}
