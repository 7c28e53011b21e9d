// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an end may keep and have open: entries that are not settled, their extended attributes of up to 256 KiB a file, and
//! descriptors.

use crate::protocol::order::Role;
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_store::{metadata::Metadata, metadata::XATTRS_MAX};
use std::collections::HashMap;

/// Entries that the target was told of and has not yet settled, at most, and all hard links: some 300 bytes
/// each at either end.
pub(super) const UNSETTLED_MAX: usize = 65_536;

/// Bytes of all attributes with which a source announces no more.
const ENOUGH: u64 = 64 << 20;

/// Bytes that a target takes: what the source allows itself, and what goes on under another number before its first is
/// withdrawn.
const MOST: u64 = ENOUGH + 1024 * XATTRS_MAX as u64;

/// How many there are, by what was announced.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    /// Few entries have any.
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

    /// Whether a source may announce more.
    pub(super) fn have_room(&self) -> bool {
        self.sum < ENOUGH
    }

    /// Whether a source has announced more than it may.
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

/// Descriptors of a stream: its socket, once more to write to it and to end it, and the file that it carries.
pub(super) const DESCRIPTORS_STREAM: usize = 4;
/// Of a file of several blocks, and its journal.
pub(super) const DESCRIPTORS_LARGE: usize = 4;
/// Of a small file that is written and not yet durable; as many again are written while others become durable.
pub(super) const DESCRIPTORS_SMALL: usize = 2 * 2;
/// All else: directories, the manifest, both ends' messages.
pub(super) const DESCRIPTORS_OTHER: usize = 64;
/// With one of each the slowest copy there is goes on.
const DESCRIPTORS_MIN: usize =
    DESCRIPTORS_OTHER + DESCRIPTORS_STREAM + DESCRIPTORS_LARGE + DESCRIPTORS_SMALL;

/// Raises the limit as far as it goes. Where even that is too little, nothing is begun with: whatever cannot be opened first
/// would be what ends the copy, or waits.
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
