// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of a scenario: its tables, with parameters filled in, and the position of an error in its text.

use super::{Source, parameters::Parameters};
use crate::scenario::config_error::ConfigError;
use anyhow::Result;
use longhaul_command::exit::{Refusal, explain_integer_error};
use serde::de::DeserializeOwned;
use std::fmt::Display;
use toml::{
    Spanned,
    de::{DeTable, Deserializer},
};

/// File of a scenario.
#[derive(Debug, Clone)]
pub(crate) struct ScenarioFile(Source);

impl ScenarioFile {
    pub(crate) fn new(source: &Source) -> Self {
        Self(source.clone())
    }

    /// Parses the text. Parameters are not yet filled in.
    ///
    /// # Errors
    /// Invalid TOML.
    pub(crate) fn parse(&self) -> Result<Spanned<DeTable<'_>>> {
        let parsed = DeTable::parse(&self.0.text).map_err(|error| self.parse_error(&error))?;
        // A missing top-level key is reported at the start of the file.
        Ok(Spanned::new(0..0, parsed.into_inner()))
    }

    /// Fills in the values of parameters.
    ///
    /// # Errors
    /// A placeholder without a parameter, with its position.
    pub(crate) fn filled<'t>(
        &'t self,
        parsed: &Spanned<DeTable<'t>>,
        parameters: &'t Parameters,
    ) -> Result<Spanned<DeTable<'t>>> {
        let mut filled = parsed.clone();
        parameters.fill_in(filled.get_mut()).map_err(|error| {
            let text = &self.0.text[error.span.clone()];
            let inside = text.find(&error.placeholder).unwrap_or(0);
            self.refusal(error.span.start + inside, &error)
        })?;
        Ok(filled)
    }

    /// Deserializes the table as a `T`.
    ///
    /// # Errors
    /// A mismatch with `T`, with file, line and column.
    pub(crate) fn read<T: DeserializeOwned>(&self, table: Spanned<DeTable<'_>>) -> Result<T> {
        T::deserialize(Deserializer::from(table)).map_err(|error| self.parse_error(&error))
    }

    fn parse_error(&self, error: &toml::de::Error) -> anyhow::Error {
        let at = error.span().map_or(0, |span| span.start);
        self.refusal(
            at,
            &explain_integer_error(error.message()).replace('\n', " "),
        )
    }

    /// Refuses the scenario for an error, with its position. A value from a parameter has the
    /// position of its placeholder.
    pub(crate) fn refuse(&self, error: &ConfigError) -> anyhow::Error {
        match self.parse() {
            Ok(parsed) => self.refusal(error.offset(&parsed), error),
            Err(error) => error,
        }
    }

    /// Returns a refusal at byte `at` of the text.
    pub(crate) fn refusal(&self, at: usize, problem: &(impl Display + ?Sized)) -> anyhow::Error {
        let before = &self.0.text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let origin = &self.0.origin;
        Refusal::usage(format!("{origin}: line {line}, column {column}: {problem}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_kept_when_parameters_are_filled_in() {
        let file = ScenarioFile::new(&Source {
            origin: "own.toml".to_owned(),
            text: "a = \"${x}\"\nb = { c = \"${x}\", d = 1 }\n".to_owned(),
            ..Source::default()
        });
        let values = toml::from_str("x = 'something long'").unwrap();
        let parameters = Parameters::of(&values);
        let filled = file.filled(&file.parse().unwrap(), &parameters).unwrap();
        let d = filled.get_ref()["b"].get_ref()["d"].span().start;
        let place = file.refusal(d, &"x").to_string();
        assert_eq!(place, "own.toml: line 2, column 23: x");
    }
}
