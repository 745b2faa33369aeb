//! Every block comes back, for every codec, level, block size and kind of contents; what does not
//! fit is refused; a damaged object fails or decodes inside its buffer.
#![cfg(not(miri))]
#![allow(clippy::cast_possible_truncation, reason = "test data")]

use uzswap_compress::{
    Codec, CodecId, CompressError, DecompressError, InitError, MAX_BLOCK, MIN_BLOCK,
    ParseCodecError, Workspace, same_filled,
};

mod owned;
mod pages;
use owned::{Owned, codecs};
use pages::{KINDS, Memory, Rng, block};

fn all_codecs() -> Vec<Codec> {
    let zstd = Codec::ZSTD_LEVELS.map(|level| Codec::Zstd { level });
    let deflate = Codec::DEFLATE_LEVELS.map(|level| Codec::Deflate { level });
    let pz = Codec::PZ_LEVELS.map(|level| Codec::Pz { level });
    std::iter::once(Codec::Lz4)
        .chain(zstd)
        .chain(deflate)
        .chain(pz)
        .collect()
}

fn some_codecs() -> Vec<Codec> {
    codecs("lz4 zstd:-1 zstd:1 zstd:6 deflate:1 pz:3")
}

fn compress(b: &mut Owned, src: &Memory, dst: &mut [u8]) -> Result<usize, CompressError> {
    // SAFETY: a block of that length, aligned to 64.
    unsafe { b.compressor.compress(src.as_ptr(), src.len(), dst) }
}

#[test]
fn a_compressor_of_pz_takes_up_its_other_levels_and_nothing_else() {
    let src = block("text", MIN_BLOCK, 7);
    let src: &Memory = &src;
    let mut changed = Owned::new(Codec::PZ_DEFAULT, MIN_BLOCK);
    for codec in Codec::PZ_LEVELS.map(|level| Codec::Pz { level }) {
        assert!(changed.compressor.set_codec(codec));
        assert_eq!(changed.compressor.codec(), codec);
        let mut made = [[0; MIN_BLOCK]; 2];
        let mut fresh = Owned::new(codec, MIN_BLOCK);
        let [by_changed, by_fresh] = &mut made;
        let sizes = [
            compress(&mut changed, src, by_changed),
            compress(&mut fresh, src, by_fresh),
        ];
        assert_eq!(sizes[0].ok(), sizes[1].ok());
        assert!(made[0] == made[1], "{codec}");
    }
    assert!(!changed.compressor.set_codec(Codec::Lz4));
    assert!(
        !Owned::new(Codec::Lz4, MIN_BLOCK)
            .compressor
            .set_codec(Codec::PZ_DEFAULT)
    );
    assert_eq!(changed.compressor.codec(), Codec::PZ_DEFAULT);
}

#[test]
fn every_codec_and_level_gives_back_every_kind_of_block() {
    for codec in all_codecs() {
        // One workspace through all sizes and kinds, as a CPU slot uses it.
        let mut b = Owned::new(codec, MAX_BLOCK);
        let mut out = vec![0u8; MAX_BLOCK + 4096];
        for len in [4096, 65536, 8192, 16384, 4096, 32768, 12288] {
            for kind in KINDS {
                let src = block(kind, len, 7);
                let n = compress(&mut b, &src, &mut out)
                    .unwrap_or_else(|e| panic!("{codec} {kind}: {e:?}"));
                let hard = kind == "random" || codec.id() == CodecId::Pz;
                assert!(n < len || hard, "{codec} {kind} {len}: {n}");
                b.assert_decodes(&out[..n], &src, kind);
            }
        }
    }
}

#[test]
fn the_first_pages_of_a_block_are_as_if_all_were_decoded() {
    for codec in all_codecs() {
        let mut b = Owned::new(codec, MAX_BLOCK);
        let mut object = vec![0u8; MAX_BLOCK + 4096];
        for len in [8192, 16384, 65536] {
            for kind in KINDS {
                let src = block(kind, len, 5);
                let n = compress(&mut b, &src, &mut object).expect("room for all");
                for first in (0..=len).step_by(4096).chain([1, 4095, len - 1]) {
                    let mut back = vec![0x5a; len + 64];
                    let (out, guard) = back.split_at_mut(len);
                    let decoded =
                        b.decompressor
                            .decompress_first(codec.id(), &object[..n], first, out);
                    assert_eq!(decoded, Ok(()), "{codec} {kind} {len} {first}");
                    assert!(out[..first] == src[..first], "{codec} {kind} {len} {first}");
                    assert!(guard.iter().all(|&b| b == 0x5a), "{codec} {kind} {len}");
                }
            }
        }
    }
}

