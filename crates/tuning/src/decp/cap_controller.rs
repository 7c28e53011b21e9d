// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applies the controller's changes to real sockets, and ensures that no cap outlives this process.

use super::config::Config;
use crate::decp::model::Change;
use anyhow::{Context, Result};
use longhaul_command::errln;
use longhaul_command::exit::Refusal;
use longhaul_congestion::sockets::window_cap::{self, Caps};
use longhaul_linux::{
    cleanup_process::{CleanupProcess, Trigger},
    sock_diag::Connection,
};
use longhaul_units::Time;
use std::{collections::HashSet, thread::sleep, time::Duration};

/// Time without a heartbeat after which caps are lifted although this process exists: it is stopped or hangs.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between two walks over the sockets while the last caps are lifted.
const WALK_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of such walks: a connection in recovery gets 30 s to leave it.
const WALKS_MAX: u32 = 600;

/// Caps in force, and the process that lifts them if this one does not.
pub(super) struct CapController {
    caps: Caps,
    cleanup: CleanupProcess,
}

impl CapController {
    /// Loads the programs and starts the cleanup process. Must be called while this process has one thread.
    pub(super) fn start(interval: Time) -> Result<Self> {
        let caps = load(DRY_RUN_HINT)?;
        let timeout = HEARTBEAT_TIMEOUT + Duration::from(interval) * 2;
        // Errors are dropped: no process is left to report them to.
        let lift = |owner| {
            drop(caps.lift_all(WALKS_MAX, || sleep(WALK_INTERVAL)));
            if owner == Trigger::ParentExited {
                caps.unregister();
            }
        };
        let cleanup = CleanupProcess::spawn(timeout, lift).context("cannot start a process")?;
        Ok(Self { caps, cleanup })
    }

    /// Returns the connection's cap in segments.
    pub(super) fn cap(&self, cookie: u64) -> Option<u32> {
        self.caps.cap_in_force(cookie).filter(|cap| *cap > 0)
    }

    /// Applies the changes, and those of earlier calls that are still pending.
    pub(super) fn apply(&mut self, changes: &[Change]) -> Result<()> {
        self.cleanup
            .heartbeat()
            .context("the cleanup process, which removes caps, has exited")?;
        for change in changes {
            self.caps
                .order(change.id, change.cap.unwrap_or(0), change.slow_start_to_cap)?;
        }
        if self.caps.orders_by_cookie().is_empty() {
            return Ok(());
        }
        self.caps.carry_out().context("cannot walk the sockets")
    }

    /// Drops the orders of closed connections and those that are complete.
    pub(super) fn gc(&self, present: &HashSet<u64>) {
        for cookie in self.caps.orders_by_cookie() {
            if !present.contains(&cookie) || self.caps.cap_in_force(cookie) == Some(0) {
                self.caps.remove_order(cookie);
            }
        }
    }

    /// Lifts all caps. If that fails, the cleanup process tries.
    pub(super) fn finish(self) -> Result<()> {
        let left = self.caps.lift_all(WALKS_MAX, || sleep(WALK_INTERVAL));
        let left = left.context("cannot lift the caps")?;
        self.cleanup.disarm();
        anyhow::ensure!(
            left == 0,
            "{left} connections stayed in recovery and kept their caps"
        );
        Ok(())
    }
}

/// Hint for callers without the rights, and for kernels without the features.
const DRY_RUN_HINT: &str = "; --dry-run takes neither rights nor programs";

fn load(hint: &str) -> Result<Caps> {
    Caps::load().map_err(|error| Refusal::unsupported(format!("{error}{hint}")))
}

/// Checks that this caller may cap windows; observing needs no rights.
pub(super) fn check_permission(config: &Config) -> Result<()> {
    let hint = if config.remove_caps { "" } else { DRY_RUN_HINT };
    window_cap::permitted().map_err(|error| Refusal::unsupported(format!("{error}{hint}")))
}

/// Lifts the caps of these connections.
pub(super) fn lift_all(connections: &[Connection]) -> Result<()> {
    let caps = load("")?;
    for connection in connections {
        caps.order(connection.sender.cookie, 0, false)?;
    }
    let left = caps
        .lift_all(WALKS_MAX, || sleep(WALK_INTERVAL))
        .context("cannot walk the sockets")?;
    anyhow::ensure!(
        left == 0,
        "{left} connections stayed in recovery and kept their caps"
    );
    errln!("{} connections have no cap", connections.len());
    Ok(())
}
