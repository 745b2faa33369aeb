//! Pages compressed by a dictionary come back by it, at every level, and are smaller; anything
//! else that a decompressor is given is an error or some bytes, never more.
#![cfg(not(miri))]
#![allow(clippy::cast_possible_truncation, reason = "test data")]

use uzswap_compress::{Codec, CompressError, Digest};

mod dictionary;
mod pages;

use dictionary::{codec, digest, train};

const PAGE: usize = 4096;

/// Pages of records that have much in common from page to page, and little within one.
fn records(nr: u64, seed: u64) -> Vec<pages::Block> {
    let mut rng = pages::Rng(seed);
    let kinds: Vec<[u8; 96]> = (0..24)
        .map(|_| std::array::from_fn(|_| rng.next() as u8))
        .collect();
    let page = |_| {
        let mut page = pages::Memory::new(PAGE);
        for place in page.chunks_mut(128) {
            let kind = rng.next() as usize % kinds.len();
            place[..96].copy_from_slice(&kinds[kind]);
            place[96..104].copy_from_slice(&rng.next().to_le_bytes());
        }
        page
    };
    (0..nr).map(page).collect()
}

#[test]
fn every_level_makes_less_of_pages_like_those_it_was_trained_on() {
    let seed = 0x5eed_d1c7;
    println!("seed {seed:#x}");
    let pages = records(96, seed);
    let (shown, others) = pages.split_at(64);
    let dictionary = train(shown);
    let mut out = vec![0; PAGE];
    let mut back = vec![0; PAGE];
    for level in Codec::ZSTD_LEVELS {
        let name = Codec::Zstd { level };
        let (mut compressor, mut decompressor, _memory) = codec(name);
        let (digest, _tables) = digest(name, &dictionary);
        let (mut with, mut without) = (0, 0);
        for page in others {
            let plain = compressor.compress_stable(page, &mut out).unwrap();
            without += plain;
            decompressor
                .decompress(name.id(), &out[..plain], &mut back)
                .unwrap();
            assert!(back == **page, "{name}: without, after one with");
            // It does not fit: whatever comes next is not spoiled.
            assert_eq!(
                compressor.compress_stable_by(Some(&digest), page, &mut out[..64]),
                Err(CompressError::Poor)
            );
            let made = compressor
                .compress_stable_by(Some(&digest), page, &mut out)
                .unwrap();
            with += made;
            decompressor
                .decompress_by(&dictionary, &out[..made], &mut back)
                .unwrap();
            assert!(back == **page, "{name}");
            let without = decompressor.decompress(name.id(), &out[..made], &mut back);
            assert!(without.is_err() || back != **page, "{name}: it needs none");
        }
        assert!(with * 4 < without * 3, "{name}: {with} of {without} bytes");
    }
}

#[test]
fn any_input_is_safe() {
    let seed = 0x5eed_d1c8;
    println!("seed {seed:#x}");
    let pages = records(40, seed);
    let dictionary = train(&pages[..32]);
    let name = Codec::Zstd { level: 1 };
    let (mut compressor, mut decompressor, _memory) = codec(name);
    let (digest, _tables) = digest(name, &dictionary);
    let mut rng = pages::Rng(seed);
    let mut out = vec![0; PAGE];
    let mut back = vec![0; PAGE];
    for page in &pages[32..] {
        let made = compressor
            .compress_stable_by(Some(&digest), page, &mut out)
            .unwrap();
        for _ in 0..400 {
            let mut damaged = out[..made].to_vec();
            for _ in 0..=rng.next() % 3 {
                let at = rng.next() as usize % made;
                damaged[at] ^= 1 << (rng.next() % 8);
            }
            damaged.truncate(made - (rng.next() % 2 * (rng.next() % made as u64)) as usize);
            let _ = decompressor.decompress_by(&dictionary, &damaged, &mut back);
        }
        decompressor
            .decompress_by(&dictionary, &out[..made], &mut back)
            .unwrap();
        assert!(back == **page);
    }
}

#[test]
fn who_cannot_use_one_says_so() {
    assert_eq!(Digest::required_size(Codec::Lz4), None);
    let dictionary = train(&records(16, 5));
    let (digest, mut tables) = digest(Codec::Zstd { level: 1 }, &dictionary);
    let len = tables.len() - 1;
    // SAFETY: as long as it says.
    let made = unsafe {
        Digest::init(
            tables.as_mut_ptr(),
            len,
            Codec::Zstd { level: 1 },
            &dictionary,
        )
    };
    assert!(made.is_err());
    let page = vec![7; PAGE];
    let mut out = vec![0; PAGE];
    for other in [Codec::Lz4, Codec::Zstd { level: 3 }] {
        let (mut compressor, ..) = codec(other);
        assert_eq!(
            compressor.compress_stable_by(Some(&digest), &page, &mut out),
            Err(CompressError::Failed)
        );
    }
}
