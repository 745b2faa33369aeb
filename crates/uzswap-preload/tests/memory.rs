//! The image's own `memcpy` and relatives against copies made byte by byte: every short length at
//! every distance, and lengths around those where another way begins. Here they serve the whole
//! test program, too.

#[path = "../src/arch/x86_64/memory.rs"]
mod memory;

use core::ffi::c_void;
use std::hint::black_box;

const LENGTHS: [usize; 12] = [
    150, 191, 192, 193, 1000, 2047, 2048, 2049, 2111, 2112, 4096, 9999,
];

fn lengths() -> impl Iterator<Item = usize> {
    (0..=140).chain(LENGTHS)
}

fn bytes(len: usize) -> Vec<u8> {
    let next = |seed: &mut u32| {
        *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some(seed.to_be_bytes()[0])
    };
    std::iter::repeat_n((), len)
        .scan(7, |seed, ()| next(seed))
        .collect()
}

/// Byte by byte, as the compiler may not make a call of it.
fn copied(memory: &[u8], to: usize, from: usize, len: usize) -> Vec<u8> {
    let mut copy: Vec<u8> = memory.to_vec();
    for at in 0..len {
        copy[black_box(to + at)] = memory[black_box(from + at)];
    }
    copy
}

#[test]
fn ranges_may_overlap_at_any_distance() {
    for len in lengths() {
        let distances: &[usize] = &[
            0, 1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 500, 9999,
        ];
        let all = bytes(len + 10_100);
        for &distance in distances {
            for (to, from) in [(50, 50 + distance), (50 + distance, 50)] {
                let mut now = all.clone();
                let start = now.as_mut_ptr();
                let (dest, src) = (start.wrapping_add(to), start.wrapping_add(from));
                // SAFETY: both ranges lie in the vector.
                let at = unsafe { memory::memmove(dest.cast(), src.cast(), len) };
                assert_eq!(at, dest.cast::<c_void>());
                assert!(
                    now == copied(&all, to, from, len),
                    "{len} bytes, {from} to {to}"
                );
            }
        }
    }
}

#[test]
fn filled_is_what_was_asked_for_and_no_more() {
    for len in lengths() {
        for start in 0..17 {
            let mut now = bytes(len + 64);
            let before = now.clone();
            // SAFETY: the range lies in the vector.
            unsafe { memory::memset(now.as_mut_ptr().add(start).cast(), 0x1a5, len) };
            assert!(
                now[start..start + len].iter().all(|&byte| byte == 0xa5),
                "{len} bytes"
            );
            assert!(now[..start] == before[..start] && now[start + len..] == before[start + len..]);
        }
    }
}

#[test]
fn the_first_byte_that_differs_decides() {
    for len in lengths().filter(|&len| len <= 200) {
        let one = bytes(len);
        let compare = |other: &[u8]| {
            // SAFETY: both have `len` bytes.
            unsafe { memory::memcmp(one.as_ptr().cast(), other.as_ptr().cast(), len) }.signum()
        };
        assert_eq!(compare(&one.clone()), 0, "{len} bytes");
        for at in 0..len {
            let mut other = one.clone();
            // What lies behind says the opposite.
            other[at] = one[at].wrapping_add(1);
            if let Some(next) = other.get_mut(at + 1) {
                *next = next.wrapping_sub(1);
            }
            let expected = if one[at] < other[at] { -1 } else { 1 };
            assert_eq!(compare(&other), expected, "byte {at} of {len}");
        }
    }
}

#[test]
fn text_ends_at_its_zero() {
    for len in 0..70 {
        let text = std::ffi::CString::new(vec![b'x'; len]).unwrap();
        // SAFETY: it ends with a zero.
        assert_eq!(unsafe { memory::strlen(text.as_ptr()) }, len);
    }
}
