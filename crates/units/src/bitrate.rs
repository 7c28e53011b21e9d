// SPDX-License-Identifier: MIT OR Apache-2.0
use crate::{
    Bytes, Time,
    quantity::{self, ParseError},
};
use std::{fmt, str::FromStr};

/// A rate in bits a second, at least 1. Parses `10gbit`, `622.08Mbit/s`, `1Gbps`, `125MB/s`. Refuses a text that may
/// mean something else: `125MB` is a size, and `100m` is neither bits nor bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(u64);

const UNITS: [(u64, &str); 5] = [
    (1, "bit/s"),
    (1_000, "kbit/s"),
    (1_000_000, "Mbit/s"),
    (1_000_000_000, "Gbit/s"),
    (1_000_000_000_000, "Tbit/s"),
];

impl BitRate {
    /// A rate of `bits` a second. Zero becomes 1: a link that delivers nothing is written `loss 100%`.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(if bits == 0 { 1 } else { bits })
    }

    /// The mean rate of `bytes` moved in `span`; `None` for an empty span.
    #[must_use]
    pub fn mean(bytes: Bytes, span: Time) -> Option<Self> {
        let nanos = u128::from(span.as_nanos());
        (nanos > 0)
            .then(|| Self::from_bits((u128::from(bytes.get()) * 8_000_000_000 / nanos) as u64))
    }

    /// Formats a measured rate, in bits a second. Unlike a configured rate, it may be 0.
    #[must_use]
    pub fn measured(bits: u64) -> String {
        match bits {
            0 => "0 bit/s".to_owned(),
            _ => Self(bits).to_string(),
        }
    }

    /// Bits a second.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Time that `bytes` take at this rate, rounded up to the next nanosecond. A sender that waits so long never
    /// exceeds the rate.
    #[must_use]
    pub fn time_for(self, bytes: u64) -> Time {
        let bits_nanos = u128::from(bytes) * 8_000_000_000;
        Time::from_nanos(bits_nanos.div_ceil(u128::from(self.0)) as u64)
    }

    /// Whole bytes that fit into `span` at this rate.
    #[must_use]
    pub fn bytes_in(self, span: Time) -> u64 {
        (u128::from(self.0) * u128::from(span.as_nanos()) / 8_000_000_000) as u64
    }

    /// A text that parses back to exactly this rate.
    #[must_use]
    pub fn exact(self) -> String {
        quantity::format_exact(self.0, &UNITS)
    }
}

impl FromStr for BitRate {
    type Err = ParseError;

    fn from_str(input: &str) -> Result<Self, ParseError> {
        const EXAMPLE: &str = "250mbit, 10gbit or 125MB/s";
        let (value, unit) = quantity::split(input, EXAMPLE)?;
        let out_of_range = || ParseError::OutOfRange {
            input: input.to_owned(),
            range: RANGE,
        };
        let scale = unit_scale(unit).ok_or_else(|| {
            if value > 0.0 {
                not_a_rate(input, unit, EXAMPLE)
            } else {
                out_of_range()
            }
        })?;
        match quantity::scale_to_integer(input, value, scale, RANGE)? {
            0 => Err(out_of_range()),
            bits => Ok(Self(bits)),
        }
    }
}

const RANGE: &str = "a rate is 1 bit/s to 9 million Tbit/s";

/// Returns the bits a second of one `unit`, or `None` if it is no unit of rates. A capital `B` means bytes. Bytes need
/// the second beside them: `B/s` or `Bps`.
fn unit_scale(unit: &str) -> Option<f64> {
    let (scale, name) = split_prefix(unit);
    let bits = match name {
        "bps" | "b/s" => 1.0,
        "Bps" | "B/s" => 8.0,
        _ => match name.to_ascii_lowercase().as_str() {
            "bit" | "bits" | "bit/s" | "bits/s" => 1.0,
            _ => return None,
        },
    };
    Some(scale * bits)
}

/// Splits a unit into the factor of its SI prefix and the unit without it. Without a prefix the factor is 1.
fn split_prefix(unit: &str) -> (f64, &str) {
    let scale = match unit.chars().next() {
        Some('k' | 'K') => 1e3,
        Some('m' | 'M') => 1e6,
        Some('g' | 'G') => 1e9,
        Some('t' | 'T') => 1e12,
        _ => return (1.0, unit),
    };
    (scale, &unit[1..])
}

