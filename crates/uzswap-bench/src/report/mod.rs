//! One page that shows results: self-contained, light and dark, also on a phone.
//!
//! *What*: for each suite the charts first, the tables under them; then the machine and the command.
//! *Invariants*: nothing is loaded from anywhere and nothing runs: no script, no font, no link. All text is escaped.
//! *Locking*: none.
//! *Context*: the report command.

mod svg;

use std::fmt::Write;

use crate::results::Results;
use crate::section::{Chart, Kind, Section, Table};

const STYLE: &str = include_str!("style.css");

/// The page.
#[must_use]
pub fn page(results: &Results) -> String {
    let mut body = String::new();
    if !results.complete {
        body.push_str(
            "<p class=\"warning\">Interrupted: these are the rounds that were complete.</p>\n",
        );
    }
    for skipped in &results.skipped {
        let _ = writeln!(
            body,
            "<p class=\"warning\">Left out: {}</p>",
            escape(skipped)
        );
    }
    if results.suites.is_empty() {
        body.push_str("<p class=\"warning\">Nothing was measured.</p>\n");
    }
    for suite in &results.suites {
        section(&mut body, &suite.section());
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>uzswap: what was measured</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>uzswap: what was measured</h1>\n{body}<footer>\n<p>Machine: {}</p>\n<p>Command: <code>{}</code></p>\n\
         <p>uzswap {}</p>\n</footer>\n</body>\n</html>\n",
        escape(&results.machine.to_string()),
        escape(&results.command),
        escape(&results.uzswap),
    )
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
        Kind::Points { x, y, series } => (
            series.iter().map(|series| series.name.as_str()).collect(),
            svg::points(&chart.title, x, y, series),
        ),
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

/// Text as it may stand in HTML and SVG, in attributes too.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
