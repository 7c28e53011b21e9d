// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source of a copy that several workers share. The coordinator assigns one extent after another; the source
//! announces it, and reports when all of it is durable.

use super::{
    file::{SourceFile, file_of},
    state::{Source, Unsettled},
};
use crate::protocol::{
    control::{Content, ControlMsg, Extent},
    message::{self, Portion, SourceMsg},
    report::Report,
};
use longhaul_command::threads;
use longhaul_store::{
    entry::{Entry, Kind, Version},
    part::journal,
    path::RelPath,
    root::Failure,
    tree::scan::Source as Place,
};
use parking_lot::Mutex;
use std::{
    collections::HashSet,
    io,
    ops::Range,
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Maximum directories remembered as announced; beyond it, some are announced again.
const DIRECTORIES_MAX: usize = 65_536;

/// Interval between checks of the lease's deadline.
const GUARD: Duration = Duration::from_millis(200);

/// Extent with the coordinator's number.
#[derive(Debug)]
pub(super) struct Assignment {
    number: u64,
    extent: Extent,
}

/// Starts to read the coordinator's messages; returns the assignments. The process exits when the lease
/// expires or the coordinator is gone: others may have its extents by then.
pub(super) fn hear() -> anyhow::Result<Receiver<Assignment>> {
    let (to, from) = channel();
    let until = Arc::new(Mutex::new(None));
    let guarded = until.clone();
    threads::spawn(move || guard(&guarded))?;
    threads::spawn(move || {
        let mut to = Some(to);
        while let Ok(Some(word)) = message::read(&mut io::stdin().lock()) {
            match word {
                ControlMsg::Assignment { number, extent } => {
                    let to = to.as_ref();
                    let _nobody_hears = to.map(|to| to.send(Assignment { number, extent }));
                }
                ControlMsg::LeaseRemaining(millis) => {
                    let end = Instant::now() + Duration::from_millis(millis.into());
                    *until.lock() = Some(end);
                }
                ControlMsg::NoMoreExtents => to = None,
            }
        }
        std::process::exit(1);
    })?;
    Ok(from)
}

fn guard(until: &Mutex<Option<Instant>>) {
    loop {
        thread::sleep(GUARD);
        if until.lock().is_some_and(|until| until < Instant::now()) {
            std::process::exit(1);
        }
    }
}

impl Source {
    pub(super) fn announce_assigned(
        &self,
        sources: &Arc<[Place]>,
        assigned: &Receiver<Assignment>,
    ) {
        let tops = sources.iter().filter_map(Place::name).cloned();
        self.orders.put(SourceMsg::Roots(tops.collect()));
        let mut known = HashSet::new();
        for Assignment { number, extent } in assigned {
            let whole = Unsettled {
                more: true,
                ..Unsettled::default()
            };
            self.shared
                .update(|state| state.extents.insert(number, whole));
            self.announce_extent(sources, &mut known, number, extent);
            self.change_extent(number, |extent| extent.more = false);
            self.tell_if_done(number);
        }
        self.tally.update(|now| now.scanned = true);
        self.orders.put(SourceMsg::ScanEnded);
    }

    fn announce_extent(
        &self,
        sources: &Arc<[Place]>,
        known: &mut HashSet<RelPath>,
        number: u64,
        extent: Extent,
    ) {
        let mut planned = None;
        let shares = match extent.content {
            Content::Files(paths) => paths
                .into_iter()
                .map(|path| (path, Portion::Whole))
                .collect(),
            Content::Blocks {
                path,
                blocks,
                version,
            } => {
                planned = Some(version.into());
                vec![(path, Portion::Blocks(blocks))]
            }
            Content::Name(path) => vec![(path, Portion::Finalize)],
        };
        let source = extent.source as usize;
        for (path, share) in shares {
            let found = match sources.get(source) {
                Some(place) => self
                    .look_at(place, known, &path)
                    .map_err(|error| error.to_string()),
                None => Err(format!("{path}: there is no source {source}")),
            };
            match found {
                Ok(entry) if is_another(&entry, planned) => {
                    let why = format!("{path}: it is another file here, or has changed");
                    self.note_failure(number, why);
                }
                Ok(entry) => self.announce_share(sources, source, number, entry, share),
                Err(why) => self.note_failure(number, why),
            }
        }
    }

    /// Returns the current entry of a file, after announcing its parent directories.
    fn look_at(
        &self,
        place: &Place,
        known: &mut HashSet<RelPath>,
        path: &RelPath,
    ) -> Result<Entry, Failure> {
        let mut above = Vec::new();
        let mut dir = path.parent();
        while let Some(path) = dir.filter(|path| !known.contains(path)) {
            dir = path.parent();
            above.push(path);
        }
        for path in above.into_iter().rev() {
            self.announce_one(place.look_again(&path)?, None);
            if known.len() == DIRECTORIES_MAX {
                known.clear();
            }
            known.insert(path);
        }
        place.look_again(path)
    }

    fn announce_share(
        &self,
        sources: &Arc<[Place]>,
        source: usize,
        number: u64,
        entry: Entry,
        share: Portion,
    ) {
        let Some(file) = file_of(&entry, sources, source) else {
            return self.note_failure(number, format!("{}: it is no file any more", entry.path));
        };
        let share = match share {
            Portion::Blocks(blocks) => match clipped(&blocks, file.blocks().count()) {
                // The file has become shorter.
                None => return,
                Some(within) => Portion::Blocks(within),
            },
            share => share,
        };
        let assignment = Some(number);
        let file = Arc::new(SourceFile {
            share,
            assignment,
            ..file
        });
        self.change_extent(number, |extent| extent.files += 1);
        self.announce_one(entry, Some(file));
    }

    fn note_failure(&self, number: u64, why: String) {
        self.change_extent(number, |extent| {
            extent.failed.get_or_insert(why);
        });
    }

    fn change_extent(&self, number: u64, change: impl FnOnce(&mut Unsettled)) {
        self.shared.update(|state| {
            state.extents.get_mut(&number).map(change);
        });
    }

    /// Counts a completed file of an extent, and reports the extent if it was the last.
    pub(super) fn count_down(&self, file: Option<&SourceFile>, failed: Option<String>) {
        let Some(number) = file.and_then(|file| file.assignment) else {
            return;
        };
        if let Some(why) = failed {
            self.note_failure(number, why);
        }
        self.change_extent(number, |extent| extent.files -= 1);
        self.tell_if_done(number);
    }

    fn tell_if_done(&self, number: u64) {
        let done = self.shared.update(|state| {
            let extent = state.extents.get(&number)?;
            let over = extent.files == 0 && !extent.more;
            over.then(|| state.extents.remove(&number))?
        });
        if let Some(Unsettled { failed, .. }) = done {
            self.reporter.send(&Report::ExtentDone { number, failed });
        }
    }
}

/// Returns whether a file differs from the planned one. The device is not compared: it differs between hosts.
fn is_another(entry: &Entry, planned: Option<Version>) -> bool {
    let of = |version: &Version| journal::Version::from(version);
    match (&entry.kind, planned) {
        (Kind::File { version, .. }, Some(planned)) => of(version) != of(&planned),
        _ => false,
    }
}

/// Returns the blocks that exist in a file of `count` blocks.
fn clipped(blocks: &Range<u64>, count: u64) -> Option<Range<u64>> {
    let end = blocks.end.min(count);
    (blocks.start < end).then_some(blocks.start..end)
}
