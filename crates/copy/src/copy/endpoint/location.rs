// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locations of the source and the target of a copy, by which two processes find out whether one contains the
//! other. The names may differ: by symbolic links, `..`, bind mounts, ssh to the same host, or a site's
//! export.
//!
//! A location is identified by a digest of this boot's random number, the file system, and the path in the
//! file system (proc(5), mountinfo). That path is the same for all mounts of the file system. A directory is
//! also identified by its inode number. A host that does not run on the same kernel cannot learn a path from
//! the digest.

use crate::protocol::sources::{FileIdentity, LocationId, SourceLocation, Sources};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_store::{
    path::{Printable, RelPath},
    tree::filter::{Filter, Verdict},
};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use sha2::{Digest as _, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

fn is_special(path: &Path) -> bool {
    let found = fs::symlink_metadata(path);
    found.is_ok_and(|found| !(found.is_file() || found.is_dir() || found.is_symlink()))
}

fn file_identity(path: &Path) -> Option<FileIdentity> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let found = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, wanted).ok()?;
    let has_birth_time = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    Some(FileIdentity {
        inode: found.stx_ino,
        birth: has_birth_time.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec)),
    })
}

/// Mount of a file system.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// Major and minor number, as `8:1`.
    device: Vec<u8>,
    /// Directory of the file system that is mounted.
    root: PathBuf,
    mount_point: PathBuf,
}

/// Data that identifies locations on this machine.
#[derive(Debug)]
pub(crate) struct Machine {
    boot_id: Vec<u8>,
    mounts: Vec<Mount>,
}

impl Machine {
    /// Reads the machine's boot ID and mounts; `None` without /proc, and then no overlap is detected.
    pub(crate) fn read() -> Option<Self> {
        Some(Self {
            boot_id: fs::read("/proc/sys/kernel/random/boot_id").ok()?,
            mounts: parse_mounts(&fs::read("/proc/self/mountinfo").ok()?),
        })
    }

    /// Returns the locations of sources. Each is given as the user named it, with its name in the copy and
    /// its path without symbolic links.
    pub(crate) fn source_locations(
        &self,
        given: impl Iterator<Item = (Vec<u8>, Option<RelPath>, PathBuf)>,
        one_file_system: bool,
    ) -> Sources {
        let (mut containing, mut seen_parents) = (BTreeMap::new(), BTreeSet::new());
        let all = given.map(|(given_path, name, path)| {
            // Sources in one directory share its ancestors: compute them once, however many sources there
            // are.
            let is_mount = self.mounts.iter().any(|mount| mount.mount_point == path);
            if seen_parents.insert(path.parent().map(Path::to_owned)) || is_mount {
                containing.extend(self.containing_directories(&path, false));
            }
            let own_ids = self.location_ids(&path).into_iter().map(|id| (id, None));
            let mounted = if one_file_system {
                Vec::new()
            } else {
                self.mounts_below(&path)
            };
            SourceLocation {
                given_path,
                name,
                special: is_special(&path),
                location_ids: own_ids.chain(mounted).collect(),
                identity: file_identity(&path),
            }
        });
        Sources {
            all: all.collect(),
            enclosing: containing.into_keys().collect(),
        }
    }

    fn location_id(&self, kind: &str, of: &[u8], path: &[u8]) -> LocationId {
        let mut hash = Sha256::new();
        for part in [&self.boot_id, kind.as_bytes(), of, path] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut id = [0; 16];
        id.copy_from_slice(&hash.finalize()[..16]);
        id
    }

    fn path_id(&self, device: &[u8], path: &Path) -> LocationId {
        self.location_id("path", device, path.as_os_str().as_bytes())
    }

    /// Returns all identifiers of a path. Names of one file are different locations; names of one directory
    /// are not.
    fn location_ids(&self, path: &Path) -> Vec<LocationId> {
        let metadata = fs::symlink_metadata(path).ok();
        let directory_id = metadata.filter(fs::Metadata::is_dir).map(|found| {
            let inode = found.ino().to_be_bytes();
            self.location_id("number", &found.dev().to_be_bytes(), &inode)
        });
        let path_id = self.device_and_path(path);
        let path_id = path_id.map(|(device, path)| self.path_id(device, &path));
        directory_id.into_iter().chain(path_id).collect()
    }

    /// Returns the file system that a path is on, and the path in it.
    fn device_and_path(&self, path: &Path) -> Option<(&[u8], PathBuf)> {
        let mounts = self.mounts.iter();
        // Of several mounts at one path, the last one is visible.
        let mount = mounts
            .filter(|mount| path.starts_with(&mount.mount_point))
            .max_by_key(|mount| mount.mount_point.as_os_str().len())?;
        let below = path.strip_prefix(&mount.mount_point).ok()?;
        Some((&mount.device, plain_join(&mount.root, below)))
    }

