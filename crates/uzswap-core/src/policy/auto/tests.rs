//! The rule against plain models: one of its decisions, and one of programs that live under it.

use super::*;

fn random(x: &mut u64) -> u64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    *x >> 11
}

fn made(bytes: u64, ticks: u64) -> Cost {
    Cost { bytes, ticks }
}

/// As lz4 and pz are on the memory of real programs, in ticks of half a nanosecond.
const REAL: Samples = Samples {
    pages: 16,
    fast: Cost {
        bytes: 16 * 1650,
        ticks: 16 * 14_000,
    },
    dense: Cost {
        bytes: 16 * 1050,
        ticks: 16 * 21_000,
    },
};

fn seen(device: u64, full: bool, samples: Samples) -> WindowStats {
    WindowStats {
        pages: 1000,
        device,
        // With lz4 it would still be enough.
        pool: 1000,
        max_pool: 2000,
        stored: 2500,
        out: 3000,
        grown: 0,
        full,
        samples,
    }
}

#[test]
fn while_everything_fits_nothing_is_looked_at() {
    let mut rule = Rule::BEGIN;
    for _ in 0..100 {
        rule = rule.next(&seen(0, false, REAL));
        assert_eq!(rule, Rule::BEGIN);
    }
}

#[test]
fn a_device_that_is_waited_for_makes_it_look_and_then_go_over() {
    let rule = Rule::BEGIN.next(&seen(1, false, Samples::default()));
    assert_eq!(rule.phase, Phase::Sampling);
    // 1000 pages, 7000 ticks more for each; the pool would hold four sevenths more of the 3000 that
    // are out.
    let breaks_even = 7_000_000 * 3000 / 1428;
    assert_eq!(
        rule.next(&seen(breaks_even - 2000, false, REAL)).phase,
        Phase::Sampling
    );
    assert_eq!(
        rule.next(&seen(breaks_even + 2000, false, REAL)).phase,
        Phase::Denser
    );
    assert_eq!(rule.next(&seen(0, false, REAL)).phase, Phase::Fast);
    // What no sample speaks for is not done, however long the wait.
    let same = Samples {
        dense: made(16 * 1620, 0),
        ..REAL
    };
    for samples in [same, Samples::default()] {
        assert_eq!(
            rule.next(&seen(u64::MAX, true, samples)).phase,
            Phase::Sampling
        );
    }
}

#[test]
fn a_pool_that_nothing_brings_down_is_made_denser_at_any_cost() {
    let rule = Rule::BEGIN
        .next(&seen(0, true, REAL))
        .next(&seen(0, true, REAL));
    assert_eq!(rule.phase, Phase::Denser);
}

#[test]
fn it_goes_back_after_so_many_windows_in_a_row_and_not_before() {
    let mut rule = Rule {
        phase: Phase::Denser,
        poor_windows_left: MAX_POOR_WINDOWS,
    };
    for _ in 0..3 {
        for _ in 1..MAX_POOR_WINDOWS {
            rule = rule.next(&seen(0, false, REAL));
            assert_eq!(rule.phase, Phase::Denser);
        }
        let tight = WindowStats {
            stored: 6000,
            ..seen(u64::MAX, false, REAL)
        };
        rule = rule.next(&tight);
    }
    for _ in 0..MAX_POOR_WINDOWS {
        rule = rule.next(&seen(0, false, REAL));
    }
    assert_eq!(rule.phase, Phase::Fast);
}

#[test]
fn a_few_pages_that_nobody_reads_do_not_speak_for_all_that_would_be_there() {
    let in_use = Rule {
        phase: Phase::Denser,
        poor_windows_left: 1,
    };
    // By the fast codec the pool would hold two thirds of it.
    let few = WindowStats {
        stored: 7500,
        out: 100,
        ..seen(0, false, REAL)
    };
    assert_eq!(in_use.next(&few).phase, Phase::Denser);
    // Of as many as are there now, and never read, it is known that they cost nothing.
    let many = WindowStats { out: 3000, ..few };
    assert_eq!(in_use.next(&many).phase, Phase::Fast);
}

