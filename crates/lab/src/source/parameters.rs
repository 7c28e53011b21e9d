// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameters of a scenario, and the text with their values in place.
//!
//! `${name}` stands for a parameter. A string that is nothing but `"${name}"` becomes the value
//! itself, with its type; inside a longer string the value's text is put in. Lines keep their
//! numbers, so an error in the resolved text points into the file.

use crate::scenario::value::plain;
use toml::Table;

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

/// A text with its parameters in place, which knows where each piece of it came from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filled {
    pub(crate) text: String,
    pieces: Vec<Piece>,
}

/// From byte `at` on, the text came from byte `from` of the original.
#[derive(Debug, Clone, Copy)]
struct Piece {
    at: usize,
    from: usize,
    /// Copied, so that both go on together; a value stays at its placeholder.
    copied: bool,
}

impl Filled {
    /// A text as it stands.
    pub(crate) fn plain(text: &str) -> Self {
        let mut filled = Self::default();
        filled.copy(text, 0);
        filled
    }

    /// The byte of the original that byte `at` came from.
    pub(crate) fn original(&self, at: usize) -> usize {
        let next = self.pieces.partition_point(|piece| piece.at <= at);
        match next.checked_sub(1).map(|index| self.pieces[index]) {
            Some(piece) if piece.copied => piece.from + (at - piece.at),
            Some(piece) => piece.from,
            None => 0,
        }
    }

    fn copy(&mut self, text: &str, from: usize) {
        self.put(text, from, true);
    }

    fn put(&mut self, text: &str, from: usize, copied: bool) {
        let at = self.text.len();
        self.pieces.push(Piece { at, from, copied });
        self.text.push_str(text);
    }
}

/// `text` with every `${name}` outside comments replaced from `values`.
pub(crate) fn fill_in(text: &str, values: &Table) -> Result<Filled, PlaceholderError> {
    let mut filled = Filled::default();
    let mut quotes = Quotes::default();
    let mut begins = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let (content, comment) = line.split_at(quotes.comment_start(line));
        fill_line(content, begins, values, &mut filled).map_err(|(at, problem)| {
            PlaceholderError {
                line: index + 1,
                column: content[..at].chars().count() + 1,
                problem,
            }
        })?;
        filled.copy(comment, begins + content.len());
        begins += line.len();
    }
    Ok(filled)
}

/// One line without its comment, which begins at byte `begins`; an error carries the byte of the
/// line where the placeholder begins.
fn fill_line(
    line: &str,
    begins: usize,
    values: &Table,
    filled: &mut Filled,
) -> Result<(), (usize, String)> {
    let mut done = 0;
    while let Some(start) = line[done..].find("${").map(|start| done + start) {
        let end = line[start..]
            .find('}')
            .ok_or((start, "'${' without '}'".to_owned()))?
            + start;
        let name = &line[start + 2..end];
        let value = values
            .get(name)
            .ok_or_else(|| (start, unknown(name, values)))?;
        let whole = line[done..start].ends_with('"') && line[end + 1..].starts_with('"');
        let (before, text, after) = match whole {
            true => (start - 1, value.to_string(), end + 2),
            false => (start, plain(value), end + 1),
        };
        filled.copy(&line[done..before], begins + done);
        filled.put(&text, begins + before, false);
        done = after;
    }
    filled.copy(&line[done..], begins + done);
    Ok(())
}

fn unknown(name: &str, values: &Table) -> String {
    let known: Vec<&str> = values.keys().map(String::as_str).collect();
    format!(
        "no parameter is called {name:?} (there are: {})",
        known.join(", ")
    )
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
        assert_eq!(fill_in(text, &values()).unwrap().text, expected);
    }

    #[test]
    fn each_byte_knows_where_it_came_from() {
        let text = "a = \"${loss}\" # x\nb = \"${relays}\"\n";
        let filled = fill_in(text, &values()).unwrap();
        assert_eq!(filled.text, "a = 0.001 # x\nb = true\n");
        let original = |part: &str| &text[filled.original(filled.text.find(part).unwrap())..];
        assert!(original("0.001").starts_with("\"${loss}"));
        assert!(original("01").starts_with("\"${loss}"));
        assert!(original("# x").starts_with("# x"));
        assert!(original("b =").starts_with("b ="));
        assert_eq!(Filled::plain(text).original(7), 7);
    }

    #[test]
    fn comments_are_left_alone_but_not_hashes_in_strings() {
        let text = "a = \"#${size}\" # ${nothing}\nb = '''x\n# ${size}'''\n";
        let expected = "a = \"#1GB\" # ${nothing}\nb = '''x\n# 1GB'''\n";
        assert_eq!(fill_in(text, &values()).unwrap().text, expected);
    }

    #[test]
    fn an_unknown_name_is_placed_and_the_known_ones_listed() {
        let error = fill_in("a = 1\nb = \"x${sise}\"\n", &values()).unwrap_err();
        assert_eq!((error.line, error.column), (2, 7));
        assert!(error.to_string().contains("size"), "{error}");
        assert!(fill_in("b = \"${size\"", &values()).is_err());
    }
}
