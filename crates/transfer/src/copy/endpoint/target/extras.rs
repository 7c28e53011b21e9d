// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries that the source does not have: `--delete` removes them, and their hashes from the manifest.

use super::context::Target;
use longhaul_store::tree::{
    delete::{DeletionPlan, remove_all},
    filter::Filter,
    scan::ScanEnd,
};
use longhaul_store::{
    manifest::{FileRecord, Manifest},
    path::RelPath,
    tree::writer::{Existing, inspect},
};
use std::collections::HashSet;

impl Target {
    /// Removes entries that the source does not have; returns their number.
    pub(super) fn remove_extras(
        &self,
        extras: DeletionPlan<'_>,
        filter: &Filter,
        unreadable: u64,
    ) -> u64 {
        let ended = match unreadable {
            0 => ScanEnd::Complete,
            failures => ScanEnd::Failures(failures),
        };
        let (found, failures) = match extras.finish(ended) {
            Ok(found) => found,
            Err(why) => {
                self.reporter.send_problem(why.to_string());
                return 0;
            }
        };
        let mut removed = 0;
        let mut failed: Vec<String> = failures.iter().map(ToString::to_string).collect();
        for path in &found {
            if self.options.dry_run {
                removed += self.plan_removal(filter, path);
                continue;
            }
            let (count, failures) = remove_all(&self.root, filter, path);
            removed += count;
            failed.extend(failures.iter().map(ToString::to_string));
        }
        failed.into_iter().for_each(|why| self.report_failure(why));
        if removed > 0 && !self.options.dry_run {
            self.remove_hashes(&found);
        }
        removed
    }

    /// Removes hashes of paths at or below `removed` that no longer exist.
    fn remove_hashes(&self, removed: &[RelPath]) {
        let Some(mut manifest) = self.load_manifest() else {
            return;
        };
        let missing: Vec<Vec<u8>> = self.missing_paths(&manifest, &removed.iter().collect());
        let records: Vec<(&[u8], FileRecord)> = missing
            .iter()
            .map(|path| (path.as_slice(), FileRecord::REMOVED))
            .collect();
        if let Err(error) = manifest.append(&records) {
            self.report_failure(format!("hashes of removed files are still kept: {error}"));
        }
    }

    fn missing_paths(&self, manifest: &Manifest, removed: &HashSet<&RelPath>) -> Vec<Vec<u8>> {
        let is_missing = |path: &RelPath| {
            is_at_or_below(path, removed)
                && matches!(inspect(&self.root, path), Ok(Existing::Missing))
        };
        let paths = manifest.iter().map(|(path, _)| path.to_vec());
        paths
            .filter(|path| RelPath::parse(path).is_ok_and(|path| is_missing(&path)))
            .collect()
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
