// SPDX-License-Identifier: MIT OR Apache-2.0
//! What another host says is shown here, on a terminal often: none of its characters may do more there than be seen.

use super::order::Report;

/// The same text, but for what moves a cursor, sets a title, ends a line or can't be seen: that is escaped.
pub(super) fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\'' | '"' | '\\' => shown.push(char),
            _ => shown.extend(char.escape_debug()),
        }
    }
    shown
}

impl Report {
    /// The same report with harmless texts.
    pub(super) fn harmless(mut self) -> Self {
        match &mut self {
            Self::Occupied(text)
            | Self::Problem(text)
            | Self::Broken(text)
            | Self::Refused(text)
            | Self::Hello { version: text, .. }
            | Self::Done {
                failed: Some(text), ..
            } => *text = harmless(text),
            Self::Planned(planned) => planned.path = harmless(&planned.path),
            _ => {}
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_seen_is_escaped() {
        let names = "größe 大 'a' \"b\" c\\x0a";
        assert_eq!(harmless(names), names);
        assert_eq!(
            harmless("\x1b]0;x\x07\r\nlonghaul: done\u{9b}2J"),
            "\\u{1b}]0;x\\u{7}\\r\\nlonghaul: done\\u{9b}2J"
        );
    }
}
