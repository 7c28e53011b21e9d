// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identity of an experiment: only the same one goes on, or stands for another.

use serde::{Deserialize, Serialize};

/// The identity of an experiment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// The scenario's name.
    pub scenario: String,
    /// SHA-256 of all cells with everything that the command line chose, in their order.
    pub digest: String,
    /// The seed.
    pub seed: u64,
    /// The version of longhaul.
    pub longhaul: String,
    /// Kernel and CPUs: medians over two machines say nothing.
    pub machine: String,
}

impl Identity {
    /// In what `other` differs, in words.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let parts = [
            ("scenario", &self.scenario, &other.scenario),
            ("version", &self.longhaul, &other.longhaul),
            ("machine", &self.machine, &other.machine),
            ("seed", &self.seed.to_string(), &other.seed.to_string()),
        ]
        .map(|(what, ours, theirs)| {
            (ours != theirs).then(|| format!("its {what} is {theirs}, not {ours}"))
        });
        let digest = (self.digest != other.digest).then(|| {
            "its scenario, or what the command line chose of it, reads differently".to_owned()
        });
        parts.into_iter().flatten().next().or(digest)
    }
}
