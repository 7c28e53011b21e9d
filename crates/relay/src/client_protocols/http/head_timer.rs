// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time limits of a client that owes a request. Before the first byte of a head the client is idle, whether the head is
//! its first or a later one. From that byte on the head must be complete within the handshake time-out.

use crate::{config::limits::Limits, relay::Relay, session::http_memory::HttpMemory};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::{select, time::sleep};

/// Timer for the heads of one client.
pub(super) struct HeadTimer {
    relay: Arc<Relay>,
    memory: Arc<HttpMemory>,
    idle_limit: Duration,
    head_limit: Duration,
    running: Option<(HeadPhase, Countdown)>,
}

type Countdown = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Part of a head that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadPhase {
    /// Nothing.
    Idle,
    /// A byte or more.
    Begun,
}

impl HeadTimer {
    pub(super) fn new(relay: &Arc<Relay>, limits: &Limits, memory: &Arc<HttpMemory>) -> Self {
        Self {
            relay: relay.clone(),
            memory: memory.clone(),
            idle_limit: limits.http_idle_timeout,
            head_limit: limits.handshake_timeout,
            running: None,
        }
    }

    /// Ready when the time for this phase is over; another phase starts the time again.
    pub(super) fn poll_expired(&mut self, phase: HeadPhase, cx: &mut Context<'_>) -> Poll<()> {
        if self.running.as_ref().is_none_or(|(last, _)| *last != phase) {
            self.start(phase);
        }
        match &mut self.running {
            Some((_, countdown)) => countdown.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    fn start(&mut self, phase: HeadPhase) {
        let countdown: Countdown = match phase {
            HeadPhase::Idle => Box::pin(end_of_idle(self.relay.clone(), self.idle_limit)),
            HeadPhase::Begun => Box::pin(sleep(self.head_limit)),
        };
        self.memory
            .set_idle((phase == HeadPhase::Idle).then(Instant::now));
        self.running = Some((phase, countdown));
    }

    /// Stops the timer: the head is complete.
    pub(super) fn stop(&mut self) {
        if self.running.take().is_some() {
            self.memory.set_idle(None);
        }
    }
}

/// Returns after `limit`, or as soon as a full relay needs the connection for another client.
async fn end_of_idle(relay: Arc<Relay>, limit: Duration) {
    select! {
        () = sleep(limit) => {}
        () = relay.idle_clients.dismissed(|| relay.is_full()) => {}
    }
}
