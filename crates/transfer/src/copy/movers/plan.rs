// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mover that finds out what there is, and adds the extents of it while others copy them already.

use super::{leases::HeldLeases, mover::Mover, work::new_extent};
use crate::{
    copy::session::{follow::POLL_INTERVAL, startup::SessionOutcome},
    protocol::{
        control::{Content, Extent, Role, Task},
        entry::{Kind, Version},
        report::{FoundEntry, Report},
    },
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_leases::{Lease, NewExtent};
use longhaul_scheduling::extents::{EXTENT_MIN, ExtentFiles, extent_len, split};
use longhaul_store::blocks::BLOCK_LEN;
use std::{
    collections::BTreeMap,
    sync::mpsc::{RecvTimeoutError, channel},
};

/// Extents that are added in one go, and bytes of them: some tenth of a second of the database's time.
const ADDED_MAX: usize = 500;
const ADDED_LEN_MAX: usize = 8 << 20;

/// Extents that are known and not yet added.
struct Planner {
    extent_len: Option<u64>,
    /// Files too small for an extent of their own, of each source.
    small_files: BTreeMap<u32, (ExtentFiles, Vec<longhaul_store::path::RelPath>)>,
    extents: Vec<NewExtent>,
}

impl Mover<'_> {
    /// Plans, under a lease that is renewed meanwhile.
    pub(super) fn run_plan(&self, lease: Lease) -> Result<SessionOutcome> {
        let mut held = self.new_leases();
        held.insert(lease);
        let planned = self.scan_and_plan(&mut held);
        if !matches!(planned, Ok(SessionOutcome::Finished)) {
            held.release_all("it could not be planned");
        }
        planned
    }

    fn scan_and_plan(&self, held: &mut HeldLeases<'_>) -> Result<SessionOutcome> {
        let mut planner = Planner {
            extent_len: self.job.config.extent.map(longhaul_units::Bytes::get),
            small_files: BTreeMap::new(),
            extents: Vec::new(),
        };
        let mut source = held
            .run_while_renewing(|| self.job.start_alone(self.pair(), Role::Source, Task::Scan))??;
        let (to, from) = channel();
        source.forward_reports(Role::Source, to)?;
        loop {
            self.check_job_exists()?;
            held.renew()?;
            match from.recv_timeout(POLL_INTERVAL) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok((_, Some(Report::Found(found)))) => {
                    for (file, version) in found.into_iter().filter_map(movable_file) {
                        planner.add_file(file, version)?;
                        if planner.is_full() {
                            held.add(&planner.take_extents())?;
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
                    let why = "the source went away".to_owned();
                    return Ok(SessionOutcome::Broken { why, gained: 0 });
                }
            }
        }
        planner.finish()?;
        held.add(&planner.take_extents())?;
        held.complete_all()?;
        Ok(SessionOutcome::Finished)
    }
}

/// A file that movers bring: the rest is the last conversation's matter, and pieces are that of `--apart`.
fn movable_file(found: FoundEntry) -> Option<(FoundEntry, Version)> {
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
        let (gathered, paths) = self.small_files.entry(file.source).or_default();
        gathered.add(version.size, file.path.as_bytes().len());
        paths.push(file.path);
        match gathered.is_enough(self.extent_len.unwrap_or(EXTENT_MIN)) {
            true => self.push_bundle(file.source),
            false => Ok(()),
        }
    }

    /// A file that several bring: the extents of its blocks, and one to give it its name when all are there.
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
        if let Some((gathered, paths)) = self.small_files.remove(&source) {
            let content = Content::Files(paths);
            let extent = new_extent(Extent { source, content }, gathered.bytes())?;
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

    /// Between files, for the name of one must not be added before its blocks.
    fn is_full(&self) -> bool {
        let len = |extent: &NewExtent| extent.key.len() + extent.body.len();
        self.extents.len() >= ADDED_MAX
            || self.extents.iter().map(len).sum::<usize>() >= ADDED_LEN_MAX
    }

    fn take_extents(&mut self) -> Vec<NewExtent> {
        std::mem::take(&mut self.extents)
    }
}
