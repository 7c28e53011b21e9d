// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts the law's changes on real sockets, and sees to it that no cap outlives this process.

use super::config::Config;
use crate::decp::model::Change;
use anyhow::{Context, Result};
use longhaul_command::errln;
use longhaul_command::exit::Refusal;
use longhaul_congestion::sockets::window_cap::{self, Caps};
use longhaul_linux::{
    executor::{Executor, Owner},
    sock_diag::Connection,
};
use longhaul_units::Time;
use std::{collections::HashSet, thread::sleep, time::Duration};

/// A silence after which caps are lifted although this process is there: it is stopped or hangs.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two walks while the last caps are lifted, and how many there are at most: a connection in
/// recovery is waited for, for 30 s.
const PAUSE: Duration = Duration::from_millis(50);
const WALKS_MAX: u32 = 600;

/// The orders in force, and who lifts the caps if this process does not.
pub(super) struct Enforcer {
    caps: Caps,
    executor: Executor,
}

impl Enforcer {
    /// Must be called while this process has one thread.
    pub(super) fn start(interval: Time) -> Result<Self> {
        let caps = load(LOOKING)?;
        let patience = PATIENCE + Duration::from(interval) * 2;
        // A cap that can't be lifted has nobody left who could be told.
        let lift = |owner| {
            drop(caps.lift_all(WALKS_MAX, || sleep(PAUSE)));
            if owner == Owner::Gone {
                caps.retire();
            }
        };
        let executor = Executor::appoint(patience, lift).context("cannot start a process")?;
        Ok(Self { caps, executor })
    }

    /// The cap that the connection has, segments.
    pub(super) fn cap(&self, cookie: u64) -> Option<u32> {
        self.caps.in_force(cookie).filter(|cap| *cap > 0)
    }

    /// Carries out the changes, and what earlier ones left to do.
    pub(super) fn obey(&mut self, changes: &[Change]) -> Result<()> {
        self.executor
            .reassure()
            .context("the process that would lift the caps is gone")?;
        for change in changes {
            self.caps
                .order(change.id, change.cap.unwrap_or(0), change.fill)?;
        }
        if self.caps.ordered().is_empty() {
            return Ok(());
        }
        self.caps.carry_out().context("cannot walk the sockets")
    }

    /// Forgets connections that are gone and orders that are done.
    pub(super) fn tidy(&self, present: &HashSet<u64>) {
        for cookie in self.caps.ordered() {
            if !present.contains(&cookie) || self.caps.in_force(cookie) == Some(0) {
                self.caps.forget(cookie);
            }
        }
    }

    /// Lifts all caps. If that fails, the executor tries.
    pub(super) fn end(self) -> Result<()> {
        let left = self.caps.lift_all(WALKS_MAX, || sleep(PAUSE));
        let left = left.context("cannot lift the caps")?;
        self.executor.dismiss();
        anyhow::ensure!(
            left == 0,
            "{left} connections stayed in recovery and kept their caps"
        );
        Ok(())
    }
}

/// What there is without rights, and without what the kernel may lack.
const LOOKING: &str = "; --dry-run takes neither rights nor programs";

fn load(way_out: &str) -> Result<Caps> {
    Caps::load().map_err(|error| Refusal::unsupported(format!("{error}{way_out}")))
}

/// Whether this caller may cap windows at all; looking takes no rights.
pub(super) fn permitted(config: &Config) -> Result<()> {
    let way_out = if config.lift { "" } else { LOOKING };
    window_cap::permitted().map_err(|error| Refusal::unsupported(format!("{error}{way_out}")))
}

/// Lifts whatever caps these connections have.
pub(super) fn lift(connections: &[Connection]) -> Result<()> {
    let caps = load("")?;
    for connection in connections {
        caps.order(connection.sender.cookie, 0, false)?;
    }
    let left = caps
        .lift_all(WALKS_MAX, || sleep(PAUSE))
        .context("cannot walk the sockets")?;
    anyhow::ensure!(
        left == 0,
        "{left} connections stayed in recovery and kept their caps"
    );
    errln!("{} connections have no cap", connections.len());
    Ok(())
}
