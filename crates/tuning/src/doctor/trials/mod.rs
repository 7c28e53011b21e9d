// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trials of features: whether each works on this host, whatever the kernel's version.
//!
//! Network features are tried in namespaces of their own (`network.rs`). BPF programs are loaded and unloaded
//! (`programs.rs`). Features that need no rights are tried on temporary sockets (`sockets.rs`). All of it is removed
//! at the end of the call, or with the process. Only a kernel module that the kernel loaded for a trial stays.

mod attempt;
mod network;
mod programs;
mod sockets;

use super::facts::{Outcome, Trial};
use attempt::{ACK_PACING, ACK_THINNING};

/// Tries all features. The caller must have one thread.
pub(super) fn all() -> Vec<Trial> {
    let mut trials = sockets::all();
    // Before the others, which may start threads.
    trials.extend(network::all());
    trials.extend(programs::all());
    copy_outcome_of_thinning(&mut trials);
    trials
}

/// Marks pacing as failed if thinning fails: it needs a tc class, and the programs of thinning, which mark packets.
fn copy_outcome_of_thinning(trials: &mut [Trial]) {
    let thinning = trials
        .iter()
        .find(|trial| trial.feature == ACK_THINNING)
        .cloned();
    let pacing = trials
        .iter_mut()
        .find(|trial| trial.feature == ACK_PACING && trial.outcome == Outcome::Works);
    if let (Some(thinning), Some(pacing)) = (thinning, pacing) {
        pacing.outcome = thinning.outcome;
        pacing.reason = thinning.reason;
    }
}
