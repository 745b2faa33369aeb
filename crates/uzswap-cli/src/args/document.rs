//! *What*: makes docs/options.md from the definition of the command line, in a test, so that the
//! page cannot go stale.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command, CommandFactory as _};
use uzswap_group::knobs::Knobs;

use super::Cli;

/// Columns of prose.
const WIDTH: usize = 100;
/// Set, the test writes the page instead of comparing it.
const UPDATE_ENV: &str = "UZSWAP_UPDATE_DOCS";

const INTRODUCTION: &str = "\
# Options

<!-- Made from the command line's definition. To update it after a change:
     UZSWAP_UPDATE_DOCS=1 cargo test -p uzswap-cli options_page -->

Sizes are bytes or take a unit of base 1024: `512M`, `2G`, `1.5GiB`. Every option of `uzswap run`
has an environment variable: `UZSWAP_` and its name, such as `UZSWAP_SWAP_MAX` for `--swap-max`.
Options marked *knob* can be changed while the command runs, with `uzswap set PID KNOB=VALUE`.
";

#[test]
fn the_options_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/options.md");
    let page = page();
    if std::env::var_os(UPDATE_ENV).is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/options.md is stale: run '{UPDATE_ENV}=1 cargo test -p uzswap-cli options_page'"
    );
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut cli = Cli::command();
    cli.build();
    for command in cli.get_subcommands().filter(|c| c.get_name() != "help") {
        let about = command.get_about().map(ToString::to_string);
        let _ = write!(
            page,
            "\n## uzswap {}\n\n{}.\n\n",
            command.get_name(),
            about.unwrap_or_default()
        );
        suites(&mut page, command);
        for arg in arguments(command) {
            argument(&mut page, arg, command.get_name() == "run");
        }
        if let Some(help) = command.get_after_help() {
            let _ = write!(page, "\n```text\n{}\n```\n", help.to_string().trim_end());
        }
    }
    page
}

fn visible_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    let all = command.get_subcommands();
    all.filter(|c| !c.is_hide_set() && c.get_name() != "help")
}

/// A list of the subcommand's own subcommands.
fn suites(page: &mut String, command: &Command) {
    for suite in visible_subcommands(command) {
        let about = suite.get_about().map(ToString::to_string);
        let line = format!("`{}`: {}.", suite.get_name(), about.unwrap_or_default());
        *page += &item("- ", &line);
    }
    if visible_subcommands(command).next().is_some() {
        *page += "\nOptions, each for the subcommands that it makes sense for:\n\n";
    }
}

/// The arguments of a command and of its subcommands, each once.
fn arguments(command: &Command) -> Vec<&Arg> {
    let mut all: Vec<&Arg> = Vec::new();
    let own = command.get_arguments();
    for arg in own.chain(visible_subcommands(command).flat_map(Command::get_arguments)) {
        let builtin = ["help", "version"].contains(&arg.get_id().as_str());
        let known = all.iter().any(|one| one.get_id() == arg.get_id());
        if !builtin && !known && !arg.is_hide_set() {
            all.push(arg);
        }
    }
    all
}

fn argument(page: &mut String, arg: &Arg, may_be_knob: bool) {
    let help = arg.get_long_help().or(arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let mut paragraphs = help.split("\n\n");
    let meaning = paragraphs.next().unwrap_or_default();
    let takes_values = arg.get_action().takes_values();
    let defaults = arg.get_default_values().iter();
    let default: Vec<_> = defaults.map(|value| value.to_string_lossy()).collect();
    let (meaning, default) = match meaning.split_once(" [default: ") {
        Some((meaning, default)) => (meaning, default.trim_end_matches(']').to_owned()),
        None if takes_values && !default.is_empty() => {
            (meaning, format!("`{}`", default.join(",")))
        }
        None => (meaning, String::new()),
    };
    let mut line = format!("**`{}`**: {meaning}.", syntax(arg));
    if !default.is_empty() {
        let _ = write!(line, " Default: {default}.");
    }
    let knob = Knobs::ALL.iter().find(|k| k.name == arg.get_id().as_str());
    if let Some(knob) = knob.filter(|_| may_be_knob) {
        let _ = write!(line, " *Knob* `{}`.", knob.name);
    }
    *page += &item("- ", &line);
    let values = arg.get_possible_values();
    for value in values.iter().filter(|_| takes_values) {
        if let Some(help) = value.get_help() {
            *page += &item("  - ", &format!("`{}`: {help}.", value.get_name()));
        }
    }
    for paragraph in paragraphs {
        let _ = write!(page, "\n{}", item("  ", paragraph));
    }
}

/// `--ram SIZE`, `-d, --interval TIME`, `PID`.
fn syntax(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let value = names
        .iter()
        .map(|name| format!(" {name}"))
        .collect::<String>();
    let value = match arg.get_action().takes_values() {
        true => value,
        false => String::new(),
    };
    let short = arg.get_short().map(|c| format!("-{c}, "));
    match arg.get_long() {
        Some(long) => format!("{}--{long}{value}", short.unwrap_or_default()),
        None => value.trim_start().to_owned(),
    }
}

/// Wraps `text` behind `mark`, the following lines indented as far.
fn item(mark: &str, text: &str) -> String {
    let indent = " ".repeat(mark.len());
    let mut out = String::new();
    let mut line = mark.to_owned();
    for word in text.split_whitespace() {
        if line.trim().len() > mark.trim().len()
            && line.chars().count() + word.chars().count() >= WIDTH
        {
            out += line.trim_end();
            out.push('\n');
            line.clone_from(&indent);
        }
        line += word;
        line.push(' ');
    }
    out + line.trim_end() + "\n"
}
