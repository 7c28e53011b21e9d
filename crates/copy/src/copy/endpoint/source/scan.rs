// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread that scans the source and announces entries.

use super::{
    file::{SourceFile, source_file},
    portion::{describe_missing, reports_missing_shares},
    state::{Source, State},
};
use crate::{
    copy::endpoint::access_scope::AccessScope,
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
    metadata::SkippedField,
    path::RelPath,
    tree::{
        scan::{Options, Scan, ScanItem, Source as ScanSource, SourceError},
        spread::{SpreadError, TreeShare as Spread},
    },
};
use std::{fmt::Display, sync::Arc};

/// Opens a scan of the sources. Also returns why some of them are missing.
pub(crate) fn open(begin: &Begin, scope: &AccessScope) -> Result<(Scan, Vec<SourceError>)> {
    open_with(begin, scope, false)
}

/// Opens a scan for the names that a target compares before it removes others; `None` if it does not.
pub(super) fn open_plan(begin: &Begin, scope: &AccessScope) -> Result<Option<Scan>> {
    let plans = begin.task.plans_deletion(&begin.options);
    let plan = plans.then(|| open_with(begin, scope, true)).transpose()?;
    Ok(plan.map(|(scan, _)| scan))
}

fn open_with(
    begin: &Begin,
    scope: &AccessScope,
    names_only: bool,
) -> Result<(Scan, Vec<SourceError>)> {
    let (sources, missing) = scope.open_sources(&begin.paths)?;
    let filter = begin.options.filter()?;
    let roots = sources.iter().filter_map(ScanSource::name);
    let filter = filter.with_source_names(roots);
    let options = Options {
        one_file_system: begin.options.one_file_system,
        hard_links_as_files: !begin.options.hard_links,
        names_only,
    };
    let scan = Scan::new(sources, filter, options).map_err(Refusal::usage)?;
    Ok((scan, missing))
}

impl Source {
    /// Announces all entries, after the `plan` of their names.
    pub(super) fn announce_all(&self, mut scan: Scan, plan: Option<Scan>) {
        let sources = scan.sources().clone();
        let roots = sources.iter().filter_map(ScanSource::name).cloned();
        self.to_target.push(SourceMsg::Roots(roots.collect()));
        if let Some(plan) = plan {
            self.plan(plan);
        }
        for why in &self.incomplete {
            self.report_unreadable(why);
        }
        let mut measurement = self.counters.metrics.measure_thread(Stage::Scanning, None);
        for item in &mut scan {
            measurement.enter(Stage::Waiting);
            match item {
                ScanItem::Entry {
                    source,
                    entry,
                    skipped,
                } => {
                    let Some(share) = self.portion_of(&sources[source], &entry) else {
                        continue;
                    };
                    self.report_skipped(&entry.path, &skipped);
                    let file = source_file(&entry, &sources, source);
                    let file = file.map(|file| {
                        Arc::new(SourceFile {
                            portion: share,
                            ..file
                        })
                    });
                    self.announce_entry(entry, file);
                }
                ScanItem::Piece { entry, .. } if !self.copies_pieces() => {
                    self.report_unreadable(&format!(
                        "{}: only a piece of it is here: longhaul copy --distributed source gathers all of them",
                        entry.path
                    ));
                }
                ScanItem::Piece {
                    entry,
                    piece_blocks: held,
                    ..
                } if held.is_empty() => {
                    self.report_unreadable(&format!(
                        "{}: nothing is left of its piece",
                        entry.path
                    ));
                }
                ScanItem::Piece {
                    source,
                    entry,
                    piece_blocks: held,
                } => {
                    let file = self.piece(&entry, held, &sources, source);
                    self.announce_entry(entry, file.map(Arc::new));
                }
                ScanItem::Top { metadata, skipped } => {
                    self.report_skipped(".", &skipped);
                    self.to_target.push(SourceMsg::RootMetadata(metadata));
                }
                ScanItem::Shares { path, shares } => self.report_missing_shares(&path, shares),
                ScanItem::Skipped { path, reason: why } => {
                    self.reporter.send_problem(format!("{path}: {why}"));
                    self.to_target.push(SourceMsg::Excluded(path));
                }
                ScanItem::Conflict {
                    path,
                    first,
                    second,
                } => self.report_failure(format!(
                    "{path}: that of {} is not copied, because {} has this path, too",
                    second.display(),
                    first.display()
                )),
                ScanItem::Failed(failure) if failure.is_not_found() => {
                    self.report_vanished(failure.to_string());
                }
                ScanItem::Failed(failure) => self.report_unreadable(&failure),
                ScanItem::SourceFailed { source, failure } => {
                    self.report_unreadable(&format!("{}: {failure}", source.display()));
                }
            }
            measurement.enter(Stage::Scanning);
        }
        self.counters.update(|progress| progress.scanned = true);
        self.to_target.push(SourceMsg::ScanEnded);
    }

