// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filter: patterns, as in a `.gitignore`, that select the entries to copy.
//!
//! A pattern with a slash at its start or within is anchored at the top of the copied tree, the
//! directory named as the source. Any other pattern matches at every depth. A pattern with a slash
//! at its end matches directories only. The last pattern that matches decides. The contents of an
//! excluded directory are not read.
//!
//! Entries without a match are copied, unless the first pattern is an inclusion. Then they are
//! excluded, except directories that may hold matches, and the contents of included directories.

use crate::path::{Printable, RelPath};
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Reason for refusing a pattern that consists of nothing or of a slash.
const EMPTY_PATTERN: &str =
    "matches no entry: give a name such as \"*.tmp\" or a path such as \"/cache\"";

/// Pattern with its effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rule {
    /// Copies matching entries.
    Include(String),
    /// Excludes matching entries.
    Exclude(String),
}

/// Error for an invalid pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pattern {pattern:?}: {reason}")]
pub struct BadPattern {
    /// Pattern as given.
    pub pattern: String,
    /// Reason.
    pub reason: String,
}

/// Decision of a filter about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Copied, with the contents that no pattern excludes.
    Included,
    /// Copied, although no pattern matches. The contents are matched in turn.
    Unmatched,
    /// Excluded, with all contents.
    Excluded,
}

/// All patterns of a copy.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Patterns: "ignored" is excluded, "whitelisted" included.
    patterns: Gitignore,
    /// Only included entries are copied.
    included_only: bool,
    /// Names that sources have in the copy, if they are copied under their names (`SRC`, not
    /// `SRC/`). Patterns are matched below them.
    source_names: BTreeSet<Box<[u8]>>,
    /// For deletions ([`Filter::with_one_file_system`]).
    one_file_system: bool,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            patterns: Gitignore::empty(),
            included_only: false,
            source_names: BTreeSet::new(),
            one_file_system: false,
        }
    }
}

impl Filter {
    /// Parses patterns, in order.
    ///
    /// # Errors
    /// Invalid patterns.
    pub fn new(rules: &[Rule]) -> Result<Self, BadPattern> {
        // Paths are relative to the top, so there is no prefix to remove.
        let mut builder = GitignoreBuilder::new("");
        builder.allow_unclosed_class(false);
        for rule in rules {
            add(&mut builder, rule)?;
        }
        let patterns = builder.build().map_err(|error| BadPattern {
            pattern: String::new(),
            reason: error.to_string(),
        })?;
        Ok(Self {
            patterns,
            included_only: matches!(rules.first(), Some(Rule::Include(_))),
            source_names: BTreeSet::new(),
            one_file_system: false,
        })
    }

    /// Sets whether deletions stay on the file system of the directory that was copied into (`-x`).
    #[must_use]
    pub fn with_one_file_system(mut self, one_file_system: bool) -> Self {
        self.one_file_system = one_file_system;
        self
    }

    pub(crate) fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    pub(crate) fn is_one_file_system(&self) -> bool {
        self.one_file_system
    }

    /// Sets the names that sources have in the copy, if they are copied under their names (`SRC`, not
    /// `SRC/`).
    #[must_use]
    pub fn with_source_names<'a>(mut self, names: impl Iterator<Item = &'a RelPath>) -> Self {
        self.source_names = names.map(|top| top.as_bytes().into()).collect();
        self
    }

    /// Decides about `path`, given the verdict about its directory ([`Verdict::Unmatched`] at the
    /// top).
    #[must_use]
    pub fn verdict(&self, path: &RelPath, is_dir: bool, parent: Verdict) -> Verdict {
        let Some(below) = self
            .path_in_source(path)
            .filter(|_| !self.patterns.is_empty())
        else {
            return Verdict::Unmatched;
        };
        match self.patterns.matched(below.as_path(), is_dir) {
            Match::Ignore(_) => Verdict::Excluded,
            Match::Whitelist(_) => Verdict::Included,
            Match::None if parent == Verdict::Included || !self.included_only => parent,
            Match::None if is_dir => Verdict::Unmatched,
            Match::None => Verdict::Excluded,
        }
    }

    /// Decides about `path`, and about its parent directories first.
    #[must_use]
    pub fn verdict_from_top(&self, path: &RelPath, is_dir: bool) -> Verdict {
        let parent = match path.parent() {
            Some(parent) => self.verdict_from_top(&parent, true),
            None => Verdict::Unmatched,
        };
        match parent {
            Verdict::Excluded => Verdict::Excluded,
            _ => self.verdict(path, is_dir, parent),
        }
    }

    /// Path below the source's top. `None` for the top itself, which the user named.
    fn path_in_source(&self, path: &RelPath) -> Option<RelPath> {
        let first = path.components().next()?;
        if !self.source_names.contains(first) {
            return Some(path.clone());
        }
        path.strip_prefix(&RelPath::parse(first).ok()?)
    }
}

fn add(builder: &mut GitignoreBuilder, rule: &Rule) -> Result<(), BadPattern> {
    let (pattern, sign) = match rule {
        Rule::Include(pattern) => (pattern, "!"),
        Rule::Exclude(pattern) => (pattern, ""),
    };
    let bad = |reason: String| BadPattern {
        pattern: pattern.clone(),
        reason,
    };
    check(pattern).map_err(|reason| bad(reason.into()))?;
    builder
        .add_line(None, &format!("{sign}{}", escape_comment(pattern, sign)))
        .map_err(|error| bad(Printable(error_text(&error).as_bytes()).to_string()))?;
    Ok(())
}

