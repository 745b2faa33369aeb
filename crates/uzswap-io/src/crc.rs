//! *What*: CRC-32C (Castagnoli), the checksum of swapped pages when encryption is off, and of the
//! pool's objects with `--checksum on`.
//!
//! *Invariants*: table and instruction agree (tested). Detects every burst error of up to 32 bits
//! and every error of up to 3 bits in an object.
//! *Locking*: none. *Context*: any.

cpufeatures::new!(sse42, "sse4.2");

/// The polynomial 0x1EDC6F41, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The remainder of every byte, for processors without SSE 4.2 (before 2009).
const TABLE: [u32; 256] = table();

#[expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "evaluated by the compiler: an index out of range would not build"
)]
const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// A checksum under way.
#[derive(Clone, Copy, Debug)]
pub struct Crc32c(u32);

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

impl Crc32c {
    /// The checksum of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Crc32c(!0)
    }

    /// Adds `bytes`.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        if sse42::get() {
            // SAFETY: the processor has SSE 4.2, it was just asked.
            Crc32c(unsafe { by_instruction(self.0, bytes) })
        } else {
            Crc32c(by_table(self.0, bytes))
        }
    }

    /// The checksum.
    #[must_use]
    pub const fn value(self) -> u32 {
        !self.0
    }
}

/// # Safety
/// The processor has SSE 4.2.
#[target_feature(enable = "sse4.2")]
#[expect(clippy::cast_possible_truncation, reason = "the upper half is zero")]
unsafe fn by_instruction(crc: u32, bytes: &[u8]) -> u32 {
    use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let mut wide = u64::from(crc);
    for word in words {
        wide = _mm_crc32_u64(wide, u64::from_le_bytes(*word));
    }
    rest.iter()
        .fold(wide as u32, |crc, &byte| _mm_crc32_u8(crc, byte))
}

fn by_table(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, &byte| {
        let [low, ..] = crc.to_le_bytes();
        // 256 entries for a byte: the entry is always there.
        crc >> 8 ^ TABLE.get(usize::from(low ^ byte)).copied().unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_standard() {
        assert_eq!(Crc32c::new().with(b"123456789").value(), 0xe306_9283);
        assert_eq!(
            Crc32c::new().with(b"1234").with(b"56789").value(),
            0xe306_9283
        );
    }

    #[test]
    fn table_and_instruction_agree_at_every_length_and_alignment() {
        if !sse42::get() {
            eprintln!("SKIPPED: this processor (or Miri) has no SSE 4.2");
            return;
        }
        let bytes: Vec<u8> = (0..4200_u32).map(|i| (i * i % 251) as u8).collect();
        for from in 0..16 {
            for len in (0..100).chain([1000, 4096, 4100]) {
                let part = &bytes[from..from + len];
                // SAFETY: asked above.
                let fast = unsafe { by_instruction(7, part) };
                assert_eq!(by_table(7, part), fast, "{from} {len}");
            }
        }
    }
}
