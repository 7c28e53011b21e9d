// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notifications to the service manager (sd_notify(3)): ready, reloading, stopping, status, and
//! watchdog. Without `NOTIFY_SOCKET` nothing is sent.

use crate::{
    process::workers::registry::Registry,
    relay::{Phase, Relay},
};
use sd_notify::NotifyState;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

/// Connection to the service manager, if there is one.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    relay: Arc<Relay>,
    registry: Arc<Registry>,
    /// Time without a watchdog message after which the manager kills the relay (`WatchdogSec=`).
    watchdog_timeout: Option<Duration>,
}

/// Interval at which the status is checked for changes.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

impl ServiceManager {
    /// Reads the environment.
    pub(crate) fn from_env(relay: Arc<Relay>, registry: Arc<Registry>) -> Self {
        let watchdog_timeout = sd_notify::watchdog_enabled();
        Self {
            relay,
            registry,
            watchdog_timeout,
        }
    }

    fn notify(&self, states: &[NotifyState]) {
        if let Err(error) = sd_notify::notify(states) {
            warn!("NOTIFY_SOCKET: {error}");
        }
    }

    /// Reports that all listeners accept and that interception is installed.
    pub(crate) fn ready(&self) {
        self.notify(&[NotifyState::Ready, NotifyState::Status(&self.status())]);
    }

    /// Reports that a reload begins; [`Self::reloaded`] reports its end.
    pub(crate) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.notify(&[NotifyState::Reloading, now]),
            Err(_) => self.notify(&[NotifyState::Reloading]),
        }
    }

    /// Reports the end of a reload; `problem` is the error if it failed.
    pub(crate) fn reloaded(&self, problem: Option<&str>) {
        match problem {
            None => self.ready(),
            Some(problem) => {
                let status = format!("not reloaded: {problem}");
                self.notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
            }
        }
    }

    /// Reports that no new connections are accepted.
    pub(crate) fn stopping(&self) {
        let status = NotifyState::Status("stopping: open connections may continue for a while");
        self.notify(&[NotifyState::Stopping, status]);
    }

    /// Sends watchdog messages as long as all threads are alive, and the status whenever it has
    /// changed, without end.
    pub(crate) async fn run(&self) {
        let mut ticks = interval(self.watchdog_interval());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last_sent, mut next) = (self.status(), Instant::now() + STATUS_INTERVAL);
        loop {
            let now = ticks.tick().await.into_std();
            if self.watchdog_timeout.is_some()
                && self.relay.heartbeats.are_all_alive(Instant::now())
            {
                self.notify(&[NotifyState::Watchdog]);
            }
            if now >= next && self.relay.lifecycle.phase() == Phase::Run {
                next = now + STATUS_INTERVAL;
                let status = self.status();
                if status != last_sent {
                    self.notify(&[NotifyState::Status(&status)]);
                    last_sent = status;
                }
            }
        }
    }

    /// Returns the interval of the watchdog messages: a quarter of the manager's timeout.
    fn watchdog_interval(&self) -> Duration {
        let quarter = self
            .watchdog_timeout
            .map_or(STATUS_INTERVAL, |timeout| timeout / 4);
        quarter.clamp(Duration::from_millis(1), STATUS_INTERVAL)
    }

    /// Returns the status as one short line.
    fn status(&self) -> String {
        let listeners = self.relay.listeners.open().len();
        let connections = self.registry.len();
        let peers = self.relay.setup().peers;
        let down: Vec<_> = peers
            .all()
            .filter(|peer| !peer.state.health.is_up())
            .map(|peer| peer.config.name.as_str())
            .collect();
        let down = if down.is_empty() {
            String::new()
        } else {
            format!(", down: {}", down.join(", "))
        };
        format!("{listeners} listeners, {connections} connections{down}")
    }
}
