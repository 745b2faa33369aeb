//! *What*: how `uzswap top` looks: a table of processes or one process over time, as a screen or as
//! plain text. Headings, cells, sorting and plain text are made from one list of columns.
//!
//! *Invariants*: draws what [`Watch`] has sampled and changes none of it.
//! *Locking*: none. *Context*: one thread.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Gauge, Paragraph, Row as Cells, Sparkline, Table, TableState};

use super::sample::{Row, Watch};
use crate::size::Size;

/// A column of the table.
struct Column {
    title: &'static str,
    width: u16,
    value: Value,
}

/// What a column shows.
enum Value {
    Pid,
    Name,
    Limit,
    Size(fn(&Row) -> u64),
    Rate(fn(&Row) -> f64),
    Ratio,
}

const fn column(title: &'static str, width: u16, value: Value) -> Column {
    Column {
        title,
        width,
        value,
    }
}

const COLUMNS: [Column; 12] = [
    column("PID", 8, Value::Pid),
    column("NAME", 15, Value::Name),
    column("LIMIT", 10, Value::Limit),
    column("IN USE", 9, Value::Size(Row::in_use)),
    column("RESIDENT", 9, Value::Size(|row| row.resident)),
    column("POOL", 9, Value::Size(|row| row.zswap)),
    column("RATIO", 6, Value::Ratio),
    column("UNMANAGED", 9, Value::Size(|row| row.unmanaged)),
    column("SWAP", 9, Value::Size(|row| row.swapped)),
    column("FAULTS/s", 9, Value::Rate(|row| row.faults_per_s)),
    column("SWAPIN/s", 9, Value::Size(|row| whole(row.swap_in_per_s))),
    column("SWAPOUT/s", 9, Value::Size(|row| whole(row.swap_out_per_s))),
];
/// Index of the column that the table is sorted by at first: memory in use.
const IN_USE: usize = 3;

impl Column {
    fn text(&self, row: &Row) -> String {
        match self.value {
            // A group has none.
            Value::Pid if row.pid == 0 => String::new(),
            Value::Pid => row.pid.to_string(),
            Value::Name if row.thrashing > 0 => format!("{}!", row.name),
            Value::Name => row.name.clone(),
            Value::Limit => limit(row),
            Value::Size(of) => Size(of(row)).to_string(),
            Value::Rate(of) => format!("{:.0}", of(row)),
            Value::Ratio => row
                .ratio()
                .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
        }
    }

    /// Names and process ids ascending, numbers descending.
    fn compare(&self, a: &Row, b: &Row) -> Ordering {
        let ratio = |row: &Row| row.ratio().unwrap_or(0.0);
        let order = match self.value {
            Value::Pid => Ordering::Equal,
            Value::Name => a.name.cmp(&b.name),
            Value::Limit => b.ram_limit.cmp(&a.ram_limit),
            Value::Size(of) => of(b).cmp(&of(a)),
            Value::Rate(of) => of(b).total_cmp(&of(a)),
            Value::Ratio => ratio(b).total_cmp(&ratio(a)),
        };
        order.then(a.pid.cmp(&b.pid))
    }

    fn is_text(&self) -> bool {
        matches!(self.value, Value::Name)
    }
}

/// The limit, marked if it follows what is left.
fn limit(row: &Row) -> String {
    let mark = if row.ram_follows.is_some() { "~" } else { "" };
    format!("{}{mark}", Size(row.ram_limit))
}

/// A rate as a whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and far below 2^64"
)]
fn whole(rate: f64) -> u64 {
    rate as u64
}

/// The rows, sorted by a column of this index; where there are groups, as a tree with a row for
/// each.
fn sorted(rows: &[Row], by: usize) -> Vec<Row> {
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| COLUMNS[by].compare(a, b));
    let mut groups = BTreeMap::new();
    for row in &rows {
        for (depth, (name, limit)) in row.groups.iter().enumerate() {
            let group = groups
                .entry(name.clone())
                .or_insert_with(|| group_row(name, depth, *limit));
            add(group, row);
        }
    }
    let (alone, mut grouped): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| row.group.is_none());
    let mut tree = alone;
    for (name, group) in groups {
        tree.push(group);
        let own = grouped.extract_if(.., |row| row.group.as_ref() == Some(&name));
        tree.extend(own.map(|row| Row {
            name: format!("{}{}", INDENT.repeat(row.groups.len()), row.name),
            ..row
        }));
    }
    tree
}

/// A step inwards in the tree.
const INDENT: &str = "  ";

/// A group without anything in it.
fn group_row(name: &str, depth: usize, limit: u64) -> Row {
    let own = name.rsplit('/').next().unwrap_or_default();
    Row {
        name: format!("{}{own}/", INDENT.repeat(depth)),
        ram_limit: limit,
        ..Row::default()
    }
}