/// Most digits of a number without a unit that may mean megabits. Longer ones mean bits.
const BARE_MEGABITS_MAX: usize = 5;

/// The error for a text whose unit is not a unit of rates. A bare prefix, or a unit of sizes, gets a suggestion of the
/// two rates that it may mean. Other units are unknown.
fn not_a_rate(input: &str, unit: &str, example: &'static str) -> ParseError {
    let (scale, name) = split_prefix(unit);
    let may_be_rate = matches!(
        name.to_ascii_lowercase().as_str(),
        "" | "b" | "ib" | "ib/s" | "i" | "bps" | "b/s" | "byte" | "bytes"
    );
    let number = input.trim().trim_end_matches(unit).trim_end();
    let is_in_bits = unit.is_empty() && number.len() > BARE_MEGABITS_MAX;
    let prefix = match scale {
        _ if is_in_bits => ["", ""],
        1e3 => ["k", "k"],
        1e9 => ["G", "g"],
        1e12 => ["T", "t"],
        // A bare number gets mega, the prefix that people mean most often.
        _ => ["M", "m"],
    };
    if may_be_rate {
        ParseError::NotARate {
            input: input.to_owned(),
            bytes: format!("{number}{}B/s", prefix[0]),
            bits: format!("{number}{}bit", prefix[1]),
        }
    } else {
        ParseError::UnknownUnit {
            input: input.to_owned(),
            example,
        }
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        quantity::write_rounded(f, self.0, &UNITS)
    }
}

crate::quantity::serde_as_text!(BitRate);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_bits_and_bytes() {
        assert_eq!("10gbit".parse(), Ok(BitRate(10_000_000_000)));
        assert_eq!("937 Mbit/s".parse(), Ok(BitRate(937_000_000)));
        assert_eq!("125MB/s".parse(), Ok(BitRate(1_000_000_000)));
        assert_eq!("1Gbps".parse(), Ok(BitRate(1_000_000_000)));
        assert_eq!("100bit".parse(), Ok(BitRate(100)));
        for rate in [
            "8Mbps", "8mb/s", "8 MBit/s", "8mbits", "1MB/s", "1MBps", "1mB/s",
        ] {
            assert_eq!(rate.parse(), Ok(BitRate(8_000_000)), "{rate}");
        }
    }

    #[test]
    fn refuses_sizes_and_suggests_both_rates() {
        let error = |text: &str| text.parse::<BitRate>().unwrap_err().to_string();
        assert_eq!(
            error("100MB"),
            "\"100MB\" is not a rate: say 100MB/s for bytes a second, or 100mbit for bits"
        );
        for bad in [
            "100", "100m", "100M", "100 MB", "100mb", "100Mb", "100MiB", "100MiB/s", "100MBPS",
            "100MB/S",
        ] {
            let message = error(bad);
            assert!(
                message.starts_with(&format!("{bad:?} is not a rate")),
                "{message}"
            );
            assert!(
                message.contains("100MB/s") && message.contains("100mbit"),
                "{message}"
            );
        }
        assert!(error("1.5GB").contains("1.5GB/s") && error("1.5GB").contains("1.5gbit"));
        assert!(error("64KiB").contains("64kB/s"));
        for bad in ["0", "0MB", "-1", "0mbit", "99999999tbit"] {
            assert!(error(bad).contains("out of range"), "{}", error(bad));
        }
    }

    #[test]
    fn refuses_zero_negative_and_unitless() {
        for bad in ["0gbit", "-1mbit", "10", "10 parsec"] {
            assert!(bad.parse::<BitRate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn prints_a_measured_rate_of_zero() {
        assert_eq!(BitRate::measured(0), "0 bit/s");
        assert_eq!(BitRate::measured(1), "1 bit/s");
        assert_eq!(BitRate::measured(937_000_000), "937 Mbit/s");
    }

    #[test]
    fn rounds_serialisation_time_up() {
        let rate = BitRate(1_000_000_000);
        assert_eq!(rate.time_for(1500), Time::from_nanos(12_000));
        assert_eq!(BitRate(3).time_for(1), Time::from_nanos(2_666_666_667));
        assert_eq!(rate.bytes_in(Time::from_nanos(12_000)), 1500);
    }

    #[test]
    fn exact_text_reads_back() {
        for bits in [1, 622_080_000, 10_000_000_000, 8_200_000_001] {
            assert_eq!(BitRate(bits).exact().parse(), Ok(BitRate(bits)));
        }
    }
}
