// SPDX-License-Identifier: MIT OR Apache-2.0
//! Escapes names, which are bytes, for lines of text, and reads them back.

use std::fmt::{self, Write};

/// Displays a name. Bytes that are not printable or not UTF-8 become `\xNN`, a backslash becomes
/// two.
pub(crate) struct Escaped<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            chunk
                .valid()
                .chars()
                .try_for_each(|char| escape_char(char, f))?;
            escape_bytes(chunk.invalid(), f)?;
        }
        Ok(())
    }
}

fn escape_char(char: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match char {
        '\\' => f.write_str("\\\\"),
        _ if char.is_control() || is_line_break(char) => {
            escape_bytes(char.encode_utf8(&mut [0; 4]).as_bytes(), f)
        }
        _ => f.write_char(char),
    }
}

/// Whether a character is one of Unicode's line separators, at which some editors break lines.
fn is_line_break(char: char) -> bool {
    matches!(char, '\u{2028}' | '\u{2029}')
}

fn escape_bytes(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
}

/// Returns the name that [`Escaped`] displays as this text; `None` if it displays no name so.
pub(crate) fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, more @ ..] = rest {
        let byte;
        (byte, rest) = match (first, more) {
            (b'\\', [b'\\', more @ ..]) => (b'\\', more),
            (b'\\', [b'x', high, low, more @ ..]) => (digit(*high)? << 4 | digit(*low)?, more),
            (b'\\', _) => return None,
            _ => (*first, more),
        };
        name.push(byte);
    }
    Some(name)
}

fn digit(char: u8) -> Option<u8> {
    char::from(char).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_line_breaks_and_control_characters() {
        let shown = |name: &[u8]| Escaped(name).to_string();
        assert_eq!(shown(b"a b"), "a b");
        assert_eq!(shown("Größe".as_bytes()), "Größe");
        assert_eq!(shown(b"a\\b\n\t\xff"), "a\\\\b\\x0a\\x09\\xff");
        assert_eq!(shown("\u{2028}".as_bytes()), "\\xe2\\x80\\xa8");
    }

    #[test]
    fn rejects_incomplete_escapes() {
        for text in [&b"\\"[..], b"\\x", b"\\x0", b"\\xg0", b"\\n"] {
            assert_eq!(unescape(text), None);
        }
    }

    proptest! {
        #[test]
        fn unescape_reverses_escaped(name: Vec<u8>) {
            let shown = Escaped(&name).to_string();
            prop_assert!(!shown.contains(char::is_control));
            prop_assert_eq!(unescape(shown.as_bytes()), Some(name));
        }
    }
}
