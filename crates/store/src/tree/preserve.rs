// SPDX-License-Identifier: MIT OR Apache-2.0
//! Selects the metadata and entry types that a target takes over from a source.

use crate::{
    entry::{Entry, Kind},
    metadata::Metadata,
    tree::chmod::Chmod,
};
use serde::{Deserialize, Serialize};

/// Metadata and entry types that a target takes over. A source that is not trusted must not choose
/// owners, devices or privileges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preserve {
    /// Owner and group, as far as the target may set them.
    pub owner: bool,
    /// Character and block devices.
    pub devices: bool,
    /// Fifos.
    pub special: bool,
    /// Set-id bits, capabilities and `trusted.*` attributes.
    pub privileges: bool,
    /// Access control lists. Without them, entries keep the lists that they have at the target or inherit there.
    pub acls: bool,
    /// Changes of permissions, applied last. Without `owner` they set no set-id bits.
    pub chmod: Chmod,
}

impl Default for Preserve {
    /// Takes over everything: for a trusted source.
    fn default() -> Self {
        Self {
            owner: true,
            devices: true,
            special: true,
            privileges: true,
            acls: true,
            chmod: Chmod::default(),
        }
    }
}

impl Preserve {
    /// Takes over no owner, devices, special files or privileges: for a source of another user.
    #[must_use]
    pub fn untrusted() -> Self {
        Self {
            owner: false,
            devices: false,
            special: false,
            privileges: false,
            acls: true,
            chmod: Chmod::default(),
        }
    }

    /// Whether the target creates entries of this type.
    #[must_use]
    pub fn accepts(&self, kind: &Kind) -> bool {
        match kind {
            Kind::Device { .. } => self.devices,
            Kind::Fifo => self.special,
            _ => true,
        }
    }

    /// Removes what is not taken over from an entry.
    pub fn strip(&self, entry: &mut Entry) {
        self.strip_metadata(&mut entry.metadata, entry.kind == Kind::Directory);
    }

    /// Removes what is not taken over from the metadata of a directory or another entry.
    pub fn strip_metadata(&self, metadata: &mut Metadata, directory: bool) {
        if !self.owner {
            metadata.keep_target_owner();
        }
        if !self.privileges {
            metadata.drop_set_id();
            metadata.drop_privileged_attributes();
        }
        if !self.acls {
            metadata.keep_target_acls();
        }
        metadata.mode = self.chmod.apply(metadata.mode, directory);
        // Set-id bits would give the rights of the user who runs the copy.
        if !self.owner {
            metadata.drop_set_id();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{metadata::Xattr, path::RelPath};

    fn entry(kind: Kind) -> Entry {
        let xattr = |name: &str| Xattr {
            name: name.as_bytes().into(),
            value: b"1".as_slice().into(),
        };
        Entry {
            path: RelPath::parse(b"a").unwrap(),
            kind,
            metadata: Metadata {
                mode: 0o6755,
                uid: 1000,
                gid: 1000,
                xattrs: ["security.capability", "trusted.a", "user.b"]
                    .map(xattr)
                    .into(),
                ..Metadata::default()
            },
        }
    }

    #[test]
    fn takes_over_everything_by_default() {
        let mut reduced = entry(Kind::Fifo);
        Preserve::default().strip(&mut reduced);
        assert_eq!(reduced, entry(Kind::Fifo));
        assert!(Preserve::default().accepts(&Kind::Fifo));
    }

    #[test]
    fn safe_set_drops_owner_and_privileges() {
        let mut reduced = entry(Kind::Directory);
        let before = reduced.metadata.clone();
        Preserve::untrusted().strip(&mut reduced);
        let metadata = &reduced.metadata;
        assert_eq!(metadata.mode, 0o755);
        assert_eq!(metadata.xattrs.len(), 1);
        assert_eq!(&*metadata.xattrs[0].name, b"user.b");
        // The owner makes no difference here.
        let others = Metadata {
            uid: 7,
            gid: 8,
            ..metadata.clone()
        };
        assert!(!metadata.differs(&others, false));
        assert!(before.differs(&others, false));
    }

    #[test]
    fn accepts_devices_and_fifos_as_configured() {
        let device = Kind::Device {
            block: false,
            major: 1,
            minor: 3,
        };
        let safe = Preserve::untrusted();
        assert!(!safe.accepts(&device) && !safe.accepts(&Kind::Fifo));
        assert!(safe.accepts(&Kind::Directory));
    }

    #[test]
    fn chmod_is_applied_last_but_sets_no_set_id_bits_without_owner() {
        for (owner, mode) in [(true, 0o2700), (false, 0o700)] {
            let mut reduced = entry(Kind::Directory);
            let preserve = Preserve {
                owner,
                chmod: "D700,Dg+s".parse().unwrap(),
                ..Preserve::untrusted()
            };
            preserve.strip(&mut reduced);
            assert_eq!(reduced.metadata.mode, mode);
        }
    }
}
