// SPDX-License-Identifier: MIT OR Apache-2.0
//! Identity of an experiment. Runs are resumed, or a stored result is reused, only for the same identity.

use serde::{Deserialize, Serialize};

/// Identity of an experiment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// Name of the scenario.
    pub scenario: String,
    /// SHA-256 of all cells in order, with all settings from the command line.
    pub digest: String,
    /// Seed of all random decisions.
    pub seed: u64,
    /// Version of longhaul.
    pub longhaul: String,
    /// Kernel and CPUs: medians over different machines are meaningless.
    pub machine: String,
}

impl Identity {
    /// Describes the first difference of `other`, if there is one.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let parts = [
            ("scenario", &self.scenario, &other.scenario),
            ("version", &self.longhaul, &other.longhaul),
            ("machine", &self.machine, &other.machine),
            ("seed", &self.seed.to_string(), &other.seed.to_string()),
        ]
        .map(|(name, own, other)| {
            (own != other).then(|| format!("its {name} is {other}, not {own}"))
        });
        let digest = (self.digest != other.digest)
            .then(|| "its scenario or its options are different".to_owned());
        parts.into_iter().flatten().next().or(digest)
    }
}
