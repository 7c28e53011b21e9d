// SPDX-License-Identifier: MIT OR Apache-2.0
//! Grammar of the loss, jitter and AQM of a link: `name` or `name:key=value,key=value`.

use longhaul_units::{ParseError, Ratio};
use std::{fmt, str::FromStr};

/// Error in the text of a loss, jitter or AQM. `Display` names the text and the accepted forms.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {input:?} is refused: {reason}")]
pub struct SpecError {
    /// Flag that has the text.
    what: &'static str,
    input: String,
    reason: String,
}

impl SpecError {
    pub(super) fn new(what: &'static str, input: &str, reason: String) -> Self {
        Self {
            what,
            input: input.to_owned(),
            reason,
        }
    }

    /// The reason alone, for a caller that names the flag and the text itself.
    pub(super) fn into_reason(self) -> String {
        self.reason
    }
}

/// Splits `name:rest` at the first colon. `rest` is empty without a colon.
pub(super) fn split_name(text: &str) -> (&str, &str) {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    (name.trim(), rest.trim())
}

/// Arguments: `key=value` pairs in any order. The parser takes each once, and refuses those that remain.
pub(super) struct Arguments<'a> {
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Arguments<'a> {
    /// Parses `key=value,key=value`. The empty text has no pairs. Refuses a key that is given twice.
    pub(super) fn parse(text: &'a str) -> Result<Self, String> {
        let mut pairs = Vec::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} is not key=value"))?;
            if pairs.iter().any(|(other, _)| *other == key.trim()) {
                return Err(format!("{:?} is given twice", key.trim()));
            }
            pairs.push((key.trim(), value.trim()));
        }
        Ok(Self { pairs })
    }

    /// Takes and parses the value of `key`; `None` if it is absent.
    pub(super) fn take<T>(&mut self, key: &str) -> Result<Option<T>, String>
    where
        T: FromStr<Err: fmt::Display>,
    {
        let Some(at) = self.pairs.iter().position(|(name, _)| *name == key) else {
            return Ok(None);
        };
        let (_, value) = self.pairs.swap_remove(at);
        value.parse().map(Some).map_err(|e| format!("{key}: {e}"))
    }

    /// Takes and parses the value of `key`, and refuses its absence.
    pub(super) fn require<T>(&mut self, key: &str) -> Result<T, String>
    where
        T: FromStr<Err: fmt::Display>,
    {
        self.take(key)?.ok_or_else(|| format!("{key}= is missing"))
    }

    /// Refuses keys that were not taken. `known` lists the accepted keys.
    pub(super) fn finish(self, known: &str) -> Result<(), String> {
        match self.pairs.first() {
            Some((key, _)) => Err(format!("unknown key {key:?} (known: {known})")),
            None => Ok(()),
        }
    }
}

/// A share of segments in the text of a setting: with a percent sign, or `none`. A bare number other
/// than 0 is refused, because `1` may mean one in a hundred or all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Percentage(pub(super) Ratio);

impl FromStr for Percentage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == "none" {
            return Ok(Self(Ratio::ZERO));
        }
        match text.parse::<f64>() {
            Ok(0.0) => Ok(Self(Ratio::ZERO)),
            Ok(number) if number > 0.0 && number.is_finite() => Err(missing_percent(text, number)),
            _ => text
                .parse()
                .map(Self)
                .map_err(|e: ParseError| e.to_string()),
        }
    }
}

/// Message about a share without a percent sign.
fn missing_percent(text: &str, number: f64) -> String {
    let as_share = Ratio::new(number).map(|share| format!(" or {}", share.percent()));
    let as_share = as_share.unwrap_or_default();
    format!("{text:?} has no percent sign: say {text}%{as_share}")
}

/// Text of a share that a file gives as a number: `loss = 0.001` is `0.1%`. A number of 1 or more stays as
/// it is, so that the parser refuses it.
#[must_use]
pub fn share_text(number: f64) -> String {
    match Ratio::new(number) {
        Some(share) if number < 1.0 => share.percent(),
        _ => number.to_string(),
    }
}

/// Keys of the settings whose values are shares.
const PERCENTAGE_KEYS: [&str; 3] = ["loss", "duplicate", "corrupt"];

/// Text of a setting that a file gives as a number: a [share](share_text) if the value of `key` is one.
#[must_use]
pub fn number_text(key: &str, number: f64) -> String {
    if PERCENTAGE_KEYS.contains(&key) {
        share_text(number)
    } else {
        number.to_string()
    }
}

/// Serialises and deserialises a value as its text. A number in the file (`loss = 0.001`) is a share.
macro_rules! serde_as_text {
    ($type:ty, $expecting:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $type;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<$type, E> {
                        self.visit_str(&crate::grammar::share_text(number))
                    }
                    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<$type, E> {
                        self.visit_str(&number.to_string())
                    }
                    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<$type, E> {
                        self.visit_str(&number.to_string())
                    }
                }
                input.deserialize_any(Visitor)
            }
        }
    };
}
pub(super) use serde_as_text;

/// Parses a value that has a text form of its own.
pub(crate) fn parse_text<T: FromStr<Err: fmt::Display>>(value: &str) -> Result<T, String> {
    value.parse().map_err(|error: T::Err| error.to_string())
}

/// Parses a whole number from `min` to `max`.
pub(crate) fn parse_whole(value: &str, min: u32, max: u32) -> Result<u32, String> {
    value
        .parse()
        .ok()
        .filter(|n| (min..=max).contains(n))
        .ok_or_else(|| format!("not a whole number from {min} to {max}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_each_key_once() {
        let mut arguments = Arguments::parse("p=1%, r=30%").unwrap();
        assert_eq!(arguments.take("p"), Ok(Ratio::new(0.01).map(Percentage)));
        assert_eq!(arguments.take::<Percentage>("p"), Ok(None));
        assert!(arguments.finish("p, r").unwrap_err().contains("\"r\""));
    }

    #[test]
    fn rejects_malformed_repeated_and_missing_pairs() {
        assert!(Arguments::parse("p").is_err());
        assert!(Arguments::parse("p=1,p=2").is_err());
        assert!(Arguments::parse("").unwrap().require::<u32>("p").is_err());
    }

    #[test]
    fn requires_a_percent_sign() {
        let share = |text: &str| text.parse::<Percentage>().map(|share| share.0.get());
        assert_eq!(share("1%"), Ok(0.01));
        assert_eq!(
            [share("0"), share("0.0"), share("none")],
            [Ok(0.0), Ok(0.0), Ok(0.0)]
        );
        let message = |text| share(text).unwrap_err();
        assert_eq!(message("1"), "\"1\" has no percent sign: say 1% or 100%");
        assert_eq!(
            message("0.001"),
            "\"0.001\" has no percent sign: say 0.001% or 0.1%"
        );
        assert_eq!(message("10"), "\"10\" has no percent sign: say 10%");
        for bad in ["-1", "-1%", "101%", "often", ""] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn formats_a_number_of_a_file_as_a_share() {
        assert_eq!(share_text(0.001), "0.1%");
        assert_eq!(share_text(0.007), "0.7%");
        assert_eq!(
            (share_text(0.0), share_text(1.0)),
            ("0%".to_owned(), "1".to_owned())
        );
    }
}
