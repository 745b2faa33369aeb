//! Stories of the region map, and random operations against a page array.

use super::*;

const BASE: usize = 0x1000_0000_0000;
const FOLIO: usize = 64 << 10;
const RW: Flags = Flags::READ.with(Flags::WRITE);

fn map_of(len: usize, capacity: usize) -> RegionMap {
    let memory = Box::leak(vec![0u32; capacity * ENTRY_LEN / 4].into_boxed_slice());
    let map = RegionMap::new();
    // SAFETY: the memory is leaked and known to this map alone.
    unsafe { map.init(BASE, len, FOLIO, memory.as_mut_ptr().cast(), capacity) };
    map
}

fn regions(map: &RegionMap) -> Vec<(usize, usize, Flags)> {
    let mut all = Vec::new();
    map.for_each_in(0, usize::MAX, |r| {
        all.push((r.start - BASE, r.end - BASE, r.flags));
    });
    all
}

#[test]
fn a_map_that_was_never_initialised_has_nothing() {
    let map = RegionMap::new();
    assert_eq!(map.lookup(BASE), None);
    assert_eq!(map.reserve(4096, 0, RW), Err(RegionError::NoSpace));
    assert_eq!(map.begin_unmap(BASE, 4096), Ok(None));
    assert_eq!(map.first_hole(BASE, 4096), Some(BASE));
}

#[test]
fn neighbours_become_one_region_and_split_again() {
    let map = map_of(1 << 30, 16);
    let a = map.reserve(FOLIO, 0, RW).unwrap();
    let b = map.reserve(FOLIO, 0, RW).unwrap();
    assert_eq!((a, b), (BASE, BASE + FOLIO));
    assert_eq!(map.nr_regions(), 1);
    map.set_prot(a + 4096, 4096, 1).unwrap();
    assert_eq!(map.nr_regions(), 3);
    assert_eq!(map.lookup(a + 4096).unwrap().flags, Flags::READ);
    assert_eq!(map.lookup(a + 8191).unwrap().end, a + 8192);
    assert_eq!(map.lookup(a + 8192).unwrap().flags, RW);
    map.set_prot(a, FOLIO, 3).unwrap();
    assert_eq!(regions(&map), [(0, 2 * FOLIO, RW)]);
}

#[test]
fn a_dying_range_is_gone_for_lookups_but_not_reused() {
    let map = map_of(4 * FOLIO, 16);
    let a = map.reserve(4 * FOLIO, 0, RW).unwrap();
    let dying = map.begin_unmap(a + FOLIO, FOLIO).unwrap().unwrap();
    assert_eq!((dying.start, dying.len()), (a + FOLIO, FOLIO));
    assert_eq!(dying.flags, RW);
    // Whoever else unmaps the same range gets none of it.
    assert_eq!(map.begin_unmap(a + FOLIO, FOLIO), Ok(None));
    assert_eq!(map.lookup(a + FOLIO), None);
    assert_eq!(map.first_hole(a, 4 * FOLIO), Some(a + FOLIO));
    assert_eq!(map.reserve(4096, 0, RW), Err(RegionError::NoSpace));
    assert_eq!(
        map.insert_free(a + FOLIO, 4096, RW),
        Err(RegionError::Taken)
    );
    map.finish_unmap(dying.start, dying.len());
    assert_eq!(map.reserve(4096, 0, RW), Ok(a + FOLIO));
}

#[test]
fn finishing_an_unmap_leaves_a_new_mapping_alone() {
    let map = map_of(1 << 20, 16);
    let a = map.reserve(4 * FOLIO, 0, RW).unwrap();
    let dying = map.begin_unmap(a, 4 * FOLIO).unwrap().unwrap();
    map.insert_fixed(a + FOLIO, FOLIO, Flags::READ).unwrap();
    map.finish_unmap(dying.start, dying.len());
    assert_eq!(regions(&map), [(FOLIO, 2 * FOLIO, Flags::READ)]);
}

