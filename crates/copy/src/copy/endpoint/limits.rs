// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of an endpoint: entries in flight, bytes of their extended attributes (up to 256 KiB per file), and open
//! descriptors.

use crate::protocol::control::Role;
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_store::{metadata::Metadata, metadata::XATTRS_MAX};
use std::collections::HashMap;

/// Maximum entries that are announced to the target and not yet completed. Hard links are not counted. An entry
/// takes some 300 bytes at either endpoint.
pub(super) const IN_FLIGHT_MAX: usize = 65_536;

/// Bytes of extended attributes in flight at which a source stops announcing entries.
const XATTR_BYTES_SOURCE_MAX: u64 = 64 << 20;

/// Maximum bytes of extended attributes in flight that a target accepts. The source's limit is exceeded by files
/// that are announced again under a new number while the target still holds the old one.
const XATTR_BYTES_TARGET_MAX: u64 = XATTR_BYTES_SOURCE_MAX + 1024 * XATTRS_MAX as u64;

/// Bytes of extended attributes in flight, by the entry's number.
#[derive(Debug, Default)]
pub(super) struct XattrBudget {
    /// Entries with attributes; most have none.
    bytes_by_entry: HashMap<u64, u64>,
    total: u64,
}

impl XattrBudget {
    pub(super) fn add(&mut self, number: u64, metadata: &Metadata) {
        let bytes = xattr_bytes(metadata);
        if bytes > 0 {
            self.bytes_by_entry.insert(number, bytes);
            self.total += bytes;
        }
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.total -= self.bytes_by_entry.remove(&number).unwrap_or_default();
    }

    /// Returns whether a source may announce more entries.
    pub(super) fn has_room(&self) -> bool {
        self.total < XATTR_BYTES_SOURCE_MAX
    }

    /// Returns whether a source has announced more bytes of attributes than a target accepts.
    pub(super) fn is_exceeded(&self) -> bool {
        self.total > XATTR_BYTES_TARGET_MAX
    }
}

pub(super) fn xattr_bytes(metadata: &Metadata) -> u64 {
    let lengths = metadata
        .xattrs
        .iter()
        .map(|xattr| xattr.name.len() + xattr.value.len());
    lengths.sum::<usize>() as u64
}

/// Descriptors per stream: its socket, two duplicates to write to it and to shut it down, and the file that
/// it carries.
pub(super) const DESCRIPTORS_STREAM: usize = 4;
/// Descriptors per file of several blocks, those of its journal included.
pub(super) const DESCRIPTORS_LARGE: usize = 4;
/// Descriptors per small file of a batch: the file and its directory, twice. While one batch becomes durable, the
/// next batch is written.
pub(super) const DESCRIPTORS_SMALL: usize = 2 * 2;
/// Remaining descriptors: directories, the manifest, and connections to the peer and the coordinator.
pub(super) const DESCRIPTORS_OTHER: usize = 64;
/// Descriptors of the slowest possible copy, which has one stream, one large file and one small file.
const DESCRIPTORS_MIN: usize =
    DESCRIPTORS_OTHER + DESCRIPTORS_STREAM + DESCRIPTORS_LARGE + DESCRIPTORS_SMALL;

/// Raises the limit of descriptors as far as the system allows. Refuses to start if it is still too low, because
/// the copy would fail or block at the first file that cannot be opened.
pub(super) fn raise_descriptor_limit(role: Role) -> Result<()> {
    match longhaul_linux::descriptors::raise_limit() {
        Some(available) if available < DESCRIPTORS_MIN as u64 => Err(Refusal::usage(format!(
            "the {} may have {available} descriptors and needs {DESCRIPTORS_MIN}: raise the hard limit there (ulimit -Hn, LimitNOFILE= of a service)",
            role.name()
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_store::metadata::Xattr;

    fn metadata_with_xattr(length: usize) -> Metadata {
        Metadata {
            xattrs: vec![Xattr {
                name: b"user.a".as_slice().into(),
                value: vec![0; length - 6].into(),
            }],
            ..Metadata::default()
        }
    }

    #[test]
    fn completed_entries_free_xattr_budget() {
        let mut budget = XattrBudget::default();
        let full = XATTR_BYTES_SOURCE_MAX / XATTRS_MAX as u64;
        for number in 0..full {
            assert!(budget.has_room());
            budget.add(number, &metadata_with_xattr(XATTRS_MAX));
        }
        assert!(!budget.has_room() && !budget.is_exceeded());
        budget.add(full, &Metadata::default());
        budget.remove(full);
        assert!(!budget.has_room());
        budget.remove(7);
        assert!(budget.has_room());
        for number in full..full + 1025 {
            budget.add(number, &metadata_with_xattr(XATTRS_MAX));
        }
        assert!(!budget.is_exceeded());
        budget.add(7, &metadata_with_xattr(7));
        assert!(budget.is_exceeded());
    }
}
