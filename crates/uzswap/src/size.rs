//! *What*: sizes in messages.
//! *Invariants*: none. *Locking*: none. *Context*: any.

use std::fmt;

/// Bytes, shown in the largest binary unit of which there is at least one.
pub(crate) struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let Some((unit, name)) = UNITS.into_iter().find(|(unit, _)| self.0 >= *unit) else {
            return write!(f, "{} bytes", self.0);
        };
        match self.0 % unit {
            0 => write!(f, "{} {name}", self.0 / unit),
            rest => write!(f, "{}.{} {name}", self.0 / unit, rest * 10 / unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_the_largest_unit() {
        let shown = [0, 1023, 1024, 1536, 16 << 20, (5 << 30) / 2].map(|n| Size(n).to_string());
        let expected = ["0 bytes", "1023 bytes", "1 KiB", "1.5 KiB", "16 MiB", "2.5 GiB"];
        assert_eq!(shown, expected);
    }
}
