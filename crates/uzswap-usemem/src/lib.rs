//! The work program of the memory benchmarks, as a library for `uzswap-usemem` and `uzswap bench
//! work`.
//!
//! *What*: fills anonymous memory with pages of a chosen compressibility or of real programs,
//! reads, checks and writes them at random and sequentially, and prints what each phase took as one
//! line of JSON. It measures inside, so start-up and exit do not count. Given a size, it does what
//! vm-scalability's `usemem` does ([`tasks`]).
//! *Invariants*: a page's content follows from its number and its stamp; the stamps of a thread's
//! pages add up to its accesses. Both are checked, so a lost or stale page is found.
//! *Locking*: none; each thread has a contiguous part of the pages to itself.
//! *Context*: an ordinary program that knows nothing of uzswap.

mod contents;
pub mod corpus;
mod memory;
mod options;
mod phase;
mod spin;
mod tasks;

use std::ffi::OsString;

use contents::Contents;
pub use contents::PAGE;
use memory::Memory;
use options::{Mode, Options};
use phase::Phase;
pub use spin::Spin;

/// The program: does what `args` say, prints one line of JSON and returns the exit status.
#[must_use]
pub fn main(args: impl Iterator<Item = OsString>) -> u8 {
    let args = args.map(|arg| arg.to_string_lossy().into_owned());
    let options = match Options::parse(args) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{}", options::USAGE);
            return 0;
        }
        Err(message) => {
            eprintln!("uzswap-usemem: {message}\n{}", options::USAGE);
            return 2;
        }
    };
    let contents = match Contents::of(&options) {
        Ok(contents) => contents,
        Err(message) => {
            eprintln!("uzswap-usemem: {message}");
            return 2;
        }
    };
    match options.mode {
        Mode::Spin => {
            let spin = Spin::measure();
            println!(
                "{{\"alone_s\":{:.3},\"together_s\":{:.3},\"ratio\":{:.3}}}",
                spin.alone_s,
                spin.together_s,
                spin.ratio()
            );
        }
        Mode::Phases => work(&options, &contents),
        Mode::Tasks(bytes) => return tasks::run(&options, &contents, bytes),
    }
    0
}

fn work(options: &Options, contents: &Contents) {
    let threads = options.threads;
    let memory = Memory::new(
        contents,
        threads,
        u64::from(options.mib) * 256,
        options.seed,
    );
    let fill = Phase::run(threads, |t| memory.fill(t));
    let mut fields = vec![
        format!("\"mib\":{}", options.mib),
        format!("\"threads\":{threads}"),
        format!("\"passes\":{}", options.passes),
        format!("\"seed\":{}", options.seed),
        format!("\"compressibility\":{}", options.compressibility),
        format!("\"corpus\":{}", options.corpus.is_some()),
        fill.json("fill", "s_per_gib", fill.wall * 1024.0 / options.mib_f64()),
    ];
    let accesses = options.accesses.map_or_else(
        || memory.accesses_per_thread() * u64::from(options.passes),
        u64::from,
    );
    if options.random {
        let phase = Phase::run(threads, |t| memory.random(t, accesses));
        fields.push(phase.json("random", "us_per_access", per_access(&phase, accesses)));
    }
    if options.sequential {
        let phase = Phase::run(threads, |t| memory.sequential(t, accesses));
        fields.push(phase.json("sequential", "us_per_access", per_access(&phase, accesses)));
    }
    println!("{{{}}}", fields.join(","));
}

/// Wall time per access of a thread, µs.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52 accesses")]
fn per_access(phase: &Phase, accesses_per_thread: u64) -> f64 {
    phase.wall * 1e6 / accesses_per_thread as f64
}
