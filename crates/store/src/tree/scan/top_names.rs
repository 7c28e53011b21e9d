// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names at the top of a copy of several sources: who has which.

use super::{
    frame::{Location, join},
    source::{Source, SourceError},
};
use crate::{path::RelPath, root::Failure};
use std::collections::BTreeMap;

/// Names at the top of the copy. Empty with a single source.
#[derive(Debug, Default)]
pub(super) struct TopNames {
    /// Sources that have a name, by it.
    named: BTreeMap<RelPath, Vec<usize>>,
    /// Sources of which only the contents are copied.
    contents_only: Vec<usize>,
    /// Names that the scan has reached.
    claimed: BTreeMap<RelPath, Claim>,
    has_several: bool,
}

/// Type of the item that the scan has returned under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// An entry, and the same directory of later sources with it.
    Entry,
    /// A piece of a file.
    Piece,
}

impl TopNames {
    /// # Errors
    /// Two sources would have the same name in the copy, and are neither directories nor the same file.
    pub(super) fn of(sources: &[Source]) -> Result<Self, SourceError> {
        let mut top = Self {
            has_several: sources.len() > 1,
            ..Self::default()
        };
        for (index, source) in sources.iter().enumerate() {
            let Some(name) = &source.name else {
                top.contents_only.push(index);
                continue;
            };
            let same = top.named.entry(name.clone()).or_default();
            if let Some(first) = same.first() {
                source.check_same_name(&sources[*first])?;
            }
            same.push(index);
        }
        Ok(top)
    }

    pub(super) fn is_claimed(&self, name: &RelPath) -> bool {
        self.claim_of(name).is_some()
    }

    pub(super) fn claim_of(&self, name: &RelPath) -> Option<Claim> {
        self.claimed.get(name).copied()
    }

    /// Claims the name of a piece; returns false if it is claimed.
    pub(super) fn claim_piece(&mut self, name: &RelPath) -> bool {
        let is_free = !self.is_claimed(name);
        if is_free && self.has_several {
            self.claimed.insert(name.clone(), Claim::Piece);
        }
        is_free
    }

    /// Claims the name of an entry, and returns where later sources may have it.
    pub(super) fn claim(
        &mut self,
        sources: &[Source],
        entry: &Location,
    ) -> Result<Vec<Location>, Failure> {
        if !self.has_several {
            return Ok(Vec::new());
        }
        self.claimed.insert(entry.path.clone(), Claim::Entry);
        let named = self.named.get(&entry.path).into_iter().flatten();
        let mut later: Vec<usize> = named.chain(&self.contents_only).copied().collect();
        later.retain(|index| *index > entry.source);
        later.sort_unstable();
        let location = |index: usize| {
            let source = &sources[index];
            let path_in_root = match source.name {
                Some(_) => source.path_in_root.clone(),
                None => Some(join(source.path_in_root.as_ref(), entry.path.name())?),
            };
            Ok(Location {
                source: index,
                path_in_root,
                path: entry.path.clone(),
                device: source.handle()?.stat.st_dev,
            })
        };
        later.into_iter().map(location).collect()
    }
}
