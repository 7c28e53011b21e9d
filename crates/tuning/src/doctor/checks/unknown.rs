// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts that could not be read, so that nobody takes them for checked.

use super::super::{facts::Facts, finding::Finding, path::Path};

pub(super) fn check(facts: &Facts, _: Path) -> Vec<Finding> {
    let note = |(name, reason): (&String, &String)| {
        Finding::note(
            name,
            "unknown",
            format!("could not be read, and is not checked: {reason}"),
        )
    };
    facts.unknown.iter().map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::finding::Severity, fixtures::*},
        *,
    };

    #[test]
    fn unreadable_facts_are_notes() {
        let mut facts = facts(&[]);
        facts
            .unknown
            .insert("interfaces".to_owned(), "not permitted".to_owned());
        let found = about(check(&facts, path()), "interfaces");
        assert_eq!(
            (found.severity, found.value.as_str()),
            (Severity::Note, "unknown")
        );
        assert!(found.reason.ends_with("not permitted"), "{}", found.reason);
    }
}
