// SPDX-License-Identifier: MIT OR Apache-2.0
//! Validated configuration of `longhaul decp`.

use crate::{connection_filter::Filter, decp::model::Settings};
use longhaul_linux::netns::Netns;
use longhaul_units::Time;
use std::path::PathBuf;

/// Configuration of a run.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) filter: Filter,
    pub(super) cgroup: Option<PathBuf>,
    /// Network namespace to enter; `None` stays in that of this process.
    pub(super) netns: Option<Netns>,
    pub(super) interval: Time,
    pub(super) settings: Settings,
    pub(super) dry_run: bool,
    /// Whether to remove the caps that exist, and do nothing else.
    pub(super) remove_caps: bool,
    pub(super) duration: Option<Time>,
    pub(super) json: bool,
}
