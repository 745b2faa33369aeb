//! *What*: a compressor as the command line names it: `auto` or a codec with its level.
//!
//! *Locking*: none. *Context*: any.

use std::fmt;
use std::str::FromStr;

use uzswap_compress::{Codec, ParseCodecError};
use uzswap_group::knobs::CODEC_AUTO;

/// `--compressor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    /// uzswap chooses.
    Auto,
    /// This codec at this level.
    Named(Codec),
}

impl Compressor {
    /// The value of the knob `compressor`.
    pub fn to_knob(self) -> u64 {
        match self {
            Compressor::Auto => CODEC_AUTO,
            Compressor::Named(codec) => codec.to_bits().into(),
        }
    }
}

impl fmt::Display for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compressor::Auto => f.write_str("auto"),
            Compressor::Named(codec) => codec.fmt(f),
        }
    }
}

impl FromStr for Compressor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "auto" => Ok(Compressor::Auto),
            Ok(codec) => Ok(Compressor::Named(codec)),
            Err(ParseCodecError::UnknownName) => {
                Err("unknown compressor: use auto, lz4, zstd[:N], deflate[:N] or pz[:N]".to_owned())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_and_levels() {
        let named = |text: &str| match text.parse() {
            Ok(Compressor::Named(codec)) => Ok(codec),
            other => Err(format!("{other:?}")),
        };
        assert_eq!("auto".parse(), Ok(Compressor::Auto));
        assert_eq!(Compressor::Auto.to_string(), "auto");
        assert_eq!(named("lz4"), Ok(Codec::Lz4));
        assert_eq!(named("zstd:-5"), Ok(Codec::Zstd { level: -5 }));
        assert_eq!(named("deflate:6"), Ok(Codec::Deflate { level: 6 }));
        for wrong in [
            "", "lz5", "auto:1", "LZ4", "lz4:1", "zstd:", "zstd:x", "zstd:99",
        ] {
            assert!(wrong.parse::<Compressor>().is_err(), "{wrong:?}");
        }
    }
}
