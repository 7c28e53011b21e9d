// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the service manager hears of the relay (sd_notify(3)): ready, reloading, stopping, how it
//! does, and that it is alive. Without `NOTIFY_SOCKET` nobody is told anything.

use crate::{
    process::workers::registry::Registry,
    relay::{Phase, Relay},
};
use longhaul_command::note;
use sd_notify::NotifyState;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::{MissedTickBehavior, interval};

/// The service manager, if it listens.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    relay: Arc<Relay>,
    registry: Arc<Registry>,
    /// Silence after which it kills the relay (`WatchdogSec=`).
    patience: Option<Duration>,
}

/// How often the status is looked at.
const STATUS_PERIOD: Duration = Duration::from_secs(5);

impl ServiceManager {
    /// As the environment says.
    pub(crate) fn find(relay: Arc<Relay>, registry: Arc<Registry>) -> Self {
        let patience = sd_notify::watchdog_enabled();
        Self {
            relay,
            registry,
            patience,
        }
    }

    fn tell(&self, news: &[NotifyState]) {
        if let Err(error) = sd_notify::notify(news) {
            note!("longhaul relay: NOTIFY_SOCKET: {error}");
        }
    }

    /// All listeners stand, and what is to be intercepted is.
    pub(crate) fn ready(&self) {
        self.tell(&[NotifyState::Ready, NotifyState::Status(&self.status())]);
    }

    /// The configuration is being read again; [`Self::reloaded`] says when that is over.
    pub(crate) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(_) => self.tell(&[NotifyState::Reloading]),
        }
    }

    /// It was read; `problem` is why it was not taken.
    pub(crate) fn reloaded(&self, problem: Option<&str>) {
        match problem {
            None => self.ready(),
            Some(problem) => {
                let status = format!("not reloaded: {problem}");
                self.tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
            }
        }
    }

    /// No new connections from now on.
    pub(crate) fn stopping(&self) {
        let status = NotifyState::Status("stopping: open connections may go on for a while");
        self.tell(&[NotifyState::Stopping, status]);
    }

    /// Says for ever that the relay is alive, as long as all its threads are, and how it does
    /// whenever that has changed.
    pub(crate) async fn attend(&self) {
        let mut ticks = interval(self.period());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut told, mut next) = (self.status(), Instant::now() + STATUS_PERIOD);
        loop {
            let now = ticks.tick().await.into_std();
            if self.patience.is_some() && self.relay.heartbeats.are_all_alive(Instant::now()) {
                self.tell(&[NotifyState::Watchdog]);
            }
            if now >= next && self.relay.drain.phase() == Phase::Run {
                next = now + STATUS_PERIOD;
                let status = self.status();
                if status != told {
                    self.tell(&[NotifyState::Status(&status)]);
                    told = status;
                }
            }
        }
    }

    /// Four signs of life in the time that the manager waits for one.
    fn period(&self) -> Duration {
        let quarter = self.patience.map_or(STATUS_PERIOD, |patience| patience / 4);
        quarter.clamp(Duration::from_millis(1), STATUS_PERIOD)
    }

    /// One short line.
    fn status(&self) -> String {
        let listeners = self.relay.doors.open().len();
        let connections = self.registry.len();
        let peers = self.relay.setup().peers;
        let down: Vec<_> = peers
            .all()
            .filter(|peer| !peer.state.health.is_up())
            .map(|peer| peer.config.name.as_str())
            .collect();
        let down = match down.is_empty() {
            true => String::new(),
            false => format!(", down: {}", down.join(", ")),
        };
        format!("{listeners} listeners, {connections} connections{down}")
    }
}
