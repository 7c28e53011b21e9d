// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trees that are distributed over several hosts, and the share of one host.

use longhaul_scheduling::placement;
use longhaul_store::{
    path::RelPath,
    tree::{origin::SourceId, spread},
};
use serde::{Deserialize, Serialize};

/// One of the hosts over which a tree is distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Index of the host, from 0.
    pub host: u16,
    /// Number of hosts, 2 or more.
    pub hosts: u16,
    /// Length of a stripe in bytes; `None` for the default, which depends on the size of the file.
    pub stripe: Option<u64>,
}

same_fields!(
    Placement,
    placement::Placement {
        host,
        hosts,
        stripe
    }
);

/// Share of one tree that one host stores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeShare {
    /// Identifier of the sources of which the tree is a copy.
    pub origin: SourceId,
    /// Name of the tree in the directory; `None` if the directory itself is the tree.
    pub top: Option<RelPath>,
    /// Index of this host, from 0.
    pub rank: u16,
    /// Names, at that time, of all hosts over which the tree was distributed.
    pub hosts: Vec<String>,
}

same_fields!(
    TreeShare,
    spread::TreeShare {
        origin,
        top,
        rank,
        hosts
    }
);
