//! Charts as SVG: points over a logarithmic axis, curves over time, horizontal bars from zero.
//!
//! Sizes are in the picture's units. The picture is as wide as the page allows; on a phone a unit
//! is about a pixel.

use std::fmt::Write;

use super::escape;
use crate::section::Series;

const WIDTH: f64 = 480.0;
const LEFT: f64 = 40.0;
const RIGHT: f64 = 14.0;
const BOTTOM: f64 = 38.0;
/// Width of a letter of a label on a phone.
const LETTER: f64 = 5.8;
/// Height of a chart of points or curves.
const HEIGHT: f64 = 320.0;
/// Height of a bar, and of the name above a group.
const BAR: f64 = 15.0;

/// A picture that is being drawn.
struct Picture(String);

impl Picture {
    fn new(title: &str, height: f64) -> Self {
        let title = escape(title);
        Self(format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n"
        ))
    }

    fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    fn text(&mut self, class: &str, anchor: &str, (x, y): (f64, f64), what: &str) {
        let _ = writeln!(
            self.0,
            "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
            escape(what)
        );
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = writeln!(
            self.0,
            "<line class=\"grid\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    /// A vertical grid line with its tick below.
    fn tick_x(&mut self, x: f64, top: f64, bottom: f64, value: f64) {
        self.line((x, top), (x, bottom));
        self.text("tick", "middle", (x, bottom + 14.0), &number(value));
    }

    /// A horizontal grid line with its tick on the left.
    fn tick_y(&mut self, y: f64, value: f64) {
        self.line((LEFT, y), (WIDTH - RIGHT, y));
        self.text("tick", "end", (LEFT - 5.0, y + 4.0), &number(value));
    }

    /// The labels of the axes of a chart of [`HEIGHT`].
    fn axes(&mut self, x: &str, y: &str) {
        self.text("unit", "start", (2.0, 11.0), y);
        self.text("unit", "end", (WIDTH - RIGHT, HEIGHT - 6.0), x);
    }

    /// Writes a label beside its point if there is room; the table has all of them.
    fn label(&mut self, placed: &mut Placed, (cx, cy): (f64, f64), label: &str) {
        let width = label.chars().count() as f64 * LETTER;
        let right = ("start", cx + 6.0, cy + 3.0, cx + 5.0);
        let left = ("end", cx - 6.0, cy + 3.0, cx - 6.0 - width);
        let above = ("middle", cx, cy - 6.0, cx - width / 2.0);
        let below = ("middle", cx, cy + 13.0, cx - width / 2.0);
        for (anchor, x, y, from) in [right, left, above, below] {
            if placed.takes([from, y - 8.0, from + width, y + 1.0]) {
                return self.text("label", anchor, (x, y), label);
            }
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten that divides `span` into about `parts`.
fn step(span: f64, parts: f64) -> f64 {
    let rough = (span / parts).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    let digit = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|digit| digit * power >= rough);
    digit.unwrap_or(10.0) * power
}

/// Multiples of `step` from `low` to `high`.
fn ticks(low: f64, high: f64, step: f64) -> impl Iterator<Item = f64> {
    let first = (low / step - 1e-9).ceil();
    (0..100)
        .map(move |i| (first + f64::from(i)) * step)
        .take_while(move |&at| at <= high + step * 1e-6)
}

/// 1, 2 and 5 times powers of ten from `low` to `high`.
fn logarithmic_ticks(low: f64, high: f64) -> impl Iterator<Item = f64> {
    (-6..=9)
        .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)))
        .filter(move |at| (low * 0.999..=high * 1.001).contains(at))
}

