//! What bringing a page in and putting one out costs on this machine.
//!
//! *What*: the codec's own part is measured on the program's pages; the rest (signal, copy, protection, dropping) comes from a short run under
//! uzswap ([`probe`]), or, where that cannot be had, from a table.
//! *Invariants*: times are processor time in microseconds a page.
//! *Locking*: none.

pub mod probe;

use serde::Serialize;
use uzswap_compress::Codec;

use crate::contents::Contents;

/// The parts that do not depend on the codec, µs: measured on two virtual processors of a server, Linux 6.18.
const IN_US: f64 = 3.7;
const OUT_US: f64 = 0.8;

/// What a page costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// To bring one in that is touched.
    pub in_us: f64,
    /// To put one out.
    pub out_us: f64,
}

/// What the fixed parts cost here.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// Of a page in and one out together, µs, without the codec.
    pub round_us: f64,
    /// Whether that was measured.
    pub measured: bool,
}

impl Machine {
    /// From the table.
    pub const UNKNOWN: Self = Self {
        round_us: IN_US + OUT_US,
        measured: false,
    };

    /// From a run in which a page in and one out took `round_us` with lz4, on data on which its own part is `codec_us`.
    #[must_use]
    pub fn of_run(round_us: f64, codec_us: f64) -> Self {
        Self {
            // A machine that takes less than a third of it is none: something else went wrong.
            round_us: (round_us - codec_us).clamp((IN_US + OUT_US) / 3.0, (IN_US + OUT_US) * 10.0),
            measured: true,
        }
    }

    /// With `codec` on these contents; `None` if it was not measured.
    #[must_use]
    pub fn cost(&self, contents: &Contents, codec: Codec) -> Option<Cost> {
        let cell = contents.by_page(codec)?;
        let us =
            |rounds: &[f64]| rounds.first().copied().unwrap_or(0.0) * (1.0 - contents.same_filled);
        let fixed_in = IN_US / (IN_US + OUT_US);
        Some(Cost {
            in_us: self.round_us * fixed_in + us(&cell.decompress_us),
            out_us: self.round_us * (1.0 - fixed_in) + us(&cell.compress_us),
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
