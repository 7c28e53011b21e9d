// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a leg moves enough bytes for further legs to be worthwhile.
//!
//! On a host with default settings, the send buffer holds 4 MiB, and so a leg carries some 2.5 MB a round trip. A leg
//! that carries a sixteenth of the buffer in a round trip, and still grows, is two or three round trips away from that
//! limit: as long as further legs take to join. The relay that connects sees this in both directions. Legs that the
//! sender then does not need cost their sockets only.

use longhaul_linux::{send_buffer::RTT_MIN, tcp_info::TcpInfo};
use longhaul_transport::{leg::Leg, transport::TransportStream};
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Bytes in a round trip from which on further legs join: a sixteenth of Linux's default for the third value of
/// `net.ipv4.tcp_wmem`, 4 MiB.
const BYTES_PER_RTT: u64 = 256 * 1024;

/// Bytes between two looks at the leg, so that idle and slow legs cost nothing.
const BYTES_PER_CHECK: usize = 64 * 1024;

/// Observes one leg.
#[derive(Debug)]
pub(crate) struct Growth {
    leg: TransportStream,
    state: Mutex<State>,
    found: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes since the last look.
    unchecked: usize,
    last: Option<Look>,
    is_found: bool,
}

/// Counters of the leg at a time.
#[derive(Debug, Clone, Copy)]
struct Look {
    at: Instant,
    /// Bytes received and acknowledged.
    bytes: u64,
    rtt: Duration,
}

impl Growth {
    pub(crate) fn new(leg: &Leg) -> Self {
        Self {
            leg: leg.transport().clone(),
            state: Mutex::default(),
            found: Notify::new(),
        }
    }

    /// Counts bytes that were moved in either direction.
    pub(crate) fn count(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.unchecked += bytes;
        if state.is_found || state.unchecked < BYTES_PER_CHECK {
            return;
        }
        state.unchecked = 0;
        let now = Instant::now();
        if state.last.is_some_and(|last| now < last.at + last.rtt) {
            return;
        }
        let Some(info) = self.leg.tcp_info() else {
            return;
        };
        let look = Look::new(now, &info);
        if state
            .last
            .replace(look)
            .is_some_and(|last| look.is_large_after(last))
        {
            state.is_found = true;
            self.found.notify_one();
        }
    }

    /// Waits until further legs are worthwhile.
    pub(crate) async fn wait(&self) {
        self.found.notified().await;
    }
}

impl Look {
    fn new(at: Instant, info: &TcpInfo) -> Self {
        Self {
            at,
            bytes: info.acked_bytes + info.received_bytes,
            rtt: info.base_rtt().max(RTT_MIN / 2),
        }
    }

    /// Whether the leg has carried [`BYTES_PER_RTT`] in each round trip since an earlier look.
    fn is_large_after(&self, earlier: Self) -> bool {
        let elapsed = self.at.saturating_duration_since(earlier.at).max(self.rtt);
        let bytes = self.bytes.saturating_sub(earlier.bytes);
        self.rtt >= RTT_MIN
            && bytes as f64 * self.rtt.as_secs_f64() >= BYTES_PER_RTT as f64 * elapsed.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_large(rtt_ms: u64, elapsed_ms: u64, bytes: u64) -> bool {
        let rtt = Duration::from_millis(rtt_ms);
        let at = Instant::now();
        let earlier = Look { at, bytes: 7, rtt };
        let later = Look {
            at: at + Duration::from_millis(elapsed_ms),
            bytes: 7 + bytes,
            rtt,
        };
        later.is_large_after(earlier)
    }

    #[test]
    fn a_long_leg_with_many_bytes_in_a_round_trip_is_large() {
        assert!(is_large(240, 240, BYTES_PER_RTT));
        assert!(!is_large(240, 240, BYTES_PER_RTT - 1));
        assert!(is_large(240, 480, 2 * BYTES_PER_RTT));
        assert!(!is_large(240, 480, 2 * BYTES_PER_RTT - 1));
    }

    #[test]
    fn a_look_after_less_than_a_round_trip_counts_as_one() {
        assert!(!is_large(240, 24, BYTES_PER_RTT / 10));
        assert!(is_large(240, 24, BYTES_PER_RTT));
    }

    #[test]
    fn a_short_leg_is_never_large() {
        assert!(!is_large(4, 4, 100 * BYTES_PER_RTT));
        assert!(is_large(5, 5, BYTES_PER_RTT));
    }
}
