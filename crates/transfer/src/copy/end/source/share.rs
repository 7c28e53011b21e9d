// SPDX-License-Identifier: MIT OR Apache-2.0
//! What of a tree goes to one of several hosts that each keep a share of it.

use super::{
    file::{SourceFile, file_of},
    state::Source,
};
use crate::{
    copy::end::{location::Machine, reach::Reach},
    protocol::{
        message::Share,
        order::{Begin, Task},
        sources::Sources,
        spread::Share as SpreadShare,
    },
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_scheduling::placement::{Kept, Placement};
use longhaul_store::{
    blocks::BLOCK,
    entry::{Entry, Kind},
    path::RelPath,
    tree::scan::Source as Place,
};
use longhaul_store::{
    path::Shown,
    tree::spread::{self, Share as Spread},
};
use sha2::{Digest as _, Sha256};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};
use std::{ops::Range, sync::Arc};

impl Source {
    /// How much of something is copied here; `None`: nothing, another host has it. All have all directories.
    pub(super) fn share_of(&self, place: &Place, entry: &Entry) -> Option<Share> {
        let Task::Spread(placement) = self.task else {
            return Some(Share::Whole);
        };
        let placement = Placement::from(placement);
        let whole = |path| placement.has(number(path)).then_some(Share::Whole);
        match &entry.kind {
            Kind::Directory => Some(Share::Whole),
            Kind::HardLink { to } => whole(to),
            Kind::File { version, .. } => {
                // What has several names has all of them at one host. Who can't be asked is not divided.
                let divisible = || place.links(&entry.path).is_ok_and(|links| links == 1);
                match placement.of_file(number(&entry.path), version.size, BLOCK, divisible) {
                    Kept::Nothing => None,
                    Kept::Whole => Some(Share::Whole),
                    Kept::Blocks(blocks) => Some(Share::Kept(blocks)),
                }
            }
            _ => whole(&entry.path),
        }
    }

    /// Whether pieces are what is copied: to who does not expect them they would pass for whole files.
    pub(super) fn takes_pieces(&self) -> bool {
        matches!(self.task, Task::Gather(_) | Task::Pieces)
    }

    /// A piece of a file, which was brought by an earlier copy.
    pub(super) fn piece(
        &self,
        entry: &Entry,
        held: Vec<Range<u64>>,
        sources: &Arc<[Place]>,
        source: usize,
    ) -> Option<SourceFile> {
        let file = file_of(entry, sources, source)?;
        let share = match self.task {
            Task::Gather(_) => Share::Piece(held),
            _ => Share::Kept(held),
        };
        Some(SourceFile {
            share,
            in_piece: true,
            ..file
        })
    }
}

/// The same for the same name, always and everywhere.
fn number(path: &RelPath) -> u64 {
    let hash = Sha256::digest(path.as_bytes());
    let first = hash.first_chunk().copied().unwrap_or_default();
    u64::from_be_bytes(first)
}

/// Where the sources are, for a target that may be on this machine, too.
pub(crate) fn located(begin: &Begin, reach: &Reach) -> Sources {
    let given = begin.paths.iter().filter_map(|path| {
        let name = longhaul_store::tree::scan::source_name(Path::new(OsStr::from_bytes(path)));
        Some((path.clone(), name.ok()?, reach.real(path)?))
    });
    let machine = Machine::read();
    machine.map_or_else(Sources::default, |machine| {
        machine.sources(given, begin.options.one_file_system)
    })
}

/// What is known of the shares that the sources are, each by its name in the copy.
pub(crate) fn shares(begin: &Begin, reach: &Reach) -> Result<Vec<SpreadShare>> {
    let mut all = Vec::new();
    for path in &begin.paths {
        let (Some(real), Some(top)) = (reach.real(path), reach.top()) else {
            continue;
        };
        let name = longhaul_store::tree::scan::source_name(Path::new(OsStr::from_bytes(path)));
        let name = name.map_err(Refusal::usage)?;
        let shares = spread::of_tree(&real, &top).map_err(Refusal::usage)?;
        all.extend(shares.into_iter().map(|share| {
            let share = SpreadShare::from(share);
            SpreadShare {
                top: name.clone().or(share.top),
                ..share
            }
        }));
    }
    Ok(all)
}

/// Sources that are one share of what was spread over several hosts, each in words: a copy of one is not whole.
pub(super) fn incomplete(begin: &Begin, reach: &Reach) -> Vec<String> {
    // Gathered, the shares of what is named itself are counted.
    if matches!(begin.task, Task::Gather(_)) || !tells_what_lacks(begin.task) {
        return Vec::new();
    }
    let said = begin.paths.iter().filter_map(|path| {
        let why = match spread::of_tree(&reach.real(path)?, &reach.top()?) {
            Ok(shares) => {
                let mut lacking = shares.iter().filter_map(|share| lacking(share, begin.task));
                lacking.next()?
            }
            Err(error) => error.to_string(),
        };
        Some(format!("{}: {why}", Shown(path)))
    });
    said.collect()
}

/// Whether this conversation says that a tree is not whole: of several hosts' one does, and not where shares stay shares.
pub(super) fn tells_what_lacks(task: Task) -> bool {
    match task {
        Task::Whole | Task::Gather(_) => true,
        Task::Spread(placement) => placement.host == 0,
        _ => false,
    }
}

/// What is not here of a tree that was spread over several hosts.
pub(super) fn lacking(share: &Spread, task: Task) -> Option<String> {
    let hosts = share.hosts.join(", ");
    (share.hosts.len() > 1).then(|| match task {
        // Only of what is named itself are the shares counted.
        Task::Gather(_) => format!(
            "it was spread over {hosts}; longhaul copy --apart source of it alone finds out whether all of it is there"
        ),
        _ => format!(
            "only one host's share of it is here: it was spread over {hosts}; longhaul copy --apart source brings all of them together"
        ),
    })
}
