//! *What*: sizes as people write them: `512M`, `2G`, `1.5GiB`, `1048576`. All units are base 1024.
//!
//! *Locking*: none. *Context*: any.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Unit letters in rising order: each is 1024 times the one before.
const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text.trim()).ok_or_else(|| {
            "not a size: write a number of bytes or one with a unit, such as 512M, 2G or 1.5GiB"
                .to_owned()
        })
    }
}

fn parse(text: &str) -> Option<Size> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = shift(unit.trim_start())?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    // Fixed-point, so that 0.1G is exact to the byte and u64::MAX does not pass through a float.
    let mut bytes = u128::from(whole.parse::<u64>().ok()?) << shift;
    if !fraction.is_empty() {
        if fraction.len() > 18 {
            return None;
        }
        let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        bytes += (fraction.parse::<u128>().ok()? << shift) / scale;
    }
    u64::try_from(bytes).ok().map(Size)
}

/// Power of two of a unit: none or `B`, `K`, `KB` or `KiB` in either case, and so on up to `P`.
fn shift(unit: &str) -> Option<u32> {
    let unit = unit.to_ascii_uppercase();
    if matches!(unit.as_str(), "" | "B") {
        return Some(0);
    }
    let prefix = unit.strip_suffix("IB").or(unit.strip_suffix('B'));
    let prefix = prefix.unwrap_or(&unit);
    let mut units = (1..).zip(UNITS);
    units.find_map(|(n, unit)| (unit == prefix).then_some(10 * n))
}

impl fmt::Display for Size {
    /// With one decimal from 1 KiB on: `256 MiB`, `1.5 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut unit = 0;
        // Tenths of the unit, rounded to nearest.
        let tenths = |shift: u32| (u128::from(self.0) * 10 + (1 << shift >> 1)) >> shift;
        let mut shift = 0;
        while unit < UNITS.len() && tenths(shift) >= 10_240 {
            unit += 1;
            shift += 10;
        }
        let value = tenths(shift);
        let text = if value % 10 == 0 {
            format!("{}", value / 10)
        } else {
            format!("{}.{}", value / 10, value % 10)
        };
        match unit.checked_sub(1) {
            None => f.pad(&format!("{text} B")),
            Some(i) => f.pad(&format!("{text} {}iB", UNITS[i])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Size;

    fn bytes(text: &str) -> Option<u64> {
        text.parse::<Size>().ok().map(|s| s.0)
    }

    #[test]
    fn sizes_people_write() {
        assert_eq!(bytes("1048576"), Some(1 << 20));
        assert_eq!(bytes("512M"), Some(512 << 20));
        assert_eq!(bytes("512m"), Some(512 << 20));
        assert_eq!(bytes("2G"), Some(2 << 30));
        assert_eq!(bytes("1.5GiB"), Some(3 << 29));
        assert_eq!(bytes("1.5 GiB"), Some(3 << 29));
        assert_eq!(bytes("64KB"), Some(64 << 10));
        assert_eq!(bytes("7B"), Some(7));
        assert_eq!(bytes(" 1T "), Some(1 << 40));
        assert_eq!(bytes("0"), Some(0));
        assert_eq!(bytes("0.1K"), Some(102));
    }

    #[test]
    fn what_is_not_a_size_is_refused() {
        for text in [
            "",
            "M",
            "-1",
            "+5",
            "1.",
            ".5G",
            "1.2.3M",
            "12X",
            "1GiBs",
            "1e9",
            "0x10",
            "1 2M",
            "inf",
            "16384P",
            "170141183460469231731687303715884105728P",
            "99999999999999999999999999999999999999999999",
        ] {
            assert_eq!(bytes(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_largest_size_is_exact() {
        assert_eq!(bytes("18446744073709551615"), Some(u64::MAX));
        assert_eq!(bytes("18446744073709551616"), None);
    }

    #[test]
    fn sizes_are_shown_short() {
        let shown = |n| Size(n).to_string();
        assert_eq!(shown(0), "0 B");
        assert_eq!(shown(1023), "1023 B");
        assert_eq!(shown(1024), "1 KiB");
        assert_eq!(shown(256 << 20), "256 MiB");
        assert_eq!(shown(3 << 29), "1.5 GiB");
        assert_eq!(shown((1 << 30) - 1), "1 GiB");
        assert_eq!(shown(u64::MAX), "16384 PiB");
    }
}
