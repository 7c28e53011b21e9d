// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameters of a scenario, and their placeholders in its values.
//!
//! A string that is exactly `"${name}"` is replaced by the parameter's value with its type. Inside
//! a longer string, the text of the value is inserted. A replaced value keeps the position of the
//! string, so that errors point into the file.

use crate::scenario::config_error::list_names;
use indexmap::IndexMap;
use std::ops::Range;
use toml::{
    Spanned, Table,
    de::{DeTable, DeValue},
};

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
