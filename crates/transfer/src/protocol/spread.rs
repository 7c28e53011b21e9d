// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trees that are spread over several hosts, and what of them one host has.

use longhaul_scheduling::placement;
use longhaul_store::{
    path::RelPath,
    tree::{origin::Origin, spread},
};
use serde::{Deserialize, Serialize};

/// One of several hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Which, from 0.
    pub host: u16,
    /// So many there are, 2 or more.
    pub hosts: u16,
    /// Bytes of a stripe, if not as long as files of that size have them.
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

/// One host's share of one tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// What the tree is a copy of.
    pub origin: Origin,
    /// Its name in the directory; none if the directory itself is it.
    pub top: Option<RelPath>,
    /// Which of the hosts this is, from 0.
    pub rank: u16,
    /// All hosts that it was spread over, by their names then.
    pub hosts: Vec<String>,
}

same_fields!(
    Share,
    spread::Share {
        origin,
        top,
        rank,
        hosts
    }
);