    /// Returns the directories that contain a path, each with the relative path from it. They are the
    /// ancestors by name, and in the file system the ancestors of each mount's root. With `one_file_system`
    /// only those in the path's own file system.
    fn containing_directories(
        &self,
        path: &Path,
        one_file_system: bool,
    ) -> BTreeMap<LocationId, PathBuf> {
        let mut containing = BTreeMap::new();
        for (from, above) in path.ancestors().enumerate() {
            let below = path.strip_prefix(above).unwrap_or(Path::new(""));
            if from > 0 && !one_file_system {
                let ids = self.location_ids(above).into_iter();
                containing.extend(ids.map(|id| (id, below.to_owned())));
            }
            let Some((device, path_on_device)) = self.device_and_path(above) else {
                continue;
            };
            for outer in path_on_device.ancestors().skip(1) {
                let inner = path_on_device.strip_prefix(outer).unwrap_or(Path::new(""));
                let id = self.path_id(device, outer);
                containing
                    .entry(id)
                    .or_insert_with(|| plain_join(inner, below));
            }
            if one_file_system {
                break;
            }
        }
        containing
    }

    /// Returns the file systems mounted below a directory, each with its relative path there.
    fn mounts_below(&self, path: &Path) -> Vec<(LocationId, Option<RelPath>)> {
        let below = self.mounts.iter().filter_map(|mount| {
            let at = mount.mount_point.strip_prefix(path).ok()?.as_os_str();
            let at = RelPath::parse(at.as_bytes()).ok()?;
            Some((self.path_id(&mount.device, &mount.root), Some(at)))
        });
        below.collect()
    }
}

/// Location of a target. The last components of its path may not exist yet.
#[derive(Debug)]
pub(crate) struct TargetLocation {
    machine: Machine,
    path: PathBuf,
    given_path: String,
}

impl TargetLocation {
    pub(crate) fn new(machine: Machine, path: PathBuf, given_path: &[u8]) -> Self {
        let given_path = Printable(given_path).to_string();
        Self {
            machine,
            path,
            given_path,
        }
    }

    /// Refuses to copy a source into itself, before anything is created. Directories that `filter` excludes
    /// are not copied, so a target in them is allowed.
    pub(crate) fn refuse_inside_source(
        &self,
        sources: &Sources,
        filter: &Filter,
        one_file_system: bool,
    ) -> Result<()> {
        let own_ids = self.machine.location_ids(&self.path);
        let mut containing = self
            .machine
            .containing_directories(&self.path, one_file_system);
        containing.extend(own_ids.into_iter().map(|id| (id, PathBuf::new())));
        for source in &sources.all {
            let found = source.location_ids.iter().find_map(|(id, mounted)| {
                let below = containing.get(id)?;
                let inside = source.path_in_copy(mounted.as_ref(), below);
                let copied = inside.is_none_or(|inside| {
                    filter.verdict_from_top(&inside, true) != Verdict::Excluded
                });
                copied.then_some(below)
            });
            if let Some(below) = found {
                let source = Printable(&source.given_path);
                return Err(Refusal::usage(if below.as_os_str().is_empty() {
                    format!("{}: it is the same as the source {source}", self.given_path)
                } else {
                    format!(
                        "{}: it is in the source {source}, which would be copied into itself: name a target outside of it",
                        self.given_path
                    )
                }));
            }
        }
        Ok(())
    }

    /// Refuses to copy a source onto itself in this directory. With `delete`, also refuses to remove a source
    /// as an extra entry. `renamed`: the target's path is the copied entry itself.
    pub(crate) fn refuse_onto(&self, sources: &Sources, renamed: bool, delete: bool) -> Result<()> {
        for source in &sources.all {
            let path = match &source.name {
                Some(name) if !renamed => self.path.join(name.as_path()),
                _ => self.path.clone(),
            };
            let given_path = Printable(&source.given_path);
            let ids = self.machine.location_ids(&path);
            if ids
                .iter()
                .any(|id| source.location_ids.contains(&(*id, None)))
            {
                let target = &self.given_path;
                return Err(Refusal::usage(format!(
                    "{given_path}: it would be copied onto itself in {target}"
                )));
            }
            if delete && ids.iter().any(|id| sources.enclosing.contains(id)) {
                return Err(Refusal::usage(format!(
                    "{}: a source is in the directory that {given_path} is copied to, and --delete would remove it: leave --delete out, or \
                     name another target",
                    self.given_path
                )));
            }
        }
        Ok(())
    }
}

impl SourceLocation {
    /// Returns the path in the copy of a directory below the source; `None` if that is not a valid path.
    fn path_in_copy(&self, mounted: Option<&RelPath>, below: &Path) -> Option<RelPath> {
        let parts = [self.name.as_ref(), mounted];
        let parts = parts.into_iter().flatten().map(RelPath::as_path);
        let whole = parts.fold(PathBuf::new(), |whole, part| plain_join(&whole, part));
        RelPath::parse(plain_join(&whole, below).as_os_str().as_bytes()).ok()
    }
}

/// Joins two paths; adds no slash at the end if `below` is empty.
fn plain_join(path: &Path, below: &Path) -> PathBuf {
    match (path.as_os_str().is_empty(), below.as_os_str().is_empty()) {
        (_, true) => path.to_owned(),
        (true, _) => below.to_owned(),
        _ => path.join(below),
    }
}

