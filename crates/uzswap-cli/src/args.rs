//! The command line: its subcommands, and one-line errors for what is wrong with it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::command::{analyze, bench};
use crate::knob::{Assignment, Settings};
use crate::size::Size;
use crate::status;

/// Run a program in less memory than it needs: a compressed tier for its cold memory, without root,
/// without a kernel change, without a swap partition.
#[derive(Debug, Parser)]
#[command(name = "uzswap", version, verbatim_doc_comment, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  uzswap run --ram 512M -- python3 job.py        a job of 2 GiB in 512 MiB
  uzswap run -- make                             as much RAM as the container still allows
  uzswap run --ram 1G --compressor zstd -- node server.js
  uzswap stat 4711                               what it saves, while it runs

Every option of 'run' can be set by an environment variable: --ram by UZSWAP_RAM, --swap-max by
UZSWAP_SWAP_MAX, and so on.
";

const RUN_USAGE: &str = "uzswap run [OPTIONS] -- COMMAND [ARG]...";

const RUN_EXAMPLES: &str = "\
Sizes are bytes or take a unit of base 1024: 512M, 2G, 1.5GiB.
Exit status: the command's own; 128+N if signal N ended it; 125 if uzswap failed or the limit could
not be kept; 126 and 127 if the command cannot be executed or was not found, as env(1) has it.

Examples:
  uzswap run --ram 256M -- python3 job.py
  uzswap run --ram 1G --stats /tmp/job.json --quiet -- ./job --big
  UZSWAP_RAM=256M uzswap run -- sort --parallel=2 big.txt
  uzswap run --swap /dev/nvme0n1p3,pri=10 --swap /var/tmp -- ./job     the disk first, then a file
  UZSWAP_SWAP='/mnt/a,pri=1;/mnt/b,pri=1' uzswap run -- ./job          two directories by turns
";

const STAT_EXAMPLES: &str = "\
Rates are those of a quarter of a second.
Exit status: 0; 125 if there is no such run, or for wrong arguments.

Examples:
  uzswap stat 4711
  uzswap stat 4711 --json | jq .refaults
  uzswap stat 4711 --prometheus > /var/lib/node_exporter/uzswap.prom
";

const TOP_EXAMPLES: &str = "\
Keys: q quits; up and down choose a process, Enter shows it over time, Esc goes back; s, left and right
choose the column to sort by. What is no terminal gets one snapshot. Watched processes notice nothing.
Exit status: 0; 1 if there is no such run; 2 for wrong arguments.

Examples:
  uzswap top                                     every process under uzswap
  uzswap top 4711 -d 0.5                         one of them, over time
  uzswap top | head                              one snapshot
";

const SET_USAGE: &str = "uzswap set [OPTIONS] PID [KNOB=VALUE]...";

const SET_EXAMPLES: &str = "\
Without KNOB=VALUE the knobs are shown: value, what they take and what they are for. A change holds
for all processes of the run, from their next decision on.
Exit status: 0; 1 if there is no such run or it cannot be changed; 2 for wrong arguments, or a limit
lower than the least that works, with nothing changed.

'ram' may be raised and lowered: a higher limit holds at once; for a lower one the processes evict what
is too much, and 'set' waits until they have. If one cannot, nothing is changed.

Examples:
  uzswap set 4711
  uzswap set 4711 ram=128M
  uzswap set 4711 max_pool_percent=50 accept_threshold_percent=80
";

const ANALYZE_USAGE: &str = "\
uzswap analyze [--json] --pid PID [--for TIME]
       uzswap analyze [--json] [--verify] -- COMMAND [ARG]...";

const ANALYZE_EXAMPLES: &str = "\
The process is only read, and never stopped. What it says holds for what the program did while it was watched.
Exit status: 0; 2 for a process that cannot be watched; 126 and 127 if the command cannot be executed or was
not found; 130 after ^C, which ends the watch with what is known by then.

Examples:
  uzswap analyze --pid 4711 --for 2m
  uzswap analyze -- python3 job.py
  uzswap analyze --verify -- sort -S 1G big.txt -o /dev/null
";

const RECLAIM_EXAMPLES: &str = "\
The coldest goes first. Of a 'uzswap run' its processes are asked one after the other, the largest
first, until it is enough.
Exit status: 0; 1 if less than SIZE could be had, or nothing; 2 for wrong arguments.

Examples:
  uzswap reclaim 4711 256M                       compress 256 MiB of resident memory
  uzswap reclaim 4711 64M --writeback-only       move 64 MiB of compressed memory to swap
";

const BENCH_EXAMPLES: &str = "\
Exit status: 0; 1 if a suite failed; 2 for wrong arguments; 130 after ^C, with what was measured by then.

Examples:
  uzswap bench all --quick
  sudo uzswap bench usemem --json usemem.json    beside the kernel's zswap, as root
  uzswap report usemem.json