/// A number without trailing zeros, with k and M, so that it fits before an axis. A file may hold
/// numbers whose multiples are infinite.
fn number(value: f64) -> String {
    if !value.is_finite() {
        return "∞".into();
    }
    if value >= 1e6 {
        return number(value / 1e6) + "M";
    }
    if value >= 1e4 {
        return number(value / 1e3) + "k";
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Areas that are taken: left, top, right, bottom.
struct Placed(Vec<[f64; 4]>);

impl Placed {
    /// Takes the area if it is free and inside the chart.
    fn takes(&mut self, at: [f64; 4]) -> bool {
        let [left, top, right, bottom] = at;
        let inside = left > LEFT && right < WIDTH - 1.0 && top > 0.0 && bottom < HEIGHT - BOTTOM;
        let free = self
            .0
            .iter()
            .all(|[l, t, r, b]| right <= *l || left >= *r || bottom <= *t || top >= *b);
        if inside && free {
            self.0.push(at);
        }
        inside && free
    }
}

/// Points of several series.
pub fn points(title: &str, x: &str, y: &str, series: &[Series]) -> String {
    let all = || series.iter().flat_map(|series| &series.points);
    let mut picture = Picture::new(title, HEIGHT);
    let min = |of: fn(&(f64, f64, String)) -> f64| all().map(of).fold(f64::INFINITY, f64::min);
    let max = |of: fn(&(f64, f64, String)) -> f64| all().map(of).fold(0.0, f64::max);
    let (x_low, x_high) = (min(|p| p.0) / 1.25, max(|p| p.0) * 1.25);
    let y_step = step(max(|p| p.1) - min(|p| p.1), 5.0);
    let y_low = (min(|p| p.1) / y_step - 0.2).floor() * y_step;
    let y_high = (max(|p| p.1) / y_step + 0.2).ceil() * y_step;
    let drawable = x_low > 0.0 && x_low < x_high && x_high.is_finite() && y_low < y_high;
    if !drawable {
        picture.text("unit", "middle", (WIDTH / 2.0, HEIGHT / 2.0), "no figures");
        return picture.finish();
    }
    let right = WIDTH - RIGHT;
    let bottom = HEIGHT - BOTTOM;
    let across = |v: f64| LEFT + (v / x_low).ln() / (x_high / x_low).ln() * (right - LEFT);
    let up = |v: f64| bottom - (v - y_low) / (y_high - y_low) * (bottom - 24.0);
    for at in logarithmic_ticks(x_low, x_high) {
        picture.tick_x(across(at), up(y_high), bottom, at);
    }
    for at in ticks(y_low, y_high, y_step) {
        picture.tick_y(up(at), at);
    }
    picture.axes(x, y);
    // Labels must not hide points.
    let mark = |(x, y): (f64, f64)| [x - 4.0, y - 4.0, x + 4.0, y + 4.0];
    let mut placed = Placed(all().map(|p| mark((across(p.0), up(p.1)))).collect());
    for (colour, series) in series.iter().enumerate() {
        let _ = writeln!(picture.0, "<g class=\"c{colour}\">");
        for (px, py, label) in &series.points {
            let (cx, cy) = (across(*px), up(*py));
            let _ = writeln!(
                picture.0,
                "<circle class=\"mark\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3.5\"><title>{}, {}: {px:.2}, {py:.2}</title></circle>",
                escape(label),
                escape(&series.name)
            );
            picture.label(&mut placed, (cx, cy), label);
        }
        picture.0.push_str("</g>\n");
    }
    picture.finish()
}

/// Curves from zero on; both axes are linear.
pub fn lines(title: &str, x: &str, y: &str, series: &[Series]) -> String {
    let all = || series.iter().flat_map(|series| &series.points);
    let mut picture = Picture::new(title, HEIGHT);
    let max = |of: fn(&(f64, f64, String)) -> f64| {
        let max = all().map(of).fold(0.0, f64::max);
        // A chart of zeros has an axis all the same.
        if max > 0.0 { max } else { 1.0 }
    };
    let x_max = max(|p| p.0);
    let y_step = step(max(|p| p.1), 5.0);
    let y_max = (max(|p| p.1) / y_step).ceil() * y_step;
    let (right, bottom, top) = (WIDTH - RIGHT, HEIGHT - BOTTOM, 24.0);
    let across = |v: f64| LEFT + v / x_max * (right - LEFT);
    let up = |v: f64| bottom - v / y_max * (bottom - top);
    for at in ticks(0.0, x_max, step(x_max, 6.0)) {
        picture.tick_x(across(at), top, bottom, at);
    }
    for at in ticks(0.0, y_max, y_step) {
        picture.tick_y(up(at), at);
    }
    picture.axes(x, y);
    for (colour, series) in series.iter().enumerate() {
        let _ = write!(picture.0, "<polyline class=\"curve c{colour}\" points=\"");
        for (px, py, _) in &series.points {
            let _ = write!(picture.0, "{:.1},{:.1} ", across(*px), up(*py));
        }
        let _ = writeln!(
            picture.0,
            "\"><title>{}</title></polyline>",
            escape(&series.name)
        );
    }
    picture.finish()
}

/// Horizontal bars, in groups.
pub fn bars(
    title: &str,
    x: &str,
    names: &[String],
    groups: &[(String, Vec<Option<f64>>)],
) -> String {
    let group_height = BAR * (names.len() as f64 + 1.0) + 8.0;
    let bottom = group_height * groups.len() as f64 + 4.0;
    let mut picture = Picture::new(title, bottom + BOTTOM);
    let max = groups
        .iter()
        .flat_map(|(_, values)| values.iter().flatten())
        .copied()
        .fold(0.0, f64::max);
    let tick = step(if max > 0.0 { max } else { 1.0 }, 5.0);
    let end = (max / tick).ceil().max(1.0) * tick;
    // Leaves room for the value behind the longest bar.
    let (left, right) = (6.0, WIDTH - 40.0);
    let across = |v: f64| left + v / end * (right - left);
    for at in ticks(0.0, end, tick) {
        picture.tick_x(across(at), 0.0, bottom, at);
    }
    picture.text("unit", "end", (right, bottom + BOTTOM - 6.0), x);
    for (number, (name, values)) in groups.iter().enumerate() {
        let top = group_height * number as f64 + 4.0;
        picture.text("name", "start", (left + 3.0, top + 11.0), name);
        for (colour, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let y = top + BAR * (colour as f64 + 1.0);
            let width = (across(*value) - left).max(1.0);
            let _ = writeln!(
                picture.0,
                "<rect class=\"mark c{colour}\" x=\"{left}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{}\"><title>{}, {}: {value:.2}</title></rect>",
                BAR - 3.0,
                escape(name),
                names
                    .get(colour)
                    .map_or_else(String::new, |name| escape(name))
            );
            let behind = (across(*value) + 5.0, y + 9.5);
            picture.text("label", "start", behind, &format!("{value:.2}"));
        }
    }
    picture.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_numbers() {
        assert!((step(9.0, 5.0) - 2.0).abs() < 1e-9);
        assert!((step(0.6, 5.0) - 0.2).abs() < 1e-9);
        assert_eq!(ticks(0.0, 1.0, 0.2).count(), 6);
        let over: Vec<f64> = logarithmic_ticks(0.9, 21.0).collect();
        assert_eq!(over.len(), 5, "{over:?}");
        assert_eq!(number(2.50), "2.5");
        assert_eq!(number(20.0), "20");
        assert_eq!(number(1200.0), "1200");
        assert_eq!(number(25_000.0), "25k");
        assert_eq!(number(1_500_000.0), "1.5M");
        assert_eq!(number(f64::INFINITY), "∞");
    }

    #[test]
    fn no_figures_make_a_picture_all_the_same() {
        for picture in [
            points("t", "x", "y", &[]),
            lines("t", "x", "y", &[]),
            bars("t", "x", &[], &[]),
            bars("t", "x", &["a".into()], &[("g".into(), vec![None])]),
        ] {
            assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
            assert!(
                !picture.contains("NaN") && !picture.contains("inf"),
                "{picture}"
            );
        }
    }

    #[test]
    fn labels_do_not_lie_on_each_other() {
        let near = |i: u32| (10.0 + f64::from(i) * 0.01, 3.0, format!("codec{i}"));
        let series = Series {
            name: "s".into(),
            points: (0..20)
                .map(near)
                .chain([(40.0, 5.0, "far".into())])
                .collect(),
        };
        let picture = points("t", "x", "y", &[series]);
        assert_eq!(picture.matches("<circle").count(), 21);
        let labels = picture.matches("class=\"label\"").count();
        assert!((1..20).contains(&labels), "{labels}");
        assert!(picture.contains(">far</text>"));
    }
}
