// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the directory of a mirrored export is still the one that was mirrored before.
//!
//! If its disk is not mounted, another directory is in its place, as a rule an empty one. A mirror that deletes would then
//! delete everything at the other site. So the first mirror puts a file with a random number into the directory, and the
//! number into the site's state. Where that file can't be written, the file system and the inode number take its place.

use super::keys::state::StateDir;
use anyhow::{Context as _, Result, bail};
use longhaul_linux::random::random_bytes;
use longhaul_store::{path::RelPath, root::Root};
use rustix::{
    fs::{Mode, OFlags, fstat, fstatfs, fstatvfs},
    io::Errno,
};
use std::{
    fmt::Write as _,
    io::{Read as _, Write as _},
};

/// Internal name, which no copy and no client sees.
const MARKER: &str = ".longhaul-export";

/// Longest identity, in bytes.
const LEN_MAX: u64 = 256;

/// Returns an error if the directory of `export` is another one than before.
pub(super) fn check(state: &StateDir, export: &str, directory: &Root) -> Result<()> {
    let file = format!("export-{export}");
    let path = state.path(&file);
    let known = state
        .read(&file, LEN_MAX)
        .with_context(|| path.display().to_string())?;
    let marked = read_marker(directory)?;
    let Some(known) = known else {
        let identity = match marked {
            Some(marked) => marked,
            None => mark(directory)?,
        };
        return state.write(&file, &identity, &state.lock()?);
    };
    let found = match marked {
        Some(marked) => marked,
        None => unmarked_identity(directory)?,
    };
    if found != known {
        bail!(
            "nothing is mirrored: the directory of {export} is another one than before (its {MARKER} is missing or differs): is \
             its disk mounted? To mirror it as it is now, remove {}",
            path.display()
        );
    }
    Ok(())
}

fn marker() -> Result<RelPath> {
    Ok(RelPath::parse(MARKER.as_bytes())?)
}

fn read_marker(directory: &Root) -> Result<Option<String>> {
    let file = match directory.open_file(&marker()?) {
        Err(failure) if failure.is_not_found() => return Ok(None),
        opened => opened?,
    };
    let mut text = String::new();
    file.take(LEN_MAX)
        .read_to_string(&mut text)
        .context(MARKER)?;
    Ok(Some(text))
}

/// Marks the directory, if this user may, and returns its identity.
fn mark(directory: &Root) -> Result<String> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let mut file = match directory.open_with(&marker()?, flags, mode) {
        Err(failure)
            if matches!(
                failure.errno(),
                Some(Errno::ACCESS | Errno::PERM | Errno::ROFS)
            ) =>
        {
            return unmarked_identity(directory);
        }
        opened => opened?,
    };
    let identity = random()?;
    file.write_all(identity.as_bytes())
        .and_then(|()| file.sync_all())
        .context(MARKER)?;
    Ok(identity)
}

fn random() -> Result<String> {
    let mut text = String::new();
    for byte in random_bytes::<16>()? {
        write!(text, "{byte:02x}")?;
    }
    Ok(text)
}

/// Identity of a directory without a marker: its file system, and its inode number there.
fn unmarked_identity(directory: &Root) -> Result<String> {
    let fd = directory.open_dir(None)?;
    let (inode, id, kind) = (
        fstat(&fd)?.st_ino,
        fstatvfs(&fd)?.f_fsid,
        fstatfs(&fd)?.f_type,
    );
    Ok(format!(
        "inode {inode} of file system {id:x}, type {kind:x}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn refuses_another_directory_in_the_same_place() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::find(Some(&temp.path().join("state"))).unwrap();
        drop(state.lock().unwrap());
        let at = temp.path().join("export");
        let is_same = || check(&state, "data", &Root::open(&at).unwrap());
        fs::create_dir(&at).unwrap();
        is_same().unwrap();
        is_same().unwrap();
        fs::rename(&at, temp.path().join("unmounted")).unwrap();
        fs::create_dir(&at).unwrap();
        let why = is_same().unwrap_err().to_string();
        assert!(why.contains("export-data"), "{why}");
        fs::write(at.join(MARKER), "another").unwrap();
        assert!(is_same().is_err());
        fs::remove_dir_all(&at).unwrap();
        fs::rename(temp.path().join("unmounted"), &at).unwrap();
        is_same().unwrap();
        // As the administrator confirms another one.
        fs::write(at.join(MARKER), "another").unwrap();
        fs::remove_file(state.path("export-data")).unwrap();
        is_same().unwrap();
        is_same().unwrap();
    }

    /// As root, who may write everywhere, this shows nothing.
    #[test]
    fn knows_a_directory_without_marker_by_its_inode() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| Root::open(&temp.path().join(name)).unwrap();
        for name in ["one", "other"] {
            fs::create_dir(temp.path().join(name)).unwrap();
        }
        let identity = unmarked_identity(&at("one")).unwrap();
        assert_eq!(identity, unmarked_identity(&at("one")).unwrap());
        assert_ne!(identity, unmarked_identity(&at("other")).unwrap());
        let read_only = fs::Permissions::from_mode(0o555);
        fs::set_permissions(temp.path().join("one"), read_only).unwrap();
        if !rustix::process::geteuid().is_root() {
            assert_eq!(mark(&at("one")).unwrap(), identity);
        }
    }
}