    /// Names all entries. What can't be read, or is not all there, is reported when it is announced.
    fn plan(&self, scan: Scan) {
        if !self.incomplete.is_empty() {
            self.to_target.push(SourceMsg::ScanError);
        }
        for item in scan {
            self.to_target.push(match item {
                ScanItem::Piece { .. } if !self.copies_pieces() => SourceMsg::ScanError,
                ScanItem::Entry { entry, .. } | ScanItem::Piece { entry, .. } => {
                    SourceMsg::Planned {
                        is_directory: entry.kind == Kind::Directory,
                        path: entry.path,
                    }
                }
                ScanItem::Top { .. } => SourceMsg::PlannedContents,
                ScanItem::Skipped { path, .. } => SourceMsg::Excluded(path),
                ScanItem::Shares { shares, .. } if self.are_complete(&shares) => continue,
                ScanItem::Conflict { .. } => continue,
                ScanItem::Failed(failure) if failure.is_not_found() => continue,
                ScanItem::Shares { .. } | ScanItem::Failed(_) | ScanItem::SourceFailed { .. } => {
                    SourceMsg::ScanError
                }
            });
        }
        self.to_target.push(SourceMsg::PlanEnded);
    }

    fn are_complete(&self, shares: &Result<Vec<Spread>, SpreadError>) -> bool {
        let is_complete = |share: &Spread| describe_missing(share, self.task).is_none();
        shares
            .as_ref()
            .is_ok_and(|shares| shares.iter().all(is_complete))
    }

    /// Reports trees below the source of which other hosts have shares.
    fn report_missing_shares(&self, dir: &RelPath, shares: Result<Vec<Spread>, SpreadError>) {
        if !reports_missing_shares(self.task) {
            return;
        }
        let shares = match shares {
            Ok(shares) => shares,
            Err(error) => return self.report_unreadable(&format!("{dir}: {error}")),
        };
        for share in shares {
            let tree = share.top.as_ref().map(|top| dir.join_path(top));
            let tree = tree.and_then(Result::ok).unwrap_or_else(|| dir.clone());
            if let Some(why) = describe_missing(&share, self.task) {
                self.report_unreadable(&format!("{tree}: {why}"));
            }
        }
    }

    fn report_unreadable(&self, why: &dyn Display) {
        self.to_target.push(SourceMsg::ScanError);
        self.report_failure(why.to_string());
    }

    fn report_skipped(&self, path: impl Display, what: &[SkippedField]) {
        for what in what {
            let problem = format!("{path}: could not read its {}", what.field);
            self.reporter.send_problem(problem);
        }
    }

    /// Announces an entry. Waits while too many entries are in flight.
    pub(super) fn announce_entry(&self, mut entry: Entry, file: Option<Arc<SourceFile>>) {
        if matches!(entry.kind, Kind::HardLink { .. }) {
            // The attributes came with the file.
            entry.metadata.xattrs.clear();
        }
        self.shared.wait_until(State::has_room);
        self.counters.update(|progress| {
            progress.entries += 1;
            progress.bytes += file.as_ref().map_or(0, |file| file.bytes());
        });
        let number = self
            .shared
            .update(|state| state.announce(&entry, file.clone()));
        let portion = file.map_or(Portion::Whole, |file| file.portion.clone());
        self.to_target.push(SourceMsg::Entry {
            number,
            entry,
            portion,
        });
    }
}
