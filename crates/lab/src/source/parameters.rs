// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameters of a scenario, and its values with theirs in place.
//!
//! `${name}` stands for a parameter. A string that is nothing but `"${name}"` becomes the value
//! itself, with its type; inside a longer string the value's text is put in. What is put in stands
//! where the string stood, so an error in it points into the file.

use crate::scenario::fault::there_are;
use indexmap::IndexMap;
use std::ops::Range;
use toml::{
    Spanned, Table,
    de::{DeTable, DeValue},
};

/// The values of parameters by their names, each as TOML.
#[derive(Debug)]
pub(crate) struct Parameters(IndexMap<String, String>);

/// A `${name}` that no parameter has, or that is not closed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub(crate) struct PlaceholderError {
    /// Of the string.
    pub(crate) span: Range<usize>,
    /// What stands there.
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
                *value = moved(self.filled(text, &span)?, &span);
            }
            _ => {}
        }
        Ok(())
    }

    /// What becomes of the text at `span`.
    fn filled<'t>(
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

    /// A parameter's value as TOML and read from it.
    fn value(&self, name: &str) -> Result<(&str, DeValue<'_>), String> {
        let toml = self.0.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
            format!("no parameter is called {name:?} ({})", there_are(&known))
        })?;
        let value = DeValue::parse(toml).map_err(|error| error.message().to_owned())?;
        Ok((toml, value.into_inner()))
    }
}

/// The value and all that is in it at one place.
fn moved<'t>(value: DeValue<'t>, span: &Range<usize>) -> Spanned<DeValue<'t>> {
    let moved = |value: Spanned<DeValue<'t>>| moved(value.into_inner(), span);
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

    /// The text's values with parameters in place.
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
    fn a_whole_string_takes_the_type_and_a_part_the_text() {
        let text = "when = \"${relays}\"\nloss = '${loss}'\nname = \"get-${size}-${loss}\"\nin = [{ x = '${all}' }]\n";
        let expected =
            "when = true\nloss = 0.001\nname = \"get-1GB-0.001\"\nin = [{ x = [1, { a = 2 }] }]\n";
        assert_eq!(filled(text), Ok(toml::from_str(expected).unwrap()));
    }

    #[test]
    fn a_value_ends_no_string_and_a_comment_is_none() {
        let text = "a = \"#${size}\" # ${nothing}\nb = '''x\n# ${size}'''\nc = \"say ${quote}\"";
        let expected = "a = \"#1GB\"\nb = '''x\n# 1GB'''\nc = 'say \"'";
        assert_eq!(filled(text), Ok(toml::from_str(expected).unwrap()));
    }

    #[test]
    fn what_is_put_in_stands_where_the_placeholder_was() {
        let parameters = Parameters::of(&toml::from_str("all = [1, { a = 2 }]").unwrap());
        let mut table = DeTable::parse("x = '${all}'").unwrap();
        parameters.fill_in(table.get_mut()).unwrap();
        let list = table.get_ref()["x"].get_ref().as_array().unwrap();
        let a = &list[1].get_ref().as_table().unwrap()["a"];
        assert_eq!((list[0].span(), a.span()), (4..12, 4..12));
    }

    #[test]
    fn an_unknown_name_is_placed_and_the_known_ones_listed() {
        let error = filled("a = 1\nb = \"x${sise}\"\n").unwrap_err();
        assert_eq!(
            (error.span.start, error.placeholder.as_str()),
            (10, "${sise}")
        );
        assert!(error.to_string().contains("size"), "{error}");
        assert!(filled("b = \"${size\"").is_err());
    }
}