/// Adds a process to the sums of a group.
fn add(group: &mut Row, row: &Row) {
    group.resident += row.resident;
    group.zswap += row.zswap;
    group.metadata += row.metadata;
    group.unmanaged += row.unmanaged;
    group.zswapped += row.zswapped;
    group.swapped += row.swapped;
    group.faults_per_s += row.faults_per_s;
    group.refaults_per_s += row.refaults_per_s;
    group.swap_in_per_s += row.swap_in_per_s;
    group.swap_out_per_s += row.swap_out_per_s;
}

/// The table as plain text.
pub fn plain(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut line = |cell: &dyn Fn(&Column) -> String| {
        for column in &COLUMNS {
            let (cell, width) = (cell(column), usize::from(column.width));
            let _ = match column.is_text() {
                true => write!(text, " {cell:<width$}"),
                false => write!(text, " {cell:>width$}"),
            };
        }
        text.push('\n');
    };
    line(&|column| column.title.to_owned());
    for row in sorted(rows, IN_USE) {
        line(&|column| column.text(&row));
    }
    text
}

/// What a key asks the caller to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Nothing,
    Quit,
}

/// What is on the screen.
pub struct View {
    /// Index of the column that the table is sorted by.
    sort: usize,
    /// Pid of the selected process.
    selected: Option<u32>,
    /// Whether only the selected process is shown.
    detail: bool,
}

impl View {
    /// The table, or process `pid` alone.
    pub fn new(pid: Option<u32>) -> Self {
        View {
            sort: IN_USE,
            selected: pid,
            detail: pid.is_some(),
        }
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyCode, watch: &Watch) -> Asked {
        match key {
            KeyCode::Char('q') => return Asked::Quit,
            KeyCode::Esc if !self.detail => return Asked::Quit,
            KeyCode::Esc | KeyCode::Backspace => self.detail = false,
            KeyCode::Enter => self.detail = self.selected.is_some(),
            KeyCode::Char('s') | KeyCode::Right => self.sort_by(1),
            KeyCode::Left => self.sort_by(COLUMNS.len() - 1),
            KeyCode::Down => self.select(watch, 1),
            KeyCode::Up => self.select(watch, -1),
            _ => {}
        }
        Asked::Nothing
    }

    fn sort_by(&mut self, further: usize) {
        self.sort = (self.sort + further) % COLUMNS.len();
    }

    /// Moves the selection down by `further` rows.
    fn select(&mut self, watch: &Watch, further: isize) {
        let mut rows = sorted(watch.rows(), self.sort);
        rows.retain(|row| row.pid != 0);
        let Some(last) = rows.len().checked_sub(1) else {
            return;
        };
        let now = rows.iter().position(|row| Some(row.pid) == self.selected);
        let next = now.map_or(0, |now| now.saturating_add_signed(further).min(last));
        self.selected = Some(rows[next].pid);
    }

    /// Draws the screen.
    pub fn draw(&self, frame: &mut Frame<'_>, watch: &Watch) {
        let [body, keys] =
            Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
        let help = match self.selected.and_then(|pid| watch.row(pid)) {
            Some(row) if self.detail => {
                draw_process(frame, body, row, watch);
                "q quit  Esc all processes  \u{2191}\u{2193} another one"
            }
            None if self.detail => {
                frame.render_widget(Paragraph::new("The process has ended."), body);
                "q quit  Esc all processes"
            }
            _ => {
                self.draw_table(frame, body, watch);
                "q quit  s \u{2190}\u{2192} sort  \u{2191}\u{2193} choose  Enter one process over time"
            }
        };
        frame.render_widget(Paragraph::new(help).dim(), keys);
    }

    fn draw_table(&self, frame: &mut Frame<'_>, area: Rect, watch: &Watch) {
        let rows = sorted(watch.rows(), self.sort);
        if rows.is_empty() {
            let text = "Nothing runs under uzswap that you may look at.";
            return frame.render_widget(Paragraph::new(text), area);
        }
        let heading = COLUMNS.iter().enumerate().map(|(index, column)| {
            let style = match index == self.sort {
                true => Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED),
                false => Style::new().add_modifier(Modifier::BOLD),
            };
            aligned(column, column.title.to_owned()).style(style)
        });
        let heading = Cells::new(heading.collect::<Vec<_>>());
        let cells = rows.iter().map(|row| {
            let cells = COLUMNS
                .iter()
                .map(|column| aligned(column, column.text(row)));
            Cells::new(cells.collect::<Vec<_>>())
        });
        let widths = COLUMNS
            .iter()
            .map(|column| Constraint::Length(column.width));
        let table = Table::new(cells, widths)
            .header(heading)
            .row_highlight_style(Style::new().bg(Color::Blue));
        let selected = rows.iter().position(|row| Some(row.pid) == self.selected);
        frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(selected));
    }
}