/// Blocks that each filter suits best; the first byte of the object names it.
#[test]
fn words_that_are_numbers_are_filtered_and_come_back() {
    let mut rng = Rng(0x5eed);
    let mut of = |word: &mut dyn FnMut(u64, u64) -> u64| {
        let mut block = Memory::new(MAX_BLOCK);
        for (n, bytes) in block.chunks_mut(8).enumerate() {
            bytes.copy_from_slice(&word(n as u64, rng.next()).to_le_bytes());
        }
        block
    };
    let blocks = [
        (0, block("text", MAX_BLOCK, 1)),
        (1, of(&mut |_, x| 0x4059_0000_0000_0000 | x >> 28)),
        (2, of(&mut |n, x| 0x7f12_3456_0000 + n * 4104 + (x & 1))),
    ];
    let zstd = [1, 3, 6].map(|level| Codec::Zstd { level });
    let pz = [2, 3].map(|level| Codec::Pz { level });
    for codec in zstd.into_iter().chain(pz) {
        let mut b = Owned::new(codec, MAX_BLOCK);
        let mut out = vec![0; MAX_BLOCK];
        for (filter, src) in &blocks {
            let n = compress(&mut b, src, &mut out).expect("they compress");
            assert_eq!(out[0], *filter, "{codec}");
            let mut back = vec![0; MAX_BLOCK];
            for first in [4096, 5000, MAX_BLOCK] {
                back.fill(0x5a);
                let done = b
                    .decompressor
                    .decompress_first(codec.id(), &out[..n], first, &mut back);
                assert_eq!(done, Ok(()));
                assert!(back[..first] == src[..first], "{codec} {filter} {first}");
            }
            // Any other number is no object's.
            out[0] = 3;
            assert_eq!(
                b.decompressor.decompress(codec.id(), &out[..n], &mut back),
                Err(DecompressError::Corrupt)
            );
        }
    }
}

#[test]
fn what_does_not_fit_is_poor_and_leaves_no_trace() {
    for codec in some_codecs() {
        let mut b = Owned::new(codec, MAX_BLOCK);
        let mut out = vec![0xee; 65536];
        for len in [4096, 16384, 65536] {
            let random = block("random", len, 3);
            let good = block("records", len, 3);
            for capacity in [0, 1, 7, 64, 1000, 3264, len - 64] {
                out.fill(0xee);
                let poor = compress(&mut b, &random, &mut out[..capacity]);
                assert_eq!(poor, Err(CompressError::Poor), "{codec} {len} {capacity}");
                assert!(
                    out[capacity..capacity + 64].iter().all(|&b| b == 0xee),
                    "{codec}"
                );
            }
            // The next block is not spoilt by the failures before it.
            let n = compress(&mut b, &good, &mut out).expect("records compress");
            b.assert_decodes(&out[..n], &good, "records");
            out.fill(0xee);
            // Exactly the size needed is enough, or refused; never overrun.
            match compress(&mut b, &good, &mut out[..n]) {
                Ok(m) => assert!(m <= n),
                Err(error) => assert_eq!(error, CompressError::Poor),
            }
            assert!(out[n..].iter().all(|&b| b == 0xee));
        }
    }
}

