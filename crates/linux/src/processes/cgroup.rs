// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cgroup (version 2) that this process and the sockets that it opens belong to.

use rustix::{
    fs::{Mode, OFlags, fstat, fstatfs, open, openat},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};
use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// CGROUP2_SUPER_MAGIC (include/uapi/linux/magic.h).
const CGROUP2: u64 = 0x6367_7270;

/// Opens the directory of this process's cgroup, wherever a cgroup2 file system is mounted. Where none
/// is, as inside `ip netns exec`, opens it through a detached mount that ends with its descriptor
/// (needs CAP_SYS_ADMIN).
pub fn own() -> io::Result<OwnedFd> {
    let cgroups = std::fs::read_to_string("/proc/self/cgroup")?;
    let cgroup = path_in(&cgroups).ok_or_else(not_in_any)?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let mounted = directories(&mounts, cgroup).find_map(|path| open_cgroup(&path).ok());
    mounted.map_or_else(|| open_unmounted(cgroup), Ok)
}

/// Opens the cgroup (version 2) at this directory.
pub fn at(path: &Path) -> io::Result<OwnedFd> {
    let directory = open(path, FLAGS, Mode::empty())?;
    match fstatfs(&directory)?.f_type as u64 {
        CGROUP2 => Ok(directory),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not in a cgroup2 file system",
        )),
    }
}

fn not_in_any() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        "this process is in no cgroup of version 2",
    )
}

/// Returns PATH of the line `0::PATH` of /proc/self/cgroup (cgroups(7)).
fn path_in(cgroups: &str) -> Option<&Path> {
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::"));
    path.map(Path::new)
}

/// Returns the directories at which `cgroup` may be mounted. A line of mountinfo has the mounted root as
/// its fourth field, the mount point as its fifth, and the file system's type after a dash (proc(5)).
fn directories<'a>(mounts: &'a str, cgroup: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
    let of_type = |line: &&str| line.contains(" - cgroup2 ");
    mounts.lines().filter(of_type).filter_map(move |line| {
        let mut fields = line.split(' ').skip(3);
        let (root, mount_point) = (fields.next()?, fields.next()?);
        let below = cgroup.strip_prefix(root).ok()?;
        Some(Path::new(mount_point).join(below))
    })
}

const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Opens a cgroup's directory and checks its file system's type: another mount may cover it.
fn open_cgroup(path: &Path) -> io::Result<OwnedFd> {
    let directory = open(path, FLAGS, Mode::empty())?;
    match fstatfs(&directory)?.f_type as u64 {
        CGROUP2 => Ok(directory),
        _ => Err(not_in_any()),
    }
}

/// Most cgroups of a tree that are visited; more are an error.
const TREE_MAX: usize = 4096;

/// Returns the identifiers of the cgroup at this directory and of all below it, as `sock_diag` reports them.
pub fn identifiers(directory: &Path) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        found.push(fstat(open_cgroup(&path)?)?.st_ino);
        if found.len() > TREE_MAX {
            return Err(io::Error::other("more than 4096 cgroups"));
        }
        let entries = std::fs::read_dir(&path)?.flatten();
        left.extend(entries.filter_map(|entry| subdirectory(&entry)));
    }
    Ok(found)
}

fn subdirectory(entry: &std::fs::DirEntry) -> Option<PathBuf> {
    entry.file_type().ok()?.is_dir().then(|| entry.path())
}

fn open_unmounted(cgroup: &Path) -> io::Result<OwnedFd> {
    let context = fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let root = fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )?;
    let below = cgroup.strip_prefix("/").unwrap_or(cgroup);
    if below.as_os_str().is_empty() {
        Ok(openat(&root, ".", FLAGS, Mode::empty())?)
    } else {
        Ok(openat(&root, below, FLAGS, Mode::empty())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        24 1 0:22 / /proc rw - proc proc rw\n\
        37 30 0:32 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
        38 30 0:32 /a /mnt/a rw shared:9 - cgroup2 cgroup2 rw\n";

    #[test]
    fn finds_the_directories_of_a_cgroup_in_mountinfo() {
        let found = |cgroup: &str| {
            let cgroup = path_in(cgroup).unwrap();
            directories(MOUNTS, cgroup).collect::<Vec<_>>()
        };
        let unified = Path::new("/sys/fs/cgroup/unified");
        assert_eq!(found("9:cpu:/x\n0::/\n"), [unified]);
        assert_eq!(
            found("0::/a/b\n"),
            [unified.join("a/b"), PathBuf::from("/mnt/a/b")]
        );
    }

    #[test]
    fn ignores_cgroups_of_version_1() {
        assert!(path_in("3:cpu:/x\n1:name=systemd:/\n").is_none());
    }
}
