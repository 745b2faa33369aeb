//! The model on histories that are made up.

use super::*;
use crate::watch::{Reading, Window};

const COST: Cost = Cost {
    in_us: 6.0,
    out_us: 6.0,
};

pub fn window(points: &[(f64, u64, u64)], early: bool) -> Window {
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

fn history(windows: Vec<Window>) -> History {
    let peak = windows
        .iter()
        .flat_map(|w| &w.readings)
        .map(|r| r.anon)
        .max();
    History {
        windows,
        peak: peak.unwrap_or(0),
        ..History::default()
    }
}

/// 400 MiB, all of it touched once a second in order.
fn sweeping() -> History {
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
    history(windows.collect())
}

/// 400 MiB, of which a tenth is touched all the time and the rest never again.
fn mostly_cold() -> History {
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
    history(std::iter::once(filling).chain(windows).collect())
}

fn workload(history: &History, cpu_s: f64) -> Workload<'_> {
    Workload {
        histories: vec![history],
        cpu_s,
    }
}

fn setting() -> Setting {
    Setting {
        stored: 0.25,
        need: 1.06,
        cost: COST,
        min_ram: 8 << 20,
    }
}

#[test]
fn a_fit_costs_only_the_base() {
    let history = sweeping();
    let work = workload(&history, 10.0);
    let expected = work.under(500 << 20, &setting()).unwrap();
    assert_eq!((expected.refaults, expected.overflow), (0.0, 0.0));
    assert!((expected.slower - BASE).abs() < 1e-9 && expected.low < 1e-9);
}

#[test]
fn a_sweep_refaults_everything() {
    let history = sweeping();
    let work = workload(&history, 10.0);
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
fn cold_memory_costs_only_its_eviction() {
    let history = mostly_cold();
    let work = workload(&history, 10.0);
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
    // It cannot fit in less than its compressed size.
    assert!(work.under(100 << 20, &setting()).is_none());
    // Incompressible data saves nothing.
    let raw = Setting {
        stored: 1.0,
        ..setting()
    };
    let smallest = work.smallest(0.10, &raw, |e| e.slower).unwrap();
    assert!(smallest.ram >= 390 << 20, "{smallest:?}");
}

#[test]
fn memory_from_before_the_watch_was_evicted_before() {
    let mut history = mostly_cold();
    history.windows.remove(0);
    let work = workload(&history, 0.1);
    let smallest = work.smallest(0.10, &setting(), |e| e.slower).unwrap();
    assert!(smallest.overflow < 1.0, "{smallest:?}");
    assert!(smallest.ram < 170 << 20, "{smallest:?}");
    let picky = Setting {
        min_ram: 180 << 20,
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
    let brief = history(vec![window(&points, true)]);
    let work = workload(&brief, 10.0);
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
    let growing = history(vec![window(&points, false)]);
    let work = workload(&growing, 2.0);
    let expected = work.under(200 << 20, &setting()).unwrap();
    assert!(
        expected.refaults < 1.0 && expected.overflow > 50_000.0,
        "{expected:?}"
    );
}

#[test]
fn extrapolation_counts_as_a_guess() {
    let windows = vec![
        window(&[(0.0, 102_400, 0), (1.0, 102_400, 20_000)], false),
        // Ended before it reached the capacity.
        window(&[(1.0, 102_400, 0), (2.0, 102_400, 5000)], true),
    ];
    let history = history(windows);
    let work = workload(&history, 2.0);
    let expected = work.under(300 << 20, &setting()).unwrap();
    assert!((expected.guessed - 1.0).abs() < 1e-9, "{expected:?}");
    assert!(
        (expected.refaults - 40_000.0).abs() < 1e-6,
        "the first window's rate goes on: {expected:?}"
    );
    // Where refaults cost next to nothing either way, there is no guess.
    let calm = mostly_cold();
    let work = workload(&calm, 10.0);
    assert!(work.under(300 << 20, &setting()).unwrap().guessed < 1e-9);
}

#[test]
fn a_guess_outlives_freed_memory() {
    let windows = vec![
        // Ended before it came to what would be resident; then the process ends, and has nothing
        // any more.
        window(&[(0.0, 102_400, 0), (2.0, 102_400, 5000)], true),
        window(&[(2.0, 102_400, 0), (2.1, 100, 0)], true),
    ];
    let history = history(windows);
    let work = workload(&history, 2.0);
    let expected = work.under(300 << 20, &setting()).unwrap();
    assert!(expected.guessed > 0.9, "{expected:?}");
}

#[test]
fn less_memory_is_never_faster() {
    // A window about large capacities alone, in which pages come back faster than in the one about
    // small ones.
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
    for history in [sweeping(), mostly_cold(), history(windows)] {
        let work = workload(&history, 10.0);
        let limits = (110..450).rev().step_by(5).map(|mib| mib << 20);
        let predictions: Vec<Expected> = work.along(limits, &setting()).collect();
        assert!(predictions.len() > 50);
        for two in predictions.windows(2) {
            assert!(
                two[0].slower <= two[1].slower && two[0].refaults <= two[1].refaults,
                "{two:?}"
            );
        }
    }
}