";

const REPORT_EXAMPLES: &str = "\
Exit status: 0; 1 if the file cannot be read or is cut; 2 for wrong arguments.

Examples:
  uzswap run --trace job.jsonl --ram 256M -- ./job; uzswap report job.jsonl -o job.html
  uzswap bench codecs --json codecs.json; uzswap report codecs.json
";

const SWAPOFF_EXAMPLES: &str = "\
What does not fit in RAM goes to the other devices. A device from which not everything can be brought
back stays in use, and nothing is lost.
Exit status: 0; 1 if not everything could be brought back, or there is no such device; 2 for wrong arguments.

Examples:
  uzswap swapoff 4711                            the only device
  uzswap swapoff 4711 /dev/nvme0n1p3             by its name
  uzswap swapoff 4711 2                          the second that 'uzswap stat 4711' shows
";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command with its memory limited and compressed
    #[command(override_usage = RUN_USAGE, after_help = RUN_EXAMPLES)]
    Run(Box<Run>),
    /// Show what uzswap does for a process that runs under it
    #[command(after_help = STAT_EXAMPLES)]
    Stat(Stat),
    /// Watch the processes that run under uzswap, or one of them, as they go on
    #[command(after_help = TOP_EXAMPLES)]
    Top(Top),
    /// Show or change the knobs of a run that is under way
    #[command(override_usage = SET_USAGE, after_help = SET_EXAMPLES)]
    Set(Set),
    /// Tell what uzswap would do for a program that runs without it
    #[command(override_usage = ANALYZE_USAGE, after_help = ANALYZE_EXAMPLES)]
    Analyze(analyze::Analyze),
    /// Have a process evict memory now, or write compressed memory to swap
    #[command(after_help = RECLAIM_EXAMPLES)]
    Reclaim(Reclaim),
    /// Have all processes of a run bring back what they have on a swap device, which is not used any more
    #[command(name = "swapoff", after_help = SWAPOFF_EXAMPLES)]
    SwapOff(SwapOff),
    /// Measure on this machine, beside its kernel
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(bench::Bench),
    /// Make a page to look at of what 'bench' measured or 'run --trace' wrote
    #[command(after_help = REPORT_EXAMPLES)]
    Report(bench::Report),
}

/// One `--swap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Where.
    pub place: Place,
    /// The higher, the earlier it is filled; without one it comes after those that were named before it.
    pub priority: Option<u16>,
}

/// Where memory goes that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file in UZSWAP_SWAP_DIR or /var/tmp, if it can be had.
    Auto,
    /// No swap device.
    None,
    /// A directory for a swap file, or a file or block device to use as one.
    Path(PathBuf),
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On
    On,
    /// Off
    Off,
}

/// `--swap-rotational`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rotational {
    /// As the kernel says of the disk
    Auto,
    /// It is: all CPUs write in one place after the other
    On,
    /// It is not: each CPU writes in a place of its own
    Off,
}

impl Rotational {
    /// Whether to take a disk for one that turns, of which the kernel says `found`.
    pub fn decide(self, found: bool) -> bool {
        match self {
            Rotational::Auto => found,
            Rotational::On => true,
            Rotational::Off => false,
        }
    }
}

/// `--fault-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FaultMode {
    /// The fastest one that works here
    Auto,
    /// SIGBUS in the faulting thread, system calls guarded; needs no privilege
    Signal,
    /// Handler threads; needs root, a sysctl or /dev/userfaultfd
    Thread,
    /// SIGSEGV in the faulting thread, by memory protection, where userfaultfd is not to be had; slower
    Segv,
}

/// `--over-limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OverLimit {
    /// End the program with one clear message and status 125
    End,
    /// Let it use more than --ram rather than end it
    Allow,
}

#[derive(Debug, Args)]
pub struct Run {
    /// The live knobs, as they are at the beginning.
    #[command(flatten)]
    pub knobs: Settings,

