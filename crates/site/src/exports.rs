// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exports as they lie on the disk: directories, and none that holds what lets others in.

use super::{config::Export, keys::state::State};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_store::path;
use std::{collections::BTreeMap, os::unix::fs::MetadataExt, path::Path};

impl Export {
    pub(super) fn read(name: &str, directory: &Path, writable: bool) -> Result<Self> {
        let refused =
            |why: String| Refusal::usage(format!("export {name}: {}: {why}", directory.display()));
        let real = directory.canonicalize();
        let directory = real.map_err(|error| refused(error.to_string()))?;
        if !directory.is_dir() {
            return Err(refused("no directory".to_owned()));
        }
        Ok(Self {
            directory,
            writable,
        })
    }
}

/// A link in an export that may be written is its clients', who may have it lead anywhere: another export is not found
/// by it.
pub(super) fn refuse_links(
    name: &str,
    directory: &Path,
    exports: &BTreeMap<String, Export>,
) -> Result<()> {
    for path in std::path::absolute(directory)?.ancestors() {
        let around = path.parent().and_then(|around| around.canonicalize().ok());
        let Some(around) = around.filter(|_| path.is_symlink()) else {
            continue;
        };
        let offers = |other: &Export| other.writable && lies_in(&around, &other.directory);
        if let Some((other, _)) = exports.iter().find(|(_, other)| offers(other)) {
            let (path, shown) = (path.display(), directory.display());
            return Err(Refusal::usage(format!(
                "export {name}: {shown}: {path} is a symbolic link in the export {other}, whose clients may have it lead \
                 elsewhere: want the directory's own path"
            )));
        }
    }
    Ok(())
}

/// Nobody is offered what lets in: the key and the tokens, or the key of a certificate.
pub(super) fn keep_secrets(
    exports: &BTreeMap<String, Export>,
    state: &State,
    certificate: Option<&Path>,
) -> Result<()> {
    let real = |path: &Path| path::resolve_links(path).unwrap_or_else(|| path.to_owned());
    let of_state = real(state.directory());
    let of_certificate = certificate.map(real);
    for (name, export) in exports {
        let shown = export.directory.display();
        if lies_in(&of_state, &export.directory) || lies_in(&export.directory, &of_state) {
            let state = of_state.display();
            return Err(Refusal::usage(format!(
                "export {name}: {shown} would offer the site's key and tokens, which are in {state}: want another \
                 --state"
            )));
        }
        if let Some(certificate) = &of_certificate
            && lies_in(certificate, &export.directory)
        {
            let certificate = certificate.display();
            return Err(Refusal::usage(format!(
                "export {name}: {shown} would offer the key in {certificate}: move that elsewhere"
            )));
        }
    }
    Ok(())
}

/// Whether a path without symbolic links is that directory or below it, by this name or another: a mount may give it
/// two.
pub(super) fn lies_in(path: &Path, directory: &Path) -> bool {
    let identity = |path: &Path| {
        let meta = path.metadata().ok()?;
        Some((meta.dev(), meta.ino()))
    };
    let wanted = identity(directory);
    wanted.is_some() && path.ancestors().any(|above| identity(above) == wanted)
}
