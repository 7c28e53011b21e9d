// SPDX-License-Identifier: MIT OR Apache-2.0
//! Portions of entries for one of several hosts that keep a share of a tree each.

use super::{
    file::{SourceFile, source_file},
    state::Source,
};
use crate::{
    copy::endpoint::{access_scope::AccessScope, location::Machine},
    protocol::{
        control::{Begin, Task},
        message::Portion,
        sources::Sources,
    },
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_scheduling::placement::HostShare;
use longhaul_store::{
    blocks::BLOCK_LEN,
    entry::{Entry, Kind},
    path::RelPath,
    tree::scan::Source as ScanSource,
};
use longhaul_store::{
    path::Printable,
    tree::spread::{self, TreeShare},
};
use sha2::{Digest as _, Sha256};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};
use std::{ops::Range, sync::Arc};

impl Source {
    /// Returns the part of an entry that is copied here; `None` if it is for another host. All hosts get all
    /// directories.
    pub(super) fn portion_of(&self, scan_source: &ScanSource, entry: &Entry) -> Option<Portion> {
        let Task::Spread(placement) = self.task else {
            return Some(Portion::Whole);
        };
        let whole = |path| placement.owns(name_hash(path)).then_some(Portion::Whole);
        match &entry.kind {
            Kind::Directory => Some(Portion::Whole),
            Kind::HardLink { to } => whole(to),
            Kind::File { version, .. } => {
                // A file with several names goes to one host, with all of them. If the link count is unknown,
                // the file is not divided.
                let divisible = || {
                    scan_source
                        .hard_links(&entry.path)
                        .is_ok_and(|links| links == 1)
                };
                match placement.share_of_file(
                    name_hash(&entry.path),
                    version.size,
                    BLOCK_LEN,
                    divisible,
                ) {
                    HostShare::Nothing => None,
                    HostShare::Whole => Some(Portion::Whole),
                    HostShare::Blocks(blocks) => Some(Portion::KeepPiece(blocks)),
                }
            }
            _ => whole(&entry.path),
        }
    }

    /// Returns whether pieces are copied. Otherwise the target would take them for whole files.
    pub(super) fn copies_pieces(&self) -> bool {
        matches!(self.task, Task::Gather(_) | Task::Pieces)
    }

    /// Returns a piece of a file, which an earlier copy wrote.
    pub(super) fn piece(
        &self,
        entry: &Entry,
        blocks: Vec<Range<u64>>,
        sources: &Arc<[ScanSource]>,
        source: usize,
    ) -> Option<SourceFile> {
        let file = source_file(entry, sources, source)?;
        let portion = match self.task {
            Task::Gather(_) => Portion::JoinPiece(blocks),
            _ => Portion::KeepPiece(blocks),
        };
        Some(SourceFile {
            portion,
            is_piece: true,
            ..file
        })
    }
}

/// Hashes a path; the result is the same on every host and in every run.
fn name_hash(path: &RelPath) -> u64 {
    let hash = Sha256::digest(path.as_bytes());
    let first = hash.first_chunk().copied().unwrap_or_default();
    u64::from_be_bytes(first)
}

/// Returns the locations of the sources, for a target that may be on the same machine.
pub(crate) fn source_locations(begin: &Begin, scope: &AccessScope) -> Sources {
    let given = begin.paths.iter().filter_map(|path| {
        let name = longhaul_store::tree::scan::source_name(Path::new(OsStr::from_bytes(path)));
        Some((path.clone(), name.ok()?, scope.source_path(path)?))
    });
    let machine = Machine::read();
    machine.map_or_else(Sources::default, |machine| {
        machine.source_locations(given, begin.options.one_file_system)
    })
}

/// Returns the recorded shares of the sources, each with its name in the copy.
pub(crate) fn recorded_shares(begin: &Begin, scope: &AccessScope) -> Result<Vec<TreeShare>> {
    let mut all = Vec::new();
    for path in &begin.paths {
        let (Some(real), Some(top)) = (scope.source_path(path), scope.root_path()) else {
            continue;
        };
        let name = longhaul_store::tree::scan::source_name(Path::new(OsStr::from_bytes(path)));
        let name = name.map_err(Refusal::usage)?;
        let shares = spread::shares_of_tree(&real, &top).map_err(Refusal::usage)?;
        all.extend(shares.into_iter().map(|share| TreeShare {
            top: name.clone().or(share.top),
            ..share
        }));
    }
    Ok(all)
}

/// Describes the sources that are only one host's share of a spread tree: a copy of one is incomplete.
pub(super) fn describe_incomplete(begin: &Begin, scope: &AccessScope) -> Vec<String> {
    // In a gather, the coordinator counts the shares of the source itself.
    if matches!(begin.task, Task::Gather(_)) || !reports_missing_shares(begin.task) {
        return Vec::new();
    }
    let problems = begin.paths.iter().filter_map(|path| {
        let why = match spread::shares_of_tree(&scope.source_path(path)?, &scope.root_path()?) {
            Ok(shares) => {
                let mut missing = shares
                    .iter()
                    .filter_map(|share| describe_missing(share, begin.task));
                missing.next()?
            }
            Err(error) => error.to_string(),
        };
        Some(format!("{}: {why}", Printable(path)))
    });
    problems.collect()
}

/// Returns whether this session reports missing shares. With several target hosts only the first does;
/// sessions that copy shares as shares do not.
pub(super) fn reports_missing_shares(task: Task) -> bool {
    match task {
        Task::Whole | Task::Gather(_) => true,
        Task::Spread(placement) => placement.host == 0,
        _ => false,
    }
}

/// Describes what is missing here of a tree that was spread over several hosts.
pub(super) fn describe_missing(share: &TreeShare, task: Task) -> Option<String> {
    let hosts = share.hosts.join(", ");
    (share.hosts.len() > 1).then(|| match task {
        // Shares are counted only for the source itself, not for trees below it.
        Task::Gather(_) => format!(
            "it was distributed over {hosts}; longhaul copy --distributed source of it alone finds out whether all of it is there"
        ),
        _ => format!(
            "only one host's share of it is here: it was distributed over {hosts}; longhaul copy --distributed source copies all of them together"
        ),
    })
}
