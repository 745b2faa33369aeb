//! *What*: one page's entry in the page table: eight bytes that tell where its contents are.
//!
//! *Invariants*: bits outside a state's fields are zero. [`Entry::None`] is zero, so untouched
//! table memory is valid. Writeback and [`Content`] are part of the state, so any other change of
//! the entry ends a writeback. Layout:
//!
//! | state | bits from 0 |
//! |---|---|
//! | all | 4 state |
//! | object in the pool or on a device | 36 location, 12 size - 1, 12 age |
//! | filled page | 1 repeat, 47 value, 12 age |
//! | page in a block without a piece | 3 order, 1 dropped, and 12 age at the top |
//!
//! *Locking*: an entry changes only under its folio's lock. *Context*: signal, worker, init.

use super::content::Content;
use uzswap_pool::Loc;

const STATE_BITS: u32 = 4;
const NONE: u64 = 0;
const RESIDENT: u64 = 1;
const BLOCK: u64 = 2;
const FILLED: u64 = 3;
/// Where an object is; its content is added. [`READ_AHEAD`] goes with [`STORED`] only.
const STORED: u64 = NR_CONTENTS;
const WRITING: u64 = 2 * NR_CONTENTS;
const SWAPPED: u64 = 3 * NR_CONTENTS;
const NR_CONTENTS: u64 = 4;
const BLOCK_PIECE: u64 = 1;
const DROPPED_PIECE: u64 = 2;
const READ_AHEAD: u64 = 3;

const LOC_SHIFT: u32 = STATE_BITS;
const LOC_BITS: u32 = 36;
const SIZE_SHIFT: u32 = LOC_SHIFT + LOC_BITS;
const SIZE_BITS: u32 = 12;
const AGE_SHIFT: u32 = 64 - AGE_BITS;
/// Bits of an eviction age.
pub const AGE_BITS: u32 = 12;
const REPEAT: u64 = 1 << STATE_BITS;
const VALUE_SHIFT: u32 = STATE_BITS + 1;
const VALUE_BITS: u32 = AGE_SHIFT - VALUE_SHIFT;
const ORDER_SHIFT: u32 = STATE_BITS;
const DROPPED: u64 = 1 << (ORDER_SHIFT + 3);

const _: () = assert!(SIZE_SHIFT + SIZE_BITS <= AGE_SHIFT);
const _: () = assert!(SWAPPED + NR_CONTENTS <= 1 << STATE_BITS);

/// When a page was evicted, in ticks of the eviction clock, modulo 2^[`AGE_BITS`].
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

/// The state of an entry with an object in the pool, under writeback, or on a device.
#[inline]
const fn state_of(content: Content, place: u64) -> u64 {
    place
        + match content {
            Content::ReadAhead if place == STORED => READ_AHEAD,
            Content::Page | Content::ReadAhead => 0,
            Content::BlockPiece => BLOCK_PIECE,
            Content::DroppedPiece => DROPPED_PIECE,
        }
}

/// The inverse of [`state_of`].
#[inline]
const fn place_of(state: u64) -> (u64, Content) {
    let kind = state % NR_CONTENTS;
    let content = match kind {
        BLOCK_PIECE => Content::BlockPiece,
        DROPPED_PIECE => Content::DroppedPiece,
        READ_AHEAD => Content::ReadAhead,
        _ => Content::Page,
    };
    (state - kind, content)
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
        /// It is under writeback.
        writing: bool,
        /// What the object holds.
        content: Content,
    },
    /// On a swap device, compressed to `size` bytes; 4096 means raw.
    Swapped {
        /// Where it begins, in units of 16 bytes.
        location: u64,
        /// Compressed bytes, 1 to 4096.
        size: u16,
        /// When it was evicted from the arena.
        age: Age,
        /// What the object holds.
        content: Content,
    },
    /// In a block, without a piece: pieces are in the entries of its first pages, never of its
    /// last.
    Block {
        /// log2 of the block's pages.
        order: u8,
        /// When it was evicted.
        age: Age,
        /// The page's own contents were dropped.
        dropped: bool,
    },
    /// Same-filled: one 8-byte word, repeated.
    Filled {
        /// The word, one that [`Entry::can_fill`] accepts.
        word: u64,
        /// When it was evicted.
        age: Age,
    },
}

impl Entry {
    /// Whether an entry can hold a page filled with `word`: a small number, positive or negative,
    /// or the same 32 bits twice.
    #[inline]
    #[must_use]
    pub const fn can_fill(word: u64) -> bool {
        (word >> 32) == (word & 0xffff_ffff) || sign_extend(word << (64 - VALUE_BITS)) == word
    }

