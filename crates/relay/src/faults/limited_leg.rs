// SPDX-License-Identifier: MIT OR Apache-2.0
//! A leg that a buffer limits, in words for the operator: the number, and the command that raises it.

use longhaul_units::BitRate;
use std::{
    fmt::{self, Display, Formatter},
    net::SocketAddr,
    time::Duration,
};

/// A leg that a buffer has limited for some seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LimitedLeg {
    pub(crate) to: SocketAddr,
    pub(crate) limit: Limit,
    pub(crate) rtt: Duration,
    /// Of all streams together.
    pub(crate) bytes_per_s: u64,
    /// Connections that carry the leg.
    pub(crate) streams: usize,
}

/// Reports a leg that a buffer limits.
pub(crate) type ReportLimited<'a> = dyn Fn(&LimitedLeg) + Send + Sync + 'a;

/// Buffer that limits a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Limit {
    SendBuffer,
    ReceiveWindow,
}

impl Display for LimitedLeg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { to, rtt, .. } = self;
        let rate = BitRate::measured(8 * self.bytes_per_s);
        let rtt_ms = rtt.as_millis();
        // Half of a buffer holds the kernel's bookkeeping.
        let window = self.bytes_per_s as f64 * rtt.as_secs_f64() / self.streams.max(1) as f64;
        let buffer = (2.0 * 2.0 * window) as u64;
        match self.limit {
            Limit::SendBuffer => write!(
                f,
                "the send buffer limits the leg to {to}: {rate} at a round trip of {rtt_ms} ms; for twice \
                 the rate, on this host: sysctl -w net.ipv4.tcp_wmem='4096 16384 {buffer}'"
            ),
            Limit::ReceiveWindow => write!(
                f,
                "the receive window of {to} limits the leg: {rate} at a round trip of {rtt_ms} ms; for twice the \
                 rate, on that host: sysctl -w net.ipv4.tcp_rmem='4096 131072 {buffer}'"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_the_number_and_the_command() {
        let leg = LimitedLeg {
            to: "192.0.2.9:5124".parse().unwrap(),
            limit: Limit::SendBuffer,
            rtt: Duration::from_millis(240),
            bytes_per_s: 10_000_000,
            streams: 1,
        };
        assert_eq!(
            leg.to_string(),
            "the send buffer limits the leg to 192.0.2.9:5124: 80 Mbit/s at a round trip of 240 ms; for twice the \
             rate, on this host: sysctl -w net.ipv4.tcp_wmem='4096 16384 9600000'"
        );
    }
}
