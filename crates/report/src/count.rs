// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts with their nouns.

/// Formats a count with its noun: "1 relay", "3 relays".
///
/// ```
/// use longhaul_report::count::counted;
///
/// assert_eq!(counted(1, "relay"), "1 relay");
/// assert_eq!(counted(0, "relay"), "0 relays");
/// ```
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {}", plural(count, noun))
}

/// Returns the singular for 1, else the plural with an s.
#[must_use]
pub fn plural(count: u64, noun: &str) -> String {
    match count {
        1 => noun.to_owned(),
        _ => format!("{noun}s"),
    }
}
