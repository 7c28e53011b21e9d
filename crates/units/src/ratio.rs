// SPDX-License-Identifier: MIT OR Apache-2.0
use crate::quantity::ParseError;
use std::{fmt, str::FromStr};

/// A share or a probability, 0 to 1. Parses `0.001` and `0.1%`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Ratio(f64);

impl Ratio {
    /// Never.
    pub const ZERO: Self = Self(0.0);
    /// Always.
    pub const ONE: Self = Self(1.0);

    /// `value` if it is within 0 to 1.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// The value, 0 to 1.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
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
        const EXAMPLE: &str = "0.001 or 0.1%";
        let (number, scale) = match input.trim().strip_suffix('%') {
            Some(percent) => (percent.trim(), 0.01),
            None => (input.trim(), 1.0),
        };
        let value = number.parse::<f64>().map_err(|_| ParseError::NotANumber {
            input: input.to_owned(),
            example: EXAMPLE,
        })?;
        Self::new(value * scale).ok_or_else(|| ParseError::OutOfRange {
            input: input.to_owned(),
            range: "a ratio is 0 to 1, or 0% to 100%",
        })
    }
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

/// TOML users write a ratio as a number or as text with a percent sign.
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
    fn refuses_what_is_no_share() {
        for bad in ["1.5", "-0.1", "101%", "NaN", "often"] {
            assert!(bad.parse::<Ratio>().is_err(), "{bad}");
        }
    }
}