    /// The entry as eight bytes. The caller has checked a `word` with [`Entry::can_fill`]: another
    /// one loses bits.
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
                content,
            } => {
                let place = if writing { WRITING } else { STORED };
                state_of(content, place) | location_bits(loc.raw(), size, age)
            }
            Entry::Swapped {
                location,
                size,
                age,
                content,
            } => {
                let location = location & ((1 << LOC_BITS) - 1);
                state_of(content, SWAPPED) | location_bits(location, size, age)
            }
            Entry::Block {
                order,
                age,
                dropped,
            } => {
                BLOCK
                    | (order as u64 & 7) << ORDER_SHIFT
                    | if dropped { DROPPED } else { 0 }
                    | (age.0 as u64) << AGE_SHIFT
            }
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
            NONE => Entry::None,
            RESIDENT => Entry::Resident,
            BLOCK => Entry::Block {
                order: (bits >> ORDER_SHIFT & 7) as u8,
                age,
                dropped: bits & DROPPED != 0,
            },
            FILLED => {
                let value = (bits >> VALUE_SHIFT) & ((1 << VALUE_BITS) - 1);
                let word = if bits & REPEAT != 0 {
                    value << 32 | value
                } else {
                    sign_extend(value << (64 - VALUE_BITS))
                };
                Entry::Filled { word, age }
            }
            state => {
                let location = (bits >> LOC_SHIFT) & ((1 << LOC_BITS) - 1);
                let size = ((bits >> SIZE_SHIFT) & 0xfff) as u16 + 1;
                let (place, content) = place_of(state);
                if place == SWAPPED {
                    return Entry::Swapped {
                        location,
                        size,
                        age,
                        content,
                    };
                }
                let Some(loc) = Loc::from_raw(location) else {
                    return Entry::None;
                };
                Entry::Stored {
                    loc,
                    size,
                    age,
                    writing: place == WRITING,
                    content,
                }
            }
        }
    }

    /// Whether the contents are out of the arena and a fault brings them back.
    #[inline]
    #[must_use]
    pub const fn is_evicted(self) -> bool {
        !matches!(self, Entry::None | Entry::Resident) && !self.is_dropped()
    }

    /// Whether the page is in a block, its own contents dropped or not.
    #[inline]
    #[must_use]
    pub const fn in_block(self) -> bool {
        matches!(
            self,
            Entry::Block { .. }
                | Entry::Stored {
                    content: Content::BlockPiece | Content::DroppedPiece,
                    ..
                }
                | Entry::Swapped {
                    content: Content::BlockPiece | Content::DroppedPiece,
                    ..
                }
        )
    }

    /// Whether the page was read ahead and not accessed since.
    #[inline]
    #[must_use]
    pub const fn is_readahead(self) -> bool {
        matches!(
            self,
            Entry::Stored {
                content: Content::ReadAhead,
                ..
            }
        )
    }

    /// Whether the page's own contents were dropped while its entry is still part of a block.
    #[inline]
    #[must_use]
    pub const fn is_dropped(self) -> bool {
        matches!(
            self,
            Entry::Block { dropped: true, .. }
                | Entry::Stored {
                    content: Content::DroppedPiece,
                    ..
                }
                | Entry::Swapped {
                    content: Content::DroppedPiece,
                    ..
                }
        )
    }

    /// Whether the page has no contents: it reads as zero where it is mapped.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        matches!(self, Entry::None) || self.is_dropped()
    }

    /// This entry of a block with the page's own contents dropped.
    #[inline]
    #[must_use]
    pub const fn dropped(self) -> Entry {
        match self.without_writeback() {
            Entry::Block { order, age, .. } => Entry::Block {
                order,
                age,
                dropped: true,
            },
            Entry::Stored {
                loc,
                size,
                age,
                writing,
                ..
            } => Entry::Stored {
                loc,
                size,
                age,
                writing,
                content: Content::DroppedPiece,
            },
            Entry::Swapped {
                location,
                size,
                age,
                ..
            } => Entry::Swapped {
                location,
                size,
                age,
                content: Content::DroppedPiece,
            },
            other => other,
        }
    }

    /// This entry with no writeback under way.
    #[inline]
    #[must_use]
    pub const fn without_writeback(self) -> Entry {
        match self {
            Entry::Stored {
                loc,
                size,
                age,
                content,
                ..
            } => Entry::Stored {
                loc,
                size,
                age,
                writing: false,
                content,
            },
            other => other,
        }
    }

    /// When it was evicted; `None` if it is not.
    #[inline]
    #[must_use]
    pub const fn age(self) -> Option<Age> {
        match self {
            Entry::Stored { age, .. }
            | Entry::Swapped { age, .. }
            | Entry::Filled { age, .. }
            | Entry::Block { age, .. } => Some(age),
            Entry::None | Entry::Resident => None,
        }
    }
}

/// The bits of location, size and age of an object.
#[inline]
const fn location_bits(location: u64, size: u16, age: Age) -> u64 {
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
        let mut all = vec![Entry::None, Entry::Resident];
        for age in [0, 9, 77, 4095].map(Age) {
            for (raw, size) in [(1, 1), (0x5_5555_5555, 1234), ((1 << 36) - 1, 4096)] {
                for content in [Content::Page, Content::BlockPiece, Content::DroppedPiece] {
                    all.push(Entry::Swapped {
                        location: raw - 1,
                        size,
                        age,
                        content,
                    });
                    if content.is_page() {
                        all.push(Entry::Stored {
                            loc: loc(raw),
                            size,
                            age,
                            writing: false,
                            content: Content::ReadAhead,
                        });
                    }
                    for writing in [false, true] {
                        all.push(Entry::Stored {
                            loc: loc(raw),
                            size,
                            age,
                            writing,
                            content,
                        });
                    }
                }
            }
            for order in [2, 4] {
                for dropped in [false, true] {
                    all.push(Entry::Block {
                        order,
                        age,
                        dropped,
                    });
                }
            }
        }
        for entry in &all {
            assert_eq!(Entry::decode(entry.encode()), *entry);
            if entry.in_block() {
                let dropped = entry.dropped();
                assert!(dropped.in_block() && dropped.is_dropped() && dropped.is_empty());
                assert!(!dropped.is_evicted() && dropped.age() == entry.age());
            } else {
                assert!(!entry.is_dropped());
            }
        }
        let words: std::collections::HashSet<_> = all.iter().map(|entry| entry.encode()).collect();
        assert_eq!(words.len(), all.len(), "no two share their eight bytes");
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
        assert_eq!(Age(4094).distance(Age(3)), 5);
        assert_eq!(Age(3).distance(Age(3)), 0);
    }
}
