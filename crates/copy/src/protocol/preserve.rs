// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metadata and special files that a target preserves, as the coordinator sends the choice.

use longhaul_store::tree::{chmod, preserve};
use serde::{Deserialize, Serialize};

/// Metadata and special files that a target preserves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preserve {
    /// Owner and group.
    pub owner: bool,
    /// Character and block devices.
    pub devices: bool,
    /// Fifos.
    pub special: bool,
    /// Set-id bits, capabilities and `trusted.*` attributes.
    pub privileges: bool,
    /// Access control lists.
    pub acls: bool,
    /// Changes of permissions.
    pub chmod: Chmod,
}

same_fields!(
    Preserve,
    preserve::Preserve {
        owner,
        devices,
        special,
        privileges,
        acls,
        chmod
    }
);

/// Changes of permissions, applied in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Chmod(Vec<Change>);

impl From<chmod::Chmod> for Chmod {
    fn from(chmod::Chmod(own): chmod::Chmod) -> Self {
        Self(own.into_iter().map(Into::into).collect())
    }
}

impl From<Chmod> for chmod::Chmod {
    fn from(Chmod(wire): Chmod) -> Self {
        Self(wire.into_iter().map(Into::into).collect())
    }
}

/// One change of permissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    applies_to: AppliesTo,
    action: Action,
    /// Bits of the classes (user, group, others) that the change is about.
    who: u32,
    bits: u32,
    /// Whether the change includes execution, for directories and for files that any class may execute.
    execute_if_any: bool,
}

same_fields!(
    Change,
    chmod::Change {
        applies_to,
        action,
        who,
        bits,
        execute_if_any
    }
);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum AppliesTo {
    Everything,
    Directories,
    Files,
}

impl From<chmod::AppliesTo> for AppliesTo {
    fn from(own: chmod::AppliesTo) -> Self {
        match own {
            chmod::AppliesTo::Everything => Self::Everything,
            chmod::AppliesTo::Directories => Self::Directories,
            chmod::AppliesTo::Files => Self::Files,
        }
    }
}

impl From<AppliesTo> for chmod::AppliesTo {
    fn from(wire: AppliesTo) -> Self {
        match wire {
            AppliesTo::Everything => Self::Everything,
            AppliesTo::Directories => Self::Directories,
            AppliesTo::Files => Self::Files,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Action {
    Add,
    Remove,
    Set,
}

impl From<chmod::Action> for Action {
    fn from(own: chmod::Action) -> Self {
        match own {
            chmod::Action::Add => Self::Add,
            chmod::Action::Remove => Self::Remove,
            chmod::Action::Set => Self::Set,
        }
    }
}

impl From<Action> for chmod::Action {
    fn from(wire: Action) -> Self {
        match wire {
            Action::Add => Self::Add,
            Action::Remove => Self::Remove,
            Action::Set => Self::Set,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_changes_round_trip() {
        let changes: chmod::Chmod = "D2755,F644,u+X,o-t,g=rx".parse().unwrap();
        assert_eq!(chmod::Chmod::from(Chmod::from(changes.clone())), changes);
    }

    #[test]
    fn permission_changes_have_stable_bytes() {
        let own: chmod::Chmod = "Do-x,Fo=w,o+X".parse().unwrap();
        let bytes = postcard::to_stdvec(&Chmod::from(own)).unwrap();
        let changes = [[1, 1, 7, 1, 0], [2, 2, 7, 2, 0], [0, 0, 7, 0, 1]];
        assert_eq!(bytes, [&[3], changes.as_flattened()].concat());
    }
}
