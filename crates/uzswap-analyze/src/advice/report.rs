//! The analysis in words, for a terminal.

use std::fmt;

use super::{Advice, Analysis};
use crate::contents::first;
use crate::model::Expected;
use crate::{MIB, PAGE};

/// Wait of the process worth a line, seconds.
const MIN_REPORTED_WAIT_S: f64 = 0.05;

/// A size in MiB or GiB.
#[must_use]
pub fn mib(bytes: u64) -> String {
    let mib = bytes as f64 / MIB;
    if mib >= 1024.0 {
        format!("{:.1} GiB", mib / 1024.0)
    } else {
        format!("{mib:.0} MiB")
    }
}

/// The range of the slowdown.
#[must_use]
pub fn range(expected: &Expected) -> String {
    format!("{:.0}-{:.0} %", expected.low * 100.0, expected.high * 100.0)
}

impl fmt::Display for Analysis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        writeln!(
            f,
            "{} (pid {}): {} of anonymous memory at most; watched for {:.1} s, {:.1} s of processor time",
            self.name,
            self.pid,
            mib(self.peak),
            self.watched_s,
            self.cpu_s
        )?;
        if self.processes > 1 {
            writeln!(
                f,
                "{} processes; a limit holds for each of them",
                self.processes
            )?;
        }
        writeln!(
            f,
            "contents: {} zero, {} same-filled with them, {} does not compress ({} looked at, of {})",
            percent(self.contents.zero),
            percent(self.contents.same_filled),
            percent(self.contents.incompressible),
            mib((self.contents.pages as u64) * PAGE),
            mib(self.contents.anon * PAGE),
        )?;
        self.codecs(f)?;
        let set = self.working_set.iter();
        let set: Vec<String> = set
            .map(|(s, bytes)| format!("{} in {s} s", mib(*bytes)))
            .collect();
        if !set.is_empty() {
            writeln!(f, "\ntouched: {}", set.join(", "))?;
        }
        if let Some((part, seconds)) = self.cold {
            writeln!(
                f,
                "cold: {} was not touched in the longest window, {seconds:.1} s",
                percent(part)
            )?;
        }
        if self.longest_look_s > MIN_REPORTED_WAIT_S {
            writeln!(
                f,
                "looking at it made its calls that map or unmap memory wait up to {:.0} ms; nothing else",
                self.longest_look_s * 1e3
            )?;
        }
        self.advise(f)?;
        for doubt in &self.unsure {
            writeln!(f, "unsure: {doubt}")?;
        }
        Ok(())
    }
}

impl Analysis {
    fn codecs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<12} {:>5} {:>7} {:>12} {:>12}",
            "CODEC", "BLOCK", "RATIO", "COMPRESS", "DECOMPRESS"
        )?;
        for cell in &self.contents.codecs {
            writeln!(
                f,
                "{:<12} {:>4}K {:>7.2} {:>6.1} µs/4K {:>6.1} µs/4K",
                cell.codec,
                cell.block >> 10,
                cell.bytes as f64 / cell.packed.max(1) as f64,
                first(&cell.compress_us),
                first(&cell.decompress_us),
            )?;
        }
        Ok(())
    }

    fn advise(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(advice) = &self.advice else {
            return writeln!(f, "\n{} resident; no limit can be advised", mib(self.peak));
        };
        writeln!(
            f,
            "\n{:>9}  {:>12}  {:>12}",
            "--ram", "PAGES BACK", "SLOWER"
        )?;
        for expected in &advice.others {
            writeln!(
                f,
                "{:>9}  {:>12.0}  {:>12}",
                mib(expected.ram),
                expected.refaults,
                range(expected)
            )?;
        }
        let Advice {
            compressor,
            ram,
            expected,
            cost,
            ..
        } = advice;
        if *ram as f64 > self.peak as f64 * 0.9 {
            writeln!(
                f,
                "\n{} resident; uzswap would save next to nothing: it uses all of its memory all the time, or it does not compress",
                mib(self.peak)
            )?;
        } else {
            writeln!(
                f,
                "\n{} resident; with --ram {}M --compressor {compressor} expect about {} slower",
                mib(self.peak),
                ram >> 20,
                range(expected),
            )?;
        }
        writeln!(
            f,
            "basis: {:.0} pages back at {:.1} µs and {:.0} out once at {:.1} µs, in {:.1} s of processor time{}",
            expected.refaults,
            cost.in_us + cost.out_us,
            expected.overflow,
            cost.out_us,
            self.cpu_s,
            if self.machine.measured {
                ", as measured here"
            } else {
                ""
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_words() {
        assert_eq!(mib(700 << 20), "700 MiB");
        assert_eq!(mib(3 << 29), "1.5 GiB");
    }
}
