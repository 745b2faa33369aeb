//! The rate of refaults, from a window's curve of touched pages.
//!
//! *What*: if the pages touched last were resident, the rate would be the curve's *slope* where it
//! passes the capacity. But uzswap sees no referenced bits: hot pages go, too, and are refaulted.
//! If the pages that came in last were resident, all of them would be replaced in the time in which
//! as many pages are touched as can be resident, and each that is not new would be refaulted once
//! in that time: the *turnover*. uzswap is between the two, because it keeps refaulted pages while
//! they are not the majority. The middle is what is expected.
//! *Invariants*: best <= expected <= worst.
//! *Locking*: none.

use crate::watch::Window;

/// Refaults: pages, or pages per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Refaults {
    /// If the pages touched last are resident.
    pub(super) best: f64,
    /// The middle.
    pub(super) expected: f64,
    /// If the pages that came in last are; a curve that ends below the capacity is continued
    /// straight.
    pub(super) worst: f64,
}

/// What a window says about a capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rate {
    Observed(Refaults),
    /// From a curve that ends below the capacity.
    Extrapolated(Refaults),
    Unknown,
}

/// A point of a curve.
#[derive(Clone, Copy)]
struct Point {
    /// Time since the watch started, seconds.
    at_s: f64,
    /// Touched pages.
    touched: f64,
    /// Those that were not new.
    again: f64,
}

fn curve(window: &Window) -> Vec<Point> {
    let mut curve: Vec<Point> = Vec::with_capacity(window.readings.len());
    let mut again = 0.0;
    for (number, reading) in window.readings.iter().enumerate() {
        if let Some(before) = number.checked_sub(1).and_then(|i| window.readings.get(i)) {
            let touched = reading.touched as f64 - before.touched as f64;
            let grown = reading.anon.saturating_sub(before.anon) as f64;
            again += (touched - grown).max(0.0);
        }
        curve.push(Point {
            at_s: reading.at_s,
            touched: reading.touched as f64,
            again,
        });
    }
    curve
}

/// Pages touched again per second between two points.
fn slope(from: Point, to: Point) -> f64 {
    let time = to.at_s - from.at_s;
    if time > 0.0 {
        (to.again - from.again) / time
    } else {
        0.0
    }
}

/// The rate of refaults when `capacity` pages can be resident.
pub(super) fn rate(window: &Window, capacity: f64) -> Rate {
    let curve = curve(window);
    match curve.iter().position(|point| point.touched >= capacity) {
        Some(passed) => observed(&curve, passed, capacity),
        None if window.early || curve.len() < 2 => Rate::Unknown,
        None => extrapolated(&curve, capacity),
    }
}

/// The rate from a curve that passes the capacity before point `passed`.
fn observed(curve: &[Point], passed: usize, capacity: f64) -> Rate {
    let Some(before) = passed.checked_sub(1) else {
        return Rate::Unknown;
    };
    let (a, b) = (curve[before], curve[passed]);
    let part = (capacity - a.touched) / (b.touched - a.touched);
    let turned_over = Point {
        at_s: a.at_s + (b.at_s - a.at_s) * part,
        touched: capacity,
        again: a.again + (b.again - a.again) * part,
    };
    let turnover = slope(curve[0], turned_over);
    let beyond = curve
        .iter()
        .rposition(|point| point.touched <= capacity * 1.25);
    let beyond = beyond.unwrap_or(passed).max(passed);
    let best = slope(a, curve[beyond]).min(turnover);
    Rate::Observed(Refaults {
        best,
        expected: f64::midpoint(best, turnover),
        worst: turnover,
    })
}

/// The rate from a curve of two points or more that ends below the capacity: continued as it bends
/// at best, straight at worst.
fn extrapolated(curve: &[Point], capacity: f64) -> Rate {
    let last = curve.len() - 1;
    let (first, middle, end) = (curve[0], curve[last / 2], curve[last]);
    let late = slope(middle, end);
    let grown = end.touched - middle.touched;
    let bend = if grown <= 0.0 {
        f64::INFINITY
    } else if last < 2 {
        0.0
    } else {
        ((slope(first, middle) - late) / grown).max(0.0)
    };
    let beyond = capacity - end.touched;
    let best = (late - bend * beyond).clamp(0.0, late);
    let beyond_s = beyond * (end.at_s - middle.at_s) / grown.max(0.0);
    let worst = if beyond_s.is_finite() {
        let turned_over = Point {
            at_s: end.at_s + beyond_s,
            touched: capacity,
            again: end.again + late * beyond_s,
        };
        slope(first, turned_over).max(late)
    } else {
        late
    };
    Rate::Extrapolated(Refaults {
        best,
        expected: f64::midpoint(best, worst),
        worst,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::window;
    use super::*;

    #[test]
    fn curves_are_continued_as_they_bend() {
        let straight = window(&[(0.0, 1000, 0), (1.0, 1000, 100), (2.0, 1000, 200)], false);
        let same = |rate| Refaults {
            best: rate,
            expected: rate,
            worst: rate,
        };
        assert_eq!(rate(&straight, 500.0), Rate::Extrapolated(same(100.0)));
        let bent = window(&[(0.0, 1000, 0), (1.0, 1000, 200), (2.0, 1000, 220)], false);
        let Rate::Extrapolated(refaults) = rate(&bent, 500.0) else {
            panic!("{:?}", rate(&bent, 500.0));
        };
        // 280 more at 20 per second: 500 in 16 seconds.
        assert_eq!(
            (refaults.best, refaults.expected, refaults.worst),
            (0.0, 15.625, 31.25)
        );
        // A window that ended early says nothing about capacities that it did not reach.
        let early = Window {
            early: true,
            ..straight
        };
        assert_eq!(rate(&early, 500.0), Rate::Unknown);
        assert_eq!(rate(&early, 150.0), Rate::Observed(same(100.0)));
    }

    #[test]
    fn hot_pages_come_back_each_time_that_all_is_turned_over() {
        let points = [
            (4.0, 9000, 0),
            (4.1, 9000, 5000),
            (5.0, 9000, 6000),
            (6.0, 9000, 7000),
            (7.0, 9000, 8000),
        ];
        let Rate::Observed(refaults) = rate(&window(&points, false), 7000.0) else {
            panic!("it passes that");
        };
        // 7000 in two seconds, of which 1000 per second are cold.
        assert_eq!(
            (refaults.best, refaults.expected, refaults.worst),
            (1000.0, 2250.0, 3500.0)
        );
    }

    #[test]
    fn a_curve_that_ends_tells_as_much_as_one_that_just_passes() {
        let points = [(0.0, 9000, 0), (1.0, 9000, 3000), (2.0, 9000, 4000)];
        let window = window(&points, false);
        let (below, above) = (rate(&window, 3999.9), rate(&window, 4000.1));
        let (Rate::Observed(below), Rate::Extrapolated(above)) = (below, above) else {
            panic!("{below:?} {above:?}");
        };
        assert!((below.expected - above.expected).abs() < 1.0);
    }
}
