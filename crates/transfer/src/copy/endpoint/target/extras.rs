// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries that the source does not have: `--delete` removes them, and their hashes from the manifest.

use super::{context::Target, deletion_limit::Removal, messages::CONTENTS_FOR_SINGLE_NAME};
use crate::protocol::message::{self, SourceMsg};
use anyhow::{Context as _, Result, bail};
use longhaul_command::exit::Refusal;
use longhaul_store::{
    entry::Kind,
    manifest::{FileRecord, Manifest},
    path::RelPath,
    root::Failure,
    tree::{
        delete::{DeletionPlan, TreeDifference, list_removable, remove_all},
        filter::Filter,
        scan::ScanEnd,
        trash::{self, Trash},
        writer::{Existing, inspect},
    },
};
use rustix::{fs::FileType, io::Errno};
use std::{
    collections::{BTreeSet, HashSet},
    io::Read,
    time::{Duration, SystemTime},
};

impl Target {
    /// Compares the names that the source will announce with those here, and refuses the copy if it would remove too many.
    /// Returns whether entries may be removed now.
    pub(super) fn check_deletion(&self, from: &mut impl Read, filter: &Filter) -> Result<bool> {
        let mut plan = DeletionPlan::new(&self.root, filter);
        let (mut replaced, mut unreadable) = (BTreeSet::new(), 0);
        loop {
            match message::read::<SourceMsg>(from)?.context("the source closed the connection")? {
                SourceMsg::Planned { path, is_directory } => {
                    let path = self.path_here(path)?;
                    plan.add(&path, is_directory);
                    if self.is_in_the_way(&path, is_directory) {
                        replaced.insert(path);
                    }
                }
                SourceMsg::PlannedContents => self.add_contents(&mut plan)?,
                SourceMsg::Excluded(path) => plan.protect(&self.path_here(path)?),
                SourceMsg::ScanError => unreadable += 1,
                SourceMsg::PlanEnded => break,
                _ => bail!("unexpected message of the source"),
            }
        }
        let Ok(mut extras) = plan.finish(scan_end(unreadable)) else {
            return Ok(false);
        };
        extras.found.extend(replaced);
        match self.refusal(&extras, filter) {
            Some(why) => Err(Refusal::usage(format!(
                "nothing is copied or removed: {why}"
            ))),
            None => Ok(true),
        }
    }

    /// Whether something else has the place of an entry: a directory that of another type, or the reverse. A device is
    /// never removed for that.
    pub(super) fn is_in_the_way(&self, path: &RelPath, is_directory: bool) -> bool {
        let Ok(stat) = self.root.stat(path) else {
            return false;
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => !is_directory,
            FileType::BlockDevice | FileType::CharacterDevice => false,
            _ => is_directory,
        }
    }

    /// Notes that the contents of a source go directly into the target's directory.
    pub(super) fn add_contents(&self, plan: &mut DeletionPlan<'_>) -> Result<()> {
        // A source must not change the directory around a single named entry.
        if self.top_name.is_some() {
            return Err(Refusal::usage(CONTENTS_FOR_SINGLE_NAME));
        }
        // A directory that does not exist yet has no extra entries.
        if self.planned_directory.is_none() {
            plan.set_contents_copied();
        }
        Ok(())
    }

    fn refusal(&self, extras: &TreeDifference, filter: &Filter) -> Option<String> {
        let mut removed = 0;
        for path in &extras.found {
            // What can't be listed is not removed either.
            let _ = list_removable(&self.root, filter, path, |_| removed += 1);
        }
        let removal = Removal {
            source_entries: extras.source_entries,
            common: extras.common,
            removed,
        };
        removal.refusal(self.options.max_delete)
    }

