// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extended attributes of what was announced and is not settled: up to 256 KiB a file, which an end must keep until then.

use longhaul_store::{metadata::Metadata, metadata::XATTRS_MAX};
use std::collections::HashMap;

/// Bytes of them all with which a source announces no more.
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