#[test]
fn what_the_fast_codec_made_is_made_anew_only_where_that_is_enough() {
    // 1050 bytes a page.
    let nearly = WindowStats {
        stored: 5000,
        out: 3700,
        ..seen(1, false, REAL)
    };
    assert!(nearly.pays_to_recompress());
    let too_much = WindowStats {
        out: 3900,
        ..nearly
    };
    assert!(!too_much.pays_to_recompress());
    let little_smaller = Samples {
        dense: made(16 * 1350, 0),
        ..REAL
    };
    for samples in [little_smaller, Samples::default()] {
        let poor = WindowStats {
            stored: 100,
            out: 0,
            samples,
            ..nearly
        };
        assert!(!poor.pays_to_recompress(), "{samples:?}");
    }
}

/// Windows of a program whose data grow, all of which are still in RAM: the pool takes two fifths
/// of what is stored by lz4.
fn growing(stored: u64) -> WindowStats {
    WindowStats {
        pool: stored * 2 / 5,
        max_pool: 12_000,
        stored,
        out: 0,
        grown: 600,
        ..seen(0, false, REAL)
    }
}

#[test]
fn a_pool_that_data_are_about_to_fill_is_made_denser_before_anything_leaves_it() {
    // 600 pages of data more are 1000 that are stored and 400 of the pool, which takes them from
    // what is resident.
    let ahead = WINDOWS_AHEAD * 1000;
    let far = 30_000 - ahead - 1000;
    assert_eq!(Rule::BEGIN.next(&growing(far)), Rule::BEGIN);
    let rule = Rule::BEGIN.next(&growing(far + 2000));
    assert_eq!(rule.phase, Phase::Sampling);
    let rule = rule.next(&growing(far + 3000));
    assert_eq!(rule.phase, Phase::Denser);
    // They do not grow any more, and would fit by lz4, too.
    let stopped = WindowStats {
        grown: 0,
        ..growing(far + 4000)
    };
    assert_eq!(rule.next(&stopped).phase, Phase::Fast);
    // They would not.
    let full = WindowStats {
        pool: 10_000,
        grown: 0,
        ..growing(36_000)
    };
    assert_eq!(rule.next(&full).phase, Phase::Denser);
}

#[test]
fn a_run_that_was_written_by_chance_does_not_hide_what_is_coming() {
    let chance = |stored| WindowStats {
        out: 100,
        ..growing(stored)
    };
    let rule = Rule::BEGIN.next(&chance(28_000)).next(&chance(28_000));
    assert_eq!(rule.phase, Phase::Denser);
    // Nor is it left as soon as the first pages do leave the pool.
    let first = WindowStats {
        device: 1,
        ..chance(29_000)
    };
    assert_eq!(rule.next(&first).phase, Phase::Denser);
}

/// Some fifty pages a window, each of which compresses to anything between nothing and twice the
/// mean.
#[test]
fn what_nearly_fits_is_not_taken_for_too_much_by_the_luck_of_one_window() {
    let seed = 0x5eed_a070_0000_0002;
    println!("seed {seed:#x}");
    let mut x = seed;
    let mut samples = Samples::default();
    for window in 0..1000 {
        for _ in 0..50 {
            samples.add(1, made(1650, 0), made(random(&mut x) % 2100, 0));
        }
        // An eighth less than what would be too much.
        let seen = WindowStats {
            stored: 5000,
            out: 2600,
            ..seen(1, false, samples)
        };
        assert!(window < 16 || seen.pays_to_recompress(), "window {window}");
        samples.fade();
    }
}