    /// Where memory goes that does not fit even compressed: auto, none, a directory, a file or a
    /// block device. Given several times, the one of the highest priority is filled first (0 to 32767;
    /// without one, in the order given), and those of the same priority evenly
    #[arg(verbatim_doc_comment, long, value_name = "auto|none|PATH[,pri=N]", env = "UZSWAP_SWAP",
          hide_env = true, default_value = "auto", value_delimiter = ';', value_parser = parse_swap)]
    pub swap: Vec<Swap>,

    /// Most swap to use, of each place that --swap names
    #[arg(long, value_name = "SIZE", env = "UZSWAP_SWAP_MAX", hide_env = true)]
    pub swap_max: Option<Size>,

    /// Whether the swap device is a disk that turns
    #[arg(
        long,
        value_name = "auto|on|off",
        env = "UZSWAP_SWAP_ROTATIONAL",
        hide_env = true,
        default_value = "auto"
    )]
    pub swap_rotational: Rotational,

    /// Whether what goes to swap is encrypted, by a key that dies with the command
    #[arg(
        long,
        value_name = "on|off",
        env = "UZSWAP_SWAP_ENCRYPT",
        hide_env = true,
        default_value = "on"
    )]
    pub swap_encrypt: Switch,

    /// Memory is reclaimed in folios of this size, a power of two from 4K to 2M
    #[arg(long, value_name = "SIZE", env = "UZSWAP_FOLIO", hide_env = true,
          default_value = "128K", value_parser = parse_folio)]
    pub folio: u32,

    /// How faults on evicted memory are served
    #[arg(
        long,
        value_name = "MODE",
        env = "UZSWAP_FAULT_MODE",
        hide_env = true,
        default_value = "auto"
    )]
    pub fault_mode: FaultMode,

    /// Write statistics to FILE as JSON at exit
    #[arg(long, value_name = "FILE", env = "UZSWAP_STATS", hide_env = true)]
    pub stats: Option<PathBuf>,

    /// Write samples of the statistics to FILE while the command runs, for 'uzswap report'
    #[arg(long, value_name = "FILE", env = "UZSWAP_TRACE", hide_env = true)]
    pub trace: Option<PathBuf>,

    /// No summary at exit
    #[arg(long, short, env = "UZSWAP_QUIET", hide_env = true, value_parser = FalseyValueParser::new())]
    pub quiet: bool,

    /// What to do when the data does not fit --ram even compressed
    #[arg(
        long,
        value_name = "POLICY",
        env = "UZSWAP_OVER_LIMIT",
        hide_env = true,
        default_value = "end"
    )]
    pub over_limit: OverLimit,

    /// Run a command that cannot be managed (static, set-user-ID, 32-bit) all the same
    #[arg(long, env = "UZSWAP_ALLOW_UNMANAGED", hide_env = true, value_parser = FalseyValueParser::new())]
    pub allow_unmanaged: bool,

    /// Keep some memory free from a background thread: lower latency, more CPU time
    #[arg(long, env = "UZSWAP_BACKGROUND_RECLAIM", hide_env = true, value_parser = FalseyValueParser::new())]
    pub background_reclaim: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Stat {
    /// Process id of 'uzswap run' or of any process under it
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub pid: u32,

    /// One JSON object, with the keys of 'run --stats'
    #[arg(long, conflicts_with = "prometheus")]
    pub json: bool,

    /// Prometheus text exposition
    #[arg(long)]
    pub prometheus: bool,
}

#[derive(Debug, Args)]
pub struct Top {
    /// Process id of any process under 'uzswap run', or of that itself
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub pid: Option<u32>,

    /// How often it is drawn anew: 2, 0.5, 1m
    #[arg(long, short = 'd', value_name = "TIME", default_value = "1", value_parser = analyze::parse_time)]
    pub interval: Duration,

    /// One snapshot as JSON: an array of processes
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Set {
    /// Process id of 'uzswap run' or of any process under it
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub pid: u32,

    /// What to change
    #[arg(value_name = "KNOB=VALUE")]
    pub changes: Vec<Assignment>,

    /// Show the knobs, after the change, as one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SwapOff {
    /// Process id of 'uzswap run' or of any process under it
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub pid: u32,

    /// The device, as 'uzswap stat' calls it, or its number there; needed if there are several
    pub device: Option<String>,

    /// One JSON object, sizes in bytes
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Reclaim {
    /// Process id of 'uzswap run' or of any process under it
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub pid: u32,

    /// How much: 64M, 1.5GiB, 1048576
    pub size: Size,

    /// Write compressed memory to swap, and evict nothing
    #[arg(long)]
    pub writeback_only: bool,

    /// One JSON object, sizes in bytes
    #[arg(long)]
    pub json: bool,
}

/// A place and, as fstab has it, a priority.
fn parse_swap(text: &str) -> Result<Swap, String> {
    const MOST: u16 = 32767;
    let (place, priority) = match text.rsplit_once(",pri=") {
        None => (text, None),
        Some((place, number)) => match number.parse() {
            Ok(priority) if priority <= MOST => (place, Some(priority)),
            _ => return Err(format!("a priority is a number from 0 to {MOST}")),
        },
    };
    let place = match place {
        "" => return Err("the place is missing: auto, none, a directory or a file".to_owned()),
        "auto" => Place::Auto,
        "none" => Place::None,
        path => Place::Path(path.into()),
    };
    Ok(Swap { place, priority })
}

/// Folio order of a folio size: 0 for 4 KiB to 9 for 2 MiB.
fn parse_folio(text: &str) -> Result<u32, String> {
    let size: Size = text.parse()?;
    let log = size.0.checked_ilog2().unwrap_or(0);
    if !size.0.is_power_of_two() || !(12..=21).contains(&log) {
        return Err("a folio is a power of two from 4K to 2M, such as 16K or 64K".to_owned());
    }
    Ok(log - 12)
}

/// A clap error as one line: what is wrong, then where to look.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut words = String::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        }
        // The way to pass an unknown option as a command's name is no help here.
        if !line.is_empty() && !line.starts_with("tip: to pass") {
            if !words.is_empty() {
                words.push(if words.ends_with(':') { ' ' } else { ';' });
                if words.ends_with(';') {
                    words.push(' ');
                }
            }
            words.push_str(line);
        }
    }
    let words = words.strip_prefix("error: ").unwrap_or(&words);
    let subcommand = subcommand().map_or_else(String::new, |name| name + " ");
    format!("{words} (see 'uzswap {subcommand}--help')")
}

