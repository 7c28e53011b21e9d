// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameters of a scenario, and the text with their values in place.
//!
//! `${name}` stands for a parameter. A string that is nothing but `"${name}"` becomes the value
//! itself, with its type; inside a longer string the value's text is put in. Lines keep their
//! numbers, so an error in the resolved text points into the file.

use toml::{Table, Value};

/// A `${name}` that no parameter has, or that is not closed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub(crate) struct PlaceholderError {
    /// Counted from 1.
    pub(crate) line: usize,
    /// In characters, counted from 1.
    pub(crate) column: usize,
    problem: String,
}

/// `text` with every `${name}` outside comments replaced from `values`.
pub(crate) fn fill_in(text: &str, values: &Table) -> Result<String, PlaceholderError> {
    let mut filled = String::with_capacity(text.len());
    let mut quotes = Quotes::default();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let (content, comment) = line.split_at(quotes.comment_start(line));
        let placed = fill_line(content, values).map_err(|(at, problem)| PlaceholderError {
            line: index + 1,
            column: content[..at].chars().count() + 1,
            problem,
        })?;
        filled.push_str(&placed);
        filled.push_str(comment);
    }
    Ok(filled)
}

/// One line without its comment; an error carries the byte where the placeholder begins.
fn fill_line(line: &str, values: &Table) -> Result<String, (usize, String)> {
    let mut filled = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find("${") {
        let at = line.len() - rest.len() + start;
        let end = rest[start..]
            .find('}')
            .ok_or((at, "'${' without '}'".to_owned()))?
            + start;
        let name = &rest[start + 2..end];
        let value = values
            .get(name)
            .ok_or_else(|| (at, unknown(name, values)))?;
        let (before, after) = (&rest[..start], &rest[end + 1..]);
        match (before.strip_suffix('"'), after.strip_prefix('"')) {
            (Some(before), Some(after)) => {
                filled.push_str(before);
                filled.push_str(&value.to_string());
                rest = after;
            }
            _ => {
                filled.push_str(before);
                filled.push_str(&plain(value));
                rest = after;
            }
        }
    }
    Ok(filled + rest)
}

fn unknown(name: &str, values: &Table) -> String {
    let known: Vec<&str> = values.keys().map(String::as_str).collect();
    format!(
        "no parameter is called {name:?} (there are: {})",
        known.join(", ")
    )
}

/// A value as a person writes it: strings without quotes.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The value that a person typed behind `name=`: a TOML value if it reads as one, else a string.
pub(crate) fn typed(text: &str) -> Value {
    toml::from_str::<Table>(&format!("value = {text}"))
        .ok()
        .filter(|table| table.len() == 1)
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Where a line stands with respect to strings, which may go on over several lines.
#[derive(Default)]
struct Quotes {
    open: Option<char>,
}

impl Quotes {
    /// The byte where the comment of `line` begins; its length if it has none.
    fn comment_start(&mut self, line: &str) -> usize {
        let mut escaped = false;
        for (at, c) in line.char_indices() {
            match self.open {
                None if c == '#' => return at,
                None if matches!(c, '"' | '\'') => self.open = Some(c),
                Some('"') if c == '\\' && !escaped => {
                    escaped = true;
                    continue;
                }
                Some(quote) if c == quote && !escaped => self.open = None,
                _ => {}
            }
            escaped = false;
        }
        line.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Table {
        toml::from_str("relays = true\nsize = '1GB'\nloss = 0.001").unwrap()
    }

    #[test]
    fn a_whole_string_takes_the_type_and_a_part_the_text() {
        let text = "when = \"${relays}\"\nloss = \"${loss}\"\nname = \"get-${size}-x\"\n";
        let expected = "when = true\nloss = 0.001\nname = \"get-1GB-x\"\n";
        assert_eq!(fill_in(text, &values()).unwrap(), expected);
    }

    #[test]
    fn comments_are_left_alone_but_not_hashes_in_strings() {
        let text = "a = \"#${size}\" # ${nothing}\nb = '''x\n# ${size}'''\n";
        let expected = "a = \"#1GB\" # ${nothing}\nb = '''x\n# 1GB'''\n";
        assert_eq!(fill_in(text, &values()).unwrap(), expected);
    }

    #[test]
    fn an_unknown_name_is_placed_and_the_known_ones_listed() {
        let error = fill_in("a = 1\nb = \"x${sise}\"\n", &values()).unwrap_err();
        assert_eq!((error.line, error.column), (2, 7));
        assert!(error.to_string().contains("size"), "{error}");
        assert!(fill_in("b = \"${size\"", &values()).is_err());
    }

    #[test]
    fn typed_values_read_as_toml_or_stay_text() {
        assert_eq!(typed("true"), Value::Boolean(true));
        assert_eq!(typed("0.001"), Value::Float(0.001));
        assert_eq!(typed("4.7GB"), Value::String("4.7GB".to_owned()));
        assert_eq!(typed("1\nb = 2"), Value::String("1\nb = 2".to_owned()));
    }
}
