// SPDX-License-Identifier: MIT OR Apache-2.0
//! Validated configuration of `longhaul cc`.

use crate::connection_filter::Filter;
use longhaul_congestion::{math::Algorithm, pins::Pins};
use longhaul_units::Time;
use std::os::fd::OwnedFd;

/// Configuration of a subcommand.
pub(super) enum Config {
    List(List),
    Load(Load),
    Unload(Unload),
    Show(Show),
    Watch(Watch),
}

pub(super) struct List {
    pub(super) pins: Pins,
    pub(super) json: bool,
}

pub(super) struct Load {
    /// Congestion controls to load, with the values of their parameters.
    pub(super) wanted: Vec<(Algorithm, Vec<u32>)>,
    /// Whether to replace one that is loaded with other parameters.
    pub(super) replace: bool,
    /// Cgroup whose programs get a socket option for parameters.
    pub(super) cgroup: Option<OwnedFd>,
    pub(super) count_acks: bool,
    /// Whether to make it the default of this network namespace: `wanted` has one then.
    pub(super) default: bool,
    pub(super) pins: Pins,
    pub(super) json: bool,
}

pub(super) struct Unload {
    /// Congestion controls to unload; `None` means all that are loaded.
    pub(super) only: Option<Vec<Algorithm>>,
    pub(super) pins: Pins,
    pub(super) json: bool,
}

pub(super) struct Show {
    pub(super) algorithm: Algorithm,
    pub(super) pins: Pins,
    pub(super) json: bool,
}

pub(super) struct Watch {
    /// Congestion control to watch; `None` means all that are loaded.
    pub(super) only: Option<Algorithm>,
    pub(super) filter: Filter,
    /// Sampling interval; `None` takes a single sample.
    pub(super) interval: Option<Time>,
    pub(super) pins: Pins,
    pub(super) json: bool,
}
