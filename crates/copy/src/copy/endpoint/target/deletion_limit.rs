// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides whether `--delete` would remove too much: more than allowed, or what looks like an accident, as a source whose
//! disk is not mounted, or a path with a typing error.

use crate::protocol::options::DeletionLimit;

/// Entries whose removal is no accident, unless they are all that there are.
const FEW: u64 = 10;

/// Findings of a copy with `--delete`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Removal {
    /// Entries of the source.
    pub(super) source_entries: u64,
    /// Entries of the source that the target has.
    pub(super) common: u64,
    /// Entries that would be removed.
    pub(super) removed: u64,
}

impl Removal {
    /// Returns why this is refused.
    pub(super) fn refusal(&self, limit: DeletionLimit) -> Option<String> {
        let present = self.common + self.removed;
        let allows = match limit {
            DeletionLimit::Count(most) => self.removed <= most,
            DeletionLimit::Percent(most) => self.removed * 100 <= present * u64::from(most),
            DeletionLimit::NoAccident => !self.is_accident(present),
        };
        let (removed, empty) = (self.removed, self.source_entries == 0);
        let entries = match present {
            1 => "entry",
            _ => "entries",
        };
        (removed > 0 && !allows).then(|| match limit {
            DeletionLimit::NoAccident if empty => format!(
                "the source is empty, and {removed} {entries} at the target would be removed: --max-delete {removed} allows it"
            ),
            DeletionLimit::NoAccident => format!(
                "{removed} of {present} {entries} at the target would be removed, which the source does not have: --max-delete \
                 {removed} allows it, --dry-run lists them"
            ),
            DeletionLimit::Count(_) | DeletionLimit::Percent(_) => format!(
                "{removed} of {present} {entries} at the target would be removed, which the source does not have, more than \
                 --max-delete allows: --dry-run lists them"
            ),
        })
    }

    fn is_accident(&self, present: u64) -> bool {
        let is_most = self.removed * 2 > present && self.removed > FEW;
        let is_all = self.common == 0 && self.removed > 1;
        self.source_entries == 0 || is_most || is_all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(limit: DeletionLimit, [source_entries, common, removed]: [u64; 3]) -> bool {
        let removal = Removal {
            source_entries,
            common,
            removed,
        };
        removal.refusal(limit).is_some()
    }

    #[test]
    fn single_entry_is_called_so() {
        let of = |[source_entries, common, removed]: [u64; 3]| Removal {
            source_entries,
            common,
            removed,
        };
        let why = of([0, 0, 1]).refusal(DeletionLimit::NoAccident).unwrap();
        assert!(why.contains("1 entry at the target"), "{why}");
        let why = of([5, 1, 1]).refusal(DeletionLimit::Count(0)).unwrap();
        assert!(why.contains("1 of 2 entries at the target"), "{why}");
    }

    #[test]
    fn accidents_are_refused_by_default() {
        let is_refused = |found| is_refused(DeletionLimit::NoAccident, found);
        assert!(is_refused([0, 0, 1]), "an empty source");
        assert!(!is_refused([0, 0, 0]), "an empty target, too");
        assert!(is_refused([100, 49, 51]), "more than half");
        assert!(!is_refused([100, 50, 50]));
        assert!(!is_refused([5, 1, 10]), "few");
        assert!(is_refused([5, 0, 2]), "another directory");
        assert!(!is_refused([1, 0, 1]), "its only file was renamed");
    }

    #[test]
    fn a_limit_replaces_the_rules() {
        for (limit, found, refused) in [
            (DeletionLimit::Count(2), [0, 0, 2], false),
            (DeletionLimit::Count(2), [9, 90, 3], true),
            (DeletionLimit::Count(0), [9, 90, 1], true),
            (DeletionLimit::Count(0), [9, 90, 0], false),
            (DeletionLimit::Percent(10), [9, 90, 10], false),
            (DeletionLimit::Percent(10), [9, 90, 11], true),
            (DeletionLimit::Percent(100), [0, 0, 500], false),
        ] {
            assert_eq!(is_refused(limit, found), refused, "{limit:?} {found:?}");
        }
    }
}