fn aligned(column: &Column, text: String) -> Cell<'static> {
    let line = Line::from(text);
    Cell::from(match column.is_text() {
        true => line,
        false => line.right_aligned(),
    })
}

/// A process over time.
fn draw_process(frame: &mut Frame<'_>, area: Rect, row: &Row, watch: &Watch) {
    let [head, gauged, charts] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(1),
        Constraint::Min(0),
    ])
    .areas(area);
    let ratio = row
        .ratio()
        .map_or_else(String::new, |ratio| format!(" ({ratio:.2}:1)"));
    frame.render_widget(
        Paragraph::new(vec![
            Line::from(format!(
                "{} ({}), of run {}",
                row.name, row.pid, row.supervisor
            ))
            .bold(),
            Line::from(format!(
                "resident {}  pool {} holds {}{ratio}  metadata {}  swap {}  unmanaged {}",
                Size(row.resident),
                Size(row.zswap),
                Size(row.zswapped),
                Size(row.metadata),
                Size(row.swapped),
                Size(row.unmanaged),
            )),
            Line::from(format!(
                "{:.0} faults/s, {:.0} of them on evicted pages{}",
                row.faults_per_s,
                row.refaults_per_s,
                match row.thrashing {
                    0 => String::new(),
                    percent => format!("; {percent} % of its time goes to faults"),
                }
            )),
        ]),
        head,
    );
    let in_use = format!("{} of {}", Size(row.in_use()), limit(row));
    #[expect(clippy::cast_precision_loss, reason = "a bar")]
    let part = row.in_use() as f64 / row.ram_limit.max(1) as f64;
    let gauge = Gauge::default().ratio(part.min(1.0)).label(in_use);
    frame.render_widget(gauge.gauge_style(Style::new().fg(Color::Blue)), gauged);
    let areas = Layout::vertical([Constraint::Fill(1); CHARTS.len()]).split(charts);
    for (chart, area) in CHARTS.iter().zip(areas.iter()) {
        // The latest sample is at the right edge.
        let width = usize::from(area.width);
        let history = watch.history(row.pid).rev().take(width);
        let mut data: Vec<u64> = history.map(chart.value).collect();
        let highest = data.iter().copied().max().unwrap_or(0);
        data.resize(width, 0);
        data.reverse();
        let (most, title) = if chart.of_limit {
            (
                row.ram_limit,
                format!("{}, of {}", chart.title, Size(row.ram_limit)),
            )
        } else {
            (highest, format!("{}, up to {highest}", chart.title))
        };
        let line = Sparkline::default()
            .block(Block::new().title(title))
            .data(data)
            .max(most.max(1))
            .style(Style::new().fg(Color::Cyan));
        frame.render_widget(line, *area);
    }
}

/// A value over time.
struct Chart {
    title: &'static str,
    value: fn(&Row) -> u64,
    /// Whether the chart's top is the limit; else it is the highest visible value.
    of_limit: bool,
}

const fn chart(title: &'static str, of_limit: bool, value: fn(&Row) -> u64) -> Chart {
    Chart {
        title,
        value,
        of_limit,
    }
}

