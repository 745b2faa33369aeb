//! A sample holds what the process's memory holds. This test is alone in its program: nothing else
//! may change the memory meanwhile.

use uzswap_corpus::{EXTENT, sample};

#[test]
fn a_sample_holds_what_the_process_holds() {
    // Ten whole extents of unique words, wherever they begin.
    let mark = |i: usize| (i as u64 ^ 0x7a73_7761_7062_656e).to_le_bytes();
    let mine: Vec<u8> = (0..11 * EXTENT / 8).flat_map(mark).collect();
    // Extents of which only one page was ever touched.
    let hole = mark(usize::MAX);
    let mut holes = vec![0; 16 * EXTENT];
    for page in holes.chunks_exact_mut(EXTENT) {
        page[4096..4104].copy_from_slice(&hole);
    }
    // Large enough not to move while it is filled.
    let mut out = Vec::with_capacity(256 << 20);
    let sampled = sample(std::process::id(), usize::MAX, &mut out).unwrap();
    assert_eq!(sampled.written, sampled.resident);
    assert_eq!(sampled.written, out.len());
    let whole = out
        .chunks_exact(EXTENT)
        .filter(|extent| {
            mine.chunks_exact(8)
                .position(|word| word == &extent[..8])
                .is_some_and(|at| mine[at * 8..].starts_with(extent))
        })
        .count();
    assert_eq!(whole, 10);
    let part = out.chunks_exact(8).filter(|word| **word == hole).count();
    assert!(part < 3, "{part} extents with holes were taken");
    assert_eq!(holes[4096..4104], hole);
    let mut few = Vec::with_capacity(2 * EXTENT);
    let sampled = sample(std::process::id(), 2 * EXTENT, &mut few).unwrap();
    assert_eq!((sampled.written, few.len()), (2 * EXTENT, 2 * EXTENT));
}
