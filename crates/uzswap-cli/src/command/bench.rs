//! *What*: `uzswap bench` and `uzswap report`: which measurement of `uzswap-bench` each suite is,
//! and what is printed and written of it.
//!
//! *Invariants*: what was measured before an error or ^C is printed and written.
//! *Locking*: none. *Context*: one thread.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use uzswap_bench::results::{self, Results};
use uzswap_bench::sides::{Side, Sides};
use uzswap_bench::{alloc, apps, disk, group, remote, same_filled, store, tail, usemem, work};
use uzswap_corpus::{self as corpus, codecs, interrupt};

use super::with_status;
use crate::args::{Bench, BenchOptions, CodecOptions, Common, Peer, Report, Suite};
use crate::command_line;
use crate::status::INTERRUPTED;

/// Runs suites, prints their tables and writes their figures.
pub fn bench(options: &Bench) -> Result<u8> {
    if let Suite::Work { args } = &options.suite {
        return Ok(work::main(args.iter().cloned()));
    }
    interrupt::catch();
    with_status(match &options.suite {
        Suite::Corpus { dir, each } => make_corpus(dir, each.0),
        Suite::All { codecs, options } => run(&Suite::all(codecs, options), &options.common),
        suite => run(std::slice::from_ref(suite), suite.common()),
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

fn run(suites: &[Suite], common: &Common) -> Result<u8> {
    let mut results = Results::new(env!("CARGO_PKG_VERSION"), command_line::this());
    let mut outcome = Ok(());
    for suite in suites {
        if outcome.is_ok() && !interrupt::happened() {
            outcome = measure(suite, &mut results.skipped).map(|suite| results.suites.push(suite));
        }
    }
    results.complete = outcome.is_ok() && !interrupt::happened();
    for suite in &results.suites {
        println!("{}", suite.section());
    }
    if let (Some(path), false) = (&common.json, results.suites.is_empty()) {
        results.write(path)?;
    }
    if interrupt::happened() {
        return Ok(INTERRUPTED);
    }
    outcome.map(|()| 0)
}

/// Measures one suite. Adds to `skipped` what this machine or user cannot measure.
fn measure(suite: &Suite, skipped: &mut Vec<String>) -> Result<results::Suite> {
    use results::Suite as Measured;
    let common = suite.common();
    let rounds = common.rounds();
    let size = if common.quick {
        apps::Size::Quick
    } else {
        apps::Size::Full
    };
    match suite {
        Suite::Codecs { codecs, .. } => measure_codecs(codecs, common),
        Suite::Alloc { wanted, .. } => {
            alloc::measure(&wanted.wanted(), common.quick, rounds).map(Measured::Alloc)
        }
        Suite::Usemem { data, options } => {
            beside(options, &usemem::DEFAULT_PEERS, skipped, |sides| {
                usemem::measure(sides, options.mib(2048), data.dir(), rounds).map(Measured::Usemem)
            })
        }
        Suite::Disk {
            data,
            times,
            options,
        } => beside(options, &disk::DEFAULT_PEERS, skipped, |sides| {
            let wanted = disk::Options {
                mib: options.sides.mib,
                times: *times,
                corpus: data.dir(),
                rounds,
                quick: common.quick,
            };
            disk::measure(sides, wanted).map(Measured::Disk)
        }),
        Suite::Group(options) => beside(options, &group::DEFAULT_PEERS, skipped, |sides| {
            group::measure(sides, options.mib(2048), rounds).map(Measured::Group)
        }),
        Suite::Tail { options, rate } => beside(options, &tail::DEFAULT_PEERS, skipped, |sides| {
            tail::measure(sides, options.mib(512), *rate, rounds).map(Measured::Tail)
        }),
        Suite::Remote { wanted, .. } if wanted.simulate => {
            remote::simulate::measure(rounds).map(Measured::Remote)
        }
        Suite::Remote { wanted, .. } => alone(skipped, |sides| {
            let full = if common.quick { 192 } else { 768 };
            let ms = if common.quick { 200 } else { 1000 };
            let options = remote::Options {
                threads: wanted.threads.iter().copied().map(usize::from).collect(),
                delays_ms: wanted.delays.clone(),
                job_mib: wanted.mib.unwrap_or(full),
                rounds,
                time: Duration::from_millis(ms),
            };
            remote::measure(sides, &options).map(Measured::Remote)
        }),
        Suite::Store(options) => beside(options, &[], skipped, |sides| {
            store::folios(sides, options.mib(2048), rounds).map(Measured::Store)
        }),
        Suite::Batch(options) => beside(options, &[], skipped, |sides| {
            store::batches(sides, options.mib(1024), rounds).map(Measured::Batch)
        }),
        Suite::SameFilled(options) => beside(options, &[], skipped, |sides| {
            same_filled::measure(sides, options.mib(1024), rounds).map(Measured::SameFilled)
        }),
        Suite::Apps(options) => beside(options, &apps::DEFAULT_PEERS, skipped, |sides| {
            let title = "Real programs with less memory";
            let programs = apps::chosen(&options.sides.programs)?;
            apps::measure(title, sides, &programs, size, rounds).map(Measured::Apps)
        }),
        Suite::Build(options) => beside(options, &apps::DEFAULT_PEERS, skipped, |sides| {
            let title = "Compiling a C project with less memory";
            apps::measure(title, sides, &[apps::build()], size, rounds).map(Measured::Build)
        }),
        Suite::Saving(options) => beside(options, &apps::DEFAULT_PEERS, skipped, |sides| {
            let programs = apps::chosen(&options.sides.programs)?;
            apps::saving(sides, &programs, size, rounds).map(Measured::Saving)
        }),
        Suite::Corpus { .. } | Suite::All { .. } | Suite::Work { .. } => {
            unreachable!("bench() handles these")
        }
    }
}

fn measure_codecs(options: &CodecOptions, common: &Common) -> Result<results::Suite> {
    let each = if common.quick { 2 << 20 } else { 16 << 20 };
    let dumps = if let Some(dir) = &options.corpus {
        corpus::load(dir, each)?
    } else {
        let scratch = corpus::Scratch::new()?;
        corpus::make(scratch.path(), each)?;
        corpus::load(scratch.path(), each)?
    };
    let wanted = if options.codecs.is_empty() {
        let names = codecs::CODECS.iter();
        names.map(|name| name.parse()).collect::<Result<_, _>>()?
    } else {
        options.codecs.clone()
    };
    codecs::measure(&wanted, dumps, common.rounds()).map(results::Suite::Codecs)
}

/// Measures uzswap, with the compressor that it chooses, beside itself.
fn alone(
    skipped: &mut Vec<String>,
    measure: impl FnOnce(&mut Sides) -> Result<results::Suite>,
) -> Result<results::Suite> {
    let uzswap = std::env::current_exe().context("cannot find the uzswap binary")?;
    let mut sides = Sides::new(&uzswap, "auto", "", &[], &[])?;
    let measured = measure(&mut sides);
    skipped.append(&mut sides.skipped);
    measured
}

/// Measures uzswap beside its peers: those of the command line, else `usual`.
fn beside(
    options: &BenchOptions,
    usual: &[Side],
    skipped: &mut Vec<String>,
    measure: impl FnOnce(&mut Sides) -> Result<results::Suite>,
) -> Result<results::Suite> {
    let peers = options.sides.peers.iter().map(|peer| match peer {
        Peer::KernelZswap => Side::KernelZswap,
        Peer::KernelSwap => Side::KernelSwap,
        Peer::Zram => Side::Zram,
        Peer::Native => Side::Native,
    });
    let mut sides = Sides::new(
        &std::env::current_exe().context("cannot find the uzswap binary")?,
        &options.sides.compressor.to_string(),
        &options.sides.kernel_compressor,
        &peers.collect::<Vec<_>>(),
        usual,
    )?;
    let measured = measure(&mut sides);
    // The suites of 'all' skip the same sides for the same reasons.
    let new = sides
        .skipped
        .into_iter()
        .filter(|line| !skipped.contains(line));
    skipped.extend(new.collect::<Vec<_>>());
    measured
}

/// Makes the page.
pub fn report(options: &Report) -> Result<u8> {
    let page = uzswap_bench::report::of_file(&options.file).and_then(|page| {
        std::fs::write(&options.output, page)
            .with_context(|| format!("cannot write {}", options.output.display()))
    });
    with_status(page.map(|()| 0))
}
