// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rates × round trips for which this host's buffers suffice, for `--check-config`.

use longhaul_protocol::convert::STRIPES_MAX;
use longhaul_units::BitRate;
use serde::Serialize;
use std::fmt::{self, Display};

/// Bytes that connections of this host may have in flight. Half of a buffer is for the kernel's bookkeeping.
#[derive(Debug, Serialize)]
pub(super) struct WindowSummary {
    /// Of one connection that sends; `None` if the setting can't be read.
    send_window_bytes: Option<u64>,
    /// Of one connection that receives; `None` if the setting can't be read.
    receive_window_bytes: Option<u64>,
    /// Streams that may carry one connection between two relays.
    streams: u8,
}

impl WindowSummary {
    pub(super) fn new() -> Self {
        Self {
            send_window_bytes: half_of_largest("net.ipv4.tcp_wmem"),
            receive_window_bytes: half_of_largest("net.ipv4.tcp_rmem"),
            streams: STRIPES_MAX,
        }
    }
}

fn half_of_largest(sysctl: &str) -> Option<u64> {
    autotuning_max(sysctl).map(|bytes| bytes / 2)
}

/// Largest buffer size of autotuning: the third value of `sysctl`.
pub(super) fn autotuning_max(sysctl: &str) -> Option<u64> {
    let values = longhaul_linux::sysctl::read_here(sysctl).ok()?;
    values.split(' ').nth(2)?.parse().ok()
}

impl Display for WindowSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "windows")?;
        let streams = u64::from(self.streams);
        let rows = [
            ("sending", self.send_window_bytes, 1),
            ("receiving", self.receive_window_bytes, 1),
            ("to relays", self.send_window_bytes, streams),
        ];
        for (name, window, streams) in rows {
            let text = window.map_or_else(
                || "unknown: this host's settings can't be read".to_owned(),
                |window| describe(window * streams),
            );
            writeln!(f, "  {name:<12} {text}")?;
        }
        Ok(())
    }
}

/// Returns the longest round trips at which a window carries some rates.
fn describe(window: u64) -> String {
    let reach = |bits: u64| {
        let rtt_ms = window * 8 * 1000 / bits;
        format!("{} up to {rtt_ms} ms", BitRate::from_bits(bits))
    };
    let rates = [100_000_000, 1_000_000_000, 10_000_000_000];
    rates.map(reach).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_reaches_as_far_as_its_bytes_last() {
        assert_eq!(
            describe(2 << 20),
            "100 Mbit/s up to 167 ms, 1 Gbit/s up to 16 ms, 10 Gbit/s up to 1 ms"
        );
    }
}
