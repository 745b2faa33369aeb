use super::*;

const NR_SLOTS: u32 = 1 << 13;
const SCALE: Scale = Scale {
    nr_slots: NR_SLOTS,
    lasts: Duration::from_millis(1),
    in_use: &[75],
    fallbacks: fallbacks::Scale {
        nr_slots: NR_SLOTS,
        nr_steps: 40_000,
        in_use: &[95],
    },
};

/// Every allocator hands out each slot once, and again when it was freed.
#[test]
fn a_full_device_was_handed_out_once() {
    let memory = Shared::new(Device::memory_len(NR_SLOTS)).unwrap();
    let (ours, map, owners, kernel) = (
        Clusters::on(&memory, NR_SLOTS),
        OneLock::new(NR_SLOTS, false).unwrap(),
        OneLock::new(NR_SLOTS, true).unwrap(),
        ScanSwapMap::new(NR_SLOTS).unwrap(),
    );
    let devices: [&dyn Allocator; 4] = [&ours, &map, &owners, &kernel];
    for (device, (name, _)) in devices.into_iter().zip(SIDES) {
        for order in ORDERS {
            if order > 0 && name == "kernel" {
                continue;
            }
            let mut runs: Vec<Slots> = std::iter::from_fn(|| device.alloc(0, order)).collect();
            runs.sort_unstable_by_key(|run| run.first);
            let mut end = 0;
            for run in &runs {
                assert_eq!(run.first, end, "{name}, order {order}");
                end += u32::from(run.nr);
            }
            assert_eq!(end, NR_SLOTS, "{name}, order {order}");
            // With one hole there is one place.
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
fn all_take_part_in_what_they_can_do() {
    for (order, sides) in [(0, 4), (4, 3)] {
        let setting = Setting {
            threads: 2,
            order,
            frees: Frees::Random,
            in_use: 75,
        };
        let runs = compare(0, &setting, &SCALE).unwrap();
        assert_eq!(runs.len(), sides);
        for run in runs {
            assert_eq!(run.job, "2 threads, random, 75 % in use");
            assert!(run.values[&pairs(order)] > 0.0, "{run:?}");
            assert!(run.values.contains_key(&waiting(order)), "{run:?}");
        }
    }
}

#[test]
fn one_scan_fails_more_often_than_clusters_do() {
    let runs = no_run_found(0, &SCALE.fallbacks, &Progress::endless()).unwrap();
    let [ours, map] = &runs[..] else {
        panic!("{runs:?}");
    };
    let percent = |run: &Run| run.values["not_found"];
    assert!(percent(ours) < percent(map), "{runs:?}");
}

#[test]
fn what_is_chosen_is_all_that_is_done() {
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