    /// Removes entries that the source does not have; returns their number.
    pub(super) fn remove_extras(
        &self,
        plan: DeletionPlan<'_>,
        (filter, trash): (&Filter, &mut Trash<'_>),
        unreadable: u64,
    ) -> u64 {
        let extras = match plan.finish(scan_end(unreadable)) {
            Ok(extras) => extras,
            Err(why) => {
                self.reporter.send_problem(why.to_string());
                return 0;
            }
        };
        match self.refusal(&extras, filter) {
            Some(why) if self.options.dry_run => {
                self.reporter
                    .send_problem(format!("nothing would be copied or removed: {why}"));
            }
            // The source, or the target, has changed since the plan.
            Some(why) => {
                self.report_failure(format!("nothing is removed: {why}"));
                return 0;
            }
            None => {}
        }
        self.report_failures(&extras.failures);
        if self.options.dry_run {
            let found = extras.found.iter();
            return found.map(|path| self.plan_removal(filter, path)).sum();
        }
        for (old, new) in &extras.renamed {
            // Some file systems keep the old name. It still is the source's entry.
            let _ = self.root.rename(old, new);
        }
        let removed = self.remove_found((filter, trash), &extras.found);
        let abandoned = extras.abandoned.iter();
        let failures = abandoned.filter_map(|parts| parts.remove(&self.root).err());
        self.report_failures(&failures.collect::<Vec<_>>());
        self.empty_trash();
        self.remove_hashes(&extras.found, Some(extras.source_entries));
        removed
    }

    /// Removes entries with their contents, or moves them into the trash. Returns their number.
    pub(super) fn remove_found(
        &self,
        (filter, trash): (&Filter, &mut Trash<'_>),
        found: &BTreeSet<RelPath>,
    ) -> u64 {
        let mut removed = 0;
        for path in found {
            let (count, failures) = match self.options.trash_s {
                Some(_) => trash.put(filter, path),
                None => remove_all(&self.root, filter, path),
            };
            removed += count;
            self.report_failures(&failures);
        }
        removed
    }

    /// Removes from the trash what earlier copies put there, if it is old enough.
    fn empty_trash(&self) {
        let Some(seconds) = self.options.trash_s else {
            return;
        };
        let before = SystemTime::now().checked_sub(Duration::from_secs(seconds));
        let before = before.unwrap_or(SystemTime::UNIX_EPOCH);
        self.report_failures(&trash::remove_older(&self.root, before));
    }

    fn report_failures(&self, failures: &[Failure]) {
        for failure in failures {
            self.report_failure(failure.to_string());
        }
    }

    /// Removes hashes of paths at or below `removed` that are no files any more. If there are more hashes than entries at
    /// the source, those of all such paths: a killed copy has removed files.
    pub(super) fn remove_hashes(&self, removed: &BTreeSet<RelPath>, source_entries: Option<u64>) {
        let Some(mut manifest) = self.load_manifest() else {
            return;
        };
        let has_more = source_entries.is_some_and(|count| manifest.iter().count() as u64 > count);
        if removed.is_empty() && !has_more {
            return;
        }
        let tops = (!has_more).then(|| removed.iter().collect());
        let missing: Vec<Vec<u8>> = self.missing_paths(&manifest, tops.as_ref());
        let records: Vec<(&[u8], FileRecord)> = missing
            .iter()
            .map(|path| (path.as_slice(), FileRecord::REMOVED))
            .collect();
        match manifest.append(&records) {
            Ok(()) => self.compact(&mut manifest),
            Err(error) => {
                self.report_manifest_error("hashes of removed files are still kept", &error);
            }
        }
    }

    /// Returns the paths with hashes that are no files, all or those at or below `tops`.
    fn missing_paths(&self, manifest: &Manifest, tops: Option<&HashSet<&RelPath>>) -> Vec<Vec<u8>> {
        let is_file = |existing| {
            matches!(
                existing,
                Existing::Entry {
                    kind: Kind::File { .. },
                    ..
                }
            )
        };
        let is_missing = |path: &RelPath| {
            tops.is_none_or(|tops| is_at_or_below(path, tops))
                && match inspect(&self.root, path) {
                    Ok(existing) => !is_file(existing),
                    // A file or a link has the place of its directory.
                    Err(failure) => matches!(failure.errno(), Some(Errno::NOTDIR | Errno::LOOP)),
                }
        };
        let paths = manifest.iter().map(|(path, _)| path.to_vec());
        paths
            .filter(|path| RelPath::parse(path).is_ok_and(|path| is_missing(&path)))
            .collect()
    }
}

fn scan_end(unreadable: u64) -> ScanEnd {
    match unreadable {
        0 => ScanEnd::Complete,
        failures => ScanEnd::Failures(failures),
    }
}

fn is_at_or_below(path: &RelPath, tops: &HashSet<&RelPath>) -> bool {
    let mut current = Some(path.clone());
    while let Some(path) = current {
        if tops.contains(&path) {
            return true;
        }
        current = path.parent();
    }
    false
}
