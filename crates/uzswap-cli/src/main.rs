//! `uzswap`: runs a program in less memory than it needs.
//!
//! Modules depend on one another in one direction: `command` on the reports (`report`,
//! `prometheus`, `summary`, `failure`, `trace`) and on `request`, `limit` and `outside`; these on
//! `group_view`; `args` on none of them.

mod args;
mod chosen;
mod command;
mod command_line;
mod compressor;
mod control;
mod failure;
mod group_file;
mod group_view;
mod idle;
mod kernel;
mod knob;
mod limit;
mod members;
mod metrics;
mod notebook;
mod os;
mod outside;
mod preload;
mod private_dir;
mod prometheus;
mod ram;
mod report;
mod request;
mod status;
mod summary;
mod supervise;
mod swap;
mod target;
mod thrashing;
mod trace;
mod version;

use std::process::ExitCode;

use clap::error::ErrorKind;
use uzswap_swap::size;

fn main() -> ExitCode {
    let cli = match args::Cli::of_process() {
        Ok(cli) => cli,
        Err(asked)
            if matches!(
                asked.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            ) =>
        {
            if asked.kind() == ErrorKind::DisplayVersion && args::is_verbose() {
                print!("{}", version::verbose());
            } else {
                let _ = asked.print();
            }
            return ExitCode::SUCCESS;
        }
        Err(empty) if empty.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = empty.print();
            return status::FAILED.into();
        }
        Err(error) => {
            eprintln!("uzswap: {}", args::one_line(&error));
            return args::usage_status().into();
        }
    };
    let done = match &cli.command {
        args::Command::Run(run) => command::run::run(run),
        args::Command::Stat(stat) => command::stat::stat(stat),
        args::Command::Top(options) => command::top::top(options),
        args::Command::Set(set) => command::set::set(set),
        args::Command::Analyze(analyze) => command::analyze::analyze(analyze),
        args::Command::Reclaim(reclaim) => command::reclaim::reclaim(reclaim),
        args::Command::SwapOff(swapoff) => command::swapoff::swapoff(swapoff),
        args::Command::Bench(bench) => command::bench::bench(bench),
        args::Command::Completions(options) => command::shell::completions(options),
        args::Command::Broker => uzswap_remote::broker::run().map(|()| 0),
        args::Command::Man(options) => command::shell::man(options),
        args::Command::Jupyter(options) => command::jupyter::jupyter(options),
        args::Command::Doctor(options) => command::doctor::doctor(options),
        args::Command::Report(report) => command::bench::report(report),
    };
    match done {
        Ok(status) => status.into(),
        Err(error) => {
            eprintln!("uzswap: {error:#}");
            let failed = match cli.command {
                args::Command::Run(_) | args::Command::Stat(_) => status::FAILED,
                _ => status::FAILURE,
            };
            status::of(&error, failed).into()
        }
    }
}
