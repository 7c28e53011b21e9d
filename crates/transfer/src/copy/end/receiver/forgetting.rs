// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `--delete` removed has no hash any more.

use super::Target;
use longhaul_store::{
    manifest::{Manifest, Record},
    path::RelPath,
    place::{There, look},
};
use std::collections::HashSet;

impl Target {
    /// Of what was in or beneath `removed` and is not there any more.
    pub(super) fn forget_removed(&self, removed: &[RelPath]) {
        let Some(mut manifest) = self.manifest() else {
            return;
        };
        let gone: Vec<Vec<u8>> = self.gone(&manifest, &removed.iter().collect());
        let records: Vec<(&[u8], Record)> = gone
            .iter()
            .map(|path| (path.as_slice(), Record::GONE))
            .collect();
        if let Err(error) = manifest.append(&records) {
            self.fail(format!("hashes of removed files are still kept: {error}"));
        }
    }

    fn gone(&self, manifest: &Manifest, removed: &HashSet<&RelPath>) -> Vec<Vec<u8>> {
        let is_gone = |path: &RelPath| {
            is_beneath(path, removed) && matches!(look(&self.root, path), Ok(There::Nothing))
        };
        let paths = manifest.iter().map(|(path, _)| path.to_vec());
        paths
            .filter(|path| RelPath::parse(path).is_ok_and(|path| is_gone(&path)))
            .collect()
    }
}

fn is_beneath(path: &RelPath, tops: &HashSet<&RelPath>) -> bool {
    let mut at = Some(path.clone());
    while let Some(path) = at {
        if tops.contains(&path) {
            return true;
        }
        at = path.parent();
    }
    false
}
