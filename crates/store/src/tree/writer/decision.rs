// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides what to do for an entry of a tree, given the existing entry of that name.

use crate::{
    entry::{Entry, Kind, Version},
    metadata::{Metadata, MetadataField, SkippedField, Time, handle::Handle},
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
    /// Difference up to which modification times are the same, in seconds. Units of a second and less need none.
    pub modify_window_s: u32,
}

/// Existing entry at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Existing {
    /// No entry.
    Missing,
    /// Entry of a known type.
    Entry {
        /// Type; never a hard link.
        kind: Kind,
        /// Mode, owner, times, attributes.
        metadata: Metadata,
        /// Device and inode number: the same for all names of a file.
        id: (u64, u64),
    },
    /// Socket, or an unknown type.
    Unknown,
}

impl Existing {
    /// Gives an entry the wanted time if its own differs by no more than the window: then it counts as the same.
    pub(super) fn with_time_within(mut self, window_s: u32, wanted: Time) -> Self {
        let Self::Entry { kind, metadata, .. } = &mut self else {
            return self;
        };
        if metadata.modified.seconds.abs_diff(wanted.seconds) <= u64::from(window_s) && window_s > 0
        {
            metadata.modified = wanted;
            if let Kind::File { version, .. } = kind {
                version.modified = wanted;
            }
        }
        self
    }
}

/// Action to take for an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Leave it: the entry and its metadata match.
    Unchanged,
    /// Set the metadata: the entry matches, for a file by size and time.
    SetMetadata,
    /// Keep the existing file, which is newer.
    KeepNewer,
    /// Compare the data of a file of the same size.
    Compare,
    /// Transfer the data of a file.
    Transfer,
    /// Create the entry where there is none.
    Create,
    /// Replace another entry.
    Replace,
    /// Refuse.
    Refuse(Refusal),
}

/// Decides about an entry, given the existing entry `there`. For a hard link, `link` is the
/// existing entry that it links to.
#[must_use]
pub fn decide(
    entry: &Entry,
    existing: &Existing,
    link: Option<&Existing>,
    options: &Options,
) -> Decision {
    if entry.path.is_internal() {
        return Decision::Refuse(Refusal::InternalName);
    }
    match (&entry.kind, existing) {
        (Kind::Directory, Existing::Missing) => Decision::Create,
        (Kind::Directory, existing) => for_directory(entry, existing),
        (
            _,
            Existing::Entry {
                kind: Kind::Directory,
                ..
            },
        ) => Decision::Refuse(Refusal::DirectoryInTheWay),
        (kind, existing)
            if is_device(existing)
                && !matches!(kind, Kind::Device { .. })
                && !link.is_some_and(is_device) =>
        {
            Decision::Refuse(Refusal::DeviceInTheWay)
        }
        (Kind::File { version, .. }, existing) => for_file(entry, version, existing, options),
        (Kind::HardLink { to }, existing) => for_link(to, existing, link),
        (_, Existing::Missing) => Decision::Create,
        (wanted, Existing::Entry { kind, metadata, .. }) if kind == wanted => {
            metadata_decision(entry, metadata)
        }
        _ => Decision::Replace,
    }
}

fn is_device(existing: &Existing) -> bool {
    matches!(
        existing,
        Existing::Entry {
            kind: Kind::Device { .. },
            ..
        }
    )
}

fn for_directory(entry: &Entry, existing: &Existing) -> Decision {
    match existing {
        Existing::Entry {
            kind: Kind::Directory,
            metadata,
            ..
        } => metadata_decision(entry, metadata),
        Existing::Entry {
            kind: Kind::Symlink { .. },
            ..
        } => Decision::Refuse(Refusal::SymlinkForDirectory),
        _ => Decision::Refuse(Refusal::NonDirectoryInTheWay),
    }
}

fn for_file(entry: &Entry, version: &Version, existing: &Existing, options: &Options) -> Decision {
    let Existing::Entry {
        kind: Kind::File { version: here, .. },
        metadata,
        ..
    } = existing
    else {
        return Decision::Transfer;
    };
    let size = here.size == version.size;
    if options.update && here.modified > version.modified {
        Decision::KeepNewer
    } else if size && options.checksum {
        Decision::Compare
    } else if size && version.modified.matches_stored(&here.modified) {
        metadata_decision(entry, metadata)
    } else {
        Decision::Transfer
    }
}

fn for_link(to: &RelPath, existing: &Existing, link: Option<&Existing>) -> Decision {
    let directory = |existing: &Existing| {
        matches!(
            existing,
            Existing::Entry {
                kind: Kind::Directory,
                ..
            }
        )
    };
    match (existing, link) {
        _ if to.is_internal() => Decision::Refuse(Refusal::InternalName),
        (_, Some(link)) if directory(link) => Decision::Refuse(Refusal::LinkToDirectory),
        (Existing::Entry { id, .. }, Some(Existing::Entry { id: linked, .. })) if id == linked => {
            Decision::Unchanged
        }
        (Existing::Missing, _) => Decision::Create,
        _ => Decision::Replace,
    }
}

fn metadata_decision(entry: &Entry, now: &Metadata) -> Decision {
    let symlink = matches!(entry.kind, Kind::Symlink { .. });
    if entry.metadata.differs(now, symlink) {
        Decision::SetMetadata
    } else {
        Decision::Unchanged
    }
}

/// Reports one combined field if the existing entry belongs to another user and differs in fields
/// that only he may set.
pub(super) fn owner_only_difference(
    entry: &Entry,
    existing: &Existing,
) -> Option<Vec<SkippedField>> {
    let Existing::Entry { metadata, .. } = existing else {
        return None;
    };
    let symlink = matches!(entry.kind, Kind::Symlink { .. });
    let link = matches!(entry.kind, Kind::HardLink { .. });
    let needs_owner = !link && entry.metadata.needs_owner(metadata, symlink);
    needs_owner.then(|| {
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
pub fn inspect(root: &Root, path: &RelPath) -> Result<Existing, Failure> {
    match root.handle(path) {
        Ok(handle) => existing(&handle).map_err(Failure::at(Some(path), "access")),
        Err(failure) if failure.is_not_found() => Ok(Existing::Missing),
        Err(failure) => Err(failure),
    }
}

fn existing(handle: &Handle) -> Result<Existing, Errno> {
    let kind = match handle.kind() {
        FileType::Directory => Kind::Directory,
        FileType::RegularFile => Kind::File {
            version: Version::of(&handle.stat),
            sparse: false,
        },
        FileType::Symlink => Kind::Symlink {
            target: fs::readlinkat(&handle.fd, c"", Vec::new())?
                .into_bytes()
                .into(),
        },
        FileType::Fifo => Kind::Fifo,
        FileType::BlockDevice | FileType::CharacterDevice => Kind::Device {
            block: handle.kind() == FileType::BlockDevice,
            major: fs::major(handle.stat.st_rdev),
            minor: fs::minor(handle.stat.st_rdev),
        },
        _ => return Ok(Existing::Unknown),
    };
    Ok(Existing::Entry {
        kind,
        metadata: Metadata::of(handle).0,
        id: (handle.stat.st_dev, handle.stat.st_ino),
    })
}
