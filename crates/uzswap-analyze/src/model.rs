//! How much slower a program would be under a limit.
//!
//! *What*: what is resident is taken to be what was touched last. Where a window's curve of touched pages passes that capacity, its slope, without
//! the pages that are new, is the rate at which pages would have to come back.
//! *Invariants*: of limits that are looked at together, a smaller one is never told to be faster.
//! *Locking*: none.

use serde::Serialize;

use crate::PAGE;
use crate::cost::Cost;
use crate::watch::{Life, Window};

/// What uzswap itself takes of a limit: tables, buffers, the reserve.
const OWN: f64 = 3.0 * 1_048_576.0;
/// The part of the limit that the pool may take before the swap device would be used, which is not reckoned with.
const POOL: f64 = 0.75;
/// Resident pages without which nothing goes on, bytes.
const LEAST: f64 = 2.0 * 1_048_576.0;
/// What a program loses by running under uzswap at all: between nothing and twice this.
const BASE: f64 = 0.02;
/// Without marks of what is hot, hot pages are put out now and then; the sequential ones come back cheaper than one by one. Both are
/// experience: see docs/analyze.md.
const LOW: f64 = 0.6;
const HIGH: f64 = 1.6;
/// A rate of pages coming back that takes less than this part of the time does not matter.
const MATTERS: f64 = 0.02;
/// Limits are tried in steps of this.
const STEP: f64 = 0.97;

/// A program as it was watched: the processes that have memory, and its processor time.
#[derive(Clone, Debug)]
pub struct Work<'a> {
    /// Its processes.
    pub lives: Vec<&'a Life>,
    /// Processor time of all of them, seconds.
    pub cpu_s: f64,
}

/// With which codec, and what that means here.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Bytes that a byte of memory takes in the pool.
    pub stored: f64,
    /// What the program needs under uzswap for each byte that it needs without, see [`crate::heap`].
    pub need: f64,
    /// What a page costs.
    pub cost: Cost,
    /// The least limit that uzswap runs with, bytes.
    pub least: u64,
}

/// What is expected under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Expected {
    /// The limit, bytes.
    pub ram: u64,
    /// Pages that come back after they were put out.
    pub refaults: f64,
    /// Pages that are put out because there are more than fit, after the watch began.
    pub overflow: f64,
    /// Additional processor time, as a part of the time without uzswap.
    pub slower: f64,
    /// At best.
    pub low: f64,
    /// At worst.
    pub high: f64,
    /// Part of the time for which curves that still rose had to be continued beyond what was seen.
    pub guessed: f64,
}

impl Work<'_> {
    /// Most memory of one process, bytes.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.lives.iter().map(|life| life.peak).max().unwrap_or(0) * PAGE
    }

    /// What `ram` bytes for each process mean; `None` if the data does not fit even compressed.
    #[must_use]
    pub fn under(&self, ram: u64, setting: &Setting) -> Option<Expected> {
        if ram < setting.least {
            return None;
        }
        let Cost { in_us, out_us } = setting.cost;
        let (mut all, mut seconds) = (Over::default(), 0.0);
        for life in &self.lives {
            let limit = Limit {
                ram: ram as f64,
                stored: setting.stored,
                need: setting.need,
                matters: MATTERS * 1e6 / (in_us + out_us),
            };
            limit.resident(life.peak)?;
            let one = limit.over(life);
            all.refaults += one.refaults;
            all.straight += one.straight;
            all.overflow += one.overflow;
            all.guessed_s += one.guessed_s;
            seconds += life.seconds();
        }
        let once = all.overflow * out_us / 1e6 / self.cpu_s;
        let part = |pages: f64| pages * (in_us + out_us) / 1e6 / self.cpu_s;
        let (again, straight) = (part(all.refaults), part(all.straight));
        Some(Expected {
            ram,
            refaults: all.refaults,
            overflow: all.overflow,
            slower: BASE + once + again,
            low: once * 0.8 + again * LOW,
            high: 2.0 * BASE + once * 1.2 + f64::max(again * HIGH, straight),
            guessed: all.guessed_s / f64::max(seconds, 1e-9),
        })
    }

    /// The smallest limit under which it is at most `slower` slower by what `of` says: expected, at best or at worst.
    #[must_use]
    pub fn smallest(
        &self,
        slower: f64,
        setting: &Setting,
        of: fn(&Expected) -> f64,
    ) -> Option<Expected> {
        let most = self.peak() as f64 * setting.need + OWN;
        let down = (0..).map(|step| whole_mib(most * STEP.powi(step)));
        self.along(down, setting)
            .take_while(|expected| of(expected) <= slower)
            .last()
    }

    /// What limits mean, from the largest one down to the smallest that the data fits.
    pub fn along(
        &self,
        limits: impl Iterator<Item = u64>,
        setting: &Setting,
    ) -> impl Iterator<Item = Expected> {
        let mut larger = None;
        limits
            .map_while(|ram| self.under(ram, setting))
            .map(move |expected| {
                let expected = larger.map_or(expected, |larger| expected.after(&larger));
                larger = Some(expected);
                expected
            })
    }
}

