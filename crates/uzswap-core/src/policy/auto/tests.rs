//! The rule: its decisions one by one, and ([`programs`]) programs that live under it.

use super::curve::ONE;
use super::rule::MIN_POOR_WINDOWS;
use super::samples::Samples;
use super::*;

mod programs;

fn made(bytes: u64, ticks: u64) -> Cost {
    Cost { bytes, ticks }
}

const PZ_1: Choice = Choice::of(1);
const PZ_2: Choice = Choice::of(2);
const PZ_3: Choice = Choice::of(3);

/// What lz4 and the levels of pz make of a page, in ticks of half a nanosecond.
type Codecs = [Cost; 4];

/// As they are on the memory of real programs.
fn real() -> Codecs {
    [
        made(1650, 11_000),
        made(1420, 12_000),
        made(1280, 15_000),
        made(1050, 19_000),
    ]
}

fn samples_of([fast, dense @ ..]: Codecs) -> Samples {
    let mut samples = Samples::NONE;
    for (at, dense) in dense.into_iter().enumerate() {
        let of = |cost: Cost| made(cost.bytes * 16, cost.ticks * 16);
        samples.add(Choice::of(at + 1), 16, of(fast), of(dense));
    }
    samples
}

/// A curve on which so many percent of the faults come back within `near` evictions, and the rest
/// after very many.
fn curve_of(near: u64, percent: u64) -> Curve {
    let mut curve = Curve::NONE;
    curve.add(near, percent);
    curve.add(1 << 30, 100 - percent);
    curve
}

/// Twice as much data as RAM, by lz4, and no growth.
fn window<'a>(curve: &'a Curve, samples: &'a Samples) -> WindowStats<'a> {
    WindowStats {
        evicted: 1000,
        loaded: 1000,
        faults: 700,
        device: 0,
        pool: 11_500,
        max_pool: 12_000,
        resident: 4_500,
        stored: 27_000,
        out: 0,
        grown: 0,
        full: false,
        spills: false,
        curve,
        samples,
    }
}

#[test]
fn who_went_back_too_soon_waits_twice_as_long() {
    let samples = samples_of(real());
    let (far, near) = (curve_of(1, 0), curve_of(4_500, 80));
    let mut rule = Rule::by(PZ_3);
    for times in 0..3 {
        let mut windows = 0;
        while rule.choice == PZ_3 {
            rule = rule.next(&window(&far, &samples));
            windows += 1;
        }
        assert_eq!(windows, MIN_POOR_WINDOWS << times);
        rule = rule.next(&window(&near, &samples));
    }
}

#[test]
fn faults_that_more_room_would_save_call_for_the_densest_codec() {
    let samples = samples_of(real());
    let far = curve_of(1, 0);
    let near = curve_of(4_500, 80);
    assert_eq!(Rule::BEGIN.next(&window(&far, &samples)), Rule::BEGIN);
    let rule = Rule::BEGIN.next(&window(&near, &samples));
    assert_eq!(rule.choice, PZ_3);
}

#[test]
fn a_codec_as_fast_and_denser_is_taken_for_few_faults_saved() {
    let samples = samples_of(real());
    let some = curve_of(500, 15);
    let rule = Rule::BEGIN.next(&window(&some, &samples));
    assert_eq!(rule.choice, PZ_1);
    // What no sample speaks for is not done.
    let same = samples_of([made(1650, 11_000); 4]);
    for samples in [same, Samples::NONE] {
        assert_eq!(Rule::BEGIN.next(&window(&some, &samples)), Rule::BEGIN);
    }
}

#[test]
fn a_faster_codec_is_taken_after_so_many_windows_and_not_before() {
    let samples = samples_of(real());
    let (far, near) = (curve_of(1, 0), curve_of(4_500, 80));
    let mut rule = Rule::by(PZ_3);
    for _ in 0..3 {
        for _ in 1..MIN_POOR_WINDOWS {
            rule = rule.next(&window(&far, &samples));
            assert_eq!(rule.choice, PZ_3);
        }
        rule = rule.next(&window(&near, &samples));
    }
    for _ in 0..MIN_POOR_WINDOWS {
        rule = rule.next(&window(&far, &samples));
    }
    assert_eq!(rule.choice, Choice::FAST);
}

/// Half as much again does not fit the pool by lz4; by pz:3 nearly all does.
fn spilling<'a>(curve: &'a Curve, samples: &'a Samples) -> WindowStats<'a> {
    WindowStats {
        resident: 4_000,
        pool: 12_000,
        stored: 28_000,
        out: 14_000,
        spills: true,
        ..window(curve, samples)
    }
}

