//! *What*: the options of `uzswap bench` and `uzswap report`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use uzswap_bench::{alloc, disk};
use uzswap_compress::Codec;

use crate::compressor::Compressor;
use crate::size::Size;

#[derive(Clone, Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    pub suite: Suite,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Suite {
    /// Sample the memory of real programs into a directory, for 'codecs', 'usemem' and 'disk'
    Corpus {
        /// Directory to write to
        dir: PathBuf,
        /// Most memory to sample of each program
        #[arg(long, value_name = "SIZE", default_value = "16M")]
        each: Size,
    },
    /// Ratio and speed of each codec on pages of real programs
    Codecs {
        #[command(flatten)]
        codecs: CodecOptions,
        #[command(flatten)]
        common: Common,
    },
    /// The same memory-bound work natively, under the kernel's zswap (needs root) and under uzswap
    Usemem {
        #[command(flatten)]
        data: Data,
        #[command(flatten)]
        options: Options,
    },
    /// More data than fits even compressed, beside the kernel's zswap and swap (need root)
    Disk {
        #[command(flatten)]
        data: Data,
        /// Size of the data as a multiple of the memory
        #[arg(long, value_name = "N", default_value_t = disk::TIMES, value_parser = clap::value_parser!(u64).range(2..=100))]
        times: u64,
        #[command(flatten)]
        options: Options,
    },
    /// Eight processes under one limit, beside the kernel's zswap in one cgroup (needs root)
    Group(Options),
    /// Latency and throughput of redis with half of its memory, beside the kernel's zswap (needs root)
    Tail {
        #[command(flatten)]
        options: Options,
        /// Requests per second of the open loop
        #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        rate: u32,
    },
    /// Pages read back from other machines' memory, beside a local disk and the servers' own speed
    Remote {
        #[command(flatten)]
        wanted: RemoteOptions,
        #[command(flatten)]
        common: Common,
    },
    /// Folios of 4K, 64K and 2M: throughput, and the time to store a page
    Store(Options),
    /// Pages compressed by workers beside the program, in batches, and by the program's own threads
    Batch(Options),
    /// Same-filled pages, recognised or compressed
    SameFilled(Options),
    /// The swap slot allocator beside a linear scan under one lock
    Alloc {
        #[command(flatten)]
        wanted: AllocOptions,
        #[command(flatten)]
        common: Common,
    },
    /// Real programs natively, under the kernel's zswap (needs root) and under uzswap
    Apps(Options),
    /// Compiling a C project with 'make -j2', likewise
    Build(Options),
    /// The least memory at which real programs keep 95 % of their speed; takes long
    Saving(Options),
    /// Every suite but 'saving', 'tail' and 'remote'
    All {
        #[command(flatten)]
        codecs: CodecOptions,
        #[command(flatten)]
        options: Options,
    },
    /// The work program of the memory suites
    #[command(hide = true, disable_help_flag = true)]
    Work {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

impl Suite {
    /// The suites of 'all'.
    pub fn all(codecs: &CodecOptions, options: &Options) -> Vec<Suite> {
        let options = || options.clone();
        let (data, common) = (Data::default(), options().common);
        vec![
            Suite::Codecs {
                codecs: codecs.clone(),
                common: common.clone(),
            },
            Suite::Alloc {
                wanted: AllocOptions::default(),
                common,
            },
            Suite::Usemem {
                data: data.clone(),
                options: options(),
            },
            Suite::Disk {
                data,
                times: disk::TIMES,
                options: options(),
            },
            Suite::Group(options()),
            Suite::Store(options()),
            Suite::Batch(options()),
            Suite::SameFilled(options()),
            Suite::Apps(options()),
            Suite::Build(options()),
        ]
    }

    /// How to measure; 'corpus' and 'work' measure nothing.
    pub fn common(&self) -> &Common {
        match self {
            Suite::Codecs { common, .. }
            | Suite::Alloc { common, .. }
            | Suite::Remote { common, .. } => common,
            Suite::Usemem { options, .. }
            | Suite::Disk { options, .. }
            | Suite::Tail { options, .. }
            | Suite::All { options, .. }
            | Suite::Group(options)
            | Suite::Store(options)
            | Suite::Batch(options)
            | Suite::SameFilled(options)
            | Suite::Apps(options)
            | Suite::Build(options)
            | Suite::Saving(options) => &options.common,
            Suite::Corpus { .. } | Suite::Work { .. } => &Common::NONE,
        }
    }
}

/// The options of a suite that compares uzswap with peers.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    pub sides: Sides,
    #[command(flatten)]
    pub common: Common,
}

impl Options {
    /// Data of the suite, which has `full` MiB of its own.
    pub fn mib(&self, full: u64) -> u64 {
        let usual = if self.common.quick { full / 4 } else { full };
        self.sides.mib.unwrap_or(usual)
    }
}

