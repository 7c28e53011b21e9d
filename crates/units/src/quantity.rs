// SPDX-License-Identifier: MIT OR Apache-2.0
//! A number followed by a unit: the grammar that all quantities share.

use crate::rounding;
use std::fmt;

/// An error of parsing a quantity. `Display` names the text and a form that is accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text does not begin with a number.
    #[error("{input:?} is not a number with a unit (for example {example})")]
    NotANumber {
        /// The text that was parsed.
        input: String,
        /// A text that is accepted.
        example: &'static str,
    },
    /// The number has no unit, or a unit that this quantity does not have.
    #[error("{input:?} has no known unit: say, for example, {example}")]
    UnknownUnit {
        /// The text that was parsed.
        input: String,
        /// A text that is accepted.
        example: &'static str,
    },
    /// The unit is not a unit of rates. The two rates that may be meant are suggested.
    #[error("{input:?} is not a rate: say {bytes} for bytes a second, or {bits} for bits")]
    NotARate {
        /// The text that was parsed.
        input: String,
        /// The suggested rate in bytes a second.
        bytes: String,
        /// The suggested rate in bits a second.
        bits: String,
    },
    /// The number is negative, not finite, or larger than the type holds.
    #[error("{input:?} is out of range: {range}")]
    OutOfRange {
        /// The text that was parsed.
        input: String,
        /// The permitted range, in words.
        range: &'static str,
    },
}

/// Splits `26ms` into the number and the unit. `example` is for the error.
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

/// Returns `value × scale` rounded to an integer. The error, for a result that is negative or 9.2e18 or more, states
/// `range`.
pub(crate) fn scale_to_integer(
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

/// Formats `value` in the largest unit that divides it, so that the text parses back to the same value.
pub(crate) fn format_exact(value: u64, units: &[(u64, &str)]) -> String {
    let (scale, name) = units
        .iter()
        .rev()
        .find(|(scale, _)| value != 0 && value.is_multiple_of(*scale))
        .unwrap_or(&units[0]);
    format!("{}{name}", value / scale)
}

/// Writes `value` with three significant digits, in the largest unit that keeps the number at 1 or above.
pub(crate) fn write_rounded(
    f: &mut fmt::Formatter<'_>,
    value: u64,
    units: &[(u64, &str)],
) -> fmt::Result {
    let units: Vec<_> = units
        .iter()
        .map(|(scale, name)| (*scale as f64, *name))
        .collect();
    let (number, name) = rounding::format_with_unit(value as f64, &units);
    write!(f, "{number} {name}")
}

/// Serialises and parses a quantity through its text form. A bare number is parsed as its text.
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
