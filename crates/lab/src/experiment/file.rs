// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of scenarios, built into the binary or at a path: the tables of a file, with parameters filled in, and the
//! position of an error in its text.
//!
//! A string that is exactly `"${name}"` is replaced by the parameter's value with its type. Inside a longer string, the
//! text of the value is inserted. A replaced value keeps the position of the string, so that errors point into the file.

use crate::scenario::config_error::{ConfigError, list_names};
use anyhow::Result;
use indexmap::IndexMap;
use longhaul_command::exit::{Refusal, explain_integer_error};
use serde::de::DeserializeOwned;
use std::{fmt::Display, io, ops::Range, path::Path};
use toml::{
    Spanned, Table,
    de::{DeTable, DeValue, Deserializer},
};

/// File of a scenario: its text, and where it comes from.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ScenarioFile {
    /// Name: the file name without `.toml`.
    pub(crate) name: String,
    /// Origin for error messages: a path, or the name of a built-in scenario.
    pub(crate) origin: String,
    pub(crate) text: String,
}

impl ScenarioFile {
    /// Parses the text. Parameters are not yet filled in.
    ///
    /// # Errors
    /// Invalid TOML.
    pub(crate) fn parse(&self) -> Result<Spanned<DeTable<'_>>> {
        let parsed = DeTable::parse(&self.text).map_err(|error| self.parse_error(&error))?;
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
            let text = &self.text[error.span.clone()];
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
        let before = &self.text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let origin = &self.origin;
        Refusal::usage(format!("{origin}: line {line}, column {column}: {problem}"))
    }
}

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),*]
    };
}

/// Files of `scenarios/`, so that an installed binary has them: the demo, then the papers' experiments, then
/// longhaul's own.
const BUILT_IN: &[(&str, &str)] = files! {
    "demo" "nec-dvd" "nec-clients" "nec-linux" "nec-winxp" "nec-aggregate" "nec-background"
    "ack-ratio" "ack-pacing"
    "reservoir-nic" "reservoir-ipg" "reservoir-spacing" "reservoir-24000km"
    "split-position" "split-count" "split-internet" "split-osaka"
    "jgn2-single" "jgn2-rtt-fairness" "jgn2-delay-switch" "jgn2-rate-switch" "jgn2-coexistence"
    "today" "today-fast"
    "simulate" "first-recipe" "relay-objects" "relay-efficiency" "striping" "copy-limit"
    "link-long-fat" "link-proofs" "link-beside-veth" "whole-path"
};

/// Returns the names of all built-in scenarios.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// Finds the built-in scenario `wanted`, or the file at that path.
pub(crate) fn find(wanted: &str) -> Result<ScenarioFile> {
    let found = built_in(wanted).map_or_else(|| read(Path::new(wanted)), Ok);
    found.map_err(|error| Refusal::usage(not_found_message(wanted, &error)))
}

fn built_in(wanted: &str) -> Option<ScenarioFile> {
    let (name, text) = BUILT_IN.iter().find(|(name, _)| *name == wanted)?;
    Some(ScenarioFile {
        name: (*name).to_owned(),
        origin: format!("{name} (built in)"),
        text: (*text).to_owned(),
    })
}

fn read(path: &Path) -> io::Result<ScenarioFile> {
    let text = std::fs::read_to_string(path)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok(ScenarioFile {
        name: name.into_owned(),
        origin: path.display().to_string(),
        text,
    })
}

fn not_found_message(wanted: &str, error: &io::Error) -> String {
    let known: Vec<_> = names().collect();
    format!(
        "{wanted:?} is neither a built-in scenario nor a file that can be read ({error}); \
         built in: {}",
        known.join(", ")
    )
}

/// Values of parameters by name, each as TOML.
#[derive(Debug)]
pub(crate) struct Parameters(IndexMap<String, String>);

/// Error of a `${name}` that is unknown or not closed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub(crate) struct PlaceholderError {
    /// Span of the string.
    pub(crate) span: Range<usize>,
    /// Text of the placeholder.
    pub(crate) placeholder: String,
    problem: String,
}

impl Parameters {
    pub(crate) fn of(values: &Table) -> Self {
        let texts = values.iter();
        Self(texts.map(|(k, v)| (k.clone(), v.to_string())).collect())
    }

