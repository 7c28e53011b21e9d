// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probe for a shared file system: one target creates a file in its directory, and targets on other hosts
//! look for it.

use super::{access_scope::AccessScope, reports::Reporter};
use crate::protocol::{
    control::{Begin, Rendezvous},
    message,
    options::Options,
    report::{Progress, Report},
};
use anyhow::Result;
use longhaul_store::{part::INTERNAL_PREFIX, path::RelPath, root::Root};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Creates the probe file, and removes it when the coordinator sends anything or ends. After
/// [`Rendezvous::refused`] it also removes the directories that it created.
pub(super) fn create_probe_file(
    number: u128,
    begin: &Begin,
    scope: &AccessScope,
    reporter: &Reporter,
) -> Result<Progress> {
    scope.refuse_inside_source(target_path(begin), begin)?;
    let created = CreatedDirectories::create(begin, scope)?;
    let (root, name) = (
        open_target(begin, scope, &begin.options)?,
        probe_file_name(number)?,
    );
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    root.open_with(&name, flags, Mode::RUSR | Mode::WUSR)?;
    reporter.send(&Report::ProbeVisible(true));
    // After any message, or at the end of the input, the file is not needed any more.
    let answer: Option<Rendezvous> = message::read(&mut io::stdin().lock()).unwrap_or_default();
    root.remove(&name)?;
    if answer == Some(Rendezvous::refused()) {
        created.remove();
    }
    Ok(Progress::default())
}

pub(super) fn find_probe_file(
    number: u128,
    begin: &Begin,
    scope: &AccessScope,
    reporter: &Reporter,
) -> Result<Progress> {
    // Nothing is created here: if the directory does not exist, neither does the file.
    let options = Options {
        into_directory: false,
        dry_run: true,
        origin: [0; 32],
        ..begin.options.clone()
    };
    let root = open_target(begin, scope, &options);
    let found =
        root.is_ok_and(|root| probe_file_name(number).is_ok_and(|name| root.stat(&name).is_ok()));
    reporter.send(&Report::ProbeVisible(found));
    Ok(Progress::default())
}

/// Directories of the target's path that did not exist before the probe, the deepest first.
enum CreatedDirectories {
    /// Paths on this machine.
    Local(Vec<PathBuf>),
    /// Paths below an export. [`Root`] resolves them without symbolic links: a client may replace a directory by a
    /// link meanwhile.
    Export(Root, Vec<RelPath>),
}

impl CreatedDirectories {
    /// Creates the missing directories in an export. Elsewhere [`open_target`] creates them.
    fn create(begin: &Begin, scope: &AccessScope) -> Result<Self> {
        let path = target_path(begin);
        Ok(match scope {
            AccessScope::Unrestricted => {
                Self::Local(missing_directories(scope.local_path(path).as_deref()))
            }
            AccessScope::Export(export) => {
                let (root, below) = export.open_with_path(path)?;
                let created = create_missing(&root, below.as_ref());
                Self::Export(root, created)
            }
        })
    }

    /// Removes the directories, up to the first that is not empty or that cannot be removed.
    fn remove(&self) {
        let _all_removed = match self {
            Self::Local(paths) => paths.iter().all(|path| fs::remove_dir(path).is_ok()),
            Self::Export(root, paths) => paths.iter().all(|path| root.remove_dir(path).is_ok()),
        };
    }
}

/// Returns the directories of a path that do not exist, the deepest first.
fn missing_directories(path: Option<&Path>) -> Vec<PathBuf> {
    let ancestors = path.into_iter().flat_map(Path::ancestors);
    let missing = ancestors
        .filter(|path| !path.as_os_str().is_empty())
        .take_while(|path| path.symlink_metadata().is_err());
    missing.map(Path::to_owned).collect()
}

/// Creates the missing directories of a path below a root. Returns those that this call created, the deepest first.
/// After an error the rest is missing: [`open_target`] reports the error.
fn create_missing(root: &Root, path: Option<&RelPath>) -> Vec<RelPath> {
    let mut missing: Vec<RelPath> = std::iter::successors(path.cloned(), RelPath::parent)
        .take_while(|path| root.stat(path).is_err())
        .collect();
    // The highest first. Another client may create one of them at the same time: that one stays.
    let mut created: Vec<RelPath> = Vec::new();
    while let Some(path) = missing.pop() {
        match root.make_dir_with_umask(&path) {
            Ok(()) => created.insert(0, path),
            Err(failure) if failure.errno() == Some(Errno::EXIST) => {}
            Err(_) => break,
        }
    }
    created
}

fn open_target(begin: &Begin, scope: &AccessScope, options: &Options) -> Result<Root> {
    Ok(scope.open_target(target_path(begin), options)?.0)
}

fn target_path(begin: &Begin) -> &[u8] {
    begin.paths.first().map_or(b".", Vec::as_slice)
}

fn probe_file_name(number: u128) -> Result<RelPath> {
    let name = format!("{INTERNAL_PREFIX}{number:032x}.mark");
    Ok(RelPath::parse(name.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn path(path: &str) -> RelPath {
        RelPath::parse(path.as_bytes()).unwrap()
    }

    /// Returns a root with the directory `old`, and what a probe in `old/new/deep` creates there.
    fn created() -> (tempfile::TempDir, CreatedDirectories) {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("old")).unwrap();
        let root = Root::open(temp.path()).unwrap();
        let created = create_missing(&root, Some(&path("old/new/deep")));
        assert_eq!(created, [path("old/new/deep"), path("old/new")]);
        (temp, CreatedDirectories::Export(root, created))
    }

    #[test]
    fn removes_only_directories_that_it_created() {
        let (temp, created) = created();
        created.remove();
        assert!(temp.path().join("old").is_dir());
        assert!(!temp.path().join("old/new").exists());
    }

    #[test]
    fn keeps_a_created_directory_with_entries() {
        let (temp, created) = created();
        fs::write(temp.path().join("old/new/file"), "").unwrap();
        created.remove();
        assert!(temp.path().join("old/new/file").exists());
        assert!(!temp.path().join("old/new/deep").exists());
    }

    #[test]
    fn removes_nothing_through_a_symbolic_link() {
        let (temp, created) = created();
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir(outside.path().join("deep")).unwrap();
        let new = temp.path().join("old/new");
        fs::rename(&new, temp.path().join("moved")).unwrap();
        symlink(outside.path(), &new).unwrap();
        created.remove();
        assert!(outside.path().join("deep").is_dir());
        assert!(new.is_symlink());
    }
}
