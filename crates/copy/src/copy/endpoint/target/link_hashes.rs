// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hashes of hard links. The data came under the first name; the manifest has the hash under each name, so that it stays
//! known when the first name is removed.

use super::state::Target;
use longhaul_store::{
    entry::{Entry, Kind},
    manifest::FileRecord,
    path::RelPath,
};

/// Path of a link, and the first name of its file.
pub(super) type Link = (RelPath, RelPath);

/// Returns the names of a link.
pub(super) fn link(entry: &Entry) -> Option<Link> {
    match &entry.kind {
        Kind::HardLink { to } => Some((entry.path.clone(), to.clone())),
        _ => None,
    }
}

impl Target {
    /// Records the hashes of links that are there, as far as those of their files are known.
    pub(super) fn record_link_hashes(&self, links: &[Link]) {
        if links.is_empty() {
            return;
        }
        let Some(mut manifest) = self.load_manifest() else {
            return;
        };
        let record = |(path, to): &Link| {
            let (own, first) = (
                manifest.lookup(path.as_bytes()),
                manifest.lookup(to.as_bytes()),
            );
            let differs = own != first && self.is_one_file(path, to);
            differs.then(|| first.copied().unwrap_or(FileRecord::REMOVED))
        };
        let records: Vec<(&[u8], FileRecord)> = links
            .iter()
            .filter_map(|link| Some((link.0.as_bytes(), record(link)?)))
            .collect();
        if let Err(error) = manifest.append(&records) {
            let what = format!("hashes of {} hard links are not kept", records.len());
            self.report_manifest_error(&what, &error);
        }
    }

    fn is_one_file(&self, path: &RelPath, other: &RelPath) -> bool {
        let identity = |path| self.root.stat(path).map(|stat| (stat.st_dev, stat.st_ino));
        matches!((identity(path), identity(other)), (Ok(one), Ok(other)) if one == other)
    }
}