#[test]
fn a_damaged_object_fails_or_decodes_but_never_strays() {
    let seed = 0x1234_5678;
    println!("seed {seed:#x}");
    let mut rng = Rng(seed);
    for codec in some_codecs() {
        let mut b = Owned::new(codec, MAX_BLOCK);
        for len in [4096usize, 65536] {
            let src = block("records", len, 11);
            let mut object = vec![0; len];
            let n = compress(&mut b, &src, &mut object).expect("records compress");
            object.truncate(n);
            let mut dst = vec![0xee; len + 128];
            let mut decode = |b: &mut Owned, bytes: &[u8], want: usize| {
                dst.fill(0xee);
                // A copy of its own: an over-read shows under a sanitizer.
                let bytes = bytes.to_vec();
                let result = b
                    .decompressor
                    .decompress(codec.id(), &bytes, &mut dst[..want]);
                assert!(
                    dst[want..].iter().all(|&b| b == 0xee),
                    "{codec}: wrote past the end"
                );
                result
            };
            for cut in (0..n).step_by(1 + n / 200) {
                assert_eq!(
                    decode(&mut b, &object[..cut], len),
                    Err(DecompressError::Corrupt),
                    "{codec} cut at {cut} of {n}"
                );
            }
            assert_eq!(
                decode(&mut b, &object, len - 1),
                Err(DecompressError::Corrupt)
            );
            assert_eq!(
                decode(&mut b, &object, len + 1),
                Err(DecompressError::Corrupt)
            );
            let mut first = vec![0xee; len + 128];
            for _ in 0..2000 {
                let mut damaged = object.clone();
                for _ in 0..=rng.below(3) {
                    let at = rng.below(n as u64) as usize;
                    damaged[at] = rng.next() as u8;
                }
                let all = decode(&mut b, &damaged, len);
                let nr = rng.below(len as u64) as usize;
                first.fill(0xee);
                let (out, guard) = first.split_at_mut(len);
                let some = b
                    .decompressor
                    .decompress_first(codec.id(), &damaged, nr, out);
                assert!(guard.iter().all(|&b| b == 0xee), "{codec}: past the end");
                assert!(all.is_err() || some.is_ok(), "{codec}: {nr} of it fail");
            }
            assert_eq!(
                decode(&mut b, &object, len),
                Ok(()),
                "{codec}: damage must not stick"
            );
            let mut garbage = vec![0u8; 5000];
            for round in 0..500 {
                garbage.iter_mut().for_each(|byte| *byte = rng.next() as u8);
                let n = rng.below(5000) as usize;
                let _ = decode(&mut b, &garbage[..n], 1 + (round * 131) % len);
            }
        }
    }
}

#[test]
fn a_workspace_decodes_what_every_codec_has_made() {
    let src = block("text", 4096, 1);
    let mut objects = Vec::new();
    for codec in some_codecs() {
        let mut out = [0u8; 4096];
        let n = compress(&mut Owned::new(codec, MIN_BLOCK), &src, &mut out);
        objects.push((codec.id(), out[..n.expect("text compresses")].to_vec()));
    }
    for codec in some_codecs() {
        let mut b = Owned::new(codec, MIN_BLOCK);
        // Twice: the second time each context is there.
        for (id, object) in objects.iter().chain(&objects) {
            let mut back = [0u8; 4096];
            assert_eq!(b.decompressor.decompress(*id, object, &mut back), Ok(()));
            assert!(back == src[..], "{id:?} in a workspace of {codec}");
        }
    }
}

#[test]
fn a_workspace_is_refused_where_it_cannot_be() {
    let codec = Codec::ZSTD_DEFAULT;
    let needed = Workspace::required_size(codec, 4096);
    let mut memory = Memory::new(needed + 64);
    let ptr = memory.as_mut_ptr();
    let init = |ptr, len, block| {
        // SAFETY: what is too short or not aligned is refused before it is used; no workspace is
        // kept.
        unsafe { Workspace::init(ptr, len, codec, block) }.map(|_| ())
    };
    assert_eq!(
        init(ptr, needed - 1, 4096),
        Err(InitError::TooSmall { needed })
    );
    assert_eq!(
        init(ptr.wrapping_add(8), needed, 4096),
        Err(InitError::Misaligned)
    );
    for bad in [0, 2048, 5000, 131_072] {
        assert_eq!(init(ptr, needed, bad), Err(InitError::BadBlock));
    }
    let mut b = Owned::new(codec, 4096);
    let src = Memory::new(8192);
    let mut out = [0; 8192];
    assert_eq!(compress(&mut b, &src, &mut out), Err(CompressError::Failed));
    // SAFETY: shorter than the block that is there.
    let odd = unsafe { b.compressor.compress(src.as_ptr(), 100, &mut out) };
    assert_eq!(odd, Err(CompressError::Failed));
    for codec in all_codecs() {
        for block in [4096, 65536] {
            println!(
                "{codec} {block}: {} bytes",
                Workspace::required_size(codec, block)
            );
        }
    }
}