/// Parses lines of proc(5)'s mountinfo: ID, parent's ID, MAJOR:MINOR, root, mount point, and fields that are
/// not needed here.
fn parse_mounts(text: &[u8]) -> Vec<Mount> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(parse_mount).collect()
}

fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    Some(Mount {
        device: fields.next()?.to_vec(),
        root: unescape(fields.next()?),
        mount_point: unescape(fields.next()?),
    })
}

/// Replaces `\ooo` by the byte of that octal value: spaces, tabs, newlines and backslashes are written so.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = &after[if code.is_some() { 3 } else { 0 }..];
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_store::tree::filter::Rule;

    /// `/mnt/bound` is `/home/src/sub`, and another disk is at `/home/src/disk`.
    const MOUNTS: &[u8] = b"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        21 20 8:1 /home/src/sub /mnt/bound rw shared:1 - ext4 /dev/sda1 rw\n\
        22 20 8:2 / /home/src/disk rw - ext4 /dev/sdb rw\n\
        23 20 8:2 /x /mnt/a\\040b rw - ext4 /dev/sdb rw\n";

    fn machine() -> Machine {
        Machine {
            boot_id: b"boot".to_vec(),
            mounts: parse_mounts(MOUNTS),
        }
    }

    fn is_refused_with(
        source: &str,
        name: Option<&str>,
        target: &str,
        rules: &[Rule],
        one: bool,
    ) -> bool {
        let name = name.map(|name| RelPath::parse(name.as_bytes()).unwrap());
        let given = (source.into(), name.clone(), PathBuf::from(source));
        let sources = machine().source_locations(std::iter::once(given), one);
        let filter = Filter::new(rules).unwrap().with_source_names(name.iter());
        let target = TargetLocation::new(machine(), target.into(), b"target");
        target.refuse_inside_source(&sources, &filter, one).is_err()
    }

    fn is_inside_source(target: &str) -> bool {
        is_refused_with("/home/src", Some("src"), target, &[], false)
    }

    #[test]
    fn refuses_target_in_source_through_any_mount() {
        for target in [
            "/home/src",
            "/home/src/new",
            "/home/src/sub/new/er",
            "/mnt/bound",
            "/mnt/bound/new",
            "/home/src/disk/new",
            "/mnt/a b",
            "/mnt/a b/new",
        ] {
            assert!(is_inside_source(target), "{target}");
        }
        for target in ["/home", "/home/src2", "/mnt", "/mnt/a", "/srv/home/src"] {
            assert!(!is_inside_source(target), "{target}");
        }
    }

    #[test]
    fn allows_target_in_excluded_directory() {
        let exclude = |pattern: &str| [Rule::Exclude(pattern.to_owned())];
        let refused = |target, rules: &[Rule], one| {
            let named = is_refused_with("/home/src", Some("src"), target, rules, one);
            assert_eq!(
                named,
                is_refused_with("/home/src", None, target, rules, one),
                "{target}"
            );
            named
        };
        assert!(!refused("/home/src/sub/new", &exclude("/sub"), false));
        assert!(!refused("/mnt/bound/new", &exclude("/sub"), false));
        assert!(!refused("/mnt/a b/new", &exclude("/disk"), false));
        assert!(refused("/home/src/sub/new", &exclude("/other"), false));
        assert!(
            !refused("/home/src/disk/new", &[], true),
            "another file system"
        );
        assert!(refused("/home/src/sub/new", &[], true));
    }

    #[test]
    fn refuses_source_in_directory_that_delete_empties() {
        let is_refused = |source: &str, name: Option<&str>, target: &str, renamed, delete| {
            let name = name.map(|name| RelPath::parse(name.as_bytes()).unwrap());
            let given = (source.into(), name, PathBuf::from(source));
            let sources = machine().source_locations(std::iter::once(given), false);
            let target = TargetLocation::new(machine(), target.into(), b"target");
            target.refuse_onto(&sources, renamed, delete).is_err()
        };
        assert!(is_refused("/home/src/sub", None, "/home/src", false, true));
        assert!(is_refused("/mnt/bound/x", None, "/home/src", false, true));
        assert!(!is_refused(
            "/home/src/sub",
            None,
            "/home/src",
            false,
            false
        ));
        assert!(!is_refused(
            "/home/x/run",
            Some("run"),
            "/home",
            false,
            true
        ));
        assert!(is_refused(
            "/home/run/run",
            Some("run"),
            "/home",
            false,
            true
        ));
        assert!(is_refused(
            "/home/run/x",
            Some("x"),
            "/home/run",
            true,
            true
        ));
        assert!(
            is_refused("/home/x", Some("x"), "/home", false, false),
            "itself"
        );
    }

    #[test]
    fn unescapes_mount_points() {
        assert_eq!(unescape(b"a\\040b\\134\\"), Path::new("a b\\\\"));
        assert_eq!(unescape(b"\\9"), Path::new("\\9"));
        assert_eq!(parse_mounts(b"\n1 2\n"), []);
    }
}