    /// Replaces every `${name}` in the table's values.
    pub(crate) fn fill_in<'t>(&'t self, table: &mut DeTable<'t>) -> Result<(), PlaceholderError> {
        table.iter_mut().try_for_each(|(_, value)| self.fill(value))
    }

    fn fill<'t>(&'t self, value: &mut Spanned<DeValue<'t>>) -> Result<(), PlaceholderError> {
        let span = value.span();
        match value.get_mut() {
            DeValue::Table(table) => self.fill_in(table)?,
            DeValue::Array(array) => array.iter_mut().try_for_each(|one| self.fill(one))?,
            DeValue::String(text) if text.contains("${") => {
                *value = with_span(self.substitute(text, &span)?, &span);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the value for the text at `span`.
    fn substitute<'t>(
        &'t self,
        text: &str,
        span: &Range<usize>,
    ) -> Result<DeValue<'t>, PlaceholderError> {
        let wrong = |placeholder: &str, problem| PlaceholderError {
            span: span.clone(),
            placeholder: placeholder.to_owned(),
            problem,
        };
        let mut filled = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let end = rest[start..].find('}').map(|end| start + end);
            let end = end.ok_or_else(|| wrong(&rest[start..], "'${' without '}'".to_owned()))?;
            let (placeholder, name) = (&rest[start..=end], &rest[start + 2..end]);
            let value = self.value(name);
            let (toml, value) = value.map_err(|problem| wrong(placeholder, problem))?;
            if placeholder == text {
                return Ok(value);
            }
            filled += &rest[..start];
            filled += value.as_str().unwrap_or(toml);
            rest = &rest[end + 1..];
        }
        Ok(DeValue::String((filled + rest).into()))
    }

    /// Returns a parameter's value, as TOML and parsed.
    fn value(&self, name: &str) -> Result<(&str, DeValue<'_>), String> {
        let toml = self.0.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
            format!("no parameter is called {name:?} ({})", list_names(&known))
        })?;
        let value = DeValue::parse(toml).map_err(|error| error.message().to_owned())?;
        Ok((toml, value.into_inner()))
    }
}

/// Moves a value and everything in it to one span.
fn with_span<'t>(value: DeValue<'t>, span: &Range<usize>) -> Spanned<DeValue<'t>> {
    let moved = |value: Spanned<DeValue<'t>>| with_span(value.into_inner(), span);
    let key = |key: Spanned<_>| Spanned::new(span.clone(), key.into_inner());
    let value = match value {
        DeValue::Array(all) => DeValue::Array(all.into_iter().map(moved).collect()),
        DeValue::Table(all) => {
            DeValue::Table(all.into_iter().map(|(k, v)| (key(k), moved(v))).collect())
        }
        one => one,
    };
    Spanned::new(span.clone(), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_kept_when_parameters_are_filled_in() {
        let file = ScenarioFile {
            origin: "own.toml".to_owned(),
            text: "a = \"${x}\"\nb = { c = \"${x}\", d = 1 }\n".to_owned(),
            ..ScenarioFile::default()
        };
        let values = toml::from_str("x = 'something long'").unwrap();
        let parameters = Parameters::of(&values);
        let filled = file.filled(&file.parse().unwrap(), &parameters).unwrap();
        let d = filled.get_ref()["b"].get_ref()["d"].span().start;
        let place = file.refusal(d, &"x").to_string();
        assert_eq!(place, "own.toml: line 2, column 23: x");
    }

    #[test]
    fn every_file_under_scenarios_is_built_in() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
            .filter_map(|name| Some(name.strip_suffix(".toml")?.to_owned()))
            .collect();
        files.sort();
        let mut built_in: Vec<&str> = names().collect();
        built_in.sort_unstable();
        assert_eq!(files, built_in);
    }

    /// Fills in the parameters of a text.
    fn filled(text: &str) -> Result<Table, PlaceholderError> {
        let values = toml::from_str(
            "relays = true\nsize = '1GB'\nloss = 0.001\nall = [1, { a = 2 }]\nquote = '\"'",
        );
        let parameters = Parameters::of(&values.unwrap());
        let mut table = DeTable::parse(text).unwrap();
        parameters.fill_in(table.get_mut())?;
        Ok(serde::Deserialize::deserialize(toml::de::Deserializer::from(table)).unwrap())
    }

    #[test]
    fn whole_string_gets_the_type_and_part_of_a_string_the_text() {
        let text = "enabled = \"${relays}\"\nloss = '${loss}'\nname = \"get-${size}-${loss}\"\nin = [{ x = '${all}' }]\n";
        let expected = "enabled = true\nloss = 0.001\nname = \"get-1GB-0.001\"\nin = [{ x = [1, { a = 2 }] }]\n";
        assert_eq!(filled(text), Ok(toml::from_str(expected).unwrap()));
    }

    #[test]
    fn quotes_and_comments_in_values_are_kept() {
        let text = "a = \"#${size}\" # ${nothing}\nb = '''x\n# ${size}'''\nc = \"say ${quote}\"";
        let expected = "a = \"#1GB\"\nb = '''x\n# 1GB'''\nc = 'say \"'";
        assert_eq!(filled(text), Ok(toml::from_str(expected).unwrap()));
    }

    #[test]
    fn replaced_values_keep_the_position_of_the_placeholder() {
        let parameters = Parameters::of(&toml::from_str("all = [1, { a = 2 }]").unwrap());
        let mut table = DeTable::parse("x = '${all}'").unwrap();
        parameters.fill_in(table.get_mut()).unwrap();
        let list = table.get_ref()["x"].get_ref().as_array().unwrap();
        let a = &list[1].get_ref().as_table().unwrap()["a"];
        assert_eq!((list[0].span(), a.span()), (4..12, 4..12));
    }

    #[test]
    fn refuses_unknown_name_with_position_and_known_names() {
        let error = filled("a = 1\nb = \"x${sise}\"\n").unwrap_err();
        assert_eq!(
            (error.span.start, error.placeholder.as_str()),
            (10, "${sise}")
        );
        assert!(error.to_string().contains("size"), "{error}");
        assert!(filled("b = \"${size\"").is_err());
    }
}
