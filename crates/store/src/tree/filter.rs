// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which things of a tree are copied: patterns as in a `.gitignore`.
//!
//! A pattern with a slash at its start or within is anchored at the top of the tree that is copied,
//! the directory named as the source; any other matches at every depth. One with a slash at its end
//! matches directories. The last pattern that matches decides. What an excluded directory holds is
//! not even looked at. Where the first pattern is one to include, what none matches is left out, but
//! for directories on the way and for what lies in an included directory; else it is copied.

use crate::path::{RelPath, Shown};
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use std::collections::BTreeSet;

/// One pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// Copy what matches.
    Include(String),
    /// Leave out what matches.
    Exclude(String),
}

/// A pattern that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pattern {pattern:?}: {why}")]
pub struct BadPattern {
    /// As given.
    pub pattern: String,
    /// What is wrong.
    pub why: String,
}

/// What becomes of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is copied, and what is in it where no pattern excludes that.
    Included,
    /// It is on the way: copied, what is in it is looked at.
    Passed,
    /// It is left out with all that is in it.
    Excluded,
}

/// All patterns of a copy.
#[derive(Debug, Clone)]
pub struct Filter {
    /// "Ignored" is excluded, "whitelisted" included.
    patterns: Gitignore,
    /// Only what is included is copied.
    only: bool,
    /// First names of what is copied under a name of its own: they are not part of the trees.
    tops: BTreeSet<Box<[u8]>>,
    /// Of deletions ([`Filter::staying`]).
    one_file_system: bool,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            patterns: Gitignore::empty(),
            only: false,
            tops: BTreeSet::new(),
            one_file_system: false,
        }
    }
}

impl Filter {
    /// Reads patterns, in order.
    ///
    /// # Errors
    /// One that cannot be understood.
    pub fn new(rules: &[Rule]) -> Result<Self, BadPattern> {
        // Paths come relative to the top: there is nothing to take off them.
        let mut builder = GitignoreBuilder::new("");
        for rule in rules {
            add(&mut builder, rule)?;
        }
        let patterns = builder.build().map_err(|error| BadPattern {
            pattern: String::new(),
            why: error.to_string(),
        })?;
        Ok(Self {
            patterns,
            only: matches!(rules.first(), Some(Rule::Include(_))),
            tops: BTreeSet::new(),
            one_file_system: false,
        })
    }

    /// Whether what is removed, too, stays on the file system of the directory that was copied into (`-x`).
    #[must_use]
    pub fn staying(mut self, one_file_system: bool) -> Self {
        self.one_file_system = one_file_system;
        self
    }

    pub(crate) fn stays(&self) -> bool {
        self.one_file_system
    }

    /// The names in the copy of sources that are copied under their names (`SRC`, not `SRC/`).
    #[must_use]
    pub fn with_tops<'a>(mut self, tops: impl Iterator<Item = &'a RelPath>) -> Self {
        self.tops = tops.map(|top| top.as_bytes().into()).collect();
        self
    }

    /// What becomes of `path`, which lies in a directory that was judged `parent`
    /// ([`Verdict::Passed`] at the top).
    #[must_use]
    pub fn verdict(&self, path: &RelPath, is_dir: bool, parent: Verdict) -> Verdict {
        let Some(inside) = self.inside(path).filter(|_| !self.patterns.is_empty()) else {
            return Verdict::Passed;
        };
        match self.patterns.matched(inside.as_path(), is_dir) {
            Match::Ignore(_) => Verdict::Excluded,
            Match::Whitelist(_) => Verdict::Included,
            Match::None if parent == Verdict::Included || !self.only => parent,
            Match::None if is_dir => Verdict::Passed,
            Match::None => Verdict::Excluded,
        }
    }

    /// Verdict of a name without its parents' at hand: they are judged on the way.
    #[must_use]
    pub fn verdict_from_top(&self, path: &RelPath, is_dir: bool) -> Verdict {
        let parent = match path.parent() {
            Some(parent) => self.verdict_from_top(&parent, true),
            None => Verdict::Passed,
        };
        match parent {
            Verdict::Excluded => Verdict::Excluded,
            _ => self.verdict(path, is_dir, parent),
        }
    }

    /// The path in the tree that it is of; none is a tree itself, which the user named.
    fn inside(&self, path: &RelPath) -> Option<RelPath> {
        let first = path.components().next()?;
        if !self.tops.contains(first) {
            return Some(path.clone());
        }
        path.below(&RelPath::parse(first).ok()?)
    }
}

