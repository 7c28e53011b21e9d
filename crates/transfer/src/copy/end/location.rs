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
    path::{RelPath, Shown},
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

fn made(path: &Path) -> Option<FileIdentity> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let found = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, wanted).ok()?;
    let kept = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    Some(FileIdentity {
        inode: found.stx_ino,
        birth: kept.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec)),
    })
}

/// Mount of a file system.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// Major and minor number, as `8:1`.
    device: Vec<u8>,
    /// Directory of the file system that is mounted.
    root: PathBuf,
    at: PathBuf,
}

/// Data that identifies locations on this machine.
#[derive(Debug)]
pub(crate) struct Machine {
    boot: Vec<u8>,
    mounts: Vec<Mount>,
}

impl Machine {
    /// Reads the machine's boot ID and mounts; `None` without /proc, and then no overlap is detected.
    pub(crate) fn read() -> Option<Self> {
        Some(Self {
            boot: fs::read("/proc/sys/kernel/random/boot_id").ok()?,
            mounts: mounts(&fs::read("/proc/self/mountinfo").ok()?),
        })
    }

    /// Returns the locations of sources. Each is given as the user named it, with its name in the copy and
    /// its path without symbolic links.
    pub(crate) fn sources(
        &self,
        given: impl Iterator<Item = (Vec<u8>, Option<RelPath>, PathBuf)>,
        one_file_system: bool,
    ) -> Sources {
        let (mut around, mut seen) = (BTreeMap::new(), BTreeSet::new());
        let all = given.map(|(shown, name, path)| {
            // Sources in one directory share its ancestors: compute them once, however many sources there
            // are.
            let is_mount = self.mounts.iter().any(|mount| mount.at == path);
            if seen.insert(path.parent().map(Path::to_owned)) || is_mount {
                around.extend(self.around(&path, false));
            }
            let own = self.spots(&path).into_iter().map(|spot| (spot, None));
            let mounted = match one_file_system {
                true => Vec::new(),
                false => self.mounted_in(&path),
            };
            SourceLocation {
                given_path: shown,
                name,
                special: is_special(&path),
                location_ids: own.chain(mounted).collect(),
                identity: made(&path),
            }
        });
        Sources {
            all: all.collect(),
            enclosing: around.into_keys().collect(),
        }
    }

    fn spot(&self, kind: &str, of: &[u8], path: &[u8]) -> LocationId {
        let mut hash = Sha256::new();
        for part in [&self.boot, kind.as_bytes(), of, path] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut spot = [0; 16];
        spot.copy_from_slice(&hash.finalize()[..16]);
        spot
    }

    fn spot_in(&self, device: &[u8], path: &Path) -> LocationId {
        self.spot("path", device, path.as_os_str().as_bytes())
    }

    /// Returns all identifiers of a path. Names of one file are different locations; names of one directory
    /// are not.
    fn spots(&self, path: &Path) -> Vec<LocationId> {
        let number = fs::symlink_metadata(path).ok();
        let number = number.filter(fs::Metadata::is_dir).map(|found| {
            let inode = found.ino().to_be_bytes();
            self.spot("number", &found.dev().to_be_bytes(), &inode)
        });
        let place = self.place(path);
        let place = place.map(|(device, path)| self.spot_in(device, &path));
        number.into_iter().chain(place).collect()
    }

    /// Returns the file system that a path is on, and the path in it.
    fn place(&self, path: &Path) -> Option<(&[u8], PathBuf)> {
        let mounts = self.mounts.iter();
        // Of several mounts at one path, the last one is visible.
        let mount = mounts
            .filter(|mount| path.starts_with(&mount.at))
            .max_by_key(|mount| mount.at.as_os_str().len())?;
        let below = path.strip_prefix(&mount.at).ok()?;
        Some((&mount.device, plain_join(&mount.root, below)))
    }

    /// Returns the directories that contain a path, each with the relative path from it. They are the
    /// ancestors by name, and in the file system the ancestors of each mount's root. With `one_file_system`
    /// only those in the path's own file system.
    fn around(&self, path: &Path, one_file_system: bool) -> BTreeMap<LocationId, PathBuf> {
        let mut around = BTreeMap::new();
        for (from, above) in path.ancestors().enumerate() {
            let below = path.strip_prefix(above).unwrap_or(Path::new(""));
            if from > 0 && !one_file_system {
                let spots = self.spots(above).into_iter();
                around.extend(spots.map(|spot| (spot, below.to_owned())));
            }
            let Some((device, place)) = self.place(above) else {
                continue;
            };
            for outer in place.ancestors().skip(1) {
                let inner = place.strip_prefix(outer).unwrap_or(Path::new(""));
                let spot = self.spot_in(device, outer);
                around
                    .entry(spot)
                    .or_insert_with(|| plain_join(inner, below));
            }
            if one_file_system {
                break;
            }
        }
        around
    }

    /// Returns the file systems mounted below a directory, each with its relative path there.
    fn mounted_in(&self, path: &Path) -> Vec<(LocationId, Option<RelPath>)> {
        let below = self.mounts.iter().filter_map(|mount| {
            let at = mount.at.strip_prefix(path).ok()?.as_os_str();
            let at = RelPath::parse(at.as_bytes()).ok()?;
            Some((self.spot_in(&mount.device, &mount.root), Some(at)))
        });
        below.collect()
    }
}

/// Location of a target. The last components of its path may not exist yet.
#[derive(Debug)]
pub(crate) struct Target {
    machine: Machine,
    path: PathBuf,
    shown: String,
}

