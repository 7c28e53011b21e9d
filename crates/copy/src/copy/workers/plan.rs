// SPDX-License-Identifier: MIT OR Apache-2.0
//! Planning by one worker: it scans the sources and adds extents, while others copy them already.

use super::{leases::HeldLeases, work::new_extent, worker::Worker};
use crate::{
    copy::session::{follow::POLL_INTERVAL, startup::SessionOutcome},
    protocol::{
        control::{Content, Extent, Role, Task},
        report::{FoundEntry, Report},
    },
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_leases::{Lease, NewTask};
use longhaul_scheduling::extents::{EXTENT_MIN, ExtentFiles, extent_len, split};
use longhaul_store::{
    blocks::BLOCK_LEN,
    entry::{Kind, Version},
};
use std::{
    collections::BTreeMap,
    sync::mpsc::{RecvTimeoutError, channel},
};

/// Maximum number of extents in one transaction, and of their bytes: about 0.1 s for the database.
const ADDED_MAX: usize = 500;
const ADDED_LEN_MAX: usize = 8 << 20;

/// Extents that are planned and not yet added to the database.
struct Planner {
    extent_len: Option<u64>,
    /// Files too small for an extent of their own, by source.
    small_files: BTreeMap<u32, (ExtentFiles, Vec<longhaul_store::path::RelPath>)>,
    extents: Vec<NewTask>,
}

impl Worker<'_> {
    /// Plans the job, under a lease that is renewed meanwhile.
    pub(super) fn run_plan(&self, lease: Lease) -> Result<SessionOutcome> {
        let mut leases = self.new_leases();
        leases.insert(lease);
        let planned = self.scan_and_plan(&mut leases);
        if !matches!(planned, Ok(SessionOutcome::Finished)) {
            self.record_unfinished(&leases);
            leases.release_all("planning failed");
        }
        planned
    }

    fn scan_and_plan(&self, leases: &mut HeldLeases<'_>) -> Result<SessionOutcome> {
        let mut planner = Planner {
            extent_len: self
                .job
                .config
                .workers
                .extent
                .map(longhaul_units::Bytes::get),
            small_files: BTreeMap::new(),
            extents: Vec::new(),
        };
        let mut source = leases
            .run_while_renewing(|| self.job.start_alone(self.pair(), Role::Source, Task::Scan))??;
        let (to, from) = channel();
        source.forward_reports(Role::Source, to)?;
        loop {
            self.check_job_exists()?;
            leases.renew()?;
            match from.recv_timeout(POLL_INTERVAL) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok((_, Some(Report::Found(found)))) => {
                    for (file, version) in found.into_iter().filter_map(regular_file) {
                        planner.add_file(file, version)?;
                        if planner.is_full() {
                            leases.add(&planner.take_extents())?;
                        }
                    }
                }
                Ok((_, Some(Report::Finished(_)))) => break,
                Ok((_, Some(Report::Refused(why)))) => return Err(Refusal::usage(why)),
                Ok((_, Some(Report::Broken(why)))) => {
                    return Ok(SessionOutcome::Broken { why, gained: 0 });
                }
                Ok((_, Some(_))) => {}
                Ok((_, None)) | Err(RecvTimeoutError::Disconnected) => {
                    let why = "the source exited".to_owned();
                    return Ok(SessionOutcome::Broken { why, gained: 0 });
                }
            }
        }
        planner.finish()?;
        leases.add(&planner.take_extents())?;
        leases.complete_all()?;
        Ok(SessionOutcome::Finished)
    }
}

/// Returns a file whose data workers copy. The last session copies other entries, and only `--distributed` copies pieces.
fn regular_file(found: FoundEntry) -> Option<(FoundEntry, Version)> {
    match found.kind {
        Kind::File { version, .. } if found.piece_blocks.is_none() => Some((found, version)),
        _ => None,
    }
}

impl Planner {
    fn add_file(&mut self, file: FoundEntry, version: Version) -> Result<()> {
        let extent = self.extent_len.unwrap_or_else(|| extent_len(version.size));
        if version.size > extent {
            return self.add_blocks(file, version, extent);
        }
        let (extent_files, paths) = self.small_files.entry(file.source).or_default();
        extent_files.add(version.size, file.path.as_bytes().len());
        paths.push(file.path);
        if extent_files.is_full(self.extent_len.unwrap_or(EXTENT_MIN)) {
            self.push_bundle(file.source)
        } else {
            Ok(())
        }
    }

    /// Adds a file as several extents of blocks, and an extent for its final name, after all blocks.
    fn add_blocks(&mut self, file: FoundEntry, version: Version, extent: u64) -> Result<()> {
        let FoundEntry { source, path, .. } = file;
        let bytes = version.size;
        for blocks in split(bytes, BLOCK_LEN, extent) {
            let len = bytes.min(blocks.end * BLOCK_LEN) - blocks.start * BLOCK_LEN;
            let path = path.clone();
            let content = Content::Blocks {
                path,
                blocks,
                version,
            };
            self.extents
                .push(new_extent(Extent { source, content }, len)?);
        }
        let content = Content::Name(path);
        self.extents
            .push(new_extent(Extent { source, content }, 0)?);
        Ok(())
    }

    fn push_bundle(&mut self, source: u32) -> Result<()> {
        if let Some((extent_files, paths)) = self.small_files.remove(&source) {
            let content = Content::Files(paths);
            let extent = new_extent(Extent { source, content }, extent_files.bytes())?;
            self.extents.push(extent);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let sources: Vec<u32> = self.small_files.keys().copied().collect();
        sources
            .into_iter()
            .try_for_each(|source| self.push_bundle(source))
    }

    /// Whether to add the extents to the database. Checked between files, so that the name of a file is never added before
    /// its blocks.
    fn is_full(&self) -> bool {
        let len = |extent: &NewTask| extent.key.len() + extent.body.len();
        self.extents.len() >= ADDED_MAX
            || self.extents.iter().map(len).sum::<usize>() >= ADDED_LEN_MAX
    }

    fn take_extents(&mut self) -> Vec<NewTask> {
        std::mem::take(&mut self.extents)
    }
}
