//! Given any bytes, the decoder fails or fills the block, with contents that depend on the object
//! alone. Miri (`cargo +nightly miri test -p uzswap-pz`) checks that no access is out of bounds.
#![allow(clippy::cast_possible_truncation, reason = "test data")]

use uzswap_pz::{BlockWorkspace, Level, MAX_BLOCK, Memory, PAGE, Workspace, compress, decompress};

#[path = "../../uzswap-compress/tests/pages/mod.rs"]
mod pages;
use pages::Rng;

fn rounds(short: u64) -> u64 {
    match (std::env::var_os("UZSWAP_LONG").is_some(), cfg!(miri)) {
        (true, _) => short * 250,
        (false, true) => short.div_ceil(4000),
        (false, false) => short,
    }
}

/// Two workspaces with different pasts, for blocks of `len` bytes.
struct Decoders<const PAGES: usize, const HASHES: usize> {
    workspaces: [Box<Memory<PAGES, HASHES>>; 2],
    len: usize,
    accepted: u64,
    refused: u64,
}

fn of_pages() -> Decoders<1, 2048> {
    Decoders::new(Workspace::new, PAGE)
}

fn of_blocks(len: usize) -> Decoders<16, 8192> {
    Decoders::new(BlockWorkspace::new, len)
}

impl<const PAGES: usize, const HASHES: usize> Decoders<PAGES, HASHES> {
    fn new(workspace: fn() -> Memory<PAGES, HASHES>, len: usize) -> Self {
        Decoders {
            workspaces: [Box::new(workspace()), Box::new(workspace())],
            len,
            accepted: 0,
            refused: 0,
        }
    }

    /// Decodes into blocks of different contents, by workspaces with different pasts: the results
    /// are equal.
    fn check(&mut self, object: &[u8], what: &str) {
        let mut blocks = [vec![0; self.len], vec![0xff; self.len]];
        // Its own allocation, so that Miri and sanitizers know where it ends.
        let object: Box<[u8]> = object.into();
        let [first, second] = &mut self.workspaces;
        let results = [
            decompress(first, &object, &mut blocks[0]),
            decompress(second, &object, &mut blocks[1]),
        ];
        assert_eq!(results[0], results[1], "{what}: {object:02x?}");
        if results[0].is_ok() {
            assert!(blocks[0] == blocks[1], "{what}: {object:02x?}");
            self.accepted += 1;
        } else {
            self.refused += 1;
        }
        self.workspaces.swap(0, 1);
    }

    /// Objects of every level and kind.
    fn objects(&mut self, seeds: u64) -> Vec<Vec<u8>> {
        let mut objects = Vec::new();
        let step = if cfg!(miri) { 8 } else { 1 };
        for kind in pages::KINDS.into_iter().step_by(step) {
            for seed in 1..=seeds {
                let block = pages::block(kind, self.len, seed);
                for level in Level::ALL {
                    let mut object = vec![0; self.len];
                    let workspace = &mut self.workspaces[0];
                    if let Ok(len) = compress(workspace, level, &block, &mut object) {
                        objects.push(object[..len].to_vec());
                    }
                }
            }
        }
        objects
    }
}

#[test]
fn random_bytes() {
    fn try_all<const P: usize, const H: usize>(mut decoders: Decoders<P, H>, nr: u64) {
        for seed in 1..=nr {
            let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let longest = [8, 16, 100, 5000][rng.below(4) as usize];
            let len = rng.below(longest) as usize;
            let object: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
            decoders.check(&object, &format!("seed {seed}"));
        }
    }
    try_all(of_pages(), rounds(40_000));
    try_all(of_blocks(2 * PAGE), rounds(10_000));
}