/// Any windows: the denser codec is in use after one if and only if one of the last
/// [`MAX_POOR_WINDOWS`] was worth it (where nothing is on the device: the last), and until it was
/// in use samples had been taken since something was tight. Times are added up as they would be by
/// either codec.
#[test]
fn against_a_plain_model() {
    let seed = 0x5eed_a070_0000_0001;
    println!("seed {seed:#x}");
    let mut x = seed;
    let mut went = 0;
    for _ in 0..2000 {
        let mut rule = Rule::BEGIN;
        let (mut looked, mut left) = (false, 0);
        for _ in 0..60 {
            let fast = made(1 + random(&mut x) % 30_000, random(&mut x) % 400_000);
            let dense = made(1 + random(&mut x) % 30_000, random(&mut x) % 900_000);
            let seen = WindowStats {
                pages: 1000,
                device: random(&mut x) % 3 * (random(&mut x) % 30_000_000),
                pool: random(&mut x) % 2000,
                max_pool: 2000,
                stored: random(&mut x) % 8000,
                out: random(&mut x) % 3 * (random(&mut x) % 4000),
                grown: random(&mut x) % 3 * (random(&mut x) % 100),
                full: random(&mut x).is_multiple_of(50),
                samples: Samples {
                    pages: random(&mut x) % 4 * 8,
                    fast,
                    dense,
                },
            };
            let in_use = left > 0;
            let [nr, device, stored, out] =
                [seen.samples.pages, seen.device, seen.stored, seen.out].map(|n| n as f64);
            let ratio = fast.bytes as f64 / dense.bytes as f64;
            // What is in the pool, and what the other codec's pool would hold of all there is.
            let other = if in_use {
                stored.min(2000.0 * 4096.0 * nr / fast.bytes as f64)
            } else {
                (stored * ratio).min(stored + out)
            };
            let fewer = (stored - other).abs();
            let costs = dense.ticks.saturating_sub(fast.ticks) as f64 * 1000.0 / nr.max(1.0);
            // As many as are on the device are asked for as often as those, more like what is in
            // the pool.
            let known = if out > 0.0 { device / out } else { 0.0 };
            let unknown = 1000.0 * ASSUMED_READ_TICKS as f64 / stored.max(1.0);
            let saves = known * fewer.min(out) + unknown * (fewer - out).max(0.0);
            // Where a page more or less decides, integers may differ.
            if (saves - costs).abs() < 4.0 + 2.0 * known.max(unknown) {
                continue;
            }
            let gains =
                fast.bytes >= dense.bytes && fast.bytes - dense.bytes >= fast.bytes / MIN_GAIN_PART;
            let share = seen.pool as f64 / stored;
            let more = seen.grown as f64 * WINDOWS_AHEAD as f64 * share / (1.0 - share);
            let coming = out <= (stored / 64.0).floor() && share < 1.0 && more > 0.0;
            let coming = coming && seen.pool as f64 + more > 2000.0;
            if out <= stored / 64.0
                && (share > 0.99 || (seen.pool as f64 + more - 2000.0).abs() < 2.0)
            {
                continue;
            }
            let worth = nr > 0.0 && gains && (seen.full || saves > costs || coming);
            left = match (looked || in_use) && worth {
                true if out > 0.0 => MAX_POOR_WINDOWS,
                true => 1,
                false => left.saturating_sub(1),
            };
            looked = seen.full || device > 0.0 || coming;
            rule = rule.next(&seen);
            let expected = if left > 0 {
                Phase::Denser
            } else if looked {
                Phase::Sampling
            } else {
                Phase::Fast
            };
            went += u32::from(in_use && expected != Phase::Denser);
            assert_eq!(rule.phase, expected, "{seen:?}");
        }
    }
    assert!(went > 100, "it went back {went} times");
}

/// What was counted in parts, in whole.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and far below 2^53"
)]
const fn whole(x: f64) -> u64 {
    x as u64
}

