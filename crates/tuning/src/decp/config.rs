// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was asked for, checked.

use crate::{connection_filter::Filter, decp::model::Settings};
use longhaul_linux::netns::Netns;
use longhaul_units::Time;
use std::path::PathBuf;

/// A run that can begin.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) filter: Filter,
    pub(super) cgroup: Option<PathBuf>,
    /// None is the one that this process is in.
    pub(super) netns: Option<Netns>,
    pub(super) interval: Time,
    pub(super) settings: Settings,
    pub(super) dry_run: bool,
    /// Whether to lift what caps there are, and nothing else.
    pub(super) lift: bool,
    pub(super) duration: Option<Time>,
    pub(super) json: bool,
}
