// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of a copied tree: directories, files, links and special files.

use crate::{
    metadata::{Metadata, Time, modified, time},
    path::RelPath,
};
use rustix::{
    fd::AsFd,
    fs::{self, SeekFrom, Stat},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Maximum number of data extents reported for a sparse file: 16 KiB of memory. In a file with
/// more, the smallest holes count as data.
pub const EXTENTS_MAX: usize = 1024;

/// Maximum bytes in the target of a symbolic link: Linux's PATH_MAX without the NUL.
pub const TARGET_LEN_MAX: usize = 4095;

/// Entry of a tree: its name in the copy, its type and its metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Path from the top of the copy.
    pub path: RelPath,
    /// Type of the entry, with the data that the type needs.
    pub kind: Kind,
    /// Mode, owner, times, attributes. For a hard link: those of the file, which has them already.
    pub metadata: Metadata,
}

/// Type of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A file with data.
    File {
        /// Identity and state of the file, with its size.
        version: Version,
        /// The file occupies less space than its size, so reading its [`extents`] saves work.
        sparse: bool,
    },
    /// A symbolic link.
    Symlink {
        /// Path that the link points to: data, never followed.
        target: Box<[u8]>,
    },
    /// Hard link: a further name of an entry that came before.
    HardLink {
        /// Earlier name.
        to: RelPath,
    },
    /// A fifo.
    Fifo,
    /// A character or block device.
    Device {
        /// True for a block device, false for a character device.
        block: bool,
        /// Major number: the type of the device.
        major: u32,
        /// Minor number: the device among those of its type.
        minor: u32,
    },
}

/// State of a file at the source: as long as the version is the same, so is the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Version {
    /// Bytes in the file.
    pub size: u64,
    /// Modification time. Any owner can set it.
    pub modified: Time,
    /// Change time, set by the system at each change.
    pub changed: Time,
    /// Inode number: the file itself, whatever its name.
    pub inode: u64,
    /// Device number of the file system.
    pub device: u64,
}

impl Version {
    /// Reads the state of an open file.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn of_file(file: &impl AsFd) -> Result<Self, Errno> {
        fs::fstat(file).map(|stat| Self::of(&stat))
    }

    /// Whether this is a later state of the same file, with more bytes.
    #[must_use]
    pub fn has_grown_since(&self, earlier: &Self) -> bool {
        let file = |version: &Self| (version.device, version.inode);
        file(self) == file(earlier) && self.size > earlier.size
    }

    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            size: stat.st_size.try_into().unwrap_or(0),
            modified: modified(stat),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
            inode: stat.st_ino,
            device: stat.st_dev,
        }
    }
}

/// Reads the extents of an open file that hold data, in order and disjoint. The rest of its `size`
/// bytes are holes. Returns at most [`EXTENTS_MAX`]. On a file system without holes, the file is a
/// single extent. Moves the file's offset.
///
/// # Errors
/// As lseek(2).
pub fn extents(file: &impl AsFd, size: u64) -> Result<Vec<Range<u64>>, Errno> {
    let mut extents = Extents::default();
    let mut at = 0;
    while at < size {
        let start = match fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) if start < size => start,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(Errno::INVAL) => return Ok(std::iter::once(0..size).collect()),
            Err(error) => return Err(error),
        };
        at = fs::seek(file, SeekFrom::Hole(start))?.clamp(start + 1, size);
        extents.push(start..at);
    }
    Ok(extents.list)
}

/// Extents found so far. At the limit, holes up to a width are merged with the data; the width
/// doubles as needed.
#[derive(Default)]
struct Extents {
    list: Vec<Range<u64>>,
    hole_min: u64,
}

impl Extents {
    fn push(&mut self, extent: Range<u64>) {
        match self.list.last_mut() {
            Some(last) if extent.start - last.end < self.hole_min => last.end = extent.end,
            _ => self.list.push(extent),
        }
        while self.list.len() > EXTENTS_MAX {
            self.hole_min = (self.hole_min * 2).max(1 << 12);
            self.merge();
        }
    }

    fn merge(&mut self) {
        let found = std::mem::take(&mut self.list);
        for extent in found {
            match self.list.last_mut() {
                Some(last) if extent.start - last.end < self.hole_min => last.end = extent.end,
                _ => self.list.push(extent),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::unix::fs::FileExt};

    #[test]
    fn reports_extents_that_hold_data() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10 << 20).unwrap();
        assert_eq!(extents(&file, 10 << 20).unwrap(), []);
        file.write_all_at(&[1; 4096], 1 << 20).unwrap();
        file.write_all_at(&[1; 100], 5 << 20).unwrap();
        let found = extents(&file, 10 << 20).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains(&(1 << 20)) && found[1].contains(&((5 << 20) + 99)));
        assert!(found[1].end <= 6 << 20);
        assert_eq!(
            extents(&file, 100).unwrap(),
            [],
            "beyond the size that was asked for"
        );
    }

    #[test]
    fn full_file_has_one_extent_and_empty_file_none() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(extents(&file, 0).unwrap(), []);
        file.write_all_at(&[1; 10_000], 0).unwrap();
        assert_eq!(extents(&file, 10_000).unwrap(), vec![0..10_000; 1]);
    }

    #[test]
    fn merges_smallest_holes_beyond_the_maximum() {
        let mut extents = Extents::default();
        for number in 0..EXTENTS_MAX as u64 * 3 {
            let start = number * 16384;
            extents.push(start..start + 4096);
        }
        let wide = EXTENTS_MAX as u64 * 16384 * 4;
        extents.push(wide..wide + 1);
        assert!(extents.list.len() <= EXTENTS_MAX);
        assert_eq!(
            extents.list.last(),
            Some(&(wide..wide + 1)),
            "a wide hole stays one"
        );
        let covered = |at: u64| extents.list.iter().any(|extent| extent.contains(&at));
        assert!((0..EXTENTS_MAX as u64 * 3).all(|number| covered(number * 16384 + 4095)));
        assert!(
            extents
                .list
                .windows(2)
                .all(|pair| pair[0].end < pair[1].start)
        );
    }

    #[test]
    fn version_changes_even_if_mtime_is_reset() {
        let temp = tempfile::TempDir::new().unwrap();
        let file = File::create(temp.path().join("f")).unwrap();
        file.write_all_at(b"a", 0).unwrap();
        let times = std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        file.set_times(times).unwrap();
        let before = Version::of_file(&file).unwrap();
        assert_eq!(before, Version::of_file(&file).unwrap());
        // The kernel's clock for file times advances in steps.
        while Version::of_file(&file).unwrap() == before {
            file.write_all_at(b"b", 0).unwrap();
            file.set_times(times).unwrap();
        }
        assert_eq!(Version::of_file(&file).unwrap().modified, before.modified);
    }
}
