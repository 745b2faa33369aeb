//! How much more a program's small allocations take from uzswap's malloc than from glibc's.
//!
//! *What*: glibc stores the size of each allocation before it. In an extent of its heap the sizes
//! form a chain up to the end; other memory has none. The sizes show what mimalloc, which has four
//! size classes per power of two, would take for the same.
//! *Invariants*: the result is at least 1: savings are not promised.
//! *Locking*: none.

use uzswap_corpus::EXTENT;

/// A chain must start this early in an extent and have this many allocations, which chance does not
/// produce.
const MAX_START: usize = 16 << 10;
const MIN_LINKS: usize = 6;
/// Flags in the low bits of a size: the previous allocation is in use; the allocation is a mapping
/// of its own, which is never in a heap.
const PREV_INUSE: u64 = 1;
const MMAPPED: u64 = 2;
const FLAGS: u64 = 7;
/// glibc's overhead per allocation, bytes.
const HEADER: usize = 8;

/// Bytes needed under uzswap per byte of `sample`, which is whole extents of a process's memory.
#[must_use]
pub fn need(sample: &[u8]) -> f64 {
    let (mut theirs, mut ours) = (0.0, 0.0);
    for extent in sample.chunks_exact(EXTENT) {
        theirs += EXTENT as f64;
        ours += EXTENT as f64 * of_extent(extent).unwrap_or(1.0);
    }
    if theirs > 0.0 {
        f64::max(ours / theirs, 1.0)
    } else {
        1.0
    }
}

/// The same for one extent, if it belongs to glibc's heap.
fn of_extent(extent: &[u8]) -> Option<f64> {
    let chain = (HEADER..MAX_START)
        .step_by(16)
        .find_map(|begin| chain(extent, begin))?;
    let (theirs, ours) = chain
        .iter()
        .map(|&size| (size as f64, taken(size - HEADER)))
        .fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (theirs > 0.0).then_some(ours / theirs)
}

/// Sizes of the allocations in use, from the size field at `at` to the end of the extent; `None` if
/// that is no chain.
fn chain(extent: &[u8], mut at: usize) -> Option<Vec<usize>> {
    let (mut links, mut sizes, mut before) = (0, Vec::new(), None);
    while let Some(field) = extent.get(at..at + HEADER) {
        let word = u64::from_le_bytes(field.try_into().ok()?);
        let size = usize::try_from(word & !FLAGS).ok()?;
        if word & MMAPPED != 0 || size < 32 || !size.is_multiple_of(16) || size > EXTENT {
            return None;
        }
        if word & PREV_INUSE != 0 {
            sizes.extend(before);
        }
        before = Some(size);
        links += 1;
        at += size;
    }
    (links >= MIN_LINKS).then_some(sizes)
}

/// Bytes that mimalloc takes for an allocation of `size` bytes: its size class, and a share of what
/// its page leaves over.
fn taken(size: usize) -> f64 {
    const WORD: usize = 8;
    let words = size.div_ceil(WORD);
    let words = if words <= 8 {
        words.next_multiple_of(2)
    } else {
        let step = 1 << ((words - 1).ilog2() - 2);
        words.next_multiple_of(step)
    };
    let block = words * WORD;
    let page = if block <= 8 << 10 {
        64 << 10
    } else {
        512 << 10
    };
    page as f64 / (page / block) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An extent as glibc fills it with allocations of `sizes` in turn, after one that started
    /// before it.
    fn heap(sizes: &[usize]) -> Vec<u8> {
        let mut extent: Vec<u8> = b"what is in them"
            .iter()
            .copied()
            .cycle()
            .take(EXTENT)
            .collect();
        let mut at = 408;
        for size in sizes.iter().cycle() {
            let Some(field) = extent.get_mut(at..at + HEADER) else {
                break;
            };
            let whole = (size + HEADER).next_multiple_of(16);
            field.copy_from_slice(&(whole as u64 | PREV_INUSE).to_le_bytes());
            at += whole;
        }
        extent
    }

    #[test]
    fn sizes_of_mimalloc() {
        // Twelve of 5120 bytes fit a page of 64 KiB.
        assert!((taken(4360) - 65536.0 / 12.0).abs() < 1e-9);
        assert!((taken(24) - 32.0).abs() < 1e-9);
        assert!((taken(64) - 64.0).abs() < 1e-9);
        assert!((taken(65) - 65536.0 / 819.0).abs() < 1e-9, "80 bytes");
    }

    #[test]
    fn the_sizes_show_what_a_heap_needs() {
        let odd = heap(&[4360]);
        assert!((need(&odd) - 1.25).abs() < 0.01, "{}", need(&odd));
        // Half of the memory is no heap.
        let half = [odd, vec![7; EXTENT]].concat();
        assert!((need(&half) - 1.125).abs() < 0.01, "{}", need(&half));
        // Small allocations take no more than before, because they lose their header.
        let small = heap(&[24, 40, 72, 100, 24]);
        assert!(need(&small) < 1.1, "{}", need(&small));
        assert!((need(&[]) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn free_allocations_do_not_count() {
        let mut extent = heap(&[4360, 1000]);
        let all = need(&extent);
        // Every small one is free, as the flag in the next one says.
        for at in (408..EXTENT - HEADER).step_by(4368 + 1008) {
            extent[at] &= !1;
        }
        assert!(need(&extent) > all + 0.01, "{} {all}", need(&extent));
    }

    #[test]
    fn other_memory_is_no_heap() {
        let mut seed = 1_u64;
        let noise: Vec<u8> = (0..EXTENT)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                seed.to_be_bytes()[0]
            })
            .collect();
        for other in [
            noise,
            vec![0; EXTENT],
            b"some words of text, ".repeat(EXTENT / 20),
        ] {
            assert!((need(&other) - 1.0).abs() < 1e-9);
        }
    }
}
