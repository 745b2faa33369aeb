//! How much more a program's small allocations take from uzswap's malloc than from the C library's.
//!
//! *What*: the C library writes the size of each allocation before it. In an extent of its heap these sizes lead from one to the next up to the
//! end; other memory has no such chain. The sizes tell what mimalloc, which has one of four sizes from each power of two to the next, would
//! take for the same.
//! *Invariants*: the result is at least 1: less is not promised.
//! *Locking*: none.

use uzswap_corpus::EXTENT;

/// The chain must begin this early in an extent, and have so many allocations: chance makes no such one.
const BEGINS: usize = 16 << 10;
const LEAST: usize = 6;
/// Flags in the low bits of a size: the allocation before is in use; it is a mapping of its own, which none in a heap is.
const PREV_INUSE: u64 = 1;
const MMAPPED: u64 = 2;
const FLAGS: u64 = 7;
/// What the C library takes for itself of each allocation.
const HEADER: usize = 8;

/// Bytes that are needed under uzswap for each byte of `sample`, whole extents of a process's memory.
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

/// Of one extent, if it belongs to the C library's heap.
fn of_extent(extent: &[u8]) -> Option<f64> {
    let chain = (HEADER..BEGINS)
        .step_by(16)
        .find_map(|begin| chain(extent, begin))?;
    let (theirs, ours) = chain
        .iter()
        .map(|&size| (size as f64, taken(size - HEADER)))
        .fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (theirs > 0.0).then_some(ours / theirs)
}

/// The sizes of the allocations in use from the size field at `at` to the end of the extent; `None` if it is none.
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
    (links >= LEAST).then_some(sizes)
}

/// What mimalloc takes for an allocation of `size` bytes: the next larger size that it has, and a share of what a page of such leaves over.
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

    /// An extent as the C library fills it with allocations of `sizes`, in turn, after the end of one that began before.
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
    fn what_a_heap_needs_is_read_from_its_sizes() {
        let odd = heap(&[4360]);
        assert!((need(&odd) - 1.25).abs() < 0.01, "{}", need(&odd));
        // Half of the memory is something else.
        let half = [odd, vec![7; EXTENT]].concat();
        assert!((need(&half) - 1.125).abs() < 0.01, "{}", need(&half));
        // Small ones take no more than before: their header goes.
        let small = heap(&[24, 40, 72, 100, 24]);
        assert!(need(&small) < 1.1, "{}", need(&small));
        assert!((need(&[]) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_free_does_not_count() {
        let mut extent = heap(&[4360, 1000]);
        let all = need(&extent);
        // Every small one is free: the one after it says so.
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
