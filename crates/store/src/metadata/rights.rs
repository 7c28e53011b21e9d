// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metadata that the current user may set (chown(2), xattr(7), capabilities(7)). Limits of the file
//! system are found by trying.

use super::xattr::{CAPABILITY, PRIVILEGED};
use rustix::{
    process::{Gid, getegid, geteuid, getgroups},
    thread::{CapabilitySet, capabilities},
};

/// Rights of the calling thread, read by three system calls.
#[derive(Debug)]
pub(super) struct Rights {
    capabilities: CapabilitySet,
    /// User and group of new files.
    pub(super) user: u32,
    pub(super) group: u32,
    groups: Vec<u32>,
}

impl Rights {
    pub(super) fn current() -> Self {
        let all = if geteuid().is_root() {
            CapabilitySet::all()
        } else {
            CapabilitySet::empty()
        };
        let groups = getgroups().unwrap_or_default();
        Self {
            capabilities: capabilities(None).map_or(all, |sets| sets.effective),
            user: geteuid().as_raw(),
            group: getegid().as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
        }
    }

    /// Whether the user may set permissions, access control lists and times of a file of `owner`.
    pub(super) fn may_set_owner_fields(&self, owner: u32) -> bool {
        owner == self.user || self.capabilities.contains(CapabilitySet::FOWNER)
    }

    /// Whether the user may give a file to another owner.
    pub(super) fn may_chown(&self) -> bool {
        self.capabilities.contains(CapabilitySet::CHOWN)
    }

    /// Whether the user may give a file of `owner` to a group.
    pub(super) fn may_chgrp(&self, group: u32, owner: u32) -> bool {
        let own = group == self.group || self.groups.contains(&group);
        self.may_chown() || own && owner == self.user
    }

    /// Whether the user may set an extended attribute.
    pub(super) fn may_set_xattr(&self, name: &[u8]) -> bool {
        match name {
            CAPABILITY => self.capabilities.contains(CapabilitySet::SETFCAP),
            _ => {
                !name.starts_with(PRIVILEGED)
                    || self.capabilities.contains(CapabilitySet::SYS_ADMIN)
            }
        }
    }
}
