//! `uzswap bench` and `uzswap report`: their command lines. What they do is in `uzswap-bench`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use uzswap_bench::results::{Results, Suite};
use uzswap_bench::{Refused, codecs, corpus, interrupt, usemem};
use uzswap_compress::Codec;

use crate::command_line;
use crate::compressor::Compressor;
use crate::size::Size;
use crate::status::refused;

/// As a shell has it for a command that SIGINT ended.
const INTERRUPTED: u8 = 130;

#[derive(Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Sample the memory of real programs into a directory, for 'codecs'
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
        usemem: UsememOptions,
        #[command(flatten)]
        common: Common,
    },
    /// Everything
    All {
        #[command(flatten)]
        codecs: CodecsOptions,
        #[command(flatten)]
        usemem: UsememOptions,
        #[command(flatten)]
        common: Common,
    },
    /// The program that 'usemem' runs
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

    /// Rounds that medians are taken over
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// Write every figure to FILE, for 'uzswap report'
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
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
struct UsememOptions {
    /// Beside whom
    #[arg(long, value_name = "PEER", default_value = "kernel-zswap")]
    peer: Peer,

    /// Compressor of the kernel's zswap
    #[arg(long, value_name = "NAME", default_value = "lzo")]
    kernel_compressor: String,

    /// Compressor of uzswap
    #[arg(long, value_name = "CODEC", default_value = "auto")]
    compressor: Compressor,

    /// MiB of data [default: 2048, with --quick 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    mib: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// The running kernel's zswap, with the same total memory
    KernelZswap,
    /// Only the work without any limit
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
        return Ok(usemem::work(args.iter().cloned()));
    }
    interrupt::catch();
    with_status(match &options.what {
        What::Work { .. } => unreachable!("done above"),
        What::Corpus { dir, each } => make_corpus(dir, each.0),
        What::Codecs { codecs, common } => suites(common, Some(codecs), None),
        What::Usemem { usemem, common } => suites(common, None, Some(usemem)),
        What::All {
            codecs,
            usemem,
            common,
        } => suites(common, Some(codecs), Some(usemem)),
    })
}

fn make_corpus(dir: &Path, each: u64) -> Result<u8> {
    let made = corpus::make(dir, usize::try_from(each)?)?;
    println!("{made} programs in {}", dir.display());
    Ok(if interrupt::happened() {
        INTERRUPTED
    } else {
        0
    })
}

fn suites(
    common: &Common,
    codecs: Option<&CodecsOptions>,
    usemem: Option<&UsememOptions>,
) -> Result<u8> {
    let mut results = Results::new(env!("CARGO_PKG_VERSION"), command_line::this());
    let mut outcome = Ok(());
    if let Some(options) = codecs {
        outcome = run_codecs(options, common, &mut results);
    }
    if let (Some(options), Ok(()), false) = (usemem, &outcome, interrupt::happened()) {
        outcome = run_usemem(options, common, &mut results);
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
    let measured = codecs::measure(&wanted, dumps, common.rounds.into())?;
    results.suites.push(Suite::Codecs(measured));
    Ok(())
}

fn run_usemem(options: &UsememOptions, common: &Common, results: &mut Results) -> Result<()> {
    let (measured, skipped) = usemem::measure(&usemem::Options {
        uzswap: std::env::current_exe().context("cannot find the uzswap binary")?,
        mib: options
            .mib
            .unwrap_or(if common.quick { 1024 } else { 2048 }),
        rounds: common.rounds.into(),
        kernel: (options.peer == Peer::KernelZswap).then(|| options.kernel_compressor.clone()),
        compressor: options.compressor.codec().to_string(),
    })?;
    results.skipped.extend(skipped);
    results.suites.push(Suite::Usemem(measured));
    Ok(())
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

/// What was asked for wrongly ends with status 2.
fn with_status(result: Result<u8>) -> Result<u8> {
    result.map_err(|error| match error.downcast::<Refused>() {
        Ok(Refused(line)) => refused(2, line),
        Err(error) => error,
    })
}
