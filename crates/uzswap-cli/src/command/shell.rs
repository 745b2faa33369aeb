//! *What*: `uzswap completions` and `uzswap man`: what a shell and man(1) read, made from the
//! definition of the command line.
//!
//! *Locking*: none. *Context*: one thread.

use std::path::Path;
use std::{fs, io};

use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory as _};
use clap_complete::aot::{Bash, Fish, Zsh};
use clap_complete::generate;

use super::print;
use crate::args::{Cli, Completions, Man, Shell};

/// Prints completions.
pub fn completions(options: &Completions) -> Result<u8> {
    let mut cli = visible(&Cli::command());
    let mut text = Vec::new();
    match options.shell {
        Shell::Bash => generate(Bash, &mut cli, "uzswap", &mut text),
        Shell::Zsh => generate(Zsh, &mut cli, "uzswap", &mut text),
        Shell::Fish => generate(Fish, &mut cli, "uzswap", &mut text),
    }
    print(&String::from_utf8_lossy(&text))
}

/// `cli` without its hidden subcommands, which would be offered as well.
fn visible(cli: &Command) -> Command {
    let subcommands = cli.get_subcommands().filter(|one| !one.is_hide_set());
    Command::new("uzswap")
        .version(env!("CARGO_PKG_VERSION"))
        .args(cli.get_arguments())
        .subcommands(subcommands)
}

/// Writes `uzswap.1`, and a page for each subcommand.
pub fn man(options: &Man) -> Result<u8> {
    let dir = &options.dir;
    let cannot = || format!("cannot write the manual pages to {}", dir.display());
    fs::create_dir_all(dir).with_context(cannot)?;
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    write_page(&cli, "uzswap", dir).with_context(cannot)?;
    Ok(0)
}

/// Writes the page of `command`, which is called `name`, and those of its subcommands.
fn write_page(command: &Command, name: &str, dir: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        write_page(
            subcommand,
            &format!("{name}-{}", subcommand.get_name()),
            dir,
        )?;
    }
    let after = command.get_after_help().map(ToString::to_string);
    let page = clap_mangen::Man::new(command.clone().after_help(""));
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.get_subcommands().any(|one| !one.is_hide_set()) {
        page.render_subcommands_section(&mut text)?;
    }
    text.extend_from_slice(notes(&after.unwrap_or_default()).as_bytes());
    fs::write(dir.join(format!("{name}.1")), text)
}

/// What stands behind the options, in roff: paragraphs, and examples as they are.
fn notes(after: &str) -> String {
    let (notes, examples) = after.split_once("Examples:\n").unwrap_or((after, ""));
    let mut text = String::new();
    for paragraph in notes.split("\n\n").filter(|one| !one.trim().is_empty()) {
        let mark = if text.is_empty() {
            ".SH NOTES\n"
        } else {
            ".PP\n"
        };
        text += &(mark.to_owned() + &roff(paragraph));
    }
    let (examples, rest) = examples.split_once("\n\n").unwrap_or((examples, ""));
    if !examples.is_empty() {
        text += &format!(".SH EXAMPLES\n.nf\n{}.fi\n", roff(examples));
    }
    if !rest.is_empty() {
        text += &(String::from(".PP\n") + &roff(rest));
    }
    text
}

/// Lines that roff(7) takes as text.
fn roff(text: &str) -> String {
    let escaped = |line: &str| {
        let line = line.trim_end().replace('\\', "\\e").replace('-', "\\-");
        match line.starts_with(['.', '\'']) {
            true => format!("\\&{line}\n"),
            false => line + "\n",
        }
    };
    text.trim_end().lines().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_and_examples_are_sections_and_nothing_is_a_request() {
        let text = notes("One.\n.two\n\nThree.\n\nExamples:\n  uzswap run -- a\\b\n\nFour.\n");
        assert_eq!(
            text,
            ".SH NOTES\nOne.\n\\&.two\n.PP\nThree.\n.SH EXAMPLES\n.nf\n  uzswap run \\-\\- a\\eb\n\
             .fi\n.PP\nFour.\n"
        );
    }
}
