//! *What*: the options of `uzswap run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{BoolishValueParser, FalseyValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, ValueEnum};

use super::parse_time;
use crate::group_file::name::GroupName;
use crate::knob::Settings;
use crate::metrics::Address;
use crate::size::Size;
use uzswap_remote::url;

/// One `--swap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Where to swap to.
    pub place: Place,
    /// Devices of higher priority are filled first; those without one last, in the order given.
    pub priority: Option<u16>,
}

/// Where data goes that does not fit in RAM even compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file in UZSWAP_SWAP_DIR, or else in /var/tmp, if possible.
    Auto,
    /// No swap device.
    None,
    /// A directory for a swap file, or a file or block device to use as one.
    Path(PathBuf),
    /// Memory of other machines.
    Remote(Url),
}

/// An URL, which may hold a password: never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Url(pub String);

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Url")
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

/// `--swap-rotational`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rotational {
    /// What the kernel says of the disk
    Auto,
    /// A rotating disk: all CPUs write to the same cluster
    On,
    /// Not a rotating disk: each CPU writes to a cluster of its own
    Off,
}

impl Rotational {
    /// Whether to treat a disk as rotating if the kernel says `detected`.
    pub fn resolve(self, detected: bool) -> bool {
        match self {
            Rotational::Auto => detected,
            Rotational::On => true,
            Rotational::Off => false,
        }
    }
}

/// `--fault-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FaultMode {
    /// signal; segv where userfaultfd is not available
    Auto,
    /// userfaultfd and SIGBUS in the faulting thread, system calls guarded; needs no privilege
    Signal,
    /// userfaultfd and handler threads; needs root, a sysctl or /dev/userfaultfd
    Thread,
    /// Memory protection and SIGSEGV in the faulting thread; needs no userfaultfd, and is slower
    Segv,
}

impl FaultMode {
    /// As the option has it.
    pub fn name(self) -> &'static str {
        match self {
            FaultMode::Auto => "auto",
            FaultMode::Signal => "signal",
            FaultMode::Thread => "thread",
            FaultMode::Segv => "segv",
        }
    }
}

/// `--over-limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OverLimit {
    /// End the program with one message and status 125
    End,
    /// Let it use more than --ram
    Allow,
}

#[derive(Debug, Args)]
#[command(mut_args(with_environment))]
pub struct Run {
    /// The initial values of the knobs.
    #[command(flatten)]
    pub knobs: Settings,

    /// Group to run in: others with the same name share its limit
    ///
    /// The first run of a NAME makes the group; --ram is its limit. Those that come later join it
    /// and take no options that are for all of it. NAME/CHILD is a group in group NAME, with a
    /// limit of its own, --ram, within that of NAME; if NAME does not run, it is made with the
    /// default limit. A group ends with its last run. docs/groups.md tells more.
    #[arg(verbatim_doc_comment, long, value_name = "NAME[/CHILD]...")]
    pub group: Option<GroupName>,

    /// Those of the options that were given and that are for a whole group, not for one run in it.
    #[arg(skip)]
    pub of_group: Vec<String>,

