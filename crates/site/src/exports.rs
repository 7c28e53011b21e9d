// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of exports on the file system: each is a directory, and none contains the site's secrets.

use super::{config::Export, keys::state::StateDir};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_store::path;
use rustix::{
    fs::{Access, AtFlags, CWD, accessat},
    io::Errno,
};
use std::{collections::BTreeMap, io::ErrorKind, os::unix::fs::MetadataExt, path::Path};
use tracing::warn;

impl Export {
    pub(super) fn resolve(name: &str, directory: &Path, writable: bool) -> Result<Self> {
        let refused =
            |why: String| Refusal::usage(format!("export {name}: {}: {why}", directory.display()));
        let real = directory.canonicalize();
        let directory = real.map_err(|error| {
            let advice = match error.kind() {
                ErrorKind::PermissionDenied => home_advice(directory),
                _ => "",
            };
            refused(format!("{error}{advice}"))
        })?;
        if !directory.is_dir() {
            return Err(refused("not a directory".to_owned()));
        }
        Ok(Self {
            directory,
            writable,
        })
    }
}

/// Warns of writable exports in which this process can't create files.
pub(super) fn warn_of_unwritable(exports: &BTreeMap<String, Export>) {
    for (name, export) in exports.iter().filter(|(_, export)| export.writable) {
        let directory = &export.directory;
        let access = Access::WRITE_OK | Access::EXEC_OK;
        // Other errors say nothing about the rights.
        if let Err(error @ (Errno::ACCESS | Errno::ROFS)) =
            accessat(CWD, directory, access, AtFlags::EACCESS)
        {
            let advice = write_advice(error, directory);
            let directory = directory.display();
            warn!("export {name}: the site can't create files in {directory}: {error}: {advice}");
        }
    }
}

/// Returns what the operator can do about a directory without write access.
fn write_advice(error: Errno, directory: &Path) -> String {
    let remedy = match error {
        Errno::ROFS => "mount it writable",
        _ => "chown it to the site's user",
    };
    format!("{remedy}, or use --export-ro{}", home_advice(directory))
}

/// Returns what a service needs for a directory that `ProtectHome=` (systemd.exec(5)) covers.
fn home_advice(directory: &Path) -> &'static str {
    let homes = ["/home", "/root", "/run/user"];
    if homes.iter().any(|home| directory.starts_with(home)) {
        "; a systemd service needs ProtectHome=no"
    } else {
        ""
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_way_out_of_a_directory_without_write_access() {
        let advice = |error, path| write_advice(error, Path::new(path));
        let outside = advice(Errno::ACCESS, "/srv/home");
        assert!(outside.contains("chown") && outside.contains("--export-ro"));
        assert!(!outside.contains("ProtectHome"));
        assert!(advice(Errno::ACCESS, "/home/me/data").contains("ProtectHome=no"));
        assert!(!advice(Errno::ROFS, "/srv").contains("chown"));
    }
}
