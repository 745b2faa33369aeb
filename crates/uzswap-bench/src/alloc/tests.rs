use uzswap_corpus::progress::Progress;

use super::*;
use crate::compare::Outcome;

const NR_SLOTS: u32 = 1 << 13;
const SCALE: Scale = Scale {
    nr_slots: NR_SLOTS,
    duration: Duration::from_millis(1),
    in_use: &[75],
    fallbacks: fallbacks::Scale {
        nr_slots: NR_SLOTS,
        nr_steps: 40_000,
        in_use: &[95],
    },
};

/// Every allocator hands out each slot once, and again after it was freed.
#[test]
fn a_full_device_was_handed_out_once() {
    let memory = Shared::new(Device::memory_len(NR_SLOTS)).unwrap();
    let ours = Clusters::on(&memory, NR_SLOTS);
    let [map, owners] = [false, true].map(|owners| OneLock::new(NR_SLOTS, owners).unwrap());
    let devices: [&dyn Allocator; SIDES.len()] = [&ours, &map, &owners];
    for (device, (name, _)) in devices.into_iter().zip(SIDES) {
        for order in ORDERS {
            let mut runs: Vec<Slots> = std::iter::from_fn(|| device.alloc(0, order)).collect();
            runs.sort_unstable_by_key(|run| run.first);
            let mut end = 0;
            for run in &runs {
                assert_eq!(run.first, end, "{name}, order {order}");
                end += u32::from(run.nr);
            }
            assert_eq!(end, NR_SLOTS, "{name}, order {order}");
            // One hole is the only place.
            let hole = runs[runs.len() / 2].first;
            device.put(Slots {
                first: hole,
                nr: 1 << order,
            });
            assert_eq!(device.alloc(0, order).unwrap().first, hole, "{name}");
            assert!(device.alloc(0, order).is_none(), "{name}");
            runs.into_iter().for_each(|run| device.put(run));
        }
    }
}

#[test]
fn every_allocator_takes_part() {
    for order in [0, 4] {
        let setting = Setting {
            threads: 2,
            order,
            frees: Frees::Random,
            in_use: 75,
        };
        let progress = Progress::endless();
        let mut round = CurrentRound::new(0, &progress);
        compare(&mut round, &setting, &SCALE).unwrap();
        assert_eq!(round.outcomes().len(), SIDES.len());
        for run in round.outcomes() {
            assert_eq!(run.job, "2 threads, random, 75 % in use");
            assert!(run.values[&pairs(order)] > 0.0, "{run:?}");
            assert!(run.values.contains_key(&waiting(order)), "{run:?}");
        }
    }
}

#[test]
fn one_scan_fails_more_often_than_clusters_do() {
    let progress = Progress::endless();
    let mut round = CurrentRound::new(0, &progress);
    measure_fallbacks(&mut round, &SCALE.fallbacks).unwrap();
    let [ours, map] = round.outcomes() else {
        panic!("{:?}", round.outcomes());
    };
    let percent = |outcome: &Outcome| outcome.values["not_found"];
    assert!(percent(ours) < percent(map), "{ours:?} {map:?}");
}

#[test]
fn only_what_is_chosen_is_measured() {
    let all = Wanted::default();
    assert!(all.fallbacks());
    assert_eq!(all.settings(&FULL).len(), 4 * 4 * 2 * 3);
    let one = Wanted {
        threads: vec![3],
        orders: vec![4],
        frees: vec!["oldest".parse().unwrap()],
        in_use: vec![50],
        fallbacks: false,
    };
    assert!(!one.fallbacks());
    assert_eq!(one.settings(&FULL).len(), 1);
    let fallbacks = Wanted {
        fallbacks: true,
        ..Wanted::default()
    };
    assert!(fallbacks.fallbacks() && fallbacks.settings(&FULL).is_empty());
    assert!("newest".parse::<Frees>().is_err());
}
