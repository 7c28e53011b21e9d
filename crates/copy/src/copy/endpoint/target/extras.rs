// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries that the source does not have: `--delete` removes them, and their hashes from the manifest.

use super::{deletion_limit::Removal, stale_hashes::StaleHashes, state::Target};
use crate::protocol::{
    message::{self, Outcome, SourceMsg},
    report::Report,
};
use anyhow::{Context as _, Result, bail};
use longhaul_command::exit::Refusal;
use longhaul_store::{
    entry::{Entry, Kind},
    path::RelPath,
    root::{Failure, Root},
    tree::{
        abandoned_parts,
        delete::{DeletionPlan, TreeDifference, list_removable, remove_all},
        filter::Filter,
        scan::ScanEnd,
        trash::{self, Trash},
        writer::WriteOutcome,
    },
};
use rustix::fs::FileType;
use std::{
    collections::BTreeSet,
    io::Read,
    time::{Duration, SystemTime},
};

pub(super) const CONTENTS_FOR_SINGLE_NAME: &str =
    "the source copies the contents of a directory, but the target names a single entry";

/// Time for which an interrupted copy can be resumed, if other copies write in the same directory.
const PART_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// Removes entries, at once or into the trash, and their hashes.
pub(super) struct Remover<'a> {
    filter: &'a Filter,
    trash: Trash<'a>,
    pub(super) hashes: StaleHashes,
    /// Number of entries removed so far.
    pub(super) removed: u64,
    /// Entries that would make way for others, in a dry run.
    planned: BTreeSet<RelPath>,
}

impl<'a> Remover<'a> {
    /// Remover below `root` of entries that `filter` includes.
    pub(super) fn new(root: &'a Root, filter: &'a Filter) -> Self {
        Self {
            filter,
            trash: Trash::new(root, SystemTime::now()),
            hashes: StaleHashes::default(),
            removed: 0,
            planned: BTreeSet::new(),
        }
    }
}

impl Target {
    /// Compares the names that the source will announce with those here, and refuses the copy if it would remove too many.
    /// Returns whether entries may be removed now.
    pub(super) fn check_deletion(
        &self,
        from: &mut impl Read,
        remover: &mut Remover<'_>,
    ) -> Result<bool> {
        let filter = remover.filter;
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
        add_replaced(&mut extras, &replaced);
        if let Some(why) = self.refusal(&extras, filter) {
            return Err(Refusal::usage(format!(
                "nothing is copied or removed: {why}"
            )));
        }
        // All at once, because each removal from the manifest waits for the disk.
        self.remove_hashes(remover, &replaced);
        Ok(true)
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

    /// Removes entries that the source does not have.
    pub(super) fn remove_extras(
        &self,
        plan: DeletionPlan<'_>,
        remover: &mut Remover<'_>,
        unreadable: u64,
    ) {
        let filter = remover.filter;
        let mut extras = match plan.finish(scan_end(unreadable)) {
            Ok(extras) => extras,
            Err(why) => {
                self.reporter.send_problem(why.to_string());
                return;
            }
        };
        let only_extra = extras.found.clone();
        add_replaced(&mut extras, &remover.planned);
        let refusal = self.refusal(&extras, filter);
        // The source, or the target, has changed since the plan.
        if let (Some(why), false) = (&refusal, self.options.dry_run) {
            self.report_failure(format!("nothing is removed: {why}"));
            return;
        }
        self.report_failures(&extras.failures);
        if self.options.dry_run {
            let found = only_extra.iter();
            remover.removed += found
                .map(|path| self.plan_removal(filter, path))
                .sum::<u64>();
            if let Some(why) = refusal {
                self.reporter.send(&Report::PlanRefused(why));
            }
            return;
        }
        for (old, new) in &extras.renamed {
            // Some file systems keep the old name. It still is the source's entry.
            if self.root.rename(old, new).is_ok() {
                remover.hashes.rename(self, old, new);
            }
        }
        self.remove_found(remover, &extras.found);
        let abandoned = extras.abandoned.iter();
        let failures = abandoned.filter_map(|parts| parts.remove(&self.root).err());
        self.report_failures(&failures.collect::<Vec<_>>());
        self.empty_trash();
        remover.hashes.prune(self, extras.source_entries);
    }

    /// Removes entries with their contents, or moves them into the trash.
    pub(super) fn remove_found(&self, remover: &mut Remover<'_>, found: &BTreeSet<RelPath>) {
        let filter = remover.filter;
        self.remove_hashes(remover, found);
        for path in found {
            let (count, failures) = match self.options.trash_s {
                Some(_) => remover.trash.put(filter, path),
                None => remove_all(&self.root, filter, path),
            };
            remover.removed += count;
            self.report_failures(&failures);
        }
    }

    fn remove_hashes(&self, remover: &mut Remover<'_>, found: &BTreeSet<RelPath>) {
        let mut removable = Vec::new();
        for path in found {
            let list = |path: &RelPath| removable.push(path.clone());
            // What can't be listed is not removed either.
            let _ = list_removable(&self.root, remover.filter, path, list);
        }
        if !removable.is_empty() {
            remover.hashes.remove(self, &removable);
        }
    }

    /// Plans an entry in the place of another type, or below it; returns its outcome. `None` if nothing is in the way.
    pub(super) fn plan_replacement(
        &self,
        remover: &mut Remover<'_>,
        entry: &Entry,
    ) -> Option<Outcome> {
        let mut above = std::iter::successors(entry.path.parent(), RelPath::parent);
        let is_below = above.any(|path| remover.planned.contains(&path));
        if !is_below {
            if !self.is_in_the_way(&entry.path, entry.kind == Kind::Directory) {
                return None;
            }
            remover.removed += self.plan_removal(remover.filter, &entry.path);
            remover.planned.insert(entry.path.clone());
        }
        let written = match entry.kind {
            Kind::File { .. } => WriteOutcome::Transfer,
            _ => WriteOutcome::Changed,
        };
        Some(self.plan_entry(entry, &written))
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

    /// Removes parts that nobody has continued for [`PART_LIFETIME`], of files that the source may not have any more.
    pub(super) fn remove_old_parts(&self, directories: &BTreeSet<Option<RelPath>>) {
        let before = SystemTime::now().checked_sub(PART_LIFETIME);
        let before = before.unwrap_or(SystemTime::UNIX_EPOCH);
        for directory in directories {
            // A directory that cannot be listed has been reported, or is a drop box.
            let old = abandoned_parts::find_old(&self.root, directory.as_ref(), before);
            let failures = old
                .iter()
                .flatten()
                .filter_map(|parts| parts.remove(&self.root).err());
            self.report_failures(&failures.collect::<Vec<_>>());
        }
    }

    fn report_failures(&self, failures: &[Failure]) {
        for failure in failures {
            self.report_failure(failure.to_string());
        }
    }
}

/// Counts entries that make way for others as removed.
fn add_replaced(extras: &mut TreeDifference, replaced: &BTreeSet<RelPath>) {
    extras.found.extend(replaced.iter().cloned());
    extras.common = extras.common.saturating_sub(replaced.len() as u64);
    // What is no directory yet cannot be listed.
    let is_planned = |failure: &Failure| failure.path().is_some_and(|path| replaced.contains(path));
    extras.failures.retain(|failure| !is_planned(failure));
}

fn scan_end(unreadable: u64) -> ScanEnd {
    match unreadable {
        0 => ScanEnd::Complete,
        failures => ScanEnd::Failures(failures),
    }
}
