// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of an endpoint: entries in flight, their extended attributes of up to 256 KiB per file, and open
//! descriptors.

use crate::protocol::order::Role;
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_store::{metadata::Metadata, metadata::XATTRS_MAX};
use std::collections::HashMap;

/// Maximum entries announced to the target and not yet completed, hard links not counted. An entry takes some
/// 300 bytes at either endpoint.
pub(super) const UNSETTLED_MAX: usize = 65_536;

/// Bytes of extended attributes in flight from which a source announces no more entries.
const ENOUGH: u64 = 64 << 20;

/// Maximum bytes of extended attributes in flight that a target accepts: the source's own limit, and files
/// that are reannounced under a new number before the old one is withdrawn.
const MOST: u64 = ENOUGH + 1024 * XATTRS_MAX as u64;

/// Bytes of extended attributes in flight, by number of the entry.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    /// Entries with attributes; most have none.
    each: HashMap<u64, u64>,
    sum: u64,
}

impl Attributes {
    pub(super) fn add(&mut self, number: u64, metadata: &Metadata) {
        let bytes = bytes(metadata);
        if bytes > 0 {
            self.each.insert(number, bytes);
            self.sum += bytes;
        }
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.sum -= self.each.remove(&number).unwrap_or_default();
    }

    /// Returns whether a source may announce more.
    pub(super) fn have_room(&self) -> bool {
        self.sum < ENOUGH
    }

    /// Returns whether a source has announced more than it may.
    pub(super) fn are_too_many(&self) -> bool {
        self.sum > MOST
    }
}

pub(super) fn bytes(metadata: &Metadata) -> u64 {
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
/// Descriptors per small file that is written and not yet durable. As many files again are written while a
/// batch becomes durable.
pub(super) const DESCRIPTORS_SMALL: usize = 2 * 2;
/// Remaining descriptors: directories, the manifest, and connections to the peer and the coordinator.
pub(super) const DESCRIPTORS_OTHER: usize = 64;
/// Descriptors of the slowest possible copy, which has one stream, one large file and one small file.
const DESCRIPTORS_MIN: usize =
    DESCRIPTORS_OTHER + DESCRIPTORS_STREAM + DESCRIPTORS_LARGE + DESCRIPTORS_SMALL;

/// Raises the limit of descriptors as far as the system allows. Refuses to start if it is still too low: the
/// copy would end or block at whichever file cannot be opened first.
pub(super) fn raise_descriptor_limit(role: Role) -> Result<()> {
    match longhaul_linux::descriptors::raise_limit() {
        Some(all) if all < DESCRIPTORS_MIN as u64 => Err(Refusal::usage(format!(
            "the {} may have {all} descriptors and needs {DESCRIPTORS_MIN}: raise the hard limit there (ulimit -Hn, LimitNOFILE= of a service)",
            role.name()
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_store::metadata::Xattr;

    fn with(length: usize) -> Metadata {
        Metadata {
            xattrs: vec![Xattr {
                name: b"user.a".as_slice().into(),
                value: vec![0; length - 6].into(),
            }],
            ..Metadata::default()
        }
    }

    #[test]
    fn what_is_settled_makes_room() {
        let mut attributes = Attributes::default();
        let all = ENOUGH / XATTRS_MAX as u64;
        for number in 0..all {
            assert!(attributes.have_room());
            attributes.add(number, &with(XATTRS_MAX));
        }
        assert!(!attributes.have_room() && !attributes.are_too_many());
        attributes.add(all, &Metadata::default());
        attributes.remove(all);
        assert!(!attributes.have_room());
        attributes.remove(7);
        assert!(attributes.have_room());
        for number in all..all + 1025 {
            attributes.add(number, &with(XATTRS_MAX));
        }
        assert!(!attributes.are_too_many());
        attributes.add(7, &with(7));
        assert!(attributes.are_too_many());
    }
}
