// SPDX-License-Identifier: MIT OR Apache-2.0
//! What works here, found out by trying it: not what a kernel's version promises.
//!
//! Network features are tried in namespaces of their own (`network.rs`), BPF programs are loaded and dropped
//! (`programs.rs`), and what needs no rights is done on sockets that are thrown away (`sockets.rs`). All of it goes
//! with the call, or with the process; only a kernel module that the kernel fetched for it stays, as after any use.

mod attempt;
mod network;
mod programs;
mod sockets;

use super::facts::{Outcome, Trial};
use attempt::{PACING, THINNING};

/// Tries everything. The caller must have one thread.
pub(super) fn all() -> Vec<Trial> {
    let mut trials = sockets::all();
    // Before the others, which may start threads.
    trials.extend(network::all());
    trials.extend(programs::all());
    pacing_takes_programs(&mut trials);
    trials
}

/// Both are needed for it: a class of tc's, and the programs of the other that mark packets for it.
fn pacing_takes_programs(trials: &mut [Trial]) {
    let marks = trials
        .iter()
        .find(|trial| trial.feature == THINNING)
        .cloned();
    let pacing = trials
        .iter_mut()
        .find(|trial| trial.feature == PACING && trial.outcome == Outcome::Works);
    if let (Some(marks), Some(pacing)) = (marks, pacing) {
        pacing.outcome = marks.outcome;
        pacing.reason = marks.reason;
    }
}
