// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread that scans the source and announces entries.

use super::{
    file::{SourceFile, file_of},
    share::{lacking, tells_what_lacks},
    state::{Source, State},
};
use crate::{
    copy::end::reach::Reach,
    protocol::{
        control::Begin,
        message::{Portion, SourceMsg},
    },
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_scheduling::Stage;
use longhaul_store::{
    entry::{Entry, Kind},
    metadata::LeftOut,
    path::RelPath,
    tree::{
        scan::{Item, Options, Scan, Source as Place},
        spread::{Share as Spread, SpreadError},
    },
};
use std::{fmt::Display, sync::Arc};

/// Opens a scan of the sources.
pub(crate) fn open(begin: &Begin, reach: &Reach) -> Result<Scan> {
    let places = reach.sources(&begin.paths)?;
    let filter = begin.options.filter()?;
    let tops = places.iter().filter_map(Place::name);
    let filter = filter.with_tops(tops);
    let options = Options {
        one_file_system: begin.options.one_file_system,
    };
    Scan::new(places, filter, options).map_err(Refusal::usage)
}

impl Source {
    pub(super) fn announce(&self, mut scan: Scan) {
        let sources = scan.sources().clone();
        let tops = sources.iter().filter_map(Place::name).cloned();
        self.orders.put(SourceMsg::Roots(tops.collect()));
        for why in &self.incomplete {
            self.unread(why);
        }
        let mut gauge = self.tally.metrics.measure_thread(Stage::Scanning, None);
        for item in &mut scan {
            gauge.enter(Stage::Waiting);
            match item {
                Item::Entry {
                    source,
                    entry,
                    left_out,
                } => {
                    let Some(share) = self.share_of(&sources[source], &entry) else {
                        continue;
                    };
                    self.leave_out(&entry.path, &left_out);
                    let file = file_of(&entry, &sources, source);
                    let file = file.map(|file| Arc::new(SourceFile { share, ..file }));
                    self.announce_one(entry, file);
                }
                Item::Piece { entry, .. } if !self.takes_pieces() => {
                    self.unread(&format!(
                        "{}: only a piece of it is here: longhaul copy --apart source brings all of them together",
                        entry.path
                    ));
                }
                Item::Piece { entry, held, .. } if held.is_empty() => {
                    self.unread(&format!("{}: nothing is left of its piece", entry.path));
                }
                Item::Piece {
                    source,
                    entry,
                    held,
                } => {
                    let file = self.piece(&entry, held, &sources, source);
                    self.announce_one(entry, file.map(Arc::new));
                }
                Item::Top { metadata, left_out } => {
                    self.leave_out(".", &left_out);
                    self.orders.put(SourceMsg::RootMetadata(metadata.into()));
                }
                Item::Shares { path, shares } => self.lack(&path, shares),
                Item::Skipped { path, why } => {
                    self.reporter.send_problem(format!("{path}: {why}"));
                    self.orders.put(SourceMsg::Excluded(path));
                }
                Item::Failed(failure) => self.unread(&failure),
                Item::SourceFailed { source, failure } => {
                    self.unread(&format!("{}: {failure}", source.display()));
                }
            }
            gauge.enter(Stage::Scanning);
        }
        self.tally.update(|now| now.scanned = true);
        self.orders.put(SourceMsg::ScanEnded);
    }

    /// Reports trees below the source of which other hosts have shares.
    fn lack(&self, dir: &RelPath, shares: Result<Vec<Spread>, SpreadError>) {
        if !tells_what_lacks(self.task) {
            return;
        }
        let shares = match shares {
            Ok(shares) => shares,
            Err(error) => return self.unread(&format!("{dir}: {error}")),
        };
        for share in shares {
            let tree = share.top.as_ref().map(|top| dir.join_path(top));
            let tree = tree.and_then(Result::ok).unwrap_or_else(|| dir.clone());
            if let Some(why) = lacking(&share, self.task) {
                self.unread(&format!("{tree}: {why}"));
            }
        }
    }

    fn unread(&self, why: &dyn Display) {
        self.orders.put(SourceMsg::ScanError);
        self.fail(why.to_string());
    }

    fn leave_out(&self, path: impl Display, what: &[LeftOut]) {
        for what in what {
            let said = format!("{path}: could not read its {}", what.what);
            self.reporter.send_problem(said);
        }
    }

    /// Announces an entry. Waits while too many entries are in flight.
    pub(super) fn announce_one(&self, mut entry: Entry, file: Option<Arc<SourceFile>>) {
        if matches!(entry.kind, Kind::HardLink { .. }) {
            // The attributes came with the file.
            entry.metadata.xattrs.clear();
        }
        self.shared.wait_until(State::has_room);
        self.tally.update(|now| {
            now.entries += 1;
            now.bytes += file.as_ref().map_or(0, |file| file.bytes());
        });
        let number = self
            .shared
            .update(|state| state.announce(&entry, file.clone()));
        let share = file.map_or(Portion::Whole, |file| file.share.clone());
        self.orders.put(SourceMsg::Entry {
            number,
            entry: entry.into(),
            portion: share,
        });
    }
}