#[test]
fn time_on_the_device_calls_for_a_denser_codec() {
    let samples = samples_of(real());
    let far = curve_of(1, 0);
    let idle = spilling(&far, &samples);
    assert_eq!(Rule::BEGIN.next(&idle), Rule::BEGIN);
    // A third of the pages are read, 100,000 ticks each.
    let waits = WindowStats {
        device: 330 * 100_000,
        ..idle
    };
    assert_eq!(Rule::BEGIN.next(&waits).choice, PZ_3);
}

#[test]
fn a_few_pages_that_nobody_reads_do_not_speak_for_all_that_would_be_there() {
    let samples = samples_of(real());
    let far = curve_of(1, 0);
    let few = WindowStats {
        stored: 41_500,
        out: 500,
        ..spilling(&far, &samples)
    };
    assert_eq!(Rule::by(PZ_3).next(&few), Rule::by(PZ_3));
    // Of as many as are there now, and never read, it is known that they cost nothing.
    let many = spilling(&far, &samples);
    assert_ne!(Rule::by(PZ_3).next(&many), Rule::by(PZ_3));
}

#[test]
fn a_pool_that_nothing_brings_down_is_made_as_dense_as_it_goes() {
    let samples = samples_of(real());
    let far = curve_of(1, 0);
    let full = WindowStats {
        full: true,
        ..window(&far, &samples)
    };
    assert_eq!(Rule::BEGIN.next(&full).choice, PZ_3);
}

#[test]
fn a_pool_that_data_are_about_to_fill_is_made_denser_before_anything_leaves_it() {
    let samples = samples_of(real());
    let far = curve_of(1, 0);
    let growing = |stored: u64, grown| WindowStats {
        pool: stored * 43 / 100,
        resident: 16_000 - stored * 43 / 100,
        loaded: 0,
        faults: 0,
        stored,
        grown,
        spills: true,
        ..window(&far, &samples)
    };
    let choice = |seen| Rule::BEGIN.next(&seen).choice;
    // 9,100 pages more would not fit by pz:1, 12,800 not by pz:2.
    assert_eq!(choice(growing(24_000, 570)), PZ_2);
    assert_eq!(choice(growing(24_000, 800)), PZ_3);
    for fits in [growing(8_000, 570), growing(24_000, 0)] {
        assert!(choice(fits) < PZ_2);
    }
}

#[test]
fn what_the_fast_codec_made_is_made_anew_only_where_that_is_enough() {
    let samples = samples_of(real());
    let curve = Curve::NONE;
    // 1050 bytes a page; 13,500 pages at most.
    let nearly = WindowStats {
        stored: 28_000,
        out: 24_000,
        ..spilling(&curve, &samples)
    };
    assert!((nearly.nearly_fits(PZ_3) && nearly.gains_by_recompressing(PZ_3)));
    let too_much = WindowStats {
        out: 25_000,
        ..nearly
    };
    assert!(!too_much.nearly_fits(PZ_3));
    for samples in [samples_of([made(1050, 0); 4]), Samples::NONE] {
        let poor = WindowStats {
            stored: 100,
            out: 0,
            samples: &samples,
            ..nearly
        };
        assert!(!poor.gains_by_recompressing(PZ_3), "{samples:?}");
    }
}

/// Some fifty pages a window, each of which compresses to anything between nothing and twice the
/// mean.
#[test]
fn what_nearly_fits_is_not_taken_for_too_much_by_the_luck_of_one_window() {
    let seed = 0x5eed_a070_0000_0002;
    println!("seed {seed:#x}");
    let mut x = seed;
    let mut samples = Samples::NONE;
    let curve = Curve::NONE;
    for window in 0..1000 {
        for _ in 0..50 {
            let dense = made(programs::random(&mut x) % 2100, 0);
            samples.add(PZ_3, 1, made(1650, 0), dense);
        }
        // An eighth less than what would be too much.
        let seen = WindowStats {
            stored: 28_000,
            out: 18_000,
            ..spilling(&curve, &samples)
        };
        assert!(window < 16 || seen.nearly_fits(PZ_3), "window {window}");
        samples.fade();
    }
}

#[test]
fn interrupted_samples_do_not_count() {
    let mut samples = samples_of(real());
    let before = samples.page(PZ_1);
    samples.add(PZ_1, 16, made(0, 1 << 30), made(0, 1));
    assert_eq!(samples.page(PZ_1), before);
}

#[test]
fn the_curve_says_which_faults_more_room_would_save() {
    let curve = curve_of(1024, 60);
    assert_eq!(curve.faults_with(0, 0), ONE);
    assert_eq!(curve.faults_with(512, 0), ONE);
    let all = curve.faults_with(4096, 0);
    assert!(all.abs_diff(ONE * 2 / 5) < 2, "{all}");
    // As many more, in proportion.
    let fewer = curve.faults_with(0, 4096);
    assert!(fewer.abs_diff(ONE * 5 / 2) < 8, "{fewer}");
    assert_eq!(Curve::NONE.faults_with(1 << 20, 0), ONE);
}