    /// Where compressed data goes that does not fit in RAM
    ///
    /// 'auto' is an unnamed file in UZSWAP_SWAP_DIR or, without that, in /var/tmp, if that is on a
    /// disk. PATH is a directory for such a file, an empty file, or a file or block device prepared
    /// by mkswap. A place that is named and cannot be used ends the run before it starts: data go to
    /// no other disk. They are written compressed and encrypted.
    ///
    /// An URL names memory of other machines (docs/remote.md): redis://HOST[:PORT][,HOST…][/DB] and
    /// rediss:// (TLS), unix:///SOCKET, nbd://HOST[:PORT]/EXPORT, nbd+unix:///EXPORT?socket=SOCKET.
    /// One with a password is read from a file, by @FILE, or from UZSWAP_SWAP.
    ///
    /// May be given up to eight times. The place of the highest priority (0 to 32767) is filled
    /// first, places of the same priority evenly, places without a priority last and in the order
    /// given, as with swapon. What one device cannot take goes to the next. In UZSWAP_SWAP, ';'
    /// separates the places.
    #[arg(verbatim_doc_comment, long, value_name = "auto|none|PATH|URL|@FILE[,pri=N]",
          default_value = "auto", value_delimiter = ';', value_parser = parse_swap)]
    pub swap: Vec<Swap>,

    /// Largest size of each swap device
    ///
    /// Without it a swap file takes up to half of the free disk space, a block device all of
    /// itself.
    #[arg(verbatim_doc_comment, long, value_name = "SIZE")]
    pub swap_max: Option<Size>,

    /// Whether the swap device is a rotating disk
    #[arg(
        verbatim_doc_comment,
        long,
        value_name = "auto|on|off",
        default_value = "auto"
    )]
    pub swap_rotational: Rotational,

    /// Whether data on swap is encrypted
    ///
    /// The key exists only in the process's locked memory and dies with it. With 'off' data is
    /// still checksummed.
    #[arg(
        verbatim_doc_comment,
        long,
        value_name = "on|off",
        default_value = "on"
    )]
    pub swap_encrypt: Switch,

    /// Folio size: memory is reclaimed in units of this size, a power of two from 4K to 2M
    #[arg(long, value_name = "SIZE", default_value = "128K", value_parser = parse_folio)]
    pub folio: u32,

    /// How page faults on evicted memory are served
    ///
    /// 'auto' prints a message when it takes 'segv'. 'thread' serves programs that the other modes
    /// cannot.
    #[arg(
        verbatim_doc_comment,
        long,
        value_name = "MODE",
        default_value = "auto"
    )]
    pub fault_mode: FaultMode,

    /// Write statistics to FILE as JSON at exit
    ///
    /// docs/stats.md explains the keys.
    #[arg(verbatim_doc_comment, long, value_name = "FILE")]
    pub stats: Option<PathBuf>,

    /// Write samples of the statistics to FILE while the command runs
    ///
    /// One JSON object a line; 'uzswap report FILE' draws them.
    #[arg(verbatim_doc_comment, long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// Serve metrics over HTTP while the command runs: 127.0.0.1:9100, unix:/run/job.sock
    ///
    /// OpenMetrics for whoever accepts it, else Prometheus text, at /metrics. Where the environment
    /// has POD_NAME, POD_NAMESPACE, CONTAINER_NAME or NODE_NAME, each sample is labelled with it.
    #[arg(verbatim_doc_comment, long, value_name = "IP:PORT|unix:PATH")]
    pub metrics: Option<Address>,

    /// COMMAND is the Jupyter kernel of this connection file: when a limit ends it, say so in the
    /// notebook
    ///
    /// 'uzswap jupyter install' writes it. The reason is an error of the cell that was running.
    #[arg(verbatim_doc_comment, long, value_name = "FILE")]
    pub jupyter: Option<PathBuf>,

    /// Evict what has been in RAM for longer than TIME, though there is room: 30s, 5m
    ///
    /// For jobs that are idle most of the time, so that more of them fit.
    #[arg(verbatim_doc_comment, long, value_name = "TIME", value_parser = parse_time)]
    pub idle_reclaim: Option<Duration>,

    /// No summary at exit
    #[arg(long, short, value_parser = FalseyValueParser::new())]
    pub quiet: bool,

    /// What to do when the program's data does not fit in --ram and swap: end (the default) or
    /// allow
    ///
    /// It fits while a thirty-second of --ram can stay uncompressed: 8 MiB at least, but no more
    /// than an eighth.
    ///
    /// When memory outside uzswap's control alone takes more than --ram, 'end', if given, ends the
    /// command; else one warning is printed.
    #[arg(verbatim_doc_comment, long, value_name = "POLICY")]
    pub over_limit: Option<OverLimit>,

    /// Run a set-user-ID or 32-bit command, without a limit
    ///
    /// uzswap cannot manage such commands and refuses them otherwise.
    #[arg(verbatim_doc_comment, long, value_parser = FalseyValueParser::new())]
    pub allow_unmanaged: bool,

    /// Keep some memory free from a process beside each program, as kswapd does
    ///
    /// It is started when room first gets low, shares the program's memory and nothing else, and
    /// ends with it. The program sees neither a thread nor a child.
    #[arg(
        verbatim_doc_comment,
        long,
        value_name = "on|off",
        value_parser = BoolishValueParser::new(),
        num_args = 0..=1,
        require_equals = true,
        default_value = "on",
        default_missing_value = "on"
    )]
    pub background_reclaim: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Options of one run; all others are for its whole group. `over_limit` is both.
const OWN: [&str; 12] = [
    "ram",
    "group",
    "stats",
    "trace",
    "metrics",
    "jupyter",
    "idle_reclaim",
    "quiet",
    "over_limit",
    "allow_unmanaged",
    "command",
    "help",
];

/// Of the options on the command line those that are for a whole group.
pub fn of_group(matches: &ArgMatches) -> Vec<String> {
    let given = matches.ids().map(clap::Id::as_str).filter(|id| {
        let is_given = matches.value_source(id) == Some(ValueSource::CommandLine);
        is_given && !OWN.contains(id)
    });
    given
        .map(|id| format!("--{}", id.replace('_', "-")))
        .collect()
}

/// Gives an option its environment variable: `UZSWAP_SWAP_MAX` for `--swap-max`.
fn with_environment(arg: Arg) -> Arg {
    match arg.get_long() {
        Some(long) => {
            let name = format!("UZSWAP_{}", long.replace('-', "_").to_ascii_uppercase());
            arg.env(name).hide_env(true)
        }
        None => arg,
    }
}

/// A place and a priority, in the syntax of fstab.
fn parse_swap(text: &str) -> Result<Swap, String> {
    const MAX_PRIORITY: u16 = 32767;
    let (place, priority) = match text.rsplit_once(",pri=") {
        None => (text, None),
        Some((place, number)) => match number.parse() {
            Ok(priority) if priority <= MAX_PRIORITY => (place, Some(priority)),
            _ => return Err(format!("a priority is a number from 0 to {MAX_PRIORITY}")),
        },
    };
    let place = match place {
        "" => {
            return Err(
                "the place is missing: auto, none, a directory, a file or an URL".to_owned(),
            );
        }
        "auto" => Place::Auto,
        "none" => Place::None,
        named => match named.strip_prefix('@') {
            Some(file) => Place::Remote(url_in(file)?),
            None if url::is_url(named) => Place::Remote(Url(named.to_owned())),
            None => Place::Path(named.into()),
        },
    };
    Ok(Swap { place, priority })
}

/// The URL in the first line of `file`.
fn url_in(file: &str) -> Result<Url, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("the file with the URL cannot be read: {error}"))?;
    let line = text.lines().next().unwrap_or("").trim();
    match url::is_url(line) {
        true => Ok(Url(line.to_owned())),
        false => Err(format!("the first line of {file} is not an URL")),
    }
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
