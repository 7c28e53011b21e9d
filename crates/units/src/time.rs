// SPDX-License-Identifier: MIT OR Apache-2.0
use crate::quantity::{self, ParseError};
use std::{
    fmt,
    ops::{Add, AddAssign, Mul, Sub},
    str::FromStr,
    time::Duration,
};

/// A span of time in whole nanoseconds, or a point in time as the span since an origin that the caller chooses. Holds
/// up to 584 years, and parses up to 292. Arithmetic saturates. Parses `12us`, `26ms`, `1.5s`, `2min`, `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

const UNITS: [(u64, &str); 4] = [
    (1, "ns"),
    (1_000, "us"),
    (1_000_000, "ms"),
    (1_000_000_000, "s"),
];

impl Time {
    /// The empty span, or the origin as a point in time.
    pub const ZERO: Self = Self(0);
    /// The longest span, or a point in time after every event.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of `n` nanoseconds.
    #[must_use]
    pub const fn from_nanos(n: u64) -> Self {
        Self(n)
    }

    /// A span of `n` microseconds.
    #[must_use]
    pub const fn from_micros(n: u64) -> Self {
        Self(n * 1_000)
    }

    /// A span of `n` milliseconds.
    #[must_use]
    pub const fn from_millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// A span of `n` seconds.
    #[must_use]
    pub const fn from_secs(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// A span of `seconds`, rounded to the nanosecond. Negative numbers and NaN become zero.
    #[must_use]
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds * 1e9).round() as u64)
    }

    /// The span in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span in seconds, with a fraction.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns `self − earlier`, or zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// A text that parses back to exactly this span.
    #[must_use]
    pub fn exact(self) -> String {
        quantity::format_exact(self.0, &UNITS)
    }
}

impl FromStr for Time {
    type Err = ParseError;

    fn from_str(input: &str) -> Result<Self, ParseError> {
        const EXAMPLE: &str = "200us, 26ms, 1.5s, 2m, 3h or 1d";
        let (value, unit) = quantity::split(input, EXAMPLE)?;
        let scale = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" | "sec" => 1e9,
            "min" | "m" => 60e9,
            "h" => 3600e9,
            "d" => 86_400e9,
            "" if value == 0.0 => 1.0,
            _ => {
                return Err(ParseError::UnknownUnit {
                    input: input.to_owned(),
                    example: EXAMPLE,
                });
            }
        };
        quantity::scale_to_integer(input, value, scale, "a time is 0 or more, up to 292 years")
            .map(Self)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = self.0 / 60_000_000_000;
        match minutes {
            0 => quantity::write_rounded(f, self.0, &UNITS),
            _ => write!(f, "{minutes} min {} s", self.0 / 1_000_000_000 % 60),
        }
    }
}

impl Add for Time {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Time {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.since(other)
    }
}

impl Mul<u64> for Time {
    type Output = Self;
    fn mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl From<Duration> for Time {
    fn from(span: Duration) -> Self {
        Self(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Time> for Duration {
    fn from(span: Time) -> Self {
        Self::from_nanos(span.0)
    }
}

crate::quantity::serde_as_text!(Time);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_each_unit() {
        assert_eq!("200us".parse(), Ok(Time::from_micros(200)));
        assert_eq!("1.5s".parse(), Ok(Time::from_millis(1500)));
        assert_eq!("2min".parse(), Ok(Time::from_secs(120)));
        assert_eq!("0".parse(), Ok(Time::ZERO));
    }

    #[test]
    fn refuses_negative_and_unitless() {
        for bad in ["-13ms", "13", "13 parsec", ""] {
            assert!(bad.parse::<Time>().is_err(), "{bad}");
        }
    }

    #[test]
    fn exact_text_reads_back() {
        for n in [0, 1, 28_600_000, 1_500_000_000, 123_456_789] {
            assert_eq!(Time(n).exact().parse(), Ok(Time(n)));
        }
    }

    #[test]
    fn prints_milliseconds_or_minutes_and_seconds() {
        assert_eq!(Time::from_micros(28_600).to_string(), "28.6 ms");
        assert_eq!(Time::from_secs(80).to_string(), "1 min 20 s");
    }
}
