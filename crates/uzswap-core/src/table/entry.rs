//! *What*: one page's entry in the page table: eight bytes that say where its contents are.
//!
//! *Invariants*: the bits outside a state's fields are zero; [`Entry::NONE`] is zero, so untouched
//! table memory is valid. Layout, from bit 0: 3 state; then for a stored or swapped page 36 location,
//! 12 size - 1, 13 age; for a filled page 1 repeat, 47 value, 13 age. Whether a stored page is being
//! written back is a state of its own: whatever else happens to the page ends it.
//! *Locking*: an entry changes only under its folio's lock. *Context*: signal, worker, init.

use crate::pool::Loc;

const STATE_BITS: u32 = 3;
const NONE: u64 = 0;
const RESIDENT: u64 = 1;
const STORED: u64 = 2;
const FILLED: u64 = 3;
const SWAPPED: u64 = 4;
const WRITING: u64 = 5;

const LOC_SHIFT: u32 = STATE_BITS;
const LOC_BITS: u32 = 36;
const SIZE_SHIFT: u32 = LOC_SHIFT + LOC_BITS;
const SIZE_BITS: u32 = 12;
const AGE_SHIFT: u32 = 64 - AGE_BITS;
/// Bits of an eviction age.
pub const AGE_BITS: u32 = 13;
const REPEAT: u64 = 1 << STATE_BITS;
const VALUE_SHIFT: u32 = STATE_BITS + 1;
const VALUE_BITS: u32 = AGE_SHIFT - VALUE_SHIFT;

const _: () = assert!(SIZE_SHIFT + SIZE_BITS <= AGE_SHIFT);

/// When a page was evicted, in ticks of the engine's eviction clock, modulo 2^[`AGE_BITS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age(pub u16);

impl Age {
    /// Ticks from this age to `now`.
    #[inline]
    #[must_use]
    pub const fn distance(self, now: Age) -> u16 {
        now.0.wrapping_sub(self.0) & ((1 << AGE_BITS) - 1)
    }
}

/// Where a page's contents are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nowhere: never touched, or dropped. Reads as zero if the range is mapped.
    None,
    /// In the arena.
    Resident,
    /// In the pool, compressed to `size` bytes; 4096 means raw.
    Stored {
        /// The pool object.
        loc: Loc,
        /// Compressed bytes, 1 to 4096.
        size: u16,
        /// When it was evicted.
        age: Age,
        /// A copy of it is on its way to the swap device.
        writing: bool,
    },
    /// On the swap device, compressed to `size` bytes; 4096 means raw.
    Swapped {
        /// Where it begins there, in units of 16 bytes.
        location: u64,
        /// Compressed bytes, 1 to 4096.
        size: u16,
        /// When it was evicted from the arena.
        age: Age,
    },
    /// In this entry: one 8-byte word, repeated.
    Filled {
        /// The word; see [`Entry::can_fill`] for which ones fit.
        word: u64,
        /// When it was evicted.
        age: Age,
    },
}

impl Entry {
    /// Whether a page that repeats `word` fits an entry: a small number, positive or negative, or
    /// one 32-bit half twice.
    #[inline]
    #[must_use]
    pub const fn can_fill(word: u64) -> bool {
        (word >> 32) == (word & 0xffff_ffff) || sign_extend(word << (64 - VALUE_BITS)) == word
    }

    /// The entry as eight bytes. A `word` that does not fit is the caller's mistake and encodes
    /// to `None`, which [`Entry::can_fill`] prevents.
    #[inline]
    #[must_use]
    pub const fn encode(self) -> u64 {
        match self {
            Entry::None => NONE,
            Entry::Resident => RESIDENT,
            Entry::Stored {
                loc,
                size,
                age,
                writing,
            } => (if writing { WRITING } else { STORED }) | outside(loc.raw(), size, age),
            Entry::Swapped {
                location,
                size,
                age,
            } => SWAPPED | outside(location & ((1 << LOC_BITS) - 1), size, age),
            Entry::Filled { word, age } => {
                let age = (age.0 as u64) << AGE_SHIFT;
                if (word >> 32) == (word & 0xffff_ffff) {
                    FILLED | REPEAT | (word & 0xffff_ffff) << VALUE_SHIFT | age
                } else {
                    let value = word & ((1 << VALUE_BITS) - 1);
                    FILLED | value << VALUE_SHIFT | age
                }
            }
        }
    }

