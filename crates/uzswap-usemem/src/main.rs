//! `uzswap-usemem`: the work of the memory benchmark.
//!
//! *What*: fills anonymous memory with pages of a chosen compressibility, then reads, checks and
//! writes them at random and in order, and prints what each phase took as one line of JSON. It measures inside, so that neither
//! start-up nor exit counts.
//! *Invariants*: a page's last word follows from its number and its stamp; the stamps of a thread's
//! pages add up to the accesses it has made. Both are checked, so a lost or stale page is found.
//! *Locking*: none; each thread has a contiguous part of the pages to itself.
//! *Context*: an ordinary program that knows nothing of uzswap.

mod memory;
mod options;
mod phase;

use std::hint::black_box;
use std::time::Instant;

use memory::Memory;
use options::{Options, Work};
use phase::Phase;

fn main() {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{}", options::USAGE);
            return;
        }
        Err(message) => {
            eprintln!("uzswap-usemem: {message}\n{}", options::USAGE);
            std::process::exit(2);
        }
    };
    match options.work {
        Work::Spin => spin(),
        Work::Memory => work(&options),
    }
}

fn work(options: &Options) {
    let memory = Memory::new(options);
    let threads = options.threads;
    let fill = Phase::run(threads, |t| memory.fill(t));
    let mut fields = vec![
        format!("\"mib\":{}", options.mib),
        format!("\"threads\":{threads}"),
        format!("\"passes\":{}", options.passes),
        format!("\"seed\":{}", options.seed),
        format!("\"compressibility\":{}", options.compressibility),
        fill.json("fill", "s_per_gib", fill.wall * 1024.0 / options.mib_f64()),
    ];
    let accesses = memory.accesses_per_thread() * u64::from(options.passes);
    if options.random {
        let phase = Phase::run(threads, |t| memory.random(t, accesses));
        fields.push(phase.json("random", "us_per_access", per_access(&phase, accesses)));
    }
    if options.sequential {
        let phase = Phase::run(threads, |t| memory.sequential(t, options.passes));
        fields.push(phase.json("sequential", "us_per_access", per_access(&phase, accesses)));
    }
    println!("{{{}}}", fields.join(","));
}

/// Microseconds that a thread waited for each of its accesses.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52 accesses")]
fn per_access(phase: &Phase, accesses_per_thread: u64) -> f64 {
    phase.wall * 1e6 / accesses_per_thread as f64
}

/// Prints how long the same spinning takes on one thread and on each of two at once: a ratio near 1
/// says that there really are two processors at this moment.
fn spin() {
    let one = || {
        let start = Instant::now();
        let mut x = 1_u64;
        for i in 0..400_000_000_u64 {
            x = black_box(x.rotate_left(5) ^ i);
        }
        black_box(x);
        start.elapsed().as_secs_f64()
    };
    let alone = one();
    let together = std::thread::scope(|scope| {
        let other = scope.spawn(one);
        let here = one();
        here.max(other.join().expect("spinning does not panic"))
    });
    println!(
        "{{\"alone_s\":{alone:.3},\"together_s\":{together:.3},\"ratio\":{:.3}}}",
        together / alone
    );
}
