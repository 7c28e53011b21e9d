// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deserialization of values that serde does not read by itself.

use serde::{Deserialize, Deserializer};

pub(super) fn default_true() -> bool {
    true
}

/// Reads exactly two elements. Serde's own arrays would take the first two of three.
pub(super) fn exactly_two<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> Result<[T; 2], D::Error> {
    let all = Vec::deserialize(input)?;
    all.try_into().map_err(|all: Vec<T>| {
        let problem = format!("expected two values, not {}", all.len());
        serde::de::Error::custom(problem)
    })
}

pub(super) fn optional_two<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> Result<Option<[T; 2]>, D::Error> {
    exactly_two(input).map(Some)
}

/// Reads a boolean, or a list of booleans that must all be true.
pub(super) fn bool_or_all<'de, D: serde::Deserializer<'de>>(input: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a boolean or a list of them")]
    enum BoolOrList {
        One(bool),
        All(Vec<bool>),
    }
    Ok(match BoolOrList::deserialize(input)? {
        BoolOrList::One(one) => one,
        BoolOrList::All(all) => all.into_iter().all(|one| one),
    })
}

/// Values that a file holds as text.
pub(super) mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::{fmt::Display, str::FromStr};

    pub(crate) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    /// Reads a value from text. An empty text is `None`, so that a parameter can leave out the key.
    pub(crate) fn deserialize<'de, T: FromStr<Err = String>, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Option<T>, D::Error> {
        match String::deserialize(input)?.as_str() {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(D::Error::custom),
        }
    }
}