    /// The entry that [`Entry::encode`] made.
    #[inline]
    #[must_use]
    pub const fn decode(bits: u64) -> Entry {
        let age = Age((bits >> AGE_SHIFT) as u16);
        match bits & ((1 << STATE_BITS) - 1) {
            RESIDENT => Entry::Resident,
            state @ (STORED | WRITING | SWAPPED) => {
                let location = (bits >> LOC_SHIFT) & ((1 << LOC_BITS) - 1);
                let size = ((bits >> SIZE_SHIFT) & 0xfff) as u16 + 1;
                if state == SWAPPED {
                    return Entry::Swapped {
                        location,
                        size,
                        age,
                    };
                }
                let Some(loc) = Loc::from_raw(location) else {
                    return Entry::None;
                };
                Entry::Stored {
                    loc,
                    size,
                    age,
                    writing: state == WRITING,
                }
            }
            FILLED => {
                let value = (bits >> VALUE_SHIFT) & ((1 << VALUE_BITS) - 1);
                let word = if bits & REPEAT != 0 {
                    value << 32 | value
                } else {
                    sign_extend(value << (64 - VALUE_BITS))
                };
                Entry::Filled { word, age }
            }
            _ => Entry::None,
        }
    }

    /// Whether the contents are out of the arena and a fault brings them back.
    #[inline]
    #[must_use]
    pub const fn is_evicted(self) -> bool {
        matches!(
            self,
            Entry::Stored { .. } | Entry::Swapped { .. } | Entry::Filled { .. }
        )
    }

    /// The same without a copy on its way to the swap device.
    #[inline]
    #[must_use]
    pub const fn kept(self) -> Entry {
        match self {
            Entry::Stored { loc, size, age, .. } => Entry::Stored {
                loc,
                size,
                age,
                writing: false,
            },
            other => other,
        }
    }

    /// When it was evicted, if it is.
    #[inline]
    #[must_use]
    pub const fn age(self) -> Option<Age> {
        match self {
            Entry::Stored { age, .. } | Entry::Swapped { age, .. } | Entry::Filled { age, .. } => {
                Some(age)
            }
            _ => None,
        }
    }
}

/// Location, size and age of a page that is in the pool or on the device.
#[inline]
const fn outside(location: u64, size: u16, age: Age) -> u64 {
    location << LOC_SHIFT
        | ((size as u64).wrapping_sub(1) & 0xfff) << SIZE_SHIFT
        | (age.0 as u64) << AGE_SHIFT
}

/// The value in the top [`VALUE_BITS`] bits, its sign spread over the rest.
#[inline]
#[expect(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "an arithmetic shift is what spreads the sign"
)]
const fn sign_extend(top: u64) -> u64 {
    ((top as i64) >> (64 - VALUE_BITS)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loc(raw: u64) -> Loc {
        Loc::from_raw(raw).unwrap()
    }

    #[test]
    fn every_kind_of_entry_survives_its_eight_bytes() {
        for entry in [
            Entry::None,
            Entry::Resident,
            Entry::Stored {
                loc: loc(1),
                size: 1,
                age: Age(0),
                writing: false,
            },
            Entry::Swapped {
                location: 0,
                size: 1,
                age: Age(1),
            },
            Entry::Swapped {
                location: (1 << 36) - 1,
                size: 4096,
                age: Age(8191),
            },
            Entry::Stored {
                loc: loc((1 << 36) - 1),
                size: 4096,
                age: Age(8191),
                writing: true,
            },
            Entry::Stored {
                loc: loc(0x5_5555_5555),
                size: 1234,
                age: Age(77),
                writing: false,
            },
        ] {
            assert_eq!(Entry::decode(entry.encode()), entry);
        }
        assert_eq!(Entry::None.encode(), 0);
    }

    #[test]
    fn words_that_fit_come_back_and_the_others_are_refused() {
        let fits = [
            0,
            1,
            !0,
            0x7fff,
            u64::MAX - 5,
            0xabcd_0123_abcd_0123,
            (1 << 46) - 1,
            1 << 63 | !0 >> 18 << 46,
        ];
        for word in fits {
            if Entry::can_fill(word) {
                let entry = Entry::Filled {
                    word,
                    age: Age(4000),
                };
                assert_eq!(Entry::decode(entry.encode()), entry, "{word:#x}");
            }
        }
        assert!(Entry::can_fill(0) && Entry::can_fill(!0) && Entry::can_fill((1 << 46) - 1));
        assert!(Entry::can_fill(0x2020_2020_2020_2020));
        assert!(!Entry::can_fill(1 << 46) && !Entry::can_fill(0x1234_5678_9abc_def0));
    }

    #[test]
    fn age_distance_wraps_with_the_clock() {
        assert_eq!(Age(8190).distance(Age(3)), 5);
        assert_eq!(Age(3).distance(Age(3)), 0);
    }
}
