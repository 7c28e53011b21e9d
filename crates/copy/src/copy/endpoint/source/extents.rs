// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source of a copy that several workers share. The coordinator assigns one extent after another; the source
//! announces it, and reports when all of it is durable.

use super::{
    file::{SourceFile, source_file},
    state::{ExtentProgress, Source},
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
    tree::scan::Source as ScanSource,
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
const LEASE_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Extent with the coordinator's number.
#[derive(Debug)]
pub(super) struct Assignment {
    number: u64,
    extent: Extent,
}

/// Starts to read the coordinator's messages; returns the assignments. The process exits when the lease
/// expires or the coordinator is gone: others may have its extents by then.
pub(super) fn receive_assignments() -> anyhow::Result<Receiver<Assignment>> {
    let (to, from) = channel();
    let deadline = Arc::new(Mutex::new(None));
    let watched = deadline.clone();
    threads::spawn(move || watch_lease(&watched))?;
    threads::spawn(move || {
        let mut to = Some(to);
        while let Ok(Some(message)) = message::read(&mut io::stdin().lock()) {
            match message {
                ControlMsg::Assignment { number, extent } => {
                    let to = to.as_ref();
                    let _no_receiver = to.map(|to| to.send(Assignment { number, extent }));
                }
                ControlMsg::LeaseRemaining(millis) => {
                    let end = Instant::now() + Duration::from_millis(millis.into());
                    *deadline.lock() = Some(end);
                }
                ControlMsg::NoMoreExtents => to = None,
            }
        }
        std::process::exit(1);
    })?;
    Ok(from)
}

fn watch_lease(deadline: &Mutex<Option<Instant>>) {
    loop {
        thread::sleep(LEASE_CHECK_INTERVAL);
        if deadline
            .lock()
            .is_some_and(|deadline| deadline < Instant::now())
        {
            std::process::exit(1);
        }
    }
}

impl Source {
    pub(super) fn announce_assigned(
        &self,
        sources: &Arc<[ScanSource]>,
        assigned: &Receiver<Assignment>,
    ) {
        let roots = sources.iter().filter_map(ScanSource::name).cloned();
        self.to_target.push(SourceMsg::Roots(roots.collect()));
        let mut announced = HashSet::new();
        for Assignment { number, extent } in assigned {
            let progress = ExtentProgress {
                more: true,
                ..ExtentProgress::default()
            };
            self.shared
                .update(|state| state.extents.insert(number, progress));
            self.announce_extent(sources, &mut announced, number, extent);
            self.update_extent(number, |extent| extent.more = false);
            self.report_if_done(number);
        }
        self.counters.update(|progress| progress.scanned = true);
        self.to_target.push(SourceMsg::ScanEnded);
    }

    fn announce_extent(
        &self,
        sources: &Arc<[ScanSource]>,
        announced: &mut HashSet<RelPath>,
        number: u64,
        extent: Extent,
    ) {
        let mut planned = None;
        let portions = match extent.content {
            Content::Files(paths) => paths
                .into_iter()
                .map(|path| (path, Portion::Whole))
                .collect(),
            Content::Blocks {
                path,
                blocks,
                version,
            } => {
                planned = Some(version);
                vec![(path, Portion::Blocks(blocks))]
            }
            Content::Name(path) => vec![(path, Portion::Finalize)],
        };
        let source = extent.source as usize;
        for (path, portion) in portions {
            let found = match sources.get(source) {
                Some(scan_source) => self
                    .stat_with_parents(scan_source, announced, &path)
                    .map_err(|error| error.to_string()),
                None => Err(format!("{path}: there is no source {source}")),
            };
            match found {
                Ok(entry) if differs(&entry, planned) => {
                    let why = format!("{path}: it is a different file here, or has changed");
                    self.record_failure(number, why);
                }
                Ok(entry) => self.announce_portion(sources, source, number, entry, portion),
                Err(why) => self.record_failure(number, why),
            }
        }
    }

    /// Returns the current entry of a file, after announcing its parent directories.
    fn stat_with_parents(
        &self,
        scan_source: &ScanSource,
        announced: &mut HashSet<RelPath>,
        path: &RelPath,
    ) -> Result<Entry, Failure> {
        let mut parents = Vec::new();
        let mut dir = path.parent();
        while let Some(path) = dir.filter(|path| !announced.contains(path)) {
            dir = path.parent();
            parents.push(path);
        }
        for path in parents.into_iter().rev() {
            self.announce_entry(scan_source.reread(&path)?, None);
            if announced.len() == DIRECTORIES_MAX {
                announced.clear();
            }
            announced.insert(path);
        }
        scan_source.reread(path)
    }

    fn announce_portion(
        &self,
        sources: &Arc<[ScanSource]>,
        source: usize,
        number: u64,
        entry: Entry,
        portion: Portion,
    ) {
        let Some(file) = source_file(&entry, sources, source) else {
            return self
                .record_failure(number, format!("{}: it is not a file any more", entry.path));
        };
        let portion = match portion {
            Portion::Blocks(blocks) => match clip(&blocks, file.blocks().count()) {
                // The file has become shorter.
                None => return,
                Some(within) => Portion::Blocks(within),
            },
            portion => portion,
        };
        let assignment = Some(number);
        let file = Arc::new(SourceFile {
            portion,
            extent_number: assignment,
            ..file
        });
        self.update_extent(number, |extent| extent.files += 1);
        self.announce_entry(entry, Some(file));
    }

    fn record_failure(&self, number: u64, why: String) {
        self.update_extent(number, |extent| {
            extent.failed.get_or_insert(why);
        });
    }

    fn update_extent(&self, number: u64, update: impl FnOnce(&mut ExtentProgress)) {
        self.shared.update(|state| {
            state.extents.get_mut(&number).map(update);
        });
    }

    /// Counts a completed file of an extent, and reports the extent if it was the last.
    pub(super) fn complete_file(&self, file: Option<&SourceFile>, failed: Option<String>) {
        let Some(number) = file.and_then(|file| file.extent_number) else {
            return;
        };
        if let Some(why) = failed {
            self.record_failure(number, why);
        }
        self.update_extent(number, |extent| extent.files -= 1);
        self.report_if_done(number);
    }

    fn report_if_done(&self, number: u64) {
        let done = self.shared.update(|state| {
            let extent = state.extents.get(&number)?;
            let is_done = extent.files == 0 && !extent.more;
            is_done.then(|| state.extents.remove(&number))?
        });
        if let Some(ExtentProgress { failed, .. }) = done {
            self.reporter.send(&Report::ExtentDone { number, failed });
        }
    }
}

/// Returns whether a file differs from the planned one. The device is not compared: it differs between hosts.
fn differs(entry: &Entry, planned: Option<Version>) -> bool {
    let comparable = |version: &Version| journal::Version::from(version);
    match (&entry.kind, planned) {
        (Kind::File { version, .. }, Some(planned)) => comparable(version) != comparable(&planned),
        _ => false,
    }
}

/// Returns the blocks that exist in a file of `count` blocks.
fn clip(blocks: &Range<u64>, count: u64) -> Option<Range<u64>> {
    let end = blocks.end.min(count);
    (blocks.start < end).then_some(blocks.start..end)
}
