// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path that the host should be able to fill.

use longhaul_command::exit::Refusal;
use longhaul_units::{BitRate, Bytes, Time, bdp};
use serde::Serialize;

/// Path, and the load on it.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Path {
    /// Rate of all connections together, and of one if it is alone.
    pub(super) rate: BitRate,
    /// Round-trip time, 1 µs to 100 s.
    pub(super) rtt: Time,
    /// Number of concurrent connections.
    pub(super) connections: u64,
    /// Whether a relay intercepts connections by TPROXY.
    pub(super) transparent: bool,
}

impl Path {
    /// Refuses impossible round-trip times: every check divides by them.
    pub(super) fn check(self) -> anyhow::Result<Self> {
        let valid = Time::from_nanos(1_000)..=Time::from_millis(100_000);
        if valid.contains(&self.rtt) {
            Ok(self)
        } else {
            Err(Refusal::usage(format!(
                "--rtt {}: a round trip takes 1us to 100s",
                self.rtt.exact()
            )))
        }
    }

    /// Returns the bandwidth–delay product.
    pub(super) fn bdp(self) -> Bytes {
        bdp(self.rate, self.rtt)
    }

    /// Returns the rate of `window` bytes a round trip.
    pub(super) fn rate_of_window(self, window: Bytes) -> BitRate {
        BitRate::mean(window, self.rtt).unwrap_or(self.rate)
    }

    /// Returns rate, round-trip time and BDP as text: `10 Gbit/s × 200 ms = 250 MB`.
    pub(super) fn bdp_text(self) -> String {
        format!("{} × {} = {}", self.rate, self.rtt, self.bdp())
    }
}
