//! *What*: the command line: subcommands, their options, and one-line errors for wrong arguments.
//! docs/options.md is made from these definitions.
//!
//! *Invariants*: this module runs nothing; commands depend on it, it depends on no command.
//! *Locking*: none. *Context*: start.

mod analyze;
mod bench;
mod doctor;
#[cfg(test)]
mod document;
mod examples;
mod jupyter;
mod run;
mod running;
mod shell;

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::RangedI64ValueParser;
use clap::{CommandFactory, FromArgMatches as _, Parser, Subcommand};

pub use analyze::Analyze;
pub use bench::{Bench, CodecOptions, Common, Options as BenchOptions, Peer, Report, Suite};
pub use doctor::Doctor;
pub use jupyter::{Action as JupyterAction, Install, Jupyter, Uninstall};
pub use run::{FaultMode, OverLimit, Place, Run, Swap, Switch, Url};
pub use running::{Reclaim, Set, Stat, SwapOff, Top};
pub use shell::{Completions, Man, Shell};

use crate::status;

/// Run a program in less memory than it needs: cold memory is compressed, without root, without a
/// kernel change, without a swap partition.
#[derive(Debug, Parser)]
#[command(name = "uzswap", version, verbatim_doc_comment, after_help = examples::UZSWAP,
          arg = verbose())]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command with its memory limited and compressed
    #[command(override_usage = examples::RUN_USAGE, after_help = examples::RUN)]
    Run(Box<Run>),
    /// Show what uzswap does for a running command
    #[command(after_help = examples::STAT)]
    Stat(Stat),
    /// Watch the processes that run under uzswap, or one of them over time
    #[command(after_help = examples::TOP)]
    Top(Top),
    /// Show or change the knobs of a running command
    #[command(override_usage = examples::SET_USAGE, after_help = examples::SET)]
    Set(Set),
    /// Predict what uzswap would do for a program that runs without it
    #[command(override_usage = examples::ANALYZE_USAGE, after_help = examples::ANALYZE)]
    Analyze(Analyze),
    /// Evict memory of a process now, or write its compressed memory to swap
    #[command(after_help = examples::RECLAIM)]
    Reclaim(Reclaim),
    /// Bring back everything from a swap device and stop using it
    #[command(name = "swapoff", after_help = examples::SWAPOFF)]
    SwapOff(SwapOff),
    /// Benchmark uzswap on this machine, beside the kernel's zswap and swap
    #[command(after_help = examples::BENCH)]
    Bench(Bench),
    /// Say what this machine allows, what is worse because of it, and how to change that
    #[command(after_help = examples::DOCTOR)]
    Doctor(Doctor),
    /// Have Jupyter start its kernels under uzswap
    #[command(after_help = examples::JUPYTER)]
    Jupyter(Jupyter),
    /// Print completions for a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions(Completions),
    /// Write the manual pages
    #[command(hide = true, after_help = examples::MAN)]
    Man(Man),
    /// Serve a remote swap device to a run, which starts this
    #[command(hide = true)]
    Broker,
    /// Draw the results of 'bench --json' or a trace of 'run --trace' as one HTML page
    #[command(after_help = examples::REPORT)]
    Report(Report),
}

impl Cli {
    /// The command line of this process.
    pub fn of_process() -> Result<Cli, clap::Error> {
        Cli::of(std::env::args_os())
    }

    /// `uzswap run` as the environment sets its options.
    pub fn run_of_environment() -> Result<Run, clap::Error> {
        match Cli::of(["uzswap", "run", "true"])?.command {
            Command::Run(run) => Ok(*run),
            _ => unreachable!("'uzswap run' is parsed as such"),
        }
    }

    fn of<S: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = S>,
    ) -> Result<Cli, clap::Error> {
        let matches = <Cli as CommandFactory>::command().try_get_matches_from(words)?;
        let mut cli = Cli::from_arg_matches(&matches)?;
        if let (Command::Run(run), Some((_, given))) = (&mut cli.command, matches.subcommand()) {
            run.of_group = run::of_group(given);
        }
        Ok(cli)
    }
}

/// `--verbose`, which says more of the version.
fn verbose() -> clap::Arg {
    clap::Arg::new("verbose")
        .long("verbose")
        .requires("version")
        .action(clap::ArgAction::SetTrue)
        .help("With --version: commit, features, codecs, what this kernel can do")
}

/// Whether `--verbose` is among the words of a command line that ended the parsing early.
pub fn is_verbose() -> bool {
    std::env::args_os().any(|word| word == "--verbose")
}

/// Process ids of Linux.
fn parse_pid() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=4_194_304)
}

/// Seconds, or a number with the unit s or m; 0.1 s to one day.
fn parse_time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time: write 30s or 2m");
    let (number, unit) = text
        .strip_suffix('m')
        .map_or((text.strip_suffix('s').unwrap_or(text), 1.0), |number| {
            (number, 60.0)
        });
    let seconds: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = seconds * unit;
    if (0.1..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(wrong())
    }
}

/// A clap error as one line: what is wrong, then where to look.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut words = String::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        }
        // The tip on how to pass an unknown option as a value does not help here.
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

/// The subcommand on the command line, if there is one.
fn subcommand() -> Option<String> {
    use clap::CommandFactory;
    let name = std::env::args_os().nth(1)?.into_string().ok()?;
    Cli::command().find_subcommand(&name).map(|_| name)
}

/// Exit status for wrong arguments. That of 'run' differs from 2, which may be the command's own.
pub fn usage_status() -> u8 {
    match subcommand().as_deref() {
        None | Some("run" | "stat") => status::FAILED,
        Some(_) => status::USAGE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Size;

    fn parse(args: &[&str]) -> Result<Run, String> {
        match Cli::of([&["uzswap"], args].concat()) {
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
        let cli = Cli::command();
        // What is hidden nobody types.
        for command in cli.get_subcommands().filter(|one| !one.is_hide_set()) {
            let help = command.get_after_help().map(ToString::to_string);
            let example = format!("uzswap {} ", command.get_name());
            let shown =
                help.is_some_and(|help| help.contains("Examples:") && help.contains(&example));
            assert!(shown, "{}", command.get_name());
        }
    }

    #[test]
    fn every_option_of_run_has_an_environment_variable() {
        use clap::CommandFactory;
        let cli = Cli::command();
        let run = cli.find_subcommand("run").unwrap();
        for arg in run.get_arguments().filter(|arg| arg.get_long().is_some()) {
            let name = format!("UZSWAP_{}", arg.get_id().as_str().to_ascii_uppercase());
            assert_eq!(arg.get_env().unwrap(), name.as_str());
            assert!(arg.is_hide_env_set());
        }
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_time("1.5"), Ok(Duration::from_millis(1500)));
        for wrong in ["", "s", "0", "-3s", "1h", "nan", "inf", "100000m"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
