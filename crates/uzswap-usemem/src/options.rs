//! The command line.

use std::path::PathBuf;

use crate::tasks;

/// What `--help` prints.
pub const USAGE: &str = "\
usage: uzswap-usemem [OPTION]...           fill memory, then read and write it in phases
       uzswap-usemem [OPTION]... SIZE      as usemem of vm-scalability: SIZE (k, m, g) for each process

  --threads N, -t N       threads of a process, each with its own part of its memory (1)
  --compressibility R     approximate ratio of the data by lz4, 1 to 10 (4)
  --same-filled           same-filled pages instead
  --corpus DIR            pages of real programs instead, written by 'uzswap bench corpus DIR'
  --seed N                seed of data and order (1)
  --random, -R            access at random; with phases, only the random one

Phases:
  --mib N                 memory to fill, MiB (1024)
  --passes N              accesses of each phase, in multiples of the pages (1)
  --accesses N            accesses per phase and thread, instead of passes
  --sequential            only the sequential phase
  --spin                  measure only whether two processors are available

With SIZE:
  -n N, --task N          processes (1)
  -r N, --repeat N        passes over the memory (1); pages are checked from the second on
  -s N, --sleep N         keep the memory for N seconds when done (0)
  --touch-alloc           write all memory first, outside the throughput
  --init-time             print how long that took
  -y, --sync-rw           processes start together
  -x, --sync-free         processes free their memory together
  -O, -w                  anonymous and written, as always
";

/// What the program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Fill and access memory in phases.
    Phases,
    /// Processes with this many bytes each, as usemem.
    Tasks(u64),
    /// Measure the spin calibration.
    Spin,
}

/// The parsed command line.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "as many switches as usemem has"
)]
pub struct Options {
    /// What to do.
    pub mode: Mode,
    /// Memory to fill, MiB.
    pub mib: u32,
    /// Threads.
    pub threads: u32,
    /// Accesses of a phase in multiples of the pages.
    pub passes: u32,
    /// Accesses per phase and thread, instead of passes.
    pub accesses: Option<u32>,
    /// Whether the random phase is wanted.
    pub random: bool,
    /// Whether the sequential phase is wanted.
    pub sequential: bool,
    /// Approximate ratio of the data by lz4.
    pub compressibility: f64,
    /// Whether pages are same-filled instead.
    pub same_filled: bool,
    /// Directory of pages of real programs, instead.
    pub corpus: Option<PathBuf>,
    /// Seed of data and order.
    pub seed: u64,
    /// Processes.
    pub processes: u32,
    /// Seconds to keep the memory.
    pub sleep: u32,
    /// Whether all memory is written before the measurement.
    pub touch_alloc: bool,
    /// Whether to print how long that took.
    pub init_time: bool,
    /// Whether processes begin together.
    pub sync_rw: bool,
    /// Whether they free their memory together.
    pub sync_free: bool,
}

impl Options {
    /// Parses `args`; `None` if they ask for help.
    ///
    /// # Errors
    /// With one line for the user.
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            mode: Mode::Phases,
            mib: 1024,
            threads: 1,
            passes: 1,
            accesses: None,
            random: false,
            sequential: false,
            compressibility: 4.0,
            same_filled: false,
            corpus: None,
            seed: 1,
            processes: 1,
            sleep: 0,
            touch_alloc: false,
            init_time: false,
            sync_rw: false,
            sync_free: false,
        };
        while let Some(arg) = args.next() {
            let mut number = |least: u32, most: u32| -> Result<u32, String> {
                let value = args.next().ok_or_else(|| format!("{arg} needs a number"))?;
                match value.parse() {
                    Ok(n) if (least..=most).contains(&n) => Ok(n),
                    _ => Err(format!(
                        "{arg} {value}: not a number from {least} to {most}"
                    )),
                }
            };
            match arg.as_str() {
                "--mib" => options.mib = number(1, 1 << 20)?,
                "--threads" | "-t" => options.threads = number(1, 256)?,
                "--passes" | "--repeat" | "-r" => options.passes = number(1, 1000)?,
                "--accesses" => options.accesses = Some(number(1, u32::MAX)?),
                "--seed" => options.seed = number(0, u32::MAX)?.into(),
                "--compressibility" => options.compressibility = number(1, 10)?.into(),
                "--same-filled" => options.same_filled = true,
                "--corpus" => {
                    let dir = args.next().ok_or("--corpus needs a directory")?;
                    options.corpus = Some(dir.into());
                }
                "--random" | "-R" => options.random = true,
                "--sequential" => options.sequential = true,
                "--spin" => options.mode = Mode::Spin,
                "--task" | "-n" => options.processes = number(1, tasks::MAX_PROCESSES)?,
                "--sleep" | "-s" => options.sleep = number(0, 3600)?,
                "--touch-alloc" => options.touch_alloc = true,
                "--init-time" => options.init_time = true,
                "--sync-rw" | "-y" => options.sync_rw = true,
                "--sync-free" | "-x" => options.sync_free = true,
                "--anonymous" | "-O" | "--open-rw" | "-w" => {}
                "--help" | "-h" => return Ok(None),
                other if other.starts_with('-') => return Err(format!("unknown option {other}")),
                size => options.mode = Mode::Tasks(bytes(size)?),
            }
        }
        if !options.random && !options.sequential && options.mode == Mode::Phases {
            options.random = true;
            options.sequential = true;
        }
        if options.same_filled && options.corpus.is_some() {
            return Err("--same-filled and --corpus are two kinds of data".into());
        }
        if let Mode::Tasks(bytes) = options.mode
            && bytes / 4096 < options.threads.into()
        {
            return Err(format!(
                "{bytes} bytes are less than a page for each thread"
            ));
        }
        Ok(Some(options))
    }

    /// Memory to fill, MiB.
    pub fn mib_f64(&self) -> f64 {
        f64::from(self.mib)
    }
}

/// A size with a unit of base 1024, as usemem takes it.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("{text}: not a size such as 512m or 10g")),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| format!("{text}: not a size such as 512m or 10g"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let args = line.split_whitespace().map(str::to_owned);
        Options::parse(args).map(|options| options.expect("no help was asked for"))
    }

    #[test]
    fn usemem_command_lines_are_understood() {
        let options = parse("--init-time -w -O -s 10 -n 30 10g").unwrap();
        assert_eq!(options.mode, Mode::Tasks(10 << 30));
        assert_eq!((options.processes, options.sleep), (30, 10));
        assert!(options.init_time && !options.random);
        let options = parse("-O -y -x -R -r 3 -t 4 512m").unwrap();
        assert_eq!(options.mode, Mode::Tasks(512 << 20));
        assert_eq!((options.passes, options.threads), (3, 4));
        assert!(options.sync_rw && options.sync_free && options.random);
    }

    #[test]
    fn wrong_arguments_are_refused_in_one_line() {
        for (line, part) in [
            ("10x", "not a size"),
            ("0", "not a size"),
            ("g", "not a size"),
            ("-t 2 4k", "less than a page"),
            ("-n 0 1m", "not a number from 1"),
            ("-n", "needs a number"),
            ("--what", "unknown option --what"),
            ("--corpus", "needs a directory"),
            ("--corpus x --same-filled", "two kinds of data"),
        ] {
            let why = parse(line).unwrap_err();
            assert!(why.contains(part) && !why.contains('\n'), "{line}: {why}");
        }
    }
}