#[test]
fn a_hole_is_not_mapped_and_is_mended_before_it_is_given_away() {
    let map = map_of(4 * FOLIO, 16);
    let a = map.reserve(2 * FOLIO, 0, RW).unwrap();
    let (hole, page) = (a + 2 * FOLIO, PAGE_SIZE);
    map.insert_free(hole, page, Flags::HOLE).unwrap();
    assert_eq!(map.lookup(hole), None);
    assert_eq!(regions(&map), [(0, 2 * FOLIO, RW)]);
    assert_eq!(map.first_hole(a, 4 * FOLIO), Some(hole));
    assert_eq!(map.next_other(a, 4 * FOLIO).unwrap().start, hole);
    map.set_prot(a, 4 * FOLIO, 1).unwrap();
    assert_eq!(map.insert_free(hole, FOLIO, RW), Err(RegionError::Taken));
    assert_eq!(map.insert_emptied(hole, FOLIO, RW), Err(RegionError::Taken));
    let begun = map.begin_mend(a, 4 * FOLIO).unwrap().unwrap();
    assert_eq!((begun.start, begun.len()), (hole, page));
    assert_eq!(begun.flags, Flags::HOLE);
    assert_eq!(map.begin_mend(a, 4 * FOLIO), Ok(None));
    assert_eq!(map.insert_emptied(hole, FOLIO, RW), Ok(()));
    assert_eq!(map.lookup(hole).unwrap().end, hole + FOLIO);
    // Who unmaps mends, too.
    map.insert_free(hole + FOLIO, page, Flags::HOLE).unwrap();
    let part = map.begin_unmap(hole + FOLIO, FOLIO).unwrap().unwrap();
    assert_eq!(part.flags, Flags::HOLE);
    map.finish_unmap(part.start, part.len());
    assert_eq!(map.insert_free(hole + FOLIO, FOLIO, RW), Ok(()));
}

#[test]
fn large_requests_are_aligned_for_allocators() {
    let map = map_of(1 << 30, 16);
    map.reserve(4096, 0, RW).unwrap();
    assert_eq!(map.reserve(LARGE_ALIGN, 0, RW), Ok(BASE + LARGE_ALIGN));
    assert_eq!(map.reserve(4096, 1 << 20, RW), Ok(BASE + (1 << 20)));
    // The gap in front is still found.
    assert_eq!(map.reserve(4096, 0, RW), Ok(BASE + FOLIO));
}

#[test]
fn a_full_table_refuses_and_changes_nothing() {
    let map = map_of(1 << 30, 2);
    let a = map.reserve(FOLIO, 0, RW).unwrap();
    assert_eq!(map.set_prot(a + 4096, 4096, 0), Err(RegionError::TableFull));
    assert_eq!(map.begin_unmap(a + 4096, 4096), Err(RegionError::TableFull));
    assert_eq!(regions(&map), [(0, FOLIO, RW)]);
    assert!(map.begin_unmap(a, 4096).unwrap().is_some());
    map.finish_unmap(a, 4096);
    assert_eq!(regions(&map), [(4096, FOLIO, RW)]);
}

/// What the map should say, one cell a page.
struct Model {
    pages: Vec<Option<Flags>>,
}

impl Model {
    fn range(&mut self, at: usize, nr: usize) -> &mut [Option<Flags>] {
        &mut self.pages[at..at + nr]
    }

    fn lowest_gap(&self, nr: usize, align: usize) -> Option<usize> {
        (0..self.pages.len()).step_by(align).find(|&s| {
            s + nr <= self.pages.len() && self.pages[s..s + nr].iter().all(Option::is_none)
        })
    }

    fn live(&self) -> Vec<(usize, usize, Flags)> {
        let mut all: Vec<(usize, usize, Flags)> = Vec::new();
        for (i, page) in self.pages.iter().enumerate() {
            let Some(flags) = page.filter(|f| !f.contains(Flags::DYING)) else {
                continue;
            };
            match all.last_mut() {
                Some(last) if last.1 == i * PAGE_SIZE && last.2 == flags => last.1 += PAGE_SIZE,
                _ => all.push((i * PAGE_SIZE, (i + 1) * PAGE_SIZE, flags)),
            }
        }
        all
    }
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

#[test]
fn random_operations_agree_with_a_page_array() {
    let clock = std::time::SystemTime::now();
    let seed = clock
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |d| d.as_nanos() as u64 | 1);
    println!("seed {seed}");
    let mut rng = Rng(seed);
    for round in 0..if cfg!(miri) { 2 } else { 60 } {
        // From arenas that are nearly always full to ones that rarely are.
        let nr = [64, 256, 1024][round % 3];
        let map = map_of(nr * PAGE_SIZE, nr + 2);
        let mut model = Model {
            pages: vec![None; nr],
        };
        for _ in 0..if cfg!(miri) { 60 } else { 400 } {
            one_operation(&mut rng, &map, &mut model, nr);
            assert_eq!(regions(&map), model.live());
        }
    }
}