impl Expected {
    /// Different windows tell about different limits: where they do not agree, the worse one counts.
    fn after(self, larger: &Expected) -> Self {
        Self {
            refaults: self.refaults.max(larger.refaults),
            slower: self.slower.max(larger.slower),
            low: self.low.max(larger.low),
            high: self.high.max(larger.high),
            ..self
        }
    }
}

/// Rounded up to a MiB.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, far below 2^64"
)]
fn whole_mib(bytes: f64) -> u64 {
    (bytes as u64).next_multiple_of(1 << 20)
}

/// A limit in bytes, what a byte takes in the pool, and what a program needs.
struct Limit {
    ram: f64,
    stored: f64,
    need: f64,
    /// Pages a second that are worth a doubt.
    matters: f64,
}

#[derive(Default)]
struct Over {
    refaults: f64,
    /// The same, if curves that end early went straight on.
    straight: f64,
    overflow: f64,
    guessed_s: f64,
}

impl Limit {
    /// Pages that can be resident when there are `anon` pages; `None` if they do not fit.
    fn resident(&self, anon: u64) -> Option<f64> {
        let all = (anon * PAGE) as f64 * self.need;
        if all + OWN <= self.ram {
            return Some(anon as f64);
        }
        // resident + pool + own = ram, and the pool holds what is not resident.
        let resident = (self.ram - OWN - all * self.stored) / (1.0 - self.stored).max(1e-3);
        let pool = self.ram - OWN - resident;
        (resident >= LEAST && pool <= POOL * self.ram)
            .then_some(resident.min(all) / self.need / PAGE as f64)
    }