impl Target {
    pub(crate) fn new(machine: Machine, path: PathBuf, shown: &[u8]) -> Self {
        let shown = Shown(shown).to_string();
        Self {
            machine,
            path,
            shown,
        }
    }

    /// Refuses to copy a source into itself, before anything is created. Directories that `filter` excludes
    /// are not copied, so a target in them is allowed.
    pub(crate) fn refuse_within(
        &self,
        sources: &Sources,
        filter: &Filter,
        one_file_system: bool,
    ) -> Result<()> {
        let own = self.machine.spots(&self.path);
        let mut around = self.machine.around(&self.path, one_file_system);
        around.extend(own.into_iter().map(|spot| (spot, PathBuf::new())));
        for source in &sources.all {
            let found = source.location_ids.iter().find_map(|(spot, mounted)| {
                let below = around.get(spot)?;
                let inside = source.inside(mounted.as_ref(), below);
                let copied = inside.is_none_or(|inside| {
                    filter.verdict_from_top(&inside, true) != Verdict::Excluded
                });
                copied.then_some(below)
            });
            if let Some(below) = found {
                let source = Shown(&source.given_path);
                return Err(Refusal::usage(match below.as_os_str().is_empty() {
                    true => format!("{}: it is the same as the source {source}", self.shown),
                    false => format!(
                        "{}: it is in the source {source}, which would be copied into itself: name a target outside of it",
                        self.shown
                    ),
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
            let shown = Shown(&source.given_path);
            let spots = self.machine.spots(&path);
            if spots
                .iter()
                .any(|spot| source.location_ids.contains(&(*spot, None)))
            {
                let target = &self.shown;
                return Err(Refusal::usage(format!(
                    "{shown}: it would be copied onto itself in {target}"
                )));
            }
            if delete && spots.iter().any(|spot| sources.enclosing.contains(spot)) {
                return Err(Refusal::usage(format!(
                    "{}: a source is in the directory that {shown} is copied to, and --delete would remove it: leave --delete out, or \
                     name another target",
                    self.shown
                )));
            }
        }
        Ok(())
    }
}

impl SourceLocation {
    /// Returns the path in the copy of a directory below the source; `None` if that is not a valid path.
    fn inside(&self, mounted: Option<&RelPath>, below: &Path) -> Option<RelPath> {
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
fn mounts(text: &[u8]) -> Vec<Mount> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(mount).collect()
}

fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    Some(Mount {
        device: fields.next()?.to_vec(),
        root: unescaped(fields.next()?),
        at: unescaped(fields.next()?),
    })
}

/// Replaces `\ooo` by the byte of that octal value: spaces, tabs, newlines and backslashes are written so.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = &behind[if code.is_some() { 3 } else { 0 }..];
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
            boot: b"boot".to_vec(),
            mounts: mounts(MOUNTS),
        }
    }

    fn check(source: &str, name: Option<&str>, target: &str, rules: &[Rule], one: bool) -> bool {
        let name = name.map(|name| RelPath::parse(name.as_bytes()).unwrap());
        let given = (source.into(), name.clone(), PathBuf::from(source));
        let sources = machine().sources(std::iter::once(given), one);
        let filter = Filter::new(rules).unwrap().with_tops(name.iter());
        let target = Target::new(machine(), target.into(), b"target");
        target.refuse_within(&sources, &filter, one).is_err()
    }

    fn is_refused(target: &str) -> bool {
        check("/home/src", Some("src"), target, &[], false)
    }

    #[test]
    fn a_target_in_the_source_is_refused_whichever_mount_leads_there() {
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
            assert!(is_refused(target), "{target}");
        }
        for target in ["/home", "/home/src2", "/mnt", "/mnt/a", "/srv/home/src"] {
            assert!(!is_refused(target), "{target}");
        }
    }

    #[test]
    fn a_target_that_is_not_copied_is_allowed() {
        let exclude = |pattern: &str| [Rule::Exclude(pattern.to_owned())];
        let refused = |target, rules: &[Rule], one| {
            let named = check("/home/src", Some("src"), target, rules, one);
            assert_eq!(
                named,
                check("/home/src", None, target, rules, one),
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
    fn a_source_in_a_directory_that_delete_empties_is_refused() {
        let onto = |source: &str, name: Option<&str>, target: &str, renamed, delete| {
            let name = name.map(|name| RelPath::parse(name.as_bytes()).unwrap());
            let given = (source.into(), name, PathBuf::from(source));
            let sources = machine().sources(std::iter::once(given), false);
            let target = Target::new(machine(), target.into(), b"target");
            target.refuse_onto(&sources, renamed, delete).is_err()
        };
        assert!(onto("/home/src/sub", None, "/home/src", false, true));
        assert!(onto("/mnt/bound/x", None, "/home/src", false, true));
        assert!(!onto("/home/src/sub", None, "/home/src", false, false));
        assert!(!onto("/home/x/run", Some("run"), "/home", false, true));
        assert!(onto("/home/run/run", Some("run"), "/home", false, true));
        assert!(onto("/home/run/x", Some("x"), "/home/run", true, true));
        assert!(onto("/home/x", Some("x"), "/home", false, false), "itself");
    }

    #[test]
    fn escaped_names_are_read() {
        assert_eq!(unescaped(b"a\\040b\\134\\"), Path::new("a b\\\\"));
        assert_eq!(unescaped(b"\\9"), Path::new("\\9"));
        assert_eq!(mounts(b"\n1 2\n"), []);
    }
}
