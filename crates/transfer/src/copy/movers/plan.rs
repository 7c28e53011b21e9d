// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mover that finds out what there is, and adds the extents of it while others copy them already.

use super::{leases::Leases, mover::Mover, work::new_extent};
use crate::{
    copy::conversation::{follow::TICK, meeting::Ending},
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
use longhaul_store::blocks::BLOCK;
use std::{
    collections::BTreeMap,
    sync::mpsc::{RecvTimeoutError, channel},
};

/// Extents that are added in one go, and bytes of them: some tenth of a second of the database's time.
const ADDED_MAX: usize = 500;
const ADDED_LEN_MAX: usize = 8 << 20;

/// Extents that are known and not yet added.
struct Planner {
    extent: Option<u64>,
    /// Files too small for an extent of their own, of each source.
    gathered: BTreeMap<u32, (ExtentFiles, Vec<longhaul_store::path::RelPath>)>,
    ready: Vec<NewExtent>,
}

impl Mover<'_> {
    /// Plans, under a lease that is renewed meanwhile.
    pub(super) fn plan(&self, lease: Lease) -> Result<Ending> {
        let mut held = self.holding();
        held.take(lease);
        let planned = self.survey(&mut held);
        if !matches!(planned, Ok(Ending::Over)) {
            held.give_all_back("it could not be planned");
        }
        planned
    }

    fn survey(&self, held: &mut Leases<'_>) -> Result<Ending> {
        let mut planner = Planner {
            extent: self.job.config.extent.map(longhaul_units::Bytes::get),
            gathered: BTreeMap::new(),
            ready: Vec::new(),
        };
        let mut source =
            held.renewing(|| self.job.alone(self.pair(), Role::Source, Task::Scan))??;
        let (to, from) = channel();
        source.report_to(Role::Source, to)?;
        loop {
            self.check_presence()?;
            held.renew()?;
            match from.recv_timeout(TICK) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok((_, Some(Report::Found(found)))) => {
                    for (file, version) in found.into_iter().filter_map(file) {
                        planner.offer(file, version)?;
                        if planner.is_full() {
                            held.add(&planner.take())?;
                        }
                    }
                }
                Ok((_, Some(Report::Finished(_)))) => break,
                Ok((_, Some(Report::Refused(why)))) => return Err(Refusal::usage(why)),
                Ok((_, Some(Report::Broken(why)))) => return Ok(Ending::Broken { why, gained: 0 }),
                Ok((_, Some(_))) => {}
                Ok((_, None)) | Err(RecvTimeoutError::Disconnected) => {
                    let why = "the source went away".to_owned();
                    return Ok(Ending::Broken { why, gained: 0 });
                }
            }
        }
        planner.finish()?;
        held.add(&planner.take())?;
        held.all_done()?;
        Ok(Ending::Over)
    }
}

/// A file that movers bring: the rest is the last conversation's matter, and pieces are that of `--apart`.
fn file(found: FoundEntry) -> Option<(FoundEntry, Version)> {
    match found.kind {
        Kind::File { version, .. } if found.piece_blocks.is_none() => Some((found, version)),
        _ => None,
    }
}

impl Planner {
    fn offer(&mut self, file: FoundEntry, version: Version) -> Result<()> {
        let extent = self.extent.unwrap_or_else(|| extent_len(version.size));
        if version.size > extent {
            return self.cut(file, version, extent);
        }
        let (gathered, paths) = self.gathered.entry(file.source).or_default();
        gathered.add(version.size, file.path.as_bytes().len());
        paths.push(file.path);
        match gathered.is_enough(self.extent.unwrap_or(EXTENT_MIN)) {
            true => self.bundle(file.source),
            false => Ok(()),
        }
    }

    /// A file that several bring: the extents of its blocks, and one to give it its name when all are there.
    fn cut(&mut self, file: FoundEntry, version: Version, extent: u64) -> Result<()> {
        let FoundEntry { source, path, .. } = file;
        let bytes = version.size;
        for blocks in split(bytes, BLOCK, extent) {
            let len = bytes.min(blocks.end * BLOCK) - blocks.start * BLOCK;
            let path = path.clone();
            let content = Content::Blocks {
                path,
                blocks,
                version,
            };
            self.ready
                .push(new_extent(Extent { source, content }, len)?);
        }
        let content = Content::Name(path);
        self.ready.push(new_extent(Extent { source, content }, 0)?);
        Ok(())
    }

    fn bundle(&mut self, source: u32) -> Result<()> {
        if let Some((gathered, paths)) = self.gathered.remove(&source) {
            let content = Content::Files(paths);
            let extent = new_extent(Extent { source, content }, gathered.bytes())?;
            self.ready.push(extent);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let sources: Vec<u32> = self.gathered.keys().copied().collect();
        sources
            .into_iter()
            .try_for_each(|source| self.bundle(source))
    }

    /// Between files, for the name of one must not be added before its blocks.
    fn is_full(&self) -> bool {
        let len = |extent: &NewExtent| extent.key.len() + extent.body.len();
        self.ready.len() >= ADDED_MAX || self.ready.iter().map(len).sum::<usize>() >= ADDED_LEN_MAX
    }

    fn take(&mut self) -> Vec<NewExtent> {
        std::mem::take(&mut self.ready)
    }
}
