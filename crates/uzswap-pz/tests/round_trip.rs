//! At every level a block comes back the same, or is refused as poor.
#![allow(clippy::cast_possible_truncation, reason = "test data")]

use uzswap_pz::{
    BlockWorkspace, Corrupt, Level, MAX_BLOCK, Memory, PAGE, Poor, Workspace, compress, decompress,
};

#[path = "../../uzswap-compress/tests/pages/mod.rs"]
mod pages;
use pages::Rng;

type Page = [u8; PAGE];

/// Lengths of blocks: the shortest, the longest, those that the engine stores, and one that is not
/// whole pages.
const BLOCKS: [usize; 5] = [PAGE + 1, 16 << 10, MAX_BLOCK, 3 * PAGE, 40_000];

fn rounds(short: u64) -> u64 {
    match (std::env::var_os("UZSWAP_LONG").is_some(), cfg!(miri)) {
        (true, _) => short * 200,
        (false, true) => 1,
        (false, false) => short,
    }
}

/// Compresses at every level; returns the lengths, `None` where it was poor.
fn check<const PAGES: usize, const HASHES: usize>(
    workspace: &mut Memory<PAGES, HASHES>,
    block: &[u8],
    what: &str,
) -> Vec<Option<usize>> {
    let levels = Level::ALL.into_iter();
    let lens = levels.map(|level| {
        let mut object = vec![0xa5; block.len()];
        let len = compress(workspace, level, block, &mut object).ok()?;
        let mut back = vec![0x5a; block.len()];
        assert_eq!(
            decompress(workspace, &object[..len], &mut back),
            Ok(()),
            "{what} {level:?}"
        );
        assert!(back == block, "{what} {level:?} came back different");
        // It fits where it just fits, and not where it does not.
        let mut tight = vec![0; block.len()];
        assert_eq!(
            compress(workspace, level, block, &mut tight[..len]),
            Ok(len),
            "{what}"
        );
        assert_eq!(tight[..len], object[..len], "{what} is not the same again");
        assert_eq!(
            compress(workspace, level, block, &mut tight[..len - 1]),
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
            check(&mut workspace, &block, &format!("{kind}, seed {seed}"));
        }
    }
}

#[test]
fn blocks_of_every_kind_and_length_come_back() {
    let mut workspace = Box::new(BlockWorkspace::new());
    for kind in pages::KINDS {
        for (seed, len) in (1..=rounds(10)).zip(BLOCKS.into_iter().cycle()) {
            let block = pages::block(kind, len.next_multiple_of(PAGE), seed);
            let what = format!("{kind}, {len} bytes, seed {seed}");
            check(&mut *workspace, &block[..len], &what);
        }
    }
}

#[test]
fn each_length_has_its_workspace() {
    let (mut for_pages, mut for_blocks) = (Workspace::new(), Box::new(BlockWorkspace::new()));
    let (mut object, mut back) = ([0; 1000], vec![0; MAX_BLOCK + 1]);
    let zeros = vec![0; MAX_BLOCK + 1];
    for len in [0, 1, PAGE - 1, PAGE + 1, MAX_BLOCK] {
        let made = compress(&mut for_pages, Level::Fast, &zeros[..len], &mut object);
        assert_eq!(made, Err(Poor), "{len} bytes are no page");
    }
    for len in [0, 1, PAGE, MAX_BLOCK + 1] {
        let made = compress(&mut *for_blocks, Level::Fast, &zeros[..len], &mut object);
        assert_eq!(made, Err(Poor), "{len} bytes are no block");
    }
    let len = compress(&mut for_pages, Level::Fast, &zeros[..PAGE], &mut object).expect("zeros");
    let page = object[..len].to_vec();
    for len in [0, PAGE - 1, PAGE + 1, MAX_BLOCK] {
        assert_eq!(
            decompress(&mut for_pages, &page, &mut back[..len]),
            Err(Corrupt)
        );
    }
    let len = compress(
        &mut *for_blocks,
        Level::Fast,
        &zeros[..2 * PAGE],
        &mut object,
    )
    .expect("zeros");
    for wrong in [0, PAGE, 2 * PAGE - 1, 2 * PAGE + 1, MAX_BLOCK + 1] {
        let got = decompress(&mut *for_blocks, &object[..len], &mut back[..wrong]);
        assert_eq!(got, Err(Corrupt), "{wrong} bytes");
    }
    let got = decompress(&mut *for_blocks, &page, &mut back[..2 * PAGE]);
    assert_eq!(got, Err(Corrupt), "a page's object is none of a block");
}

/// A block of literals and copies of all lengths and distances, mostly those near the limits of the
/// format's fields.
fn copies(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut page = vec![0; len];
    let alphabet = [1, 2, 16, 256][rng.below(4) as usize];
    let mut at = 0;
    let mut distance = 1;
    let length = |rng: &mut Rng| match rng.below(8) {
        0 => rng.below(600),
        1 => 250 + rng.below(30),
        2 => 14 + rng.below(8),
        _ => rng.below(9),
    } as usize;
    while at < len {
        let nr = length(rng).min(len - at);
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
            _ => 1 + rng.below(len as u64 - 1) as usize,
        };
        distance = from.min(at);
        let end = len.min(at + length(rng));
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
        let page = copies(&mut Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), PAGE);
        let lens = check(&mut workspace, &page, &format!("copies, seed {seed}"));
        poor += u64::from(lens.contains(&None));
    }
    assert!(poor <= nr / 2, "{poor} of {nr} pages were poor");
    let mut workspace = Box::new(BlockWorkspace::new());
    for (seed, len) in (1..=rounds(150)).zip(BLOCKS.into_iter().cycle()) {
        let block = copies(&mut Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), len);
        check(
            &mut *workspace,
            &block,
            &format!("copies, {len} bytes, seed {seed}"),
        );
    }
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
    let mut blocks = Box::new(BlockWorkspace::new());
    let far: Vec<u8> = (0..MAX_BLOCK).map(|_| rng.next() as u8).collect();
    let lens = [4, 5, 17, 18, 19, 272, 273, 274, 20_000, MAX_BLOCK / 2];
    for len in lens.into_iter().step_by(if cfg!(miri) { 10 } else { 1 }) {
        let mut block = far.clone();
        block.copy_within(..len, MAX_BLOCK - len);
        check(
            &mut *blocks,
            &block,
            &format!("the first {len} again at the end of a block"),
        );
    }
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
        for level in Level::ALL {
            for room in [0, 7, 8, 9, 3264, PAGE] {
                assert_eq!(
                    compress(&mut workspace, level, &block, &mut [0; PAGE][..room]),
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
        let lens = check(&mut workspace, &block, kind);
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
        for level in Level::ALL {
            let (mut a, mut b) = ([0; PAGE], [0; PAGE]);
            let mut fresh = Workspace::new();
            let lens = [
                compress(&mut used, level, &block, &mut a),
                compress(&mut fresh, level, &block, &mut b),
            ];
            assert_eq!(lens[0], lens[1], "{kind}, seed {seed}");
            let len = lens[0].unwrap_or(0);
            assert_eq!(a[..len], b[..len], "{kind}, seed {seed}");
        }
    }
}

#[test]
fn an_estimate_tells_ways_of_writing_apart() {
    let mut workspace = Box::new(BlockWorkspace::new());
    let mut rng = Rng(11);
    let words = |word: &mut dyn FnMut(u64) -> u64| -> Vec<u8> {
        (0..128).flat_map(|i| word(i).to_le_bytes()).collect()
    };
    let repeated = workspace.estimate(&words(&mut |_| 7));
    let counted = workspace.estimate(&words(&mut |i| 0x7f00_0000_0000 + 513 * i));
    let noise = words(&mut |_| rng.next());
    let noisy = workspace.estimate(&noise);
    assert!(
        repeated < 20 && repeated < counted && counted < noisy,
        "{repeated} {counted} {noisy}"
    );
    for len in [0, 1, 15, 16, 17, 1000] {
        assert!(workspace.estimate(&noise[..len]) <= len + 1, "{len} bytes");
    }
}