/// A program that reads its data at random, as numbers: a pool that takes so much, pages of both
/// codecs in it, what is too much on a device. Returns the time that `windows` windows took, under
/// a rule that says what each is stored with.
fn simulate(
    data: f64,
    per_access: f64,
    samples: Samples,
    windows: usize,
    mut denser: impl FnMut(&WindowStats) -> bool,
) -> f64 {
    const LIMIT: f64 = 16_000.0;
    const MAX_POOL: f64 = LIMIT * 0.75;
    let size = |made: Cost| made.bytes as f64 / 16.0 / 4096.0;
    let cost = |made: Cost| made.ticks as f64 / 16.0;
    let (fast, dense) = (samples.fast, samples.dense);
    // Pages in the pool by codec, on the device, and resident.
    let (mut by_fast, mut by_dense, mut out) = (0.0, 0.0, 0.0);
    let mut resident = LIMIT;
    let mut now = false;
    let mut time = 0.0;
    for _ in 0..windows {
        let pages = LIMIT / WINDOWS_PER_TURNOVER as f64;
        // As many come back as go, once all data are there.
        let stored = by_fast + by_dense + out;
        let back = if stored + resident < data { 0.0 } else { pages };
        let read = back * out / stored.max(1.0);
        let [f, d] = [by_fast, by_dense].map(|n| back * n / stored.max(1.0));
        (by_fast, by_dense, out) = (by_fast - f, by_dense - d, out - read);
        *(if now { &mut by_dense } else { &mut by_fast }) += pages;
        let pool = by_fast * size(fast) + by_dense * size(dense);
        let over = (pool - MAX_POOL).max(0.0) / pool;
        let written = (by_fast + by_dense) * over;
        (by_fast, by_dense, out) = (
            by_fast * (1.0 - over),
            by_dense * (1.0 - over),
            out + written,
        );
        resident = LIMIT - pool.min(MAX_POOL);
        let device = (read + written) * per_access;
        let spent = device + pages * cost(if now { dense } else { fast });
        time += spent;
        now = denser(&WindowStats {
            pages: whole(pages),
            device: whole(device),
            pool: whole(pool.min(MAX_POOL)),
            max_pool: whole(MAX_POOL),
            stored: whole(by_fast + by_dense),
            out: whole(out),
            grown: whole(pages - back),
            full: false,
            samples,
        });
    }
    time
}

#[test]
fn a_program_takes_hardly_longer_than_with_the_better_of_both() {
    let seed = 0x5eed_a070_0000_0002;
    println!("seed {seed:#x}");
    let mut x = seed;
    let mut better = [0, 0];
    let mut worst: f64 = 1.0;
    for _ in 0..300 {
        let data = 20_000.0 + (random(&mut x) % 100_000) as f64;
        let per_access = 40_000.0 + (random(&mut x) % 160_000) as f64;
        let fast = made(
            16 * (500 + random(&mut x) % 2500),
            16 * (8_000 + random(&mut x) % 10_000),
        );
        let dense = made(
            fast.bytes * (30 + random(&mut x) % 70) / 100,
            fast.ticks * (110 + random(&mut x) % 300) / 100,
        );
        let samples = Samples {
            pages: 16,
            fast,
            dense,
        };
        let run = |denser: &mut dyn FnMut(&WindowStats) -> bool| {
            simulate(data, per_access, samples, 1000, denser)
        };
        let always = [run(&mut |_| false), run(&mut |_| true)];
        let mut rule = Rule::BEGIN;
        let auto = run(&mut |seen| {
            rule = rule.next(seen);
            rule.phase == Phase::Denser
        });
        let best = always[0].min(always[1]);
        better[usize::from(always[1] < always[0])] += 1;
        worst = worst.max(auto / best);
        assert!(
            auto < best * 1.3,
            "{auto} against {always:?}: {data} {per_access} {samples:?}"
        );
    }
    println!(
        "fast was better {} times, dense {}; at worst {worst}",
        better[0], better[1]
    );
    assert!(better.iter().all(|&times| times > 30), "{better:?}");
}