#[test]
fn codecs_are_written_and_read_as_the_command_line_says() {
    let ok = [
        ("lz4", Codec::Lz4),
        ("zstd", Codec::Zstd { level: 1 }),
        ("zstd:-5", Codec::Zstd { level: -5 }),
        ("zstd:19", Codec::Zstd { level: 19 }),
        ("deflate", Codec::Deflate { level: 1 }),
        ("deflate:12", Codec::Deflate { level: 12 }),
        ("pz", Codec::Pz { level: 3 }),
        ("pz:1", Codec::Pz { level: 1 }),
    ];
    for (text, codec) in ok {
        assert_eq!(text.parse(), Ok(codec));
        assert_eq!(codec.to_string().parse(), Ok(codec));
    }
    let bad = [
        ("", ParseCodecError::UnknownName),
        ("LZ4", ParseCodecError::UnknownName),
        ("auto", ParseCodecError::UnknownName),
        ("lzo:1", ParseCodecError::UnknownName),
        ("lz4:1", ParseCodecError::TakesNoLevel),
        ("zstd:", ParseCodecError::BadLevel(CodecId::Zstd)),
        ("zstd:20", ParseCodecError::BadLevel(CodecId::Zstd)),
        ("zstd:-6", ParseCodecError::BadLevel(CodecId::Zstd)),
        ("zstd:1x", ParseCodecError::BadLevel(CodecId::Zstd)),
        ("deflate:0", ParseCodecError::BadLevel(CodecId::Deflate)),
        ("deflate:13", ParseCodecError::BadLevel(CodecId::Deflate)),
        ("pz:0", ParseCodecError::BadLevel(CodecId::Pz)),
        ("pz:4", ParseCodecError::BadLevel(CodecId::Pz)),
    ];
    for (text, error) in bad {
        assert_eq!(text.parse::<Codec>(), Err(error), "{text}");
    }
    let message = ParseCodecError::BadLevel(CodecId::Zstd).to_string();
    assert_eq!(message, "the level of zstd is a number from -5 to 19");
    for codec in all_codecs() {
        assert_eq!(Codec::from_bits(codec.to_bits()), Some(codec));
        assert_eq!(CodecId::from_u8(codec.id().as_u8()), Some(codec.id()));
    }
    assert_eq!(Codec::from_bits(0), None);
    assert_eq!(Codec::from_bits(99 << 8 | 2), None);
}

/// Blocks made of random runs, so that every length of literal run and match occurs, into any room.
#[test]
fn runs_of_any_length_come_back_or_do_not_fit() {
    let seed = 0xb10c;
    println!("seed {seed:#x}");
    let mut rng = Rng(seed);
    for _ in 0..64 {
        let mut src = Memory::new((1 + rng.below(4) as usize) * 4096);
        let mut rest = &mut src[..];
        while !rest.is_empty() {
            let len = rest.len().min(1 + rng.below(399) as usize);
            let run = rest.split_off_mut(..len).expect("as long");
            match rng.below(2) {
                0 => run.fill(rng.next() as u8),
                _ => run.fill_with(|| rng.next() as u8),
            }
        }
        for codec in some_codecs() {
            let mut b = Owned::new(codec, 16384);
            let mut out = vec![0; 1 + rng.below(20_000) as usize];
            match compress(&mut b, &src, &mut out) {
                Ok(n) => b.assert_decodes(&out[..n], &src, "runs"),
                Err(error) => assert_eq!(error, CompressError::Poor),
            }
        }
        // SAFETY: a block of that length, aligned to 64.
        let same = unsafe { same_filled(src.as_ptr(), src.len()) };
        assert_eq!(same.is_some(), src.chunks(8).all(|c| c == &src[..8]));
    }
}
