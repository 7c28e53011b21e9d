// SPDX-License-Identifier: MIT OR Apache-2.0
use crate::quantity::ParseError;
use std::{fmt, str::FromStr};

/// A share or a probability, from 0 to 1. Parses `0.001` and `0.1%`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Ratio(f64);

impl Ratio {
    /// The probability of an event that never happens.
    pub const ZERO: Self = Self(0.0);
    /// The probability of an event that always happens.
    pub const ONE: Self = Self(1.0);

    /// A ratio of `value`; `None` unless `value` is in the range 0 to 1.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// The value, 0 to 1.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// A text with a percent sign that parses back to exactly this ratio.
    #[must_use]
    pub fn percent(self) -> String {
        let text = self.to_string();
        match text.parse() {
            Ok(back) if self == back => text,
            _ => format_percent(self.0),
        }
    }

    /// A text that parses back to exactly this ratio.
    #[must_use]
    pub fn exact(self) -> String {
        self.0.to_string()
    }
}

impl FromStr for Ratio {
    type Err = ParseError;

    fn from_str(input: &str) -> Result<Self, ParseError> {
        const EXAMPLE: &str = "0.1%";
        let value = match input.trim().strip_suffix('%') {
            Some(percent) => parse_hundredth(percent.trim()),
            None => input.trim().parse().ok(),
        };
        let value = value.ok_or_else(|| ParseError::NotANumber {
            input: input.to_owned(),
            example: EXAMPLE,
        })?;
        Self::new(value).ok_or_else(|| ParseError::OutOfRange {
            input: input.to_owned(),
            range: "a ratio is 0 to 1, or 0% to 100%",
        })
    }
}

/// Parses a decimal number and divides it by 100; `None` if it is not a number. Shifts the decimal exponent, because a
/// division of the binary value would round.
fn parse_hundredth(number: &str) -> Option<f64> {
    let (digits, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let exponent = exponent.parse::<i32>().ok()?.checked_sub(2)?;
    format!("{digits}e{exponent}").parse().ok()
}

/// Formats a share in percent. Shifts the decimal exponent, because a multiplication of the binary value would round.
fn format_percent(share: f64) -> String {
    let text = format!("{share:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent = exponent.parse::<i32>().unwrap_or(0) + 2;
    format!("{digits}e{exponent}%")
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", (self.0 * 1e11).round() / 1e9)
    }
}

impl serde::Serialize for Ratio {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Ratio {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(RatioVisitor)
    }
}

/// Accepts a ratio as TOML users write it: as a number, or as a text with a percent sign.
struct RatioVisitor;

impl serde::de::Visitor<'_> for RatioVisitor {
    type Value = Ratio;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a ratio such as 0.001 or \"0.1%\"")
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Ratio, E> {
        value.to_string().parse().map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Ratio, E> {
        value.to_string().parse().map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Ratio, E> {
        value.to_string().parse().map_err(E::custom)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Ratio, E> {
        value.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_fractions_and_percent() {
        assert_eq!("0.001".parse::<Ratio>().unwrap().get(), 0.001);
        assert_eq!("0.1%".parse::<Ratio>().unwrap().to_string(), "0.1%");
        assert_eq!("1e-5".parse::<Ratio>().unwrap().get(), 1e-5);
    }

    #[test]
    fn percent_reads_back_exactly() {
        for value in [0.0, 0.001, 0.007, 0.07, 1e-12, 1e-300, 1.0 / 3.0, 1.0] {
            let text = Ratio(value).percent();
            assert!(text.ends_with('%'), "{text}");
            assert_eq!(text.parse(), Ok(Ratio(value)), "{text}");
        }
        assert_eq!(Ratio(0.007).percent(), "0.7%");
        assert_eq!("1e-1%".parse(), Ok(Ratio(0.001)));
    }

    #[test]
    fn refuses_values_outside_0_to_1_and_other_text() {
        for bad in [
            "1.5",
            "-0.1",
            "101%",
            "NaN",
            "often",
            "NaN%",
            "inf%",
            "e%",
            "1e999999999999%",
        ] {
            assert!(bad.parse::<Ratio>().is_err(), "{bad}");
        }
    }
}
