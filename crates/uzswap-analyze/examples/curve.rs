//! Prints what a command touches over time, as `analyze` sees it, and what the model makes of it:
//! for work on the model.
//!
//!     cargo run --release -p uzswap-analyze --example curve -- RATIO IN_US OUT_US COMMAND [ARG]...

use std::process::{Command, Stdio};

use uzswap_analyze::contents::Sample;
use uzswap_analyze::cost::Cost;
use uzswap_analyze::model::{Setting, Workload};
use uzswap_analyze::observe;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let mut number = || args.next().and_then(|arg| arg.parse::<f64>().ok());
    let (Some(ratio), Some(in_us), Some(out_us)) = (number(), number(), number()) else {
        anyhow::bail!("usage: curve RATIO IN_US OUT_US COMMAND [ARG]...");
    };
    let name = args.next().unwrap_or_default();
    let mut child = Command::new(name)
        .args(args)
        .stdout(Stdio::null())
        .spawn()?;
    let (seen, _) = observe::command(&mut child)?;
    for life in &seen.histories {
        println!(
            "{} {}: peak {} MiB, cpu {:.2} s",
            life.pid,
            life.name,
            life.peak >> 8,
            life.cpu_s
        );
        for window in &life.windows {
            let Some(first) = window.readings.first() else {
                continue;
            };
            print!(
                "{:7.2} of {:5} MiB{}:",
                first.at_s,
                first.anon >> 8,
                if window.early { " early" } else { "" }
            );
            for reading in &window.readings[1..] {
                print!(" {}@{:.2}", reading.touched >> 8, reading.at_s - first.at_s);
            }
            println!();
        }
    }
    let work = Workload {
        cpu_s: seen.histories.iter().map(|history| history.cpu_s).sum(),
        histories: seen.histories.iter().collect(),
    };
    let setting = Setting {
        stored: 1.0 / ratio,
        need: seen.sample.as_ref().map_or(1.0, Sample::need),
        cost: Cost { in_us, out_us },
        min_ram: 8 << 20,
    };
    for percent in (20..=105).rev().step_by(5) {
        let ram = work.peak() / 100 * percent;
        if let Some(expected) = work.under(ram, &setting) {
            println!(
                "{:5} MiB: {:8.0} back, {:6.0} out, {:5.1} % slower, {:5.1} to {:5.1} %, {:3.0} % guessed",
                ram >> 20,
                expected.refaults,
                expected.overflow,
                expected.slower * 100.0,
                expected.low * 100.0,
                expected.high * 100.0,
                expected.guessed * 100.0
            );
        }
    }
    Ok(())
}
