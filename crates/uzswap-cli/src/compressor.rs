//! The compressor as the command line names it.

use std::str::FromStr;

use uzswap_compress::{Codec, ParseCodecError};

/// `--compressor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    /// uzswap chooses.
    Auto,
    /// This codec at this level.
    Named(Codec),
}

impl Compressor {
    /// The codec to use. `auto` is lz4 at present, which costs the least time.
    pub fn codec(self) -> Codec {
        match self {
            Compressor::Auto => Codec::Lz4,
            Compressor::Named(codec) => codec,
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
        let named = |text: &str| text.parse().map(Compressor::codec);
        assert_eq!("auto".parse(), Ok(Compressor::Auto));
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
