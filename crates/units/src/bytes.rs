// SPDX-License-Identifier: MIT OR Apache-2.0
use crate::quantity::{self, ParseError};
use std::{fmt, iter::Sum, ops::Add, str::FromStr};

/// A size in bytes. Parses `1500`, `64KB`, `1MiB`, `4.7GB`. Refuses `64Mb`, which means megabits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

const UNITS: [(u64, &str); 5] = [
    (1, "B"),
    (1_000, "KB"),
    (1_000_000, "MB"),
    (1_000_000_000, "GB"),
    (1_000_000_000_000, "TB"),
];

impl Bytes {
    /// A size of `n` bytes.
    #[must_use]
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// A text that parses back to exactly this size.
    #[must_use]
    pub fn exact(self) -> String {
        quantity::format_exact(self.0, &UNITS)
    }
}

impl FromStr for Bytes {
    type Err = ParseError;

    fn from_str(input: &str) -> Result<Self, ParseError> {
        const EXAMPLE: &str = "64KB, 1MiB or 4.7GB";
        let (value, unit) = quantity::split(input, EXAMPLE)?;
        let scale = match unit.to_ascii_lowercase().as_str() {
            _ if is_bit_unit(unit) => None,
            "" | "b" => Some(1.0),
            "k" | "kb" => Some(1e3),
            "m" | "mb" => Some(1e6),
            "g" | "gb" => Some(1e9),
            "t" | "tb" => Some(1e12),
            "kib" => Some(1024.0),
            "mib" => Some(1024.0 * 1024.0),
            "gib" => Some(1024.0 * 1024.0 * 1024.0),
            "tib" => Some(1024.0 * 1024.0 * 1024.0 * 1024.0),
            _ => None,
        };
        let scale = scale.ok_or_else(|| ParseError::UnknownUnit {
            input: input.to_owned(),
            example: EXAMPLE,
        })?;
        quantity::scale_to_integer(input, value, scale, "a size is 0 B to 9 million TB").map(Self)
    }
}

/// Returns whether a unit means bits: it has a lowercase `b` after an uppercase prefix.
fn is_bit_unit(unit: &str) -> bool {
    unit.ends_with('b') && unit.starts_with(|prefix: char| prefix.is_ascii_uppercase())
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        quantity::write_rounded(f, self.0, &UNITS)
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self(0), Add::add)
    }
}

crate::quantity::serde_as_text!(Bytes);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_decimal_and_binary_prefixes() {
        assert_eq!("4.7GB".parse(), Ok(Bytes(4_700_000_000)));
        assert_eq!("1MiB".parse(), Ok(Bytes(1 << 20)));
        assert_eq!("1500".parse(), Ok(Bytes(1500)));
    }

    #[test]
    fn refuses_rates_and_other_text() {
        assert!("-1KB".parse::<Bytes>().is_err());
        assert!("3 apples".parse::<Bytes>().is_err());
        for rate in ["64mbit", "64MB/s", "64Mbps", "64Mb", "64Kb"] {
            let message = rate.parse::<Bytes>().unwrap_err().to_string();
            assert!(message.contains(rate), "{message}");
        }
        assert!("KB".parse::<Bytes>().is_err());
    }

    #[test]
    fn exact_text_reads_back() {
        for n in [0, 1, 999, 1_500, 4_700_000_000, 32_500_000, (1 << 30) + 1] {
            assert_eq!(Bytes(n).exact().parse(), Ok(Bytes(n)));
        }
    }

    #[test]
    fn prints_three_digits() {
        assert_eq!(Bytes(32_500_000).to_string(), "32.5 MB");
        assert_eq!(Bytes(999_600).to_string(), "1 MB");
        assert_eq!(Bytes(100).to_string(), "100 B");
    }
}