fn add(builder: &mut GitignoreBuilder, rule: &Rule) -> Result<(), BadPattern> {
    let (pattern, sign) = match rule {
        Rule::Include(pattern) => (pattern, "!"),
        Rule::Exclude(pattern) => (pattern, ""),
    };
    let bad = |why: String| BadPattern {
        pattern: pattern.clone(),
        why,
    };
    check(pattern).map_err(|why| bad(why.into()))?;
    builder
        .add_line(None, &format!("{sign}{}", plain(pattern, sign)))
        .map_err(|error| bad(Shown(why(&error).as_bytes()).to_string()))?;
    Ok(())
}

/// In a file, `#` begins a comment; on a command line it is a name like any other.
fn plain(pattern: &str, sign: &str) -> String {
    match pattern.strip_prefix('#') {
        Some(rest) if sign.is_empty() => format!("\\#{rest}"),
        _ => pattern.into(),
    }
}

fn check(pattern: &str) -> Result<(), &'static str> {
    match pattern.trim() {
        "" | "/" => Err("matches nothing; name something"),
        text if text.starts_with('!') => Err(
            "\"!\" is not taken here: say --include or --exclude; for a name that begins so, \"\\!\"",
        ),
        text if text.split('/').any(|name| name == "." || name == "..") => {
            Err("\".\" and \"..\" are never part of a path here; begin with \"/\" for the top")
        }
        _ => Ok(()),
    }
}

fn why(error: &ignore::Error) -> String {
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
    fn without_patterns_all_is_copied() {
        assert!(copied(&[], "a/b", false));
    }

    #[test]
    fn a_bare_name_matches_at_every_depth() {
        let rules = [exclude("*.o"), exclude("build/")];
        assert!(!copied(&rules, "a/b.o", false));
        assert!(!copied(&rules, "b.o", false));
        assert!(!copied(&rules, "x/build", true));
        assert!(!copied(&rules, "x/build/deep/file", false));
        assert!(copied(&rules, "x/build", false), "no directory");
        assert!(copied(&rules, "b.obj", false));
    }

    #[test]
    fn a_slash_anchors_at_the_top() {
        let rules = [exclude("/cache"), exclude("a/b")];
        assert!(!copied(&rules, "cache", true));
        assert!(copied(&rules, "x/cache", true));
        assert!(!copied(&rules, "a/b", false));
        assert!(copied(&rules, "x/a/b", false));
    }

    #[test]
    fn the_last_match_decides() {
        let rules = [exclude("*.o"), include("keep.o"), include("*")];
        assert!(copied(&rules[..2], "a/keep.o", false));
        assert!(copied(&rules, "x.o", false));
        let rules = [include("*.dat"), exclude("b.dat")];
        assert!(!copied(&rules, "b.dat", false));
    }

    #[test]
    fn what_is_included_after_an_exclusion_is_an_exception() {
        let rules = [exclude("*.tmp"), include("keep.tmp")];
        assert!(copied(&rules, "a/keep.tmp", false));
        assert!(!copied(&rules, "a/x.tmp", false));
        assert!(copied(&rules, "a/x.txt", false));
    }

    #[test]
    fn an_inclusion_first_means_nothing_else() {
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
    fn the_top_is_the_directory_that_was_named() {
        let top = RelPath::parse(b"set").unwrap();
        let filter = Filter::new(&[exclude("/cache"), exclude("set")]).unwrap();
        let filter = filter.with_tops(std::iter::once(&top));
        let verdict = |path: &str, dir| {
            filter.verdict_from_top(&RelPath::parse(path.as_bytes()).unwrap(), dir)
        };
        assert_eq!(verdict("set", true), Verdict::Passed, "named by the user");
        assert_eq!(verdict("set/cache", true), Verdict::Excluded);
        assert_eq!(
            verdict("cache", true),
            Verdict::Excluded,
            "of another source"
        );
        assert_eq!(verdict("set/x/cache", true), Verdict::Passed);
    }

    #[test]
    fn names_that_are_not_text_are_matched() {
        let filter = Filter::new(&[exclude("*.o")]).unwrap();
        let path = RelPath::parse(b"\xff\xfe.o").unwrap();
        assert_eq!(filter.verdict_from_top(&path, false), Verdict::Excluded);
    }

    #[test]
    fn odd_first_letters_are_taken_literally() {
        assert!(!copied(&[exclude("#x")], "#x", false));
        assert!(copied(&[include("#x")], "#x", false));
        assert!(!copied(&[exclude("\\!x")], "!x", false));
    }

    #[test]
    fn a_bad_pattern_is_one_clear_error() {
        let error = |pattern: &str| Filter::new(&[exclude(pattern)]).unwrap_err().to_string();
        assert_eq!(error(""), "pattern \"\": matches nothing; name something");
        assert!(error("!x").contains("--include"));
        assert!(error("../x").starts_with("pattern \"../x\": "));
        assert!(
            error("{a,b").starts_with("pattern \"{a,b\": unclosed"),
            "{}",
            error("{a,b")
        );
    }
}
