// SPDX-License-Identifier: MIT OR Apache-2.0
//! Validated configuration of `plan split`.

use super::super::estimate::Method;
use longhaul_tcpsim::formulas::{Control, relays::RelayOverhead};
use longhaul_units::Bytes;
use std::path::PathBuf;

/// Validated configuration of `plan split`: sites, limits of the chain, and the relays' cost.
#[derive(Debug)]
pub(crate) struct Config {
    /// Files with sites and hops.
    pub(super) sites: Vec<PathBuf>,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) relays_max: usize,
    pub(super) overhead: RelayOverhead,
    pub(super) controls: Vec<Control>,
    pub(super) streams: u32,
    pub(super) window: Option<Bytes>,
    pub(super) connections: u64,
    pub(super) size: Option<Bytes>,
    pub(super) method: Method,
    pub(super) json: bool,
}