/// The subcommand that the command line names, if it does.
fn subcommand() -> Option<String> {
    use clap::CommandFactory;
    let name = std::env::args_os().nth(1)?.into_string().ok()?;
    Cli::command().find_subcommand(&name).map(|_| name)
}

/// Exit status for a command line that is wrong. 'run' has the command's own, of which 2 may be one.
pub fn usage_status() -> u8 {
    match subcommand().as_deref() {
        None | Some("run" | "stat") => status::FAILED,
        Some(_) => status::USAGE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Run, String> {
        match Cli::try_parse_from([&["uzswap"], args].concat()) {
            Ok(Cli {
                command: Command::Run(run),
            }) => Ok(*run),
            Ok(other) => panic!("not run: {other:?}"),
            Err(error) => Err(one_line(&error)),
        }
    }

    #[test]
    fn the_command_keeps_its_own_options() {
        let run = parse(&["run", "--ram", "256M", "--", "ls", "--ram", "1", "-q"]).unwrap();
        assert_eq!(run.knobs.ram(), Some(Size(256 << 20)));
        assert_eq!(run.command, ["ls", "--ram", "1", "-q"]);
        assert!(!run.quiet);
        let run = parse(&["run", "--ram=1G", "python3", "-c", "pass", "--quiet"]).unwrap();
        assert_eq!(run.command, ["python3", "-c", "pass", "--quiet"]);
    }

    #[test]
    fn swap_is_named_as_in_fstab() {
        let swaps = |args: &[&str]| {
            let args = [&["run"], args, &["ls"]].concat();
            parse(&args).map(|run| run.swap)
        };
        let one = |place, priority| Swap { place, priority };
        let path = |path: &str| Place::Path(path.into());
        assert_eq!(swaps(&[]).unwrap(), [one(Place::Auto, None)]);
        assert_eq!(
            swaps(&["--swap", "/a,pri=5", "--swap=/b,c", "--swap", "auto,pri=0"]).unwrap(),
            [
                one(path("/a"), Some(5)),
                one(path("/b,c"), None),
                one(Place::Auto, Some(0))
            ]
        );
        // As the environment says it.
        assert_eq!(
            swaps(&["--swap", "/a,pri=32767;/b"]).unwrap(),
            [one(path("/a"), Some(32767)), one(path("/b"), None)]
        );
        for wrong in ["/a,pri=x", "/a,pri=-1", "/a,pri=32768", ",pri=1", "/a;"] {
            let line = swaps(&["--swap", wrong]).unwrap_err();
            assert!(
                line.contains("priority") || line.contains("missing"),
                "{wrong}: {line}"
            );
        }
    }

    #[test]
    fn folios_are_powers_of_two() {
        assert_eq!(parse(&["run", "--folio", "4K", "ls"]).unwrap().folio, 0);
        assert_eq!(parse(&["run", "ls"]).unwrap().folio, 5);
        assert_eq!(parse(&["run", "--folio", "2M", "ls"]).unwrap().folio, 9);
        for wrong in ["0", "2K", "4M", "24K", "x"] {
            assert!(parse(&["run", "--folio", wrong, "ls"]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn errors_are_one_line_and_name_what_is_wrong() {
        for (args, part) in [
            (&["run", "--rma", "1G", "ls"][..], "--rma"),
            (&["run", "--ram", "lots", "ls"], "not a size"),
            (&["run", "--compressor", "lz5", "ls"], "unknown compressor"),
            (&["run"], "COMMAND"),
            (&["run", "--over-limit", "shrug", "ls"], "shrug"),
        ] {
            let line = parse(args).unwrap_err();
            assert!(line.contains(part), "{line}");
            assert!(!line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn every_subcommand_shows_how_it_is_used() {
        use clap::CommandFactory;
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string);
            let example = format!("uzswap {} ", command.get_name());
            let shown =
                help.is_some_and(|help| help.contains("Examples:") && help.contains(&example));
            assert!(shown, "{}", command.get_name());
        }
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