/// Headers that fit the length, so that what follows them is reached.
#[test]
fn random_streams_behind_a_valid_header() {
    fn try_all<const P: usize, const H: usize>(mut decoders: Decoders<P, H>, nr: u64) {
        for seed in 1..=nr {
            let mut rng = Rng(seed.wrapping_mul(0xd134_2543_de82_ef95) | 1);
            let mut object = Vec::new();
            let (mut nibbles, mut numbers) =
                ([if P == 1 { 1_u16 } else { 2 }, 0, 0, 0], [0_u16; 4]);
            for stream in 1..4 {
                let most = [1500, 60, 4096][stream - 1] / [1, 8][rng.below(2) as usize];
                let count = rng.below(most);
                let code = rng.below(if P == 1 { 11 } else { 16 }) * rng.below(2);
                (nibbles[stream], numbers[stream]) = (code as u16, count as u16);
                // Bytes that are small more often than not keep distances inside the block.
                let mask = [0xff, 0x07, 0x3f][rng.below(3) as usize];
                if code == 0 {
                    object.extend((0..count).map(|_| rng.next() as u8 & mask));
                }
            }
            if nibbles[1..] != [0; 3] {
                let len = rng.below(1500);
                numbers[0] = rng.below(len + 2) as u16;
                object.extend((0..len).map(|_| rng.next() as u8));
            }
            let words = if P == 1 {
                (0..4).map(|i| nibbles[i] << 12 | numbers[i]).collect()
            } else {
                let first = nibbles.iter().fold(0, |word, nibble| word << 4 | nibble);
                [&[first], &numbers[..]].concat()
            };
            let header = words.into_iter().flat_map(u16::to_le_bytes);
            object.splice(..0, header);
            decoders.check(&object, &format!("seed {seed}"));
        }
    }
    try_all(of_pages(), rounds(25_000));
    try_all(of_blocks(2 * PAGE), rounds(10_000));
}

#[test]
fn every_truncation() {
    fn try_all<const P: usize, const H: usize>(
        mut decoders: Decoders<P, H>,
        seeds: u64,
        step: usize,
    ) {
        for object in decoders.objects(seeds) {
            for len in (0..object.len()).step_by(step) {
                decoders.check(&object[..len], "truncated");
            }
            let mut longer = object.clone();
            longer.push(0);
            decoders.check(&longer, "with a byte more");
        }
        // Plain objects have all lengths in their header; coded symbols may by chance end at the
        // right byte.
        println!(
            "{} truncated objects noticed, {} not",
            decoders.refused, decoders.accepted
        );
        assert!(decoders.accepted * 50 < decoders.refused);
    }
    try_all(of_pages(), 2, if cfg!(miri) { 1009 } else { 1 });
    try_all(of_blocks(16 << 10), 1, if cfg!(miri) { 4099 } else { 31 });
}

#[test]
fn bit_flips() {
    fn try_all<const P: usize, const H: usize>(mut decoders: Decoders<P, H>, step: usize) {
        for object in decoders.objects(1) {
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
    try_all(of_pages(), if cfg!(miri) { 7001 } else { 3 });
    try_all(of_blocks(16 << 10), if cfg!(miri) { 20_011 } else { 401 });
}

#[test]
fn many_damages_at_once() {
    fn try_all<const P: usize, const H: usize>(mut decoders: Decoders<P, H>, seeds: u64, nr: u64) {
        let objects = decoders.objects(seeds);
        let header = if P == 1 { 8 } else { 10 };
        for seed in 1..=nr {
            let mut rng = Rng(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
            let mut object = objects[rng.below(objects.len() as u64) as usize].clone();
            for _ in 0..=rng.below(4) {
                let at = rng.below(object.len() as u64) as usize;
                // Headers more often than their length deserves.
                let at = if rng.below(4) == 0 { at % header } else { at };
                object[at] = [rng.next() as u8, 0, 0xff][rng.below(3) as usize];
            }
            decoders.check(&object, &format!("seed {seed}"));
        }
    }
    let short = if cfg!(miri) { 1 } else { 5 };
    try_all(of_pages(), short, rounds(40_000));
    try_all(of_blocks(16 << 10), 1, rounds(4_000));
    if !cfg!(miri) {
        try_all(of_blocks(MAX_BLOCK), 1, rounds(500));
    }
}
