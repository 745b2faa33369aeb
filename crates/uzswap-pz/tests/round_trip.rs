//! What is compressed comes back the same, at every level, or is refused as poor: never anything else.
#![allow(clippy::cast_possible_truncation, reason = "test data")]

use uzswap_pz::{Level, PAGE, Poor, Workspace, compress, decompress};

#[path = "../../uzswap-compress/tests/pages/mod.rs"]
mod pages;
use pages::Rng;

type Page = [u8; PAGE];

fn rounds(short: u64) -> u64 {
    match (std::env::var_os("UZSWAP_LONG").is_some(), cfg!(miri)) {
        (true, _) => short * 200,
        (false, true) => 1,
        (false, false) => short,
    }
}

/// Compresses at every level; returns the lengths, `None` where it was poor.
fn check(workspace: &mut Workspace, page: &Page, what: &str) -> Vec<Option<usize>> {
    let levels = Level::ALL.into_iter();
    let lens = levels.map(|level| {
        let mut object = [0xa5; PAGE];
        let len = compress(workspace, level, page, &mut object).ok()?;
        let mut back = [0x5a; PAGE];
        assert_eq!(
            decompress(workspace, &object[..len], &mut back),
            Ok(()),
            "{what} {level:?}"
        );
        assert!(back == *page, "{what} {level:?} came back different");
        // It fits where it just fits, and not where it does not.
        let mut tight = [0; PAGE];
        assert_eq!(
            compress(workspace, level, page, &mut tight[..len]),
            Ok(len),
            "{what}"
        );
        assert_eq!(tight[..len], object[..len], "{what} is not the same again");
        assert_eq!(
            compress(workspace, level, page, &mut tight[..len - 1]),
            Err(Poor),
            "{what}"
        );
        Some(len)
    });
    lens.collect()
}

#[test]
fn pages_of_every_kind_come_back() {
    let mut workspace = Workspace::new();
    for kind in pages::KINDS {
        for seed in 1..=rounds(60) {
            let block = pages::block(kind, PAGE, seed);
            let page = block.first_chunk().expect("a page");
            check(&mut workspace, page, &format!("{kind}, seed {seed}"));
        }
    }
}

/// A page as a decoder would make it: literals and copies with lengths and distances of all sizes, those where the
/// format changes its way of writing them most often.
fn page_of_copies(rng: &mut Rng) -> Page {
    let mut page = [0; PAGE];
    let alphabet = [1, 2, 16, 256][rng.below(4) as usize];
    let mut at = 0;
    let mut distance = 1;
    let length = |rng: &mut Rng| match rng.below(8) {
        0 => rng.below(600),
        1 => 250 + rng.below(30),
        2 => 14 + rng.below(8),
        _ => rng.below(9),
    } as usize;
    while at < PAGE {
        let nr = length(rng).min(PAGE - at);
        for byte in &mut page[at..at + nr] {
            *byte = rng.below(alphabet) as u8;
        }
        at += nr;
        if at == 0 {
            continue;
        }
        let from = match rng.below(6) {
            0 => distance,
            1 => 8 * (1 + rng.below(300) as usize),
            2 => 1 + rng.below(20) as usize,
            3 => at,
            _ => 1 + rng.below(4095) as usize,
        };
        distance = from.min(at);
        let end = PAGE.min(at + length(rng));
        for to in at..end {
            page[to] = page[to - distance];
        }
        at = end;
    }
    page
}

#[test]
fn literals_and_matches_of_all_lengths_come_back() {
    let mut workspace = Workspace::new();
    let mut poor = 0;
    let nr = rounds(4000);
    for seed in 1..=nr {
        let page = page_of_copies(&mut Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
        let lens = check(&mut workspace, &page, &format!("copies, seed {seed}"));
        poor += u64::from(lens.contains(&None));
    }
    assert!(poor < nr / 2, "{poor} of {nr} pages were poor");
}

#[test]
fn a_single_difference_anywhere_is_kept() {
    let mut workspace = Workspace::new();
    let step = if cfg!(miri) { 2047 } else { 1 };
    for at in (0..PAGE).step_by(step) {
        let mut page = [0; PAGE];
        page[at] = 1;
        let lens = check(&mut workspace, &page, &format!("one byte at {at}"));
        assert!(
            lens.iter().all(|len| len.is_some_and(|len| len < 32)),
            "{lens:?}"
        );
    }
}

#[test]
fn a_match_may_have_any_length_and_end_anywhere() {
    let mut workspace = Workspace::new();
    let mut rng = Rng(77);
    let noise: Page = std::array::from_fn(|_| rng.next() as u8);
    let step = if cfg!(miri) { 1023 } else { 3 };
    for len in (0..PAGE / 2).step_by(step) {
        let mut page = noise;
        page.copy_within(..len, PAGE - len);
        check(
            &mut workspace,
            &page,
            &format!("the first {len} again at the end"),
        );
        let mut page = noise;
        page.copy_within(..len, PAGE / 2);
        check(
            &mut workspace,
            &page,
            &format!("the first {len} again in the middle"),
        );
    }
}

#[test]
fn noise_is_poor() {
    let mut workspace = Workspace::new();
    for seed in 1..=rounds(200) {
        let block = pages::block("random", PAGE, seed);
        let page = block.first_chunk().expect("a page");
        for level in Level::ALL {
            for room in [0, 7, 8, 9, 3264, PAGE] {
                assert_eq!(
                    compress(&mut workspace, level, page, &mut [0; PAGE][..room]),
                    Err(Poor),
                    "seed {seed}, {level:?}, {room} bytes"
                );
            }
        }
    }
}

#[test]
fn entropy_coding_pays() {
    let mut workspace = Workspace::new();
    for kind in ["records", "text", "usemem", "sparse"] {
        let block = pages::block(kind, PAGE, 1);
        let page = block.first_chunk().expect("a page");
        let lens = check(&mut workspace, page, kind);
        assert!(lens.iter().all(Option::is_some), "{kind}: {lens:?}");
        assert!(lens[2] < lens[0], "{kind}: {lens:?}");
    }
    // Letters without any repetition worth a token: only codes make them smaller.
    let mut rng = Rng(5);
    let mut letters: Page = std::array::from_fn(|_| b"etaoinshrdlucmfw"[rng.below(16) as usize]);
    letters.copy_within(..16, 100);
    let lens = check(&mut workspace, &letters, "letters");
    assert!(lens[1].is_some_and(|len| len < PAGE * 4 / 5), "{lens:?}");
    assert_eq!(lens[0], None);
}

#[test]
fn nothing_is_left_in_a_workspace() {
    let mut used = Workspace::new();
    for seed in 1..=rounds(100) {
        let kind = pages::KINDS[seed as usize % pages::KINDS.len()];
        let block = pages::block(kind, PAGE, seed);
        let page = block.first_chunk().expect("a page");
        for level in Level::ALL {
            let (mut a, mut b) = ([0; PAGE], [0; PAGE]);
            let mut fresh = Workspace::new();
            let lens = [
                compress(&mut used, level, page, &mut a),
                compress(&mut fresh, level, page, &mut b),
            ];
            assert_eq!(lens[0], lens[1], "{kind}, seed {seed}");
            let len = lens[0].unwrap_or(0);
            assert_eq!(a[..len], b[..len], "{kind}, seed {seed}");
        }
    }
}
