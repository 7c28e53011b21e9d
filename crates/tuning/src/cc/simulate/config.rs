// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was asked for, checked.

use longhaul_tcpsim::simulation::{FlowSettings, Path};
use longhaul_units::{BitRate, Time};

/// A simulation, checked.
pub(crate) struct Config {
    pub(super) path: Path,
    /// With the names of their congestion controls.
    pub(super) flows: Vec<(FlowSettings, String)>,
    pub(super) duration: Time,
    pub(super) interval: Time,
    /// The bottleneck's rate.
    pub(super) rate: BitRate,
    /// Whether records are printed, instead of a summary.
    pub(super) json: bool,
}
