//! The command line.

/// What `--help` prints.
pub const USAGE: &str = "\
usage: uzswap-usemem [OPTION]...
  --mib N                 memory to fill, MiB (1024)
  --threads N, -t N       threads, each with its own part of the memory (1)
  --passes N              accesses of each phase, in multiples of the pages (1)
  --accesses N            accesses of each phase and thread, instead of passes
  --random                the random phase only
  --sequential            the sequential phase only
  --compressibility R     ratio that lz4 reaches on the data, about; 1 to 10 (4)
  --seed N                seed of data and order (1)
  --spin                  instead: measure whether two processors are really there
";

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Fill and access memory.
    Memory,
    /// Calibrate by spinning.
    Spin,
}

/// The command line, understood.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// What to do.
    pub work: Work,
    /// Memory to fill, MiB.
    pub mib: u32,
    /// Threads.
    pub threads: u32,
    /// Accesses of a phase, in multiples of the pages.
    pub passes: u32,
    /// Accesses of a phase and a thread, instead of passes.
    pub accesses: Option<u32>,
    /// Whether the random phase is wanted.
    pub random: bool,
    /// Whether the sequential phase is wanted.
    pub sequential: bool,
    /// Ratio that lz4 reaches on the data, about.
    pub compressibility: f64,
    /// Seed of data and order.
    pub seed: u64,
}

impl Options {
    /// Understands `args`; `None` when help was asked for.
    ///
    /// # Errors
    /// With one line for the user.
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            work: Work::Memory,
            mib: 1024,
            threads: 1,
            passes: 1,
            accesses: None,
            random: false,
            sequential: false,
            compressibility: 4.0,
            seed: 1,
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
                "--passes" => options.passes = number(1, 1000)?,
                "--accesses" => options.accesses = Some(number(1, u32::MAX)?),
                "--seed" => options.seed = number(0, u32::MAX)?.into(),
                "--compressibility" => options.compressibility = number(1, 10)?.into(),
                "--random" => options.random = true,
                "--sequential" => options.sequential = true,
                "--spin" => options.work = Work::Spin,
                "--help" | "-h" => return Ok(None),
                other => return Err(format!("unknown option {other}")),
            }
        }
        if !options.random && !options.sequential {
            options.random = true;
            options.sequential = true;
        }
        Ok(Some(options))
    }

    /// Memory to fill, MiB.
    pub fn mib_f64(&self) -> f64 {
        f64::from(self.mib)
    }
}
