// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a relay ends: it stops accepting, waits, cuts, stops.

use tokio::sync::watch;

/// Where the relay is on its way from start to exit; it only moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Serving.
    Run,
    /// No new connections; the open ones go on.
    Drain,
    /// Open connections are reset.
    Cut,
    /// Workers leave.
    Stop,
}

/// The phase, told to everyone.
#[derive(Debug)]
pub(crate) struct Drain(watch::Sender<Phase>);

impl Drain {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Phase::Run))
    }

    /// Moves on to `phase`.
    pub(crate) fn enter(&self, phase: Phase) {
        self.0.send_if_modified(|now| {
            let later = phase > *now;
            *now = phase.max(*now);
            later
        });
    }

    /// Where the relay is now.
    pub(crate) fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Returns as soon as `phase` or a later one is reached.
    pub(crate) async fn reached(&self, phase: Phase) {
        // An error would mean that the sender is gone, but `self` is the sender.
        let _ = self.0.subscribe().wait_for(|now| *now >= phase).await;
    }
}
