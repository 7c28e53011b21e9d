// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hashes of files that are removed or replaced. They leave the manifest first: a kill in between leaves a file without a
//! hash, which the next copy removes, but never a hash without a file.

use super::state::Target;
use longhaul_store::{
    manifest::{FileRecord, Manifest},
    path::RelPath,
};
use rustix::{fs::FileType, io::Errno};

/// Manifest from which hashes are removed. It is loaded when the first one is.
#[derive(Default)]
pub(super) struct StaleHashes {
    manifest: Option<Option<Manifest>>,
}

impl StaleHashes {
    /// Removes the hashes of these paths, durably.
    pub(super) fn remove<'p>(
        &mut self,
        target: &Target,
        paths: impl IntoIterator<Item = &'p RelPath>,
    ) {
        let Some(manifest) = self.manifest(target) else {
            return;
        };
        let paths = paths.into_iter().map(RelPath::as_bytes);
        let known = paths.filter(|path| manifest.lookup(path).is_some());
        let known: Vec<&[u8]> = known.collect();
        remove(target, manifest, &known);
    }

    /// Moves the hashes at and below `old` to `new`.
    pub(super) fn rename(&mut self, target: &Target, old: &RelPath, new: &RelPath) {
        let Some(manifest) = self.manifest(target) else {
            return;
        };
        let moved = |(path, record): (&[u8], &FileRecord)| {
            let at = RelPath::parse(path).ok()?;
            let below = at.strip_prefix(old);
            let new = match below {
                Some(below) => new.join_path(&below).ok()?,
                None if at == *old => new.clone(),
                None => return None,
            };
            Some([(at, FileRecord::REMOVED), (new, *record)])
        };
        let moved: Vec<_> = manifest.iter().filter_map(moved).flatten().collect();
        let records = moved
            .iter()
            .map(|(path, record)| (path.as_bytes(), *record));
        append(target, manifest, &records.collect::<Vec<_>>());
    }

    /// Removes the hashes of paths that are no files any more, because somebody else has removed them. Looks at them only
    /// if there are more hashes than entries at the source.
    pub(super) fn prune(&mut self, target: &Target, source_entries: u64) {
        let Some(manifest) = self.manifest(target) else {
            return;
        };
        if manifest.iter().count() as u64 > source_entries {
            let paths = manifest.iter().map(|(path, _)| path.to_vec());
            let missing: Vec<Vec<u8>> = paths.filter(|path| is_missing(target, path)).collect();
            let missing: Vec<&[u8]> = missing.iter().map(Vec::as_slice).collect();
            remove(target, manifest, &missing);
        }
        target.compact(manifest);
    }

    fn manifest(&mut self, target: &Target) -> Option<&mut Manifest> {
        let loaded = self.manifest.get_or_insert_with(|| target.load_manifest());
        loaded.as_mut()
    }
}

fn remove(target: &Target, manifest: &mut Manifest, paths: &[&[u8]]) {
    let records = paths.iter().map(|path| (*path, FileRecord::REMOVED));
    append(target, manifest, &records.collect::<Vec<_>>());
}

fn append(target: &Target, manifest: &mut Manifest, records: &[(&[u8], FileRecord)]) {
    if let Err(error) = manifest.append(records) {
        target.report_manifest_error("hashes of removed files are still kept", &error);
    }
}

fn is_missing(target: &Target, path: &[u8]) -> bool {
    let Ok(path) = RelPath::parse(path) else {
        return false;
    };
    match target.root.stat(&path) {
        Ok(stat) => !FileType::from_raw_mode(stat.st_mode).is_file(),
        // A file or a link has the place of its directory.
        Err(failure) => matches!(
            failure.errno(),
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
        ),
    }
}
