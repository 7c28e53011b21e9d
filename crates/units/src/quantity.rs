// SPDX-License-Identifier: MIT OR Apache-2.0
//! A number followed by a unit: the grammar that all quantities share.

use crate::rounding;
use std::fmt;

/// Why a text is not a quantity. `Display` names the text and what would be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// No number at the start.
    #[error("{input:?} is not a number with a unit (for example {example})")]
    NotANumber {
        /// What was given.
        input: String,
        /// A text that would have been accepted.
        example: &'static str,
    },
    /// The number has no unit, or one that this quantity does not know.
    #[error("{input:?} has no unit that is known here (for example {example})")]
    UnknownUnit {
        /// What was given.
        input: String,
        /// A text that would have been accepted.
        example: &'static str,
    },
    /// A number without a unit of rates, with what it may have meant.
    #[error("{input:?} is no rate: say {bytes} for bytes a second, or {bits} for bits")]
    NotARate {
        /// What was given.
        input: String,
        /// The same number of bytes a second.
        bytes: String,
        /// The same number of bits a second.
        bits: String,
    },
    /// Negative, not finite, or beyond what the type holds.
    #[error("{input:?} is out of range: {range}")]
    OutOfRange {
        /// What was given.
        input: String,
        /// The range in words.
        range: &'static str,
    },
}

/// Splits `26ms` into the number and the lower-cased unit.
pub(crate) fn split<'a>(
    input: &'a str,
    example: &'static str,
) -> Result<(f64, &'a str), ParseError> {
    let text = input.trim();
    let end = text
        .find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-' | '_'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let value = number
        .replace('_', "")
        .parse::<f64>()
        .map_err(|_| ParseError::NotANumber {
            input: input.to_owned(),
            example,
        })?;
    Ok((value, unit.trim()))
}

/// `value × scale` as an integer, or the error that states `range`.
pub(crate) fn scaled(
    input: &str,
    value: f64,
    scale: f64,
    range: &'static str,
) -> Result<u64, ParseError> {
    let product = (value * scale).round();
    // 2^63 keeps sums of two quantities inside u64.
    if !(0.0..9.2e18).contains(&product) {
        return Err(ParseError::OutOfRange {
            input: input.to_owned(),
            range,
        });
    }
    Ok(product as u64)
}

/// The largest unit that divides `value` exactly, so that the text parses back to the same value.
pub(crate) fn exact(value: u64, units: &[(u64, &str)]) -> String {
    let (scale, name) = units
        .iter()
        .rev()
        .find(|(scale, _)| value != 0 && value.is_multiple_of(*scale))
        .unwrap_or(&units[0]);
    format!("{}{name}", value / scale)
}

/// Three significant digits and the largest unit that keeps the number at 1 or above.
pub(crate) fn rounded(
    f: &mut fmt::Formatter<'_>,
    value: u64,
    units: &[(u64, &str)],
) -> fmt::Result {
    let units: Vec<_> = units
        .iter()
        .map(|(scale, name)| (*scale as f64, *name))
        .collect();
    let (number, name) = rounding::rounded(value as f64, &units);
    write!(f, "{number} {name}")
}

/// Serialises and parses a quantity through its text form. A bare number is judged as its text would be.
macro_rules! serde_as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.exact())
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a text with a number and a unit")
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }

                    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<$type, E> {
                        self.visit_str(&number.to_string())
                    }

                    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<$type, E> {
                        self.visit_str(&number.to_string())
                    }
                }
                input.deserialize_str(Text)
            }
        }
    };
}
pub(crate) use serde_as_text;
