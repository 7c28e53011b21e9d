// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path that the host is asked to fill.

use longhaul_command::exit::Refusal;
use longhaul_units::{BitRate, Bytes, Time, bdp};
use serde::Serialize;

/// What is asked of the host.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Path {
    /// Rate of all connections together, and of one if it is alone.
    pub(super) rate: BitRate,
    /// Round-trip time, 1 µs to 100 s.
    pub(super) rtt: Time,
    /// Connections at once.
    pub(super) connections: u64,
    /// Whether a relay is to catch connections by TPROXY.
    pub(super) transparent: bool,
}

impl Path {
    /// Refuses round-trip times that no path has: every check divides by them.
    pub(super) fn checked(self) -> anyhow::Result<Self> {
        let sensible = Time::from_nanos(1_000)..=Time::from_millis(100_000);
        match sensible.contains(&self.rtt) {
            true => Ok(self),
            false => Err(Refusal::usage(format!(
                "--rtt {}: a round trip takes 1us to 100s",
                self.rtt
            ))),
        }
    }

    /// Bytes that fill it.
    pub(super) fn bdp(self) -> Bytes {
        bdp(self.rate, self.rtt)
    }

    /// The rate at which `window` bytes a round trip come through.
    pub(super) fn carried_by(self, window: Bytes) -> BitRate {
        BitRate::mean(window, self.rtt).unwrap_or(self.rate)
    }

    /// `10 Gbit/s × 200 ms = 250 MB`.
    pub(super) fn sum(self) -> String {
        format!("{} × {} = {}", self.rate, self.rtt, self.bdp())
    }
}