fn one_operation(rng: &mut Rng, map: &RegionMap, model: &mut Model, nr: usize) {
    let at = rng.below(nr);
    let most = 1 + rng.below(40);
    let n = 1 + rng.below((nr - at).min(most));
    let (addr, len) = (BASE + at * PAGE_SIZE, n * PAGE_SIZE);
    let flags = Flags::from_prot(rng.below(4) as u32);
    match rng.below(10) {
        0..3 => {
            let align = FOLIO << rng.below(3);
            let want = model.lowest_gap(n, align / PAGE_SIZE);
            let got = map.reserve(len, align, flags);
            assert_eq!(got.ok(), want.map(|s| BASE + s * PAGE_SIZE));
            if let Some(s) = want {
                model.range(s, n).fill(Some(flags));
            }
        }
        3 => {
            map.insert_fixed(addr, len, flags).unwrap();
            model.range(at, n).fill(Some(flags));
        }
        4 => {
            let free = model.range(at, n).iter().all(Option::is_none);
            assert_eq!(map.insert_free(addr, len, flags).is_ok(), free);
            if free {
                model.range(at, n).fill(Some(flags));
            }
        }
        5 => {
            map.set_prot(addr, len, flags.prot()).unwrap();
            for page in model.range(at, n).iter_mut().flatten() {
                if !page.contains(Flags::DYING) {
                    *page = page.without(Flags::PROT).with(flags);
                }
            }
        }
        6 => {
            // Left dying for later operations to stumble over.
            while map.begin_unmap(addr, len).unwrap().is_some() {}
            for page in model.range(at, n).iter_mut().flatten() {
                *page = page.with(Flags::DYING);
            }
        }
        _ => {
            let part = rng.below(2) == 0;
            while map.begin_unmap(addr, len).unwrap().is_some() {}
            for page in model.range(at, n).iter_mut().flatten() {
                *page = page.with(Flags::DYING);
            }
            let (at, n) = if part { (at, n) } else { (0, nr) };
            map.finish_unmap(BASE + at * PAGE_SIZE, n * PAGE_SIZE);
            for page in model.range(at, n) {
                *page = page.filter(|f| !f.contains(Flags::DYING));
            }
        }
    }
    let probe = rng.below(nr);
    let live = model.pages[probe].filter(|f| !f.contains(Flags::DYING));
    let found = map.lookup(BASE + probe * PAGE_SIZE);
    assert_eq!(found.map(|r| r.flags), live);
    let hole = (at..at + n).find(|&i| model.pages[i].is_none_or(|f| f.contains(Flags::DYING)));
    assert_eq!(
        map.first_hole(addr, len),
        hole.map(|i| BASE + i * PAGE_SIZE)
    );
}

#[test]
fn thousands_of_regions_stay_quick() {
    let nr = if cfg!(miri) { 50 } else { 20_000 };
    let map = map_of(8 << 30, 2 * nr);
    for i in 0..nr {
        let addr = map
            .reserve(FOLIO, 0, Flags::from_prot(i as u32 & 1))
            .unwrap();
        assert_eq!(addr, BASE + i * FOLIO);
    }
    assert_eq!(map.nr_regions(), nr);
    for i in (0..nr).step_by(2) {
        let addr = BASE + i * FOLIO;
        map.begin_unmap(addr, FOLIO).unwrap().unwrap();
        map.finish_unmap(addr, FOLIO);
    }
    for i in (0..nr).step_by(2) {
        assert_eq!(map.reserve(4096, 0, RW), Ok(BASE + i * FOLIO));
    }
}