#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Less data and one round, for a first impression
    #[arg(long)]
    pub quick: bool,

    /// Rounds, of which the tables show the medians [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: Option<u16>,

    /// Write every figure to FILE, for 'uzswap report'
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Common {
    const NONE: Common = Common {
        quick: false,
        rounds: None,
        json: None,
    };

    pub fn rounds(&self) -> usize {
        self.rounds
            .map_or(if self.quick { 1 } else { 3 }, usize::from)
    }
}

#[derive(Clone, Debug, Args)]
pub struct CodecOptions {
    /// A directory that 'bench corpus' made [default: one made now and removed]
    #[arg(long, value_name = "DIR")]
    pub corpus: Option<PathBuf>,

    /// Codec to measure; may be given again [default: lz4, some levels of zstd and deflate]
    #[arg(long = "codec", value_name = "CODEC")]
    pub codecs: Vec<Codec>,
}

#[derive(Clone, Debug, Args)]
pub struct RemoteOptions {
    /// Only with these numbers of threads
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,8", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: Vec<u16>,

    /// Only with these delays of a round trip, in milliseconds
    #[arg(long = "delay", value_name = "MS", value_delimiter = ',', default_value = "0,0.2,1", value_parser = delay)]
    pub delays: Vec<f64>,

    /// Simulate what 1,000 jobs do to a cluster of 16 servers, and what the failure of a rack does
    #[arg(long, conflicts_with_all = ["threads", "delays", "mib"])]
    pub simulate: bool,

    /// MiB of the job's data, of which it has a third as memory [default: 768, with --quick 192]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(96..=1 << 20))]
    pub mib: Option<u64>,
}

/// Milliseconds that a benchmark can wait.
fn delay(text: &str) -> Result<f64, String> {
    let ms = text.parse().ok().filter(|ms| (0.0..=1000.0).contains(ms));
    ms.ok_or_else(|| "not 0 to 1000 milliseconds".to_owned())
}

#[derive(Clone, Debug, Default, Args)]
pub struct Data {
    /// A directory that 'bench corpus' made, to fill memory with pages of real programs [default:
    /// generated records]
    #[arg(long, value_name = "DIR")]
    pub corpus: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, Args)]
pub struct AllocOptions {
    /// Only with these numbers of threads [default: 1,2,8,32]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,

    /// Only runs of 2^N slots [default: 0,4,9]
    #[arg(long = "order", value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(0..=9))]
    orders: Vec<u8>,

    /// Only where threads free their oldest run, or a random one [default: oldest,random]
    #[arg(long, value_name = "WHICH", value_delimiter = ',')]
    frees: Vec<alloc::Frees>,

    /// Only with these percentages of the device in use [default: 25,75,95,99, with --quick 75]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(10..=99))]
    in_use: Vec<u8>,

    /// Only how often a fragmented device has no run of 16 slots
    #[arg(long, conflicts_with_all = ["threads", "orders", "frees", "in_use"])]
    fallbacks: bool,
}

impl Data {
    pub fn dir(&self) -> Option<&Path> {
        self.corpus.as_deref()
    }
}

impl AllocOptions {
    pub fn wanted(&self) -> alloc::Wanted {
        alloc::Wanted {
            threads: self.threads.iter().copied().map(usize::from).collect(),
            orders: self.orders.clone(),
            frees: self.frees.clone(),
            in_use: self.in_use.iter().copied().map(usize::from).collect(),
            fallbacks: self.fallbacks,
        }
    }
}

#[derive(Clone, Debug, Args)]
pub struct Sides {
    /// What to compare with; may be given again [default: what the suite is about, as far as this
    /// machine has it]
    #[arg(long = "peer", value_name = "PEER", value_delimiter = ',')]
    pub peers: Vec<Peer>,

    /// Compressor of the kernel's zswap
    #[arg(long, value_name = "NAME", default_value = "lzo")]
    pub kernel_compressor: String,

    /// Compressor of uzswap
    #[arg(long, value_name = "CODEC", default_value = "auto")]
    pub compressor: Compressor,

    /// Only this program, where the suite is about several; may be given again
    #[arg(long = "program", value_name = "NAME")]
    pub programs: Vec<String>,

    /// MiB of data, where the suite has data of its own [default: 1024 to 2048, with --quick less]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    pub mib: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// The running kernel's zswap, with the same total memory; needs root
    KernelZswap,
    /// The running kernel's swap to a file; needs root
    KernelSwap,
    /// The running kernel's zram; needs root
    Zram,
    /// The work without any limit
    Native,
}

#[derive(Clone, Debug, Args)]
pub struct Report {
    /// Output of 'bench --json' or 'run --trace'
    pub file: PathBuf,

    /// The HTML page to write
    #[arg(long, short, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
}
