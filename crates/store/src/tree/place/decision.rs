// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides what to do for an entry of a tree, given the existing entry of that name.

use crate::{
    entry::{Entry, Kind, Version},
    metadata::{Metadata, MetadataField, SkippedField, handle::Handle},
    path::RelPath,
    root::{Failure, Refusal, Root},
};
use rustix::{
    fs::{self, FileType},
    io::Errno,
};

/// Options for decisions.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Files that are newer at the destination are kept.
    pub update: bool,
    /// Files of the same size are compared by their data, not by their times.
    pub checksum: bool,
    /// Decides without changing anything.
    pub dry_run: bool,
}

/// Existing entry at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum There {
    /// No entry.
    Nothing,
    /// Entry of a known type.
    Something {
        /// Type; never a hard link.
        kind: Kind,
        /// Mode, owner, times, attributes.
        metadata: Metadata,
        /// Device and inode number: the same for all names of a file.
        id: (u64, u64),
    },
    /// Socket, or an unknown type.
    Other,
}

/// Action to take for an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Leave it: the entry and its metadata match.
    Unchanged,
    /// Set the metadata: the entry matches, for a file by size and time.
    Same,
    /// Keep the existing file, which is newer.
    Newer,
    /// Compare the data of a file of the same size.
    Compare,
    /// Transfer the data of a file.
    Wanted,
    /// Create the entry where there is none.
    Make,
    /// Replace another entry.
    Replace,
    /// Refuse.
    Refused(Refusal),
}

/// Decides about an entry, given the existing entry `there`. For a hard link, `link` is the
/// existing entry that it links to.
#[must_use]
pub fn decide(entry: &Entry, there: &There, link: Option<&There>, options: &Options) -> Decision {
    if entry.path.is_internal() {
        return Decision::Refused(Refusal::OwnName);
    }
    match (&entry.kind, there) {
        (Kind::Directory, There::Nothing) => Decision::Make,
        (Kind::Directory, there) => for_directory(entry, there),
        (
            _,
            There::Something {
                kind: Kind::Directory,
                ..
            },
        ) => Decision::Refused(Refusal::DirectoryInTheWay),
        (kind, there)
            if is_device(there)
                && !matches!(kind, Kind::Device { .. })
                && !link.is_some_and(is_device) =>
        {
            Decision::Refused(Refusal::DeviceInTheWay)
        }
        (Kind::File { version, .. }, there) => for_file(entry, version, there, options),
        (Kind::HardLink { to }, there) => for_link(to, there, link),
        (_, There::Nothing) => Decision::Make,
        (wanted, There::Something { kind, metadata, .. }) if kind == wanted => {
            settled(entry, metadata)
        }
        _ => Decision::Replace,
    }
}

fn is_device(there: &There) -> bool {
    matches!(
        there,
        There::Something {
            kind: Kind::Device { .. },
            ..
        }
    )
}

fn for_directory(entry: &Entry, there: &There) -> Decision {
    match there {
        There::Something {
            kind: Kind::Directory,
            metadata,
            ..
        } => settled(entry, metadata),
        There::Something {
            kind: Kind::Symlink { .. },
            ..
        } => Decision::Refused(Refusal::SymlinkForDirectory),
        _ => Decision::Refused(Refusal::NoDirectoryInTheWay),
    }
}

fn for_file(entry: &Entry, version: &Version, there: &There, options: &Options) -> Decision {
    let There::Something {
        kind: Kind::File { version: here, .. },
        metadata,
        ..
    } = there
    else {
        return Decision::Wanted;
    };
    let size = here.size == version.size;
    if options.update && here.modified > version.modified {
        Decision::Newer
    } else if size && options.checksum {
        Decision::Compare
    } else if size && version.modified.matches_stored(&here.modified) {
        settled(entry, metadata)
    } else {
        Decision::Wanted
    }
}

fn for_link(to: &RelPath, there: &There, link: Option<&There>) -> Decision {
    let directory = |there: &There| {
        matches!(
            there,
            There::Something {
                kind: Kind::Directory,
                ..
            }
        )
    };
    match (there, link) {
        _ if to.is_internal() => Decision::Refused(Refusal::OwnName),
        (_, Some(link)) if directory(link) => Decision::Refused(Refusal::LinkToDirectory),
        (There::Something { id, .. }, Some(There::Something { id: linked, .. }))
            if id == linked =>
        {
            Decision::Unchanged
        }
        (There::Nothing, _) => Decision::Make,
        _ => Decision::Replace,
    }
}

fn settled(entry: &Entry, now: &Metadata) -> Decision {
    let symlink = matches!(entry.kind, Kind::Symlink { .. });
    match entry.metadata.differs(now, symlink) {
        true => Decision::Same,
        false => Decision::Unchanged,
    }
}

/// Reports one combined field if the existing entry belongs to another user and differs in fields
/// that only he may set.
pub(super) fn barred(entry: &Entry, there: &There) -> Option<Vec<SkippedField>> {
    let There::Something { metadata, .. } = there else {
        return None;
    };
    let symlink = matches!(entry.kind, Kind::Symlink { .. });
    let link = matches!(entry.kind, Kind::HardLink { .. });
    let barred = !link && entry.metadata.needs_owner(metadata, symlink);
    barred.then(|| {
        vec![SkippedField {
            field: MetadataField::OwnerOnly,
            errno: Errno::PERM,
        }]
    })
}

/// Reads the entry at a path, without following links.
///
/// # Errors
/// The system's error. A missing entry is not an error.
pub fn look(root: &Root, path: &RelPath) -> Result<There, Failure> {
    match root.handle(path) {
        Ok(held) => there(&held).map_err(Failure::at(Some(path), "access")),
        Err(failure) if failure.is_not_found() => Ok(There::Nothing),
        Err(failure) => Err(failure),
    }
}

fn there(held: &Handle) -> Result<There, Errno> {
    let kind = match held.kind() {
        FileType::Directory => Kind::Directory,
        FileType::RegularFile => Kind::File {
            version: Version::of(&held.stat),
            sparse: false,
        },
        FileType::Symlink => Kind::Symlink {
            target: fs::readlinkat(&held.fd, c"", Vec::new())?
                .into_bytes()
                .into(),
        },
        FileType::Fifo => Kind::Fifo,
        FileType::BlockDevice | FileType::CharacterDevice => Kind::Device {
            block: held.kind() == FileType::BlockDevice,
            major: fs::major(held.stat.st_rdev),
            minor: fs::minor(held.stat.st_rdev),
        },
        _ => return Ok(There::Other),
    };
    Ok(There::Something {
        kind,
        metadata: Metadata::of(held).0,
        id: (held.stat.st_dev, held.stat.st_ino),
    })
}
