// SPDX-License-Identifier: MIT OR Apache-2.0
//! The grammar that the rules of a link share: `name` or `name:key=value,key=value`.

use std::{fmt, str::FromStr};
use units::Ratio;

/// Why a text is not a rule. `Display` names the text and what would be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {input:?} is refused: {reason}")]
pub struct RuleError {
    /// The kind of rule, as the flag calls it.
    what: &'static str,
    input: String,
    reason: String,
}

impl RuleError {
    pub(super) fn new(what: &'static str, input: &str, reason: String) -> Self {
        Self {
            what,
            input: input.to_owned(),
            reason,
        }
    }
}

/// Splits `name:rest` at the first colon; `rest` is empty without one.
pub(super) fn head(text: &str) -> (&str, &str) {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    (name.trim(), rest.trim())
}

/// `key=value` pairs in any order. Each is taken once; what is left over is refused.
pub(super) struct Arguments<'a> {
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Arguments<'a> {
    /// Reads `key=value,key=value`; the empty text has no pairs.
    pub(super) fn read(text: &'a str) -> Result<Self, String> {
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

    /// The value of `key`, if it is given.
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

    /// The value of `key`, which must be given.
    pub(super) fn need<T>(&mut self, key: &str) -> Result<T, String>
    where
        T: FromStr<Err: fmt::Display>,
    {
        self.take(key)?.ok_or_else(|| format!("{key}= is missing"))
    }

    /// Refuses keys that nobody took; `known` lists those that exist.
    pub(super) fn finish(self, known: &str) -> Result<(), String> {
        match self.pairs.first() {
            Some((key, _)) => Err(format!("unknown key {key:?} (known: {known})")),
            None => Ok(()),
        }
    }
}

/// `ratio` in percent if that reads back exactly, else as a fraction.
pub(super) fn percent(ratio: Ratio) -> String {
    let text = ratio.to_string();
    match text.parse::<Ratio>() {
        Ok(back) if back == ratio => text,
        _ => ratio.exact(),
    }
}

/// Serialises and reads a rule through its text form. A bare number in the file (`loss = 0.001`)
/// is read as its text.
macro_rules! serde_as_rule {
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
                        self.visit_str(&number.to_string())
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
pub(super) use serde_as_rule;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_once() {
        let mut arguments = Arguments::read("p=1%, r=30%").unwrap();
        assert_eq!(arguments.take("p"), Ok(Ratio::new(0.01)));
        assert_eq!(arguments.take::<Ratio>("p"), Ok(None));
        assert!(arguments.finish("p, r").unwrap_err().contains("\"r\""));
    }

    #[test]
    fn bad_pairs_are_named() {
        assert!(Arguments::read("p").is_err());
        assert!(Arguments::read("p=1,p=2").is_err());
        assert!(Arguments::read("").unwrap().need::<u32>("p").is_err());
    }

    #[test]
    fn percent_reads_back() {
        for value in [0.0, 0.001, 0.07, 1e-12, 1.0 / 3.0, 1.0] {
            let ratio = Ratio::new(value).unwrap();
            assert_eq!(percent(ratio).parse(), Ok(ratio));
        }
        assert_eq!(percent(Ratio::new(0.001).unwrap()), "0.1%");
    }
}
