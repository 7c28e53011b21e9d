// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the sources of a copy are, as their end tells a target that may be on the same machine.

use longhaul_store::path::{RelPath, Shown};
use serde::{Deserialize, Serialize};

/// A place on a machine.
pub type Spot = [u8; 16];

/// Where all sources of an end are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// Each of them.
    pub all: Vec<Located>,
    /// Directories that any of them is in.
    pub around: Vec<Spot>,
}

impl Sources {
    /// With those of another host.
    pub fn and(mut self, other: Self) -> Self {
        self.all.extend(other.all);
        self.around.extend(other.around);
        self
    }

    /// Names in the copy of those that are copied under their names.
    pub fn names(&self) -> impl Iterator<Item = &RelPath> {
        self.all.iter().filter_map(|source| source.name.as_ref())
    }

    /// The first source that is another thing than its like on another host, as it was given. Hosts of one file system agree about
    /// the number of a thing and, where they know it, about when it was made.
    pub fn other_than(&self, like: &Self) -> Option<String> {
        let pairs = self.all.iter().zip(&like.all);
        let mut others = pairs.filter(|(one, other)| match (one.made, other.made) {
            (Some(one), Some(other)) => one.is_other_than(&other),
            _ => false,
        });
        let (other, _) = others.next()?;
        Some(Shown(&other.shown).to_string())
    }

    /// Those that are no devices, fifos or sockets, by their names in the copy.
    pub fn plain(&self) -> impl Iterator<Item = Option<&RelPath>> {
        let plain = self.all.iter().filter(|source| !source.special);
        plain.map(|source| source.name.as_ref())
    }
}

/// One source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// As it was given.
    pub shown: Vec<u8>,
    /// Its name in the copy; none if only what is in it is copied.
    pub name: Option<RelPath>,
    /// A device, a fifo or a socket.
    pub special: bool,
    /// Itself, and what is mounted in it, which has a path there.
    pub spots: Vec<(Spot, Option<RelPath>)>,
    /// None where it can't be looked at.
    pub made: Option<Made>,
}

/// What tells a thing from others on whichever host of its file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Its number on the file system.
    pub inode: u64,
    /// When it was made, seconds and nanoseconds, where the file system keeps that.
    pub birth: Option<(i64, u32)>,
}

impl Made {
    fn is_other_than(&self, other: &Self) -> bool {
        let births = self.birth.zip(other.birth);
        self.inode != other.inode || births.is_some_and(|(one, other)| one != other)
    }
}
