//! The page that shows results or a trace: one self-contained file, light and dark, also on a
//! phone.
//!
//! *What*: for each suite, or for a trace, first the charts, then the tables; at the end the
//! machine and the command.
//! *Invariants*: the page loads nothing and runs nothing: no script, no font, no link. All text is
//! escaped.
//! *Locking*: none.
//! *Context*: the report command.

mod svg;

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use uzswap_corpus::refused;

use crate::machine::Machine;
use crate::results::Results;
use crate::section::{Chart, Kind, Section, Series, Table};
use crate::trace::{self, Trace};

const STYLE: &str = include_str!("report/style.css");

/// The page of a file that `bench --json` or `run --trace` has written.
///
/// # Errors
/// Refuses, with one line, a file that cannot be read or has another format.
pub fn of_file(path: &Path) -> Result<String> {
    let shown = path.display();
    let text = std::fs::read(path).map_err(|why| refused(format!("cannot read {shown}: {why}")))?;
    let page = if is_trace(&text) {
        std::str::from_utf8(&text)
            .map_err(|why| format!("damaged: {why}"))
            .and_then(Trace::parse)
            .map(|trace| trace_page(&trace))
    } else {
        Results::parse(&text).map(|results| page(&results))
    };
    page.map_err(|why| refused(format!("{shown}: {why}")))
}

/// Whether the first line says that it is a trace.
fn is_trace(text: &[u8]) -> bool {
    let first = text.split(|&byte| byte == b'\n').next().unwrap_or(text);
    serde_json::from_slice::<serde_json::Value>(first)
        .is_ok_and(|head| head["format"] == trace::FORMAT)
}

/// The page of results.
#[must_use]
pub fn page(results: &Results) -> String {
    let mut warnings = Vec::new();
    if !results.complete {
        warnings.push("Interrupted: these are the runs that had completed.".to_owned());
    }
    let left_out = results.skipped.iter();
    warnings.extend(left_out.map(|skipped| format!("Left out: {skipped}")));
    if results.suites.is_empty() {
        warnings.push("Nothing was measured.".to_owned());
    }
    let frame = Frame {
        title: "uzswap: what was measured",
        machine: &results.machine,
        command: &results.command,
        uzswap: &results.uzswap,
    };
    let sections = results.suites.iter().map(|suite| suite.section());
    frame.around(&warnings, sections)
}

/// The page of a trace.
#[must_use]
pub fn trace_page(trace: &Trace) -> String {
    let mut warnings = Vec::new();
    if trace.samples.is_empty() {
        warnings.push("No sample was taken.".to_owned());
    }
    let frame = Frame {
        title: "uzswap: a run's life",
        machine: &trace.head.machine,
        command: &trace.head.command,
        uzswap: &trace.head.uzswap,
    };
    frame.around(&warnings, [trace.section()])
}

/// What is above and below the sections.
struct Frame<'a> {
    title: &'a str,
    machine: &'a Machine,
    command: &'a str,
    uzswap: &'a str,
}

impl Frame<'_> {
    fn around(&self, warnings: &[String], sections: impl IntoIterator<Item = Section>) -> String {
        let mut body = String::new();
        for warning in warnings {
            let _ = writeln!(body, "<p class=\"warning\">{}</p>", escape(warning));
        }
        for one in sections {
            section(&mut body, &one);
        }
        let title = escape(self.title);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n{body}<footer>\n<p>Machine: {}</p>\n<p>Command: <code>{}</code></p>\n\
         <p>uzswap {}</p>\n</footer>\n</body>\n</html>\n",
            escape(&self.machine.to_string()),
            escape(self.command),
            escape(self.uzswap),
        )
    }
}

fn section(out: &mut String, section: &Section) {
    let _ = writeln!(out, "<section>\n<h2>{}</h2>", escape(&section.title));
    out.push_str("<div class=\"charts\">\n");
    for one in &section.charts {
        chart(out, one);
    }
    out.push_str("</div>\n");
    for note in &section.notes {
        let _ = writeln!(out, "<p>{}</p>", escape(note));
    }
    for one in &section.tables {
        table(out, one);
    }
    out.push_str("</section>\n");
}

fn chart(out: &mut String, chart: &Chart) {
    let (names, picture): (Vec<&str>, String) = match &chart.kind {
        Kind::Points { x, y, series } => {
            (names_of(series), svg::points(&chart.title, x, y, series))
        }
        Kind::Lines { x, y, series } => (names_of(series), svg::lines(&chart.title, x, y, series)),
        Kind::Bars { x, names, groups } => (
            names.iter().map(String::as_str).collect(),
            svg::bars(&chart.title, x, names, groups),
        ),
    };
    let _ = writeln!(
        out,
        "<figure>\n<figcaption>{}</figcaption>\n<ul>",
        escape(&chart.title)
    );
    for (number, name) in names.iter().enumerate() {
        let _ = writeln!(out, "<li class=\"c{number}\">{}</li>", escape(name));
    }
    let _ = writeln!(out, "</ul>\n{picture}</figure>");
}

fn names_of(series: &[Series]) -> Vec<&str> {
    series.iter().map(|series| series.name.as_str()).collect()
}

fn table(out: &mut String, table: &Table) {
    let _ = writeln!(
        out,
        "<div class=\"wide\" tabindex=\"0\"><table>\n<caption>{}</caption>\n<thead><tr>",
        escape(&table.caption)
    );
    for name in &table.head {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(name));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let (open, close) = if column == 0 {
                ("<th scope=\"row\">", "</th>")
            } else {
                ("<td>", "</td>")
            };
            let _ = write!(out, "{open}{}{close}", escape(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n");
}

/// Escapes text for HTML and SVG, attributes included.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
