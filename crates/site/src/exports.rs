// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of exports on the file system: each is a directory, and none contains the site's secrets.

use super::{config::Export, keys::state::StateDir};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_store::path;
use std::{collections::BTreeMap, os::unix::fs::MetadataExt, path::Path};

impl Export {
    pub(super) fn resolve(name: &str, directory: &Path, writable: bool) -> Result<Self> {
        let refused =
            |why: String| Refusal::usage(format!("export {name}: {}: {why}", directory.display()));
        let real = directory.canonicalize();
        let directory = real.map_err(|error| refused(error.to_string()))?;
        if !directory.is_dir() {
            return Err(refused("not a directory".to_owned()));
        }
        Ok(Self {
            directory,
            writable,
        })
    }
}

/// Rejects an export whose path leads through a symbolic link in a writable export. Clients of that export could
/// point the link at any directory.
pub(super) fn reject_links(
    name: &str,
    directory: &Path,
    exports: &BTreeMap<String, Export>,
) -> Result<()> {
    for path in std::path::absolute(directory)?.ancestors() {
        let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
        let Some(parent) = parent.filter(|_| path.is_symlink()) else {
            continue;
        };
        let offers = |other: &Export| other.writable && is_within(&parent, &other.directory);
        if let Some((other, _)) = exports.iter().find(|(_, other)| offers(other)) {
            let (path, display) = (path.display(), directory.display());
            return Err(Refusal::usage(format!(
                "export {name}: {display}: {path} is a symbolic link in the export {other}, whose clients can make it lead \
                 elsewhere: want the directory's own path"
            )));
        }
    }
    Ok(())
}

/// Rejects an export that contains secrets: the site's key and tokens, or the key of a certificate.
pub(super) fn reject_exported_secrets(
    exports: &BTreeMap<String, Export>,
    state: &StateDir,
    certificate: Option<&Path>,
) -> Result<()> {
    let real = |path: &Path| path::resolve_links(path).unwrap_or_else(|| path.to_owned());
    let of_state = real(state.directory());
    let of_certificate = certificate.map(real);
    for (name, export) in exports {
        let display = export.directory.display();
        if is_within(&of_state, &export.directory) || is_within(&export.directory, &of_state) {
            let state = of_state.display();
            return Err(Refusal::usage(format!(
                "export {name}: {display} would expose the site's key and tokens, which are in {state}: want another \
                 --state"
            )));
        }
        if let Some(certificate) = &of_certificate
            && is_within(certificate, &export.directory)
        {
            let certificate = certificate.display();
            return Err(Refusal::usage(format!(
                "export {name}: {display} would expose the key in {certificate}: move that elsewhere"
            )));
        }
    }
    Ok(())
}

/// Returns whether a path without symbolic links is a directory or below it. Compares inodes, since a mount may give
/// a directory two names.
pub(super) fn is_within(path: &Path, directory: &Path) -> bool {
    let identity = |path: &Path| {
        let meta = path.metadata().ok()?;
        Some((meta.dev(), meta.ino()))
    };
    let wanted = identity(directory);
    wanted.is_some() && path.ancestors().any(|above| identity(above) == wanted)
}
