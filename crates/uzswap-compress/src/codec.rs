//! *What*: a codec and its level, as users write it and as objects name it.
//! *Invariants*: a [`Codec`] made by [`Codec::new`] or parsed has a level that its library accepts.
//! [`CodecId`] values are stored beside compressed data and never change meaning.
//! *Locking*: none. *Context*: any; parsing is for init.

use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

/// A codec and its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// Fast, ratio about 2.5 on real memory.
    Lz4,
    /// 2-3 times the time, ratio about 3.6 at level 1.
    Zstd {
        /// One of [`Codec::ZSTD_LEVELS`]. 0 is the library's default, 3.
        level: i32,
    },
    /// What compression hardware produces; in software slower than zstd.
    Deflate {
        /// One of [`Codec::DEFLATE_LEVELS`].
        level: i32,
    },
    /// Our own, made for memory: ratio of single pages 2.9 at level 1 in the time of lz4, 3.9 at
    /// level 3 in half of zstd's.
    Pz {
        /// One of [`Codec::PZ_LEVELS`].
        level: i32,
    },
}

/// What decodes an object; a byte stored with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CodecId {
    /// An LZ4 block.
    Lz4 = 1,
    /// A zstd frame without magic number, content size and checksum. Blocks of more than a page
    /// have a filter byte before it: 0 none, 1 planes of bytes, 2 differences of words.
    Zstd = 2,
    /// A raw deflate stream.
    Deflate = 3,
    /// An object of `uzswap-pz`. Blocks of more than a page have a filter byte as zstd's.
    Pz = 4,
}

impl CodecId {
    /// The id as stored.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// From a stored byte; `None` if it is none of ours.
    #[must_use]
    pub const fn from_u8(byte: u8) -> Option<CodecId> {
        match byte {
            1 => Some(CodecId::Lz4),
            2 => Some(CodecId::Zstd),
            3 => Some(CodecId::Deflate),
            4 => Some(CodecId::Pz),
            _ => None,
        }
    }

    /// `lz4`, `zstd`, `deflate` or `pz`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            CodecId::Lz4 => "lz4",
            CodecId::Zstd => "zstd",
            CodecId::Deflate => "deflate",
            CodecId::Pz => "pz",
        }
    }

    /// The codec's levels; 0 for one that has none.
    const fn levels(self) -> RangeInclusive<i32> {
        match self {
            CodecId::Lz4 => 0..=0,
            CodecId::Zstd => Codec::ZSTD_LEVELS,
            CodecId::Deflate => Codec::DEFLATE_LEVELS,
            CodecId::Pz => Codec::PZ_LEVELS,
        }
    }
}

impl Codec {
    /// Levels of zstd. Below -5 lz4 is better in every way; above 19 the context grows to megabytes
    /// and gains nothing at these block sizes.
    pub const ZSTD_LEVELS: RangeInclusive<i32> = -5..=19;
    /// Levels of deflate. From 10 on a compressor needs 9 MiB.
    pub const DEFLATE_LEVELS: RangeInclusive<i32> = 1..=12;
    /// Levels of pz.
    pub const PZ_LEVELS: RangeInclusive<i32> = 1..=3;
    /// `zstd` without a level: measured, 3 gains 2 % ratio for 11 % time.
    pub const ZSTD_DEFAULT: Codec = Codec::Zstd { level: 1 };
    /// `deflate` without a level: measured, 6 gains 7 % ratio for 80 % time.
    pub const DEFLATE_DEFAULT: Codec = Codec::Deflate { level: 1 };
    /// `pz` without a level: the last one gains 22 % ratio for 30 % time.
    pub const PZ_DEFAULT: Codec = Codec::Pz { level: 3 };

    /// The id of its objects.
    #[must_use]
    pub const fn id(self) -> CodecId {
        match self {
            Codec::Lz4 => CodecId::Lz4,
            Codec::Zstd { .. } => CodecId::Zstd,
            Codec::Deflate { .. } => CodecId::Deflate,
            Codec::Pz { .. } => CodecId::Pz,
        }
    }

    /// The level, 0 for codecs that have none.
    #[must_use]
    pub const fn level(self) -> i32 {
        match self {
            Codec::Lz4 => 0,
            Codec::Zstd { level } | Codec::Deflate { level } | Codec::Pz { level } => level,
        }
    }

    /// From its parts; `None` if the level is not one of the codec's.
    #[must_use]
    pub fn new(id: CodecId, level: i32) -> Option<Codec> {
        let codec = match id {
            CodecId::Lz4 => Codec::Lz4,
            CodecId::Zstd => Codec::Zstd { level },
            CodecId::Deflate => Codec::Deflate { level },
            CodecId::Pz => Codec::Pz { level },
        };
        id.levels().contains(&level).then_some(codec)
    }

    /// As one number, for shared memory: the id in the low byte, the level above.
    #[must_use]
    #[expect(clippy::cast_sign_loss, reason = "only the bits matter")]
    pub const fn to_bits(self) -> u32 {
        self.id() as u32 | (self.level() as u32) << 8
    }

    /// The reverse of [`Codec::to_bits`]; `None` for anything else.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the low byte is the id")]
    #[expect(
        clippy::cast_possible_wrap,
        reason = "the shift below restores the sign"
    )]
    pub fn from_bits(bits: u32) -> Option<Codec> {
        Codec::new(CodecId::from_u8(bits as u8)?, bits as i32 >> 8)
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Codec::Lz4 => f.write_str("lz4"),
            codec => write!(f, "{}:{}", codec.id().name(), codec.level()),
        }
    }
}

/// Why a text is no codec. Displays as one line that says what is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseCodecError {
    /// The name before the colon is not known.
    UnknownName,
    /// lz4 has no levels.
    TakesNoLevel,
    /// The part after the colon is no number, or not one of the codec's levels.
    BadLevel(CodecId),
}

impl fmt::Display for ParseCodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName => {
                f.write_str("unknown compressor: use lz4, zstd[:N], deflate[:N] or pz[:N]")
            }
            Self::TakesNoLevel => f.write_str("lz4 takes no level"),
            Self::BadLevel(id) => {
                let (name, levels) = (id.name(), id.levels());
                let (low, high) = (levels.start(), levels.end());
                write!(f, "the level of {name} is a number from {low} to {high}")
            }
        }
    }
}

impl core::error::Error for ParseCodecError {}

impl FromStr for Codec {
    type Err = ParseCodecError;

    /// Parses `lz4`, and `zstd`, `deflate` and `pz` with or without `:N`; not `auto`.
    fn from_str(text: &str) -> Result<Codec, ParseCodecError> {
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        let (id, default) = match name {
            "lz4" if level.is_some() => return Err(ParseCodecError::TakesNoLevel),
            "lz4" => return Ok(Codec::Lz4),
            "zstd" => (CodecId::Zstd, Codec::ZSTD_DEFAULT),
            "deflate" => (CodecId::Deflate, Codec::DEFLATE_DEFAULT),
            "pz" => (CodecId::Pz, Codec::PZ_DEFAULT),
            _ => return Err(ParseCodecError::UnknownName),
        };
        let Some(level) = level else {
            return Ok(default);
        };
        level
            .parse()
            .ok()
            .and_then(|level| Codec::new(id, level))
            .ok_or(ParseCodecError::BadLevel(id))
    }
}
