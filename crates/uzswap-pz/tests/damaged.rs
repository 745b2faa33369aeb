//! Whatever the decoder is given, it fails or fills the page, and what it fills it with depends on the object alone. Miri
//! (`cargo +nightly miri test -p uzswap-pz`) sees to it that no access is out of bounds.
#![allow(clippy::cast_possible_truncation, reason = "test data")]

use uzswap_pz::{Level, PAGE, Workspace, compress, decompress};

#[path = "../../uzswap-compress/tests/pages/mod.rs"]
mod pages;
use pages::Rng;

type Page = [u8; PAGE];

fn rounds(short: u64) -> u64 {
    match (std::env::var_os("UZSWAP_LONG").is_some(), cfg!(miri)) {
        (true, _) => short * 250,
        (false, true) => short.div_ceil(2000),
        (false, false) => short,
    }
}

/// Two decoders with different pasts.
struct Decoders {
    workspaces: [Workspace; 2],
    accepted: u64,
    refused: u64,
}

impl Decoders {
    fn new() -> Decoders {
        Decoders {
            workspaces: [Workspace::new(), Workspace::new()],
            accepted: 0,
            refused: 0,
        }
    }

    /// Decodes into pages of different contents, the second time after another object: both must come to the same.
    fn check(&mut self, object: &[u8], what: &str) {
        let mut pages: [Page; 2] = [[0; PAGE], [0xff; PAGE]];
        // Its own allocation, so that Miri and sanitizers know where it ends.
        let object: Box<[u8]> = object.into();
        let [first, second] = &mut self.workspaces;
        let results = [
            decompress(first, &object, &mut pages[0]),
            decompress(second, &object, &mut pages[1]),
        ];
        assert_eq!(results[0], results[1], "{what}: {object:02x?}");
        if results[0].is_ok() {
            assert!(pages[0] == pages[1], "{what}: {object:02x?}");
            self.accepted += 1;
        } else {
            self.refused += 1;
        }
        self.workspaces.swap(0, 1);
    }
}

/// Objects of every level and kind.
fn objects(seeds: u64) -> Vec<Vec<u8>> {
    let mut workspace = Workspace::new();
    let mut objects = Vec::new();
    let step = if cfg!(miri) { 4 } else { 1 };
    for kind in pages::KINDS.into_iter().step_by(step) {
        for seed in 1..=seeds {
            let block = pages::block(kind, PAGE, seed);
            for level in Level::ALL {
                let mut object = [0; PAGE];
                let page = block.first_chunk().expect("a page");
                if let Ok(len) = compress(&mut workspace, level, page, &mut object) {
                    objects.push(object[..len].to_vec());
                }
            }
        }
    }
    objects
}

#[test]
fn random_bytes() {
    let mut decoders = Decoders::new();
    for seed in 1..=rounds(40_000) {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let longest = [8, 16, 100, 5000][rng.below(4) as usize];
        let len = rng.below(longest) as usize;
        let object: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
        decoders.check(&object, &format!("seed {seed}"));
    }
}

/// Headers that fit the length, so that what follows them is reached.
#[test]
fn random_streams_behind_a_valid_header() {
    let mut decoders = Decoders::new();
    for seed in 1..=rounds(25_000) {
        let mut rng = Rng(seed.wrapping_mul(0xd134_2543_de82_ef95) | 1);
        let mut object = vec![0; 8];
        let mut words = [0x1000_u16; 4];
        let mut coded = false;
        for (stream, word) in words.iter_mut().enumerate().skip(1) {
            let most = [1500, 60, 4096][stream - 1] / [1, 8][rng.below(2) as usize];
            let count = rng.below(most);
            let code = rng.below(11) * rng.below(2);
            *word = (code << 12 | count) as u16;
            coded |= code != 0;
            // Bytes that are small more often than not keep distances inside the page.
            let mask = [0xff, 0x07, 0x3f][rng.below(3) as usize];
            if code == 0 {
                object.extend((0..count).map(|_| rng.next() as u8 & mask));
            }
        }
        if coded {
            let len = rng.below(1500);
            words[0] |= rng.below(len + 2) as u16;
            object.extend((0..len).map(|_| rng.next() as u8));
        }
        for (to, word) in object.chunks_mut(2).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        decoders.check(&object, &format!("seed {seed}"));
    }
}

#[test]
fn every_truncation() {
    let mut decoders = Decoders::new();
    let step = if cfg!(miri) { 1009 } else { 1 };
    for object in objects(2) {
        for len in (0..object.len()).step_by(step) {
            decoders.check(&object[..len], "truncated");
        }
        let mut longer = object.clone();
        longer.push(0);
        decoders.check(&longer, "with a byte more");
    }
    // Plain objects have all lengths in their header; coded symbols may by chance end at the right byte.
    println!(
        "{} truncated objects noticed, {} not",
        decoders.refused, decoders.accepted
    );
    assert!(decoders.accepted * 50 < decoders.refused);
}

#[test]
fn bit_flips() {
    let mut decoders = Decoders::new();
    let step = if cfg!(miri) { 7001 } else { 3 };
    for object in objects(1) {
        for bit in (0..object.len() * 8).step_by(step) {
            let mut object = object.clone();
            object[bit / 8] ^= 1 << (bit % 8);
            decoders.check(&object, &format!("bit {bit} flipped"));
        }
    }
    println!(
        "{} of {} flips noticed",
        decoders.refused,
        decoders.refused + decoders.accepted
    );
    assert!(decoders.refused > 0 && decoders.accepted > 0);
}

#[test]
fn many_damages_at_once() {
    let mut decoders = Decoders::new();
    let objects = objects(if cfg!(miri) { 1 } else { 5 });
    for seed in 1..=rounds(40_000) {
        let mut rng = Rng(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
        let mut object = objects[rng.below(objects.len() as u64) as usize].clone();
        for _ in 0..=rng.below(4) {
            let at = rng.below(object.len() as u64) as usize;
            // Headers more often than their length deserves.
            let at = if rng.below(4) == 0 { at % 8 } else { at };
            object[at] = [rng.next() as u8, 0, 0xff][rng.below(3) as usize];
        }
        decoders.check(&object, &format!("seed {seed}"));
    }
}
