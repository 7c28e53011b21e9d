// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path of a target. Devices, fifos and sockets are refused as targets, unless the source is one too: a copy
//! renames a new file over the target. As root, `copy FILE /dev/null` would leave a machine without it.

use crate::{
    copy::endpoint::access_scope::{AccessScope, is_other_than_directory, not_a_directory},
    protocol::{control::Begin, options::Options},
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_store::{
    path::{Printable, RelPath},
    root::Root,
};
use rustix::fs::{PROC_SUPER_MAGIC, statfs};
use std::{
    fs::{self, FileType, Metadata},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

/// Maximum symbolic links followed one after another, as in the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Opens the directory of the copy; also returns the name of the copied entry there, and with a dry run the
/// directory that would have been created for it.
pub(super) fn open_destination(
    scope: &AccessScope,
    path: &[u8],
    begin: &Begin,
) -> Result<(Root, Option<RelPath>, Option<RelPath>)> {
    let target = scope.refuse_inside_source(path, begin)?;
    refuse_special(scope, path, begin)?;
    let found = open(scope, path, &begin.options)?;
    if let Some(target) = &target {
        let (_, top_name, planned_directory) = &found;
        // A directory that would be created does not exist yet.
        if planned_directory.is_none() {
            target.refuse_onto(&begin.sources, top_name.is_some(), begin.options.delete)?;
        }
    }
    Ok(found)
}

fn open(
    scope: &AccessScope,
    path: &[u8],
    options: &Options,
) -> Result<(Root, Option<RelPath>, Option<RelPath>)> {
    if !options.dry_run || !options.into_directory {
        let (root, top_name) = scope.open_target(path, options)?;
        return Ok((root, top_name, None));
    }
    // An entry with a name of its own needs no new directory.
    let without_directory = Options {
        into_directory: false,
        ..options.clone()
    };
    let (root, planned_directory) = scope.open_target(path, &without_directory)?;
    if let Some(directory) = &planned_directory
        && is_other_than_directory(&root, directory)
    {
        return Err(not_a_directory(&Printable(path)));
    }
    Ok((root, None, planned_directory))
}

/// Refuses a special file at the target's path, or at a source's path in it, before anything is changed.
fn refuse_special(scope: &AccessScope, path: &[u8], begin: &Begin) -> Result<()> {
    let Some(local_path) = scope.local_path(path) else {
        return Ok(());
    };
    let follow = matches!(scope, AccessScope::Unrestricted);
    let refuse = |local_path: &Path, shown: &dyn std::fmt::Display| match describe_special(
        local_path, follow,
    ) {
        None => Ok(()),
        Some(kind_name) => Err(Refusal::usage(format!(
            "{shown}: {kind_name} is there, which a copy does not replace: name a file or a directory"
        ))),
    };
    for name in begin.sources.non_special_names() {
        let shown = Printable(path);
        refuse(&local_path, &shown)?;
        if let Some(name) = name {
            refuse(
                &local_path.join(name.as_path()),
                &format_args!("{name} in {shown}"),
            )?;
        }
    }
    Ok(())
}

/// Describes a special file; `None` for files, directories and free paths. With `follow`, symbolic links are
/// followed.
fn describe_special(path: &Path, follow: bool) -> Option<&'static str> {
    let found = if follow {
        fs::metadata(path)
    } else {
        fs::symlink_metadata(path)
    };
    let found = found.as_ref().map(Metadata::file_type);
    match found {
        Ok(kind) if is_device(kind) => Some("a device"),
        Ok(kind) if kind.is_fifo() => Some("a fifo"),
        Ok(kind) if kind.is_socket() => Some("a socket"),
        _ if follow && leads_to_descriptor(path.to_owned()) => Some("an open file"),
        _ => None,
    }
}

fn is_device(kind: FileType) -> bool {
    kind.is_block_device() || kind.is_char_device()
}

/// Returns whether a path leads through proc(5) to an open descriptor of a process, as /dev/stderr does.
fn leads_to_descriptor(mut path: PathBuf) -> bool {
    for _ in 0..LINKS_MAX {
        let Ok(link) = fs::read_link(&path) else {
            return false;
        };
        let parent = path.parent().unwrap_or(Path::new("/")).to_owned();
        if statfs(&parent).is_ok_and(|found| found.f_type == PROC_SUPER_MAGIC) {
            return true;
        }
        path = parent.join(link);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mknodat};
    use std::os::unix::{fs::symlink, net::UnixListener};

    #[test]
    fn detects_special_files_through_links() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        let fifo = rustix::fs::FileType::Fifo;
        mknodat(CWD, at("fifo"), fifo, Mode::RUSR, 0).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        fs::write(at("file"), "").unwrap();
        symlink("fifo", at("link")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("/proc/self/fd/0", at("open")).unwrap();
        assert_eq!(
            describe_special(Path::new("/dev/null"), true),
            Some("a device")
        );
        assert_eq!(describe_special(&at("fifo"), false), Some("a fifo"));
        assert_eq!(describe_special(&at("socket"), true), Some("a socket"));
        assert_eq!(describe_special(&at("link"), true), Some("a fifo"));
        assert_eq!(
            describe_special(&at("link"), false),
            None,
            "a copy replaces the link itself"
        );
        assert!(describe_special(&at("open"), true).is_some());
        for name in ["file", "loop", "none", ""] {
            assert_eq!(describe_special(&at(name), true), None, "{name}");
        }
    }
}
