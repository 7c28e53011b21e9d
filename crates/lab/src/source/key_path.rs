// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of keys in scenario files, as `unset` has them.

/// Splits a path such as `check."at least 6"`. Dots in quotes belong to a name.
pub(crate) fn split(path: &str) -> Vec<String> {
    let mut quoted = false;
    let is_separator = |c: char| {
        quoted ^= c == '"';
        c == '.' && !quoted
    };
    path.split(is_separator)
        .map(|part| part.replace('"', ""))
        .collect()
}
