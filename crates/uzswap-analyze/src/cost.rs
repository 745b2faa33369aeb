//! What a page in and a page out cost on this machine.
//!
//! *What*: the codec's part is measured on the program's pages; the rest (signal, copy, protection,
//! dropping) by a short run under uzswap ([`probe`]), or, where that is impossible, taken from a
//! table.
//! *Invariants*: times are processor time per page, in µs.
//! *Locking*: none.

pub mod probe;

use serde::Serialize;
use uzswap_compress::Codec;

use crate::contents::Contents;

/// The table: costs without the codec, µs, measured on two vCPUs of a server, Linux 6.18.
const IN_US: f64 = 3.7;
const OUT_US: f64 = 0.8;

/// The cost of a page.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// To bring a page in, µs.
    pub in_us: f64,
    /// To evict a page, µs.
    pub out_us: f64,
}

/// The costs of this machine without the codec.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// A page in and a page out together, µs.
    pub round_us: f64,
    /// Whether it was measured.
    pub measured: bool,
}

impl Machine {
    /// From the table.
    pub const UNKNOWN: Self = Self {
        round_us: IN_US + OUT_US,
        measured: false,
    };

    /// From a run in which a page in and a page out took `round_us`, `codec_us` of it in the codec.
    #[must_use]
    pub fn of_run(round_us: f64, codec_us: f64) -> Self {
        Self {
            // No machine takes less than a third of the table: then the measurement failed.
            round_us: (round_us - codec_us).clamp((IN_US + OUT_US) / 3.0, (IN_US + OUT_US) * 10.0),
            measured: true,
        }
    }

    /// The cost with `codec` on these contents; `None` if it was not measured.
    #[must_use]
    pub fn cost(&self, contents: &Contents, codec: Codec) -> Option<Cost> {
        let [compress_us, decompress_us] = contents.codec_us(codec)?;
        let fixed_in = IN_US / (IN_US + OUT_US);
        Some(Cost {
            in_us: self.round_us * fixed_in + decompress_us,
            out_us: self.round_us * (1.0 - fixed_in) + compress_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_machine_is_without_its_codec_and_within_reason() {
        assert!((Machine::of_run(9.0, 3.0).round_us - 6.0).abs() < 1e-9);
        assert!((Machine::of_run(1.0, 3.0).round_us - 1.5).abs() < 1e-9);
        assert!((Machine::of_run(1e6, 3.0).round_us - 45.0).abs() < 1e-9);
    }
}