    /// What happens over a life.
    fn over(&self, life: &Life) -> Over {
        let mut over = Over::default();
        // Of times whose window was ended before it could tell anything about this capacity, the next one tells.
        let (mut untold_s, mut known) = (0.0, 0.0);
        // What did not fit before it was watched was put out before.
        let first = life.windows.first().and_then(|w| w.readings.first());
        let before = first.map_or(0.0, |first| {
            let capacity = self.resident(first.anon);
            capacity.map_or(0.0, |capacity| first.anon as f64 - capacity)
        });
        for (window, anon, seconds) in life.slices() {
            let Some(capacity) = self.resident(anon) else {
                continue;
            };
            let overflow = anon as f64 - capacity;
            over.overflow = over.overflow.max(overflow - before);
            untold_s += seconds;
            if overflow <= 0.0 {
                untold_s = 0.0;
                continue;
            }
            match rate(window, capacity) {
                Rate::Seen(rate) => {
                    over.refaults += rate * untold_s;
                    over.straight += rate * untold_s;
                    known = rate;
                }
                Rate::Guessed { rate, straight } => {
                    over.refaults += rate * untold_s;
                    over.straight += straight * untold_s;
                    if straight > self.matters {
                        over.guessed_s += untold_s;
                    }
                    known = rate;
                }
                Rate::Untold => continue,
            }
            untold_s = 0.0;
        }
        // After the last window that tells: as it was in that.
        over.refaults += known * untold_s;
        over.straight += known * untold_s;
        over.guessed_s += untold_s;
        over
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rate {
    /// Pages a second.
    Seen(f64),
    /// The same, from a curve that ends below the capacity and is continued; and if it went straight on.
    Guessed {
        rate: f64,
        straight: f64,
    },
    Untold,
}

/// The rate at which pages come back that were touched longer ago than the last `capacity` ones.
fn rate(window: &Window, capacity: f64) -> Rate {
    // Time, what was touched, and what of it was not new.
    let mut curve = Vec::with_capacity(window.readings.len());
    let mut again = 0.0;
    for (number, reading) in window.readings.iter().enumerate() {
        if let Some(before) = number.checked_sub(1).and_then(|i| window.readings.get(i)) {
            let touched = reading.touched as f64 - before.touched as f64;
            let grown = reading.anon.saturating_sub(before.anon) as f64;
            again += (touched - grown).max(0.0);
        }
        curve.push((reading.at_s, reading.touched as f64, again));
    }
    let slope = |from: usize, to: usize| {
        let time: f64 = curve[to].0 - curve[from].0;
        if time > 0.0 {
            (curve[to].2 - curve[from].2) / time
        } else {
            0.0
        }
    };
    if let Some(passed) = curve.iter().position(|point| point.1 >= capacity) {
        let Some(before) = passed.checked_sub(1) else {
            return Rate::Untold;
        };
        let beyond = curve.iter().rposition(|point| point.1 <= capacity * 1.25);
        return Rate::Seen(slope(before, beyond.unwrap_or(passed).max(passed)));
    }
    let last = curve.len().saturating_sub(1);
    if window.early || last == 0 {
        return Rate::Untold;
    }
    if last < 2 {
        let rate = slope(0, last);
        return Rate::Guessed {
            rate,
            straight: rate,
        };
    }
    // A curve that bends is continued as it bends, one that does not straight on.
    let middle = last / 2;
    let (early, late) = (slope(0, middle), slope(middle, last));
    let (from, to) = (curve[middle].1, curve[last].1);
    let bend = if to > from {
        ((early - late) / (to - from)).max(0.0)
    } else {
        f64::INFINITY
    };
    let beyond = capacity - to;
    Rate::Guessed {
        rate: (late - bend * beyond).clamp(0.0, late),
        straight: late,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Reading;

    const COST: Cost = Cost {
        in_us: 6.0,
        out_us: 6.0,
    };

    fn window(points: &[(f64, u64, u64)], early: bool) -> Window {
        let reading = |&(at_s, anon, touched): &(f64, u64, u64)| Reading {
            at_s,
            anon,
            touched,
        };
        Window {
            readings: points.iter().map(reading).collect(),
            early,
        }
    }

    fn life(windows: Vec<Window>) -> Life {
        let peak = windows
            .iter()
            .flat_map(|w| &w.readings)
            .map(|r| r.anon)
            .max();
        Life {
            pid: 1,
            name: "job".into(),
            windows,
            peak: peak.unwrap_or(0),
            huge: 0.0,
            swapped: 0,
            longest_s: 0.0,
            cpu_s: 10.0,
            marks: true,
        }
    }

    /// 400 MiB, all of it touched once a second in order.
    fn sweeping() -> Life {
        let pages = 102_400;
        let windows = (0..10_u32).map(|second| {
            let points: Vec<_> = (0..=10_u32)
                .map(|tenth| {
                    let at = f64::from(second) + f64::from(tenth) / 10.0;
                    (at, pages, pages * u64::from(tenth) / 10)
                })
                .collect();
            window(&points, true)
        });
        life(windows.collect())
    }

    /// 400 MiB, of which a tenth is touched all the time and the rest never again.
    fn mostly_cold() -> Life {
        let windows = (0..10_u32).map(|second| {
            let points: Vec<_> = (0..=10_u32)
                .map(|tenth| {
                    (
                        f64::from(second) + f64::from(tenth) / 10.0,
                        102_400,
                        10_240 * u64::from(tenth.min(1)),
                    )
                })
                .collect();
            window(&points, false)
        });
        // It fills its memory first.
        let filling = window(&[(-1.0, 0, 0), (0.0, 102_400, 102_400)], true);
        life(std::iter::once(filling).chain(windows).collect())
    }

    fn setting() -> Setting {
        Setting {
            stored: 0.25,
            need: 1.06,
            cost: COST,
            least: 8 << 20,
        }
    }

    #[test]
    fn what_fits_costs_nothing_but_the_base() {
        let life = sweeping();
        let work = Work {
            lives: vec![&life],
            cpu_s: 10.0,
        };
        let expected = work.under(500 << 20, &setting()).unwrap();
        assert_eq!((expected.refaults, expected.overflow), (0.0, 0.0));
        assert!((expected.slower - BASE).abs() < 1e-9 && expected.low < 1e-9);
    }

    #[test]
    fn whoever_sweeps_over_all_of_it_refaults_all_of_it() {
        let life = sweeping();
        let work = Work {
            lives: vec![&life],
            cpu_s: 10.0,
        };
        // Once a second for ten seconds, whatever the capacity below all of it.
        for mib in [200, 300, 380] {
            let expected = work.under(mib << 20, &setting()).unwrap();
            assert!(
                (expected.refaults / 1_024_000.0 - 1.0).abs() < 0.01,
                "{expected:?}"
            );
        }
        let smallest = work.smallest(0.10, &setting(), |e| e.slower).unwrap();
        assert!(smallest.ram >= 395 << 20, "{smallest:?}");
    }

    #[test]
    fn cold_memory_costs_its_way_out_alone() {
        let life = mostly_cold();
        let work = Work {
            lives: vec![&life],
            cpu_s: 10.0,
        };
        let smallest = work.smallest(0.10, &setting(), |e| e.slower).unwrap();
        // 40 MiB that are hot, 90 MiB of pool for the rest, and uzswap's own.
        assert!(
            (130 << 20..150 << 20).contains(&smallest.ram),
            "{smallest:?}"
        );
        assert!(
            smallest.refaults < 2000.0 && smallest.overflow > 80_000.0,
            "{smallest:?}"
        );
        // Below what is stored compressed there is nothing.
        assert!(work.under(100 << 20, &setting()).is_none());
        // Data that does not compress saves nothing.
        let raw = Setting {
            stored: 1.0,
            need: 1.06,
            cost: COST,
            least: 8 << 20,
        };
        let smallest = work.smallest(0.10, &raw, |e| e.slower).unwrap();
        assert!(smallest.ram >= 390 << 20, "{smallest:?}");
    }

    #[test]
    fn what_was_there_before_was_put_out_before() {
        let mut life = mostly_cold();
        life.windows.remove(0);
        let work = Work {
            lives: vec![&life],
            cpu_s: 0.1,
        };
        let smallest = work.smallest(0.10, &setting(), |e| e.slower).unwrap();
        assert!(smallest.overflow < 1.0, "{smallest:?}");
        assert!(smallest.ram < 170 << 20, "{smallest:?}");
        let picky = Setting {
            least: 180 << 20,
            ..setting()
        };
        let smallest = work.smallest(0.10, &picky, |e| e.slower).unwrap();
        assert!(
            (180 << 20..187 << 20).contains(&smallest.ram),
            "{smallest:?}"
        );
    }

    #[test]
    fn a_peak_counts_for_as_long_as_it_lasts() {
        // 100 MiB that are swept over all the time, and for a tenth of a second 100 MiB more.
        let points: Vec<_> = (0..=100_u32)
            .map(|tenth| {
                let anon = if tenth == 50 { 51_200 } else { 25_600 };
                (f64::from(tenth) / 10.0, anon, 512 * u64::from(tenth))
            })
            .collect();
        let brief = life(vec![window(&points, true)]);
        let work = Work {
            lives: vec![&brief],
            cpu_s: 10.0,
        };
        let expected = work.under(140 << 20, &setting()).unwrap();
        // 5120 pages a second for that tenth, not for ten seconds.
        assert!((expected.refaults - 512.0).abs() < 52.0, "{expected:?}");
    }

    #[test]
    fn new_pages_are_no_refaults() {
        let points: Vec<_> = (0..=20_u32)
            .map(|tenth| {
                let pages = 5120 * u64::from(tenth);
                (f64::from(tenth) / 10.0, pages, pages)
            })
            .collect();
        let growing = life(vec![window(&points, false)]);
        let work = Work {
            lives: vec![&growing],
            cpu_s: 2.0,
        };
        let expected = work.under(200 << 20, &setting()).unwrap();
        assert!(
            expected.refaults < 1.0 && expected.overflow > 50_000.0,
            "{expected:?}"
        );
    }

    #[test]
    fn curves_are_continued_as_they_bend() {
        let straight = window(&[(0.0, 1000, 0), (1.0, 1000, 100), (2.0, 1000, 200)], false);
        let guess = |rate, straight| Rate::Guessed { rate, straight };
        assert_eq!(rate(&straight, 500.0), guess(100.0, 100.0));
        let bent = window(&[(0.0, 1000, 0), (1.0, 1000, 200), (2.0, 1000, 220)], false);
        assert_eq!(rate(&bent, 500.0), guess(0.0, 20.0));
        // A window that was ended early says nothing about what it did not reach.
        let early = Window {
            early: true,
            ..straight
        };
        assert_eq!(rate(&early, 500.0), Rate::Untold);
        assert_eq!(rate(&early, 150.0), Rate::Seen(100.0));
    }

    #[test]
    fn what_no_window_tells_is_called_a_guess() {
        let windows = vec![
            window(&[(0.0, 102_400, 0), (1.0, 102_400, 20_000)], false),
            // Ended before it came to what would be resident.
            window(&[(1.0, 102_400, 0), (2.0, 102_400, 5000)], true),
        ];
        let life = life(windows);
        let work = Work {
            lives: vec![&life],
            cpu_s: 2.0,
        };
        let expected = work.under(300 << 20, &setting()).unwrap();
        assert!((expected.guessed - 1.0).abs() < 1e-9, "{expected:?}");
        assert!(
            (expected.refaults - 40_000.0).abs() < 1e-6,
            "the first window's rate goes on: {expected:?}"
        );
        // What would cost next to nothing either way is no guess worth the name.
        let calm = mostly_cold();
        let work = Work {
            lives: vec![&calm],
            cpu_s: 10.0,
        };
        assert!(work.under(300 << 20, &setting()).unwrap().guessed < 1e-9);
    }

    #[test]
    fn less_memory_is_never_told_to_be_faster() {
        // A window about large capacities alone, in which pages come back faster than in the one about small ones.
        let windows = vec![
            window(
                &[
                    (0.0, 102_400, 0),
                    (1.0, 102_400, 60_000),
                    (2.0, 102_400, 101_000),
                ],
                true,
            ),
            window(
                &[
                    (2.0, 102_400, 0),
                    (9.0, 102_400, 40_000),
                    (40.0, 102_400, 41_000),
                ],
                true,
            ),
        ];
        for life in [sweeping(), mostly_cold(), life(windows)] {
            let work = Work {
                lives: vec![&life],
                cpu_s: 10.0,
            };
            let limits = (110..450).rev().step_by(5).map(|mib| mib << 20);
            let told: Vec<Expected> = work.along(limits, &setting()).collect();
            assert!(told.len() > 50);
            for two in told.windows(2) {
                assert!(
                    two[0].slower <= two[1].slower && two[0].refaults <= two[1].refaults,
                    "{two:?}"
                );
            }
        }
    }
}