/// Escapes `#`, which begins a comment in a pattern file but not on a command line.
fn escape_comment(pattern: &str, sign: &str) -> String {
    match pattern.strip_prefix('#') {
        Some(rest) if sign.is_empty() => format!("\\#{rest}"),
        _ => pattern.into(),
    }
}

fn check(pattern: &str) -> Result<(), &'static str> {
    match pattern.trim() {
        "" | "/" => Err(EMPTY_PATTERN),
        text if text.starts_with('!') => Err(
            "\"!\" is not allowed here: use --include or --exclude; for a name that begins with it, \"\\!\"",
        ),
        text if text.split('/').any(|name| name == "." || name == "..") => {
            Err("\".\" and \"..\" are never part of a path here; begin with \"/\" for the top")
        }
        _ => Ok(()),
    }
}

fn error_text(error: &ignore::Error) -> String {
    match error {
        ignore::Error::Glob { err, .. } => err.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exclude(pattern: &str) -> Rule {
        Rule::Exclude(pattern.into())
    }

    fn include(pattern: &str) -> Rule {
        Rule::Include(pattern.into())
    }

    fn copied(rules: &[Rule], path: &str, is_dir: bool) -> bool {
        let filter = Filter::new(rules).unwrap();
        let path = RelPath::parse(path.as_bytes()).unwrap();
        filter.verdict_from_top(&path, is_dir) != Verdict::Excluded
    }

    #[test]
    fn copies_everything_without_patterns() {
        assert!(copied(&[], "a/b", false));
    }

    #[test]
    fn pattern_without_slash_matches_at_every_depth() {
        let rules = [exclude("*.o"), exclude("build/")];
        assert!(!copied(&rules, "a/b.o", false));
        assert!(!copied(&rules, "b.o", false));
        assert!(!copied(&rules, "x/build", true));
        assert!(!copied(&rules, "x/build/deep/file", false));
        assert!(copied(&rules, "x/build", false), "not a directory");
        assert!(copied(&rules, "b.obj", false));
    }

    #[test]
    fn slash_anchors_a_pattern_at_the_top() {
        let rules = [exclude("/cache"), exclude("a/b")];
        assert!(!copied(&rules, "cache", true));
        assert!(copied(&rules, "x/cache", true));
        assert!(!copied(&rules, "a/b", false));
        assert!(copied(&rules, "x/a/b", false));
    }

    #[test]
    fn last_match_decides() {
        let rules = [exclude("*.o"), include("keep.o"), include("*")];
        assert!(copied(&rules[..2], "a/keep.o", false));
        assert!(copied(&rules, "x.o", false));
        let rules = [include("*.dat"), exclude("b.dat")];
        assert!(!copied(&rules, "b.dat", false));
    }

    #[test]
    fn inclusion_after_exclusion_is_an_exception() {
        let rules = [exclude("*.tmp"), include("keep.tmp")];
        assert!(copied(&rules, "a/keep.tmp", false));
        assert!(!copied(&rules, "a/x.tmp", false));
        assert!(copied(&rules, "a/x.txt", false));
    }

    #[test]
    fn leading_inclusion_excludes_everything_else() {
        let rules = [include("*.dat"), include("/results/")];
        assert!(copied(&rules, "a/x.dat", false));
        assert!(!copied(&rules, "a/x.txt", false));
        assert!(copied(&rules, "a", true), "on the way");
        assert!(
            copied(&rules, "results/deep/x.txt", false),
            "all that is in it"
        );
        assert!(!copied(&rules, "a/results/x.txt", false));
    }

    #[test]
    fn patterns_are_anchored_at_the_named_directory() {
        let top = RelPath::parse(b"set").unwrap();
        let filter = Filter::new(&[exclude("/cache"), exclude("set")]).unwrap();
        let filter = filter.with_source_names(std::iter::once(&top));
        let verdict = |path: &str, dir| {
            filter.verdict_from_top(&RelPath::parse(path.as_bytes()).unwrap(), dir)
        };
        assert_eq!(
            verdict("set", true),
            Verdict::Unmatched,
            "named by the user"
        );
        assert_eq!(verdict("set/cache", true), Verdict::Excluded);
        assert_eq!(
            verdict("cache", true),
            Verdict::Excluded,
            "of another source"
        );
        assert_eq!(verdict("set/x/cache", true), Verdict::Unmatched);
    }

    #[test]
    fn matches_names_that_are_not_utf8() {
        let filter = Filter::new(&[exclude("*.o")]).unwrap();
        let path = RelPath::parse(b"\xff\xfe.o").unwrap();
        assert_eq!(filter.verdict_from_top(&path, false), Verdict::Excluded);
    }

    #[test]
    fn takes_special_first_characters_literally() {
        assert!(!copied(&[exclude("#x")], "#x", false));
        assert!(copied(&[include("#x")], "#x", false));
        assert!(!copied(&[exclude("\\!x")], "!x", false));
    }

    #[test]
    fn reports_bad_patterns_clearly() {
        let error = |pattern: &str| Filter::new(&[exclude(pattern)]).unwrap_err().to_string();
        assert_eq!(
            error(""),
            "pattern \"\": matches no entry: give a name such as \"*.tmp\" or a path such as \"/cache\""
        );
        assert!(error("!x").contains("--include"));
        assert!(error("../x").starts_with("pattern \"../x\": "));
        assert!(error("[").starts_with("pattern \"[\": unclosed"));
        assert!(
            error("{a,b").starts_with("pattern \"{a,b\": unclosed"),
            "{}",
            error("{a,b")
        );
    }
}