const CHARTS: [Chart; 5] = [
    chart("resident", true, |row| row.resident),
    chart("pool", true, |row| row.zswap),
    chart("faults/s", false, |row| whole(row.faults_per_s)),
    chart("swap in, bytes/s", false, |row| whole(row.swap_in_per_s)),
    chart("swap out, bytes/s", false, |row| whole(row.swap_out_per_s)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn row(pid: u32, name: &str, resident: u64, faults_per_s: f64) -> Row {
        Row {
            pid,
            supervisor: 4,
            name: name.to_owned(),
            ram_limit: 256 << 20,
            resident,
            zswap: 10 << 20,
            zswapped: 35 << 20,
            faults_per_s,
            ..Row::default()
        }
    }

    fn watch() -> Watch {
        let mut watch = Watch::of_rows(vec![row(11, "idle", 7 << 20, 0.0)]);
        for faults in [10.0, 800.0] {
            watch.note(vec![
                row(12, "busy", 90 << 20, faults),
                row(11, "idle", 7 << 20, 0.0),
            ]);
        }
        watch
    }

    fn drawn(view: &View, watch: &Watch) -> Vec<String> {
        let Ok(mut terminal) = Terminal::new(TestBackend::new(120, 30));
        let Ok(_) = terminal.draw(|frame| view.draw(frame, watch));
        let buffer = terminal.backend().buffer();
        let line =
            |cells: &[ratatui::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect();
        buffer.content.chunks(120).map(line).collect()
    }

    #[test]
    fn the_table_is_sorted_as_asked() {
        let watch = watch();
        let mut view = View::new(None);
        let lines = drawn(&view, &watch);
        assert!(
            lines[0].contains("RESIDENT") && lines[0].contains("FAULTS/s"),
            "{lines:#?}"
        );
        for word in ["12", "busy", "256 MiB", "100 MiB", "90 MiB", "3.50", "800"] {
            assert!(lines[1].contains(word), "no {word} in {}", lines[1]);
        }
        assert!(lines[2].contains("idle"), "{lines:#?}");
        assert!(lines[29].contains("q quit"), "{lines:#?}");
        // From what is in use back to names.
        for _ in 0..2 {
            assert_eq!(view.key(KeyCode::Left, &watch), Asked::Nothing);
        }
        view.key(KeyCode::Left, &watch);
        assert!(drawn(&view, &watch)[1].contains("idle"), "by process id");
    }

    #[test]
    fn a_limit_that_follows_is_marked() {
        let mut one = row(12, "busy", 90 << 20, 0.0);
        assert!(!plain(&[one.clone()]).contains('~'));
        one.ram_follows = Some("cgroup");
        assert!(plain(&[one]).contains(" 256 MiB~ "));
    }

    #[test]
    fn one_process_over_time() {
        let watch = watch();
        let mut view = View::new(None);
        view.key(KeyCode::Enter, &watch);
        assert!(
            drawn(&view, &watch)[0].contains("RESIDENT"),
            "none is chosen"
        );
        view.key(KeyCode::Down, &watch);
        view.key(KeyCode::Enter, &watch);
        let lines = drawn(&view, &watch);
        assert!(lines[0].contains("busy (12), of run 4"), "{lines:#?}");
        let faults = lines
            .iter()
            .position(|line| line.contains("faults/s, up to 800"));
        let faults = faults.expect("a chart");
        let bars = &lines[faults + 1..faults + 5];
        assert!(
            bars.iter().all(|line| line.ends_with('\u{2588}')),
            "the latest is the highest: {bars:#?}"
        );
        view.key(KeyCode::Down, &watch);
        assert!(drawn(&view, &watch)[0].contains("idle (11)"));
        assert_eq!(view.key(KeyCode::Esc, &watch), Asked::Nothing);
        assert!(drawn(&view, &watch)[0].contains("RESIDENT"));
        assert_eq!(view.key(KeyCode::Esc, &watch), Asked::Quit);
        assert_eq!(
            View::new(Some(11)).key(KeyCode::Char('q'), &watch),
            Asked::Quit
        );
    }

    #[test]
    fn what_has_ended_and_a_screen_too_small_are_no_failure() {
        let lines = drawn(&View::new(Some(99)), &watch());
        assert!(lines[0].contains("has ended"), "{lines:#?}");
        let lines = drawn(&View::new(None), &Watch::of_rows(Vec::new()));
        assert!(lines[0].contains("Nothing runs"), "{lines:#?}");
        for (width, height) in [(1, 1), (20, 3), (0, 0)] {
            let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
            for view in [View::new(None), View::new(Some(12))] {
                let Ok(_) = terminal.draw(|frame| view.draw(frame, &watch()));
            }
        }
    }

    #[test]
    fn groups_are_a_tree_with_sums() {
        let member = |pid, name: &str, group: &str, resident| {
            let parts: Vec<_> = group.split('/').collect();
            let names = (1..=parts.len()).map(|nr| parts[..nr].join("/"));
            Row {
                group: Some(group.to_owned()),
                groups: names.map(|name| (name, 64 << 20)).collect(),
                ..row(pid, name, resident, 0.0)
            }
        };
        let rows = [
            member(12, "inner", "g/a", 90 << 20),
            row(11, "alone", 7 << 20, 0.0),
            member(13, "outer", "g", 1 << 20),
        ];
        let tree = sorted(&rows, IN_USE);
        let names: Vec<_> = tree.iter().map(|row| &*row.name).collect();
        assert_eq!(names, ["alone", "g/", "  outer", "  a/", "    inner"]);
        assert_eq!((tree[1].resident, tree[1].ram_limit), (91 << 20, 64 << 20));
        assert_eq!(tree[3].resident, 90 << 20);
        assert_eq!(plain(&rows).lines().count(), 6);
    }

    #[test]
    fn plain_text_has_a_line_for_each() {
        let text = plain(watch().rows());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(
            lines[1].contains("busy") && lines[2].contains("idle"),
            "{text}"
        );
        assert_eq!(lines[0].len(), lines[1].len(), "{text}");
        let mut thrashing = row(13, "slow", 1, 9.0);
        thrashing.thrashing = 97;
        assert!(plain(&[thrashing]).contains("slow!"));
    }
}
