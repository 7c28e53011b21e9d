// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{fmt, str::FromStr};

/// Quantity with the text that it was parsed from, so that an error can repeat what the user typed.
///
/// ```
/// # use longhaul_units::{Time, WithInput};
/// let interval: WithInput<Time> = "2h".parse()?;
/// assert_eq!((interval.value, interval.to_string().as_str()), (Time::from_secs(7200), "2h"));
/// # Ok::<(), longhaul_units::ParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithInput<T> {
    /// The quantity.
    pub value: T,
    input: String,
}

impl<T: FromStr> FromStr for WithInput<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        let (value, input) = (text.parse()?, text.to_owned());
        Ok(Self { value, input })
    }
}

impl<T> fmt::Display for WithInput<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.input)
    }
}
