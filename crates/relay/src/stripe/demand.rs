// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many legs of a bundle a sender needs. Without I/O.
//!
//! A window is what the kernel grants to one connection: the send buffer here and the receive buffer at the other relay
//! bound it. The sender uses further legs when one of these limits the present ones, but not when the window is small
//! because the client takes little. All of them start together: from ten segments each, they grow no faster than a single
//! connection with a large buffer would. When nothing limits a leg but congestion, the sender goes back to as many as the
//! windows need. A queue on the path tells that the line is the limit: further legs would only add to the queue, and lose
//! their first segments there.

use longhaul_linux::{limiter::BusyTimes, send_buffer::RTT_MIN, tcp_info::TcpInfo};
use std::time::{Duration, Instant};

/// Time without a limited leg after which fewer legs are used: some slow starts long.
const CALM: Duration = Duration::from_secs(10);

/// Share of the send buffer that holds data in flight. The rest is the kernel's bookkeeping and data that is not sent
/// yet. Measured: 0.6.
const IN_FLIGHT_SHARE: u64 = 2;

/// Counters of a leg at the last look.
#[derive(Debug, Clone, Copy, Default)]
struct LegState {
    last_info: TcpInfo,
    /// Largest receive window of the other relay so far, in bytes.
    window_max: u32,
}

/// A sender's demand.
#[derive(Debug)]
pub(crate) struct Demand {
    /// Data in flight that the send buffer of one leg allows, in bytes.
    window: u64,
    legs: Vec<LegState>,
    /// Last time at which a leg was limited or about to be, and the last look.
    limited_at: Instant,
    looked_at: Instant,
}

impl Demand {
    /// Demand of a sender whose sockets have a send buffer of at most `send_buffer` bytes.
    pub(crate) fn new(send_buffer: u64, now: Instant) -> Self {
        Self {
            window: send_buffer / IN_FLIGHT_SHARE,
            legs: Vec::new(),
            limited_at: now,
            looked_at: now,
        }
    }

    /// Returns the number of legs to be used, from the first on, given the counters of all legs and the number used now.
    pub(crate) fn legs(&mut self, infos: &[TcpInfo], in_use: usize, now: Instant) -> usize {
        let used = &infos[..in_use.min(infos.len())];
        if self.is_any_limited(used, now) {
            self.limited_at = now;
            return infos.len();
        }
        if now.saturating_duration_since(self.limited_at) < CALM {
            return in_use;
        }
        self.limited_at = now;
        let in_flight: u64 = used.iter().map(TcpInfo::cwnd_bytes).sum();
        let needed = in_flight.div_ceil((self.window / 2).max(1)) as usize;
        needed.clamp(1, in_use)
    }

    fn is_any_limited(&mut self, used: &[TcpInfo], now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.looked_at).as_micros() as u64;
        self.looked_at = now;
        self.legs.resize(used.len(), LegState::default());
        let window = self.window;
        let mut is_any = false;
        for (leg, info) in self.legs.iter_mut().zip(used) {
            let since = leg.limited_since(info, elapsed);
            let is_waiting = since > 0 && since * 2 >= elapsed;
            is_any |= info.base_rtt() >= RTT_MIN
                && !sees_queue(info)
                && (is_waiting || info.cwnd_bytes() >= window);
        }
        is_any
    }
}

impl LegState {
    /// Returns the time since the last look for which a buffer, here or there, has limited the leg, in microseconds. A
    /// window that has shrunk shows that the client is slow, which further legs don't change.
    fn limited_since(&mut self, info: &TcpInfo, elapsed_us: u64) -> u64 {
        self.window_max = self.window_max.max(info.send_window_bytes);
        let is_open = info.send_window_bytes >= self.window_max / 2;
        let spent = BusyTimes::between(&self.last_info, info, elapsed_us);
        self.last_info = *info;
        spent.send_buffer_us + if is_open { spent.receive_window_us } else { 0 }
    }
}

/// Whether the round trip is half as long again as that of the empty path.
fn sees_queue(info: &TcpInfo) -> bool {
    u64::from(info.rtt_us) * 2 > u64::from(info.rtt_min_us) * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: u64 = 4 << 20;

    fn leg(cwnd_segments: u32, sndbuf_limited_us: u64) -> TcpInfo {
        TcpInfo {
            rtt_us: 240_000,
            rtt_min_us: 240_000,
            cwnd_segments,
            mss_bytes: 1448,
            sndbuf_limited_us,
            ..TcpInfo::default()
        }
    }

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn uses_all_legs_when_the_window_reaches_what_the_buffer_allows() {
        let start = Instant::now();
        let mut demand = Demand::new(BUFFER, start);
        assert_eq!(demand.legs(&[leg(1440, 0), leg(10, 0)], 1, start), 1);
        assert_eq!(demand.legs(&[leg(1450, 0), leg(10, 0)], 1, start), 2);
    }

    #[test]
    fn a_queue_on_the_path_means_that_the_line_is_the_limit() {
        let start = Instant::now();
        let mut demand = Demand::new(BUFFER, start);
        let queued = |rtt_us| TcpInfo {
            rtt_us,
            ..leg(3000, 0)
        };
        let idle = leg(10, 0);
        assert_eq!(demand.legs(&[queued(361_000), idle], 1, start), 1);
        assert_eq!(demand.legs(&[queued(360_000), idle], 1, start), 2);
    }

    #[test]
    fn uses_all_legs_when_one_waits_for_room_in_a_buffer() {
        let start = Instant::now();
        let mut demand = Demand::new(BUFFER, start);
        assert_eq!(demand.legs(&[leg(100, 0), leg(10, 0)], 1, start), 1);
        let next = demand.legs(&[leg(100, 40_000), leg(10, 0)], 1, at(start, 100));
        assert_eq!(next, 1, "for less than half of the time");
        let next = demand.legs(&[leg(100, 90_000), leg(10, 0)], 1, at(start, 200));
        assert_eq!(next, 2);
    }

    #[test]
    fn a_slow_client_needs_one_leg() {
        let start = Instant::now();
        let mut demand = Demand::new(BUFFER, start);
        let waiting = |send_window_bytes, rwnd_limited_us| TcpInfo {
            send_window_bytes,
            rwnd_limited_us,
            ..leg(100, 0)
        };
        let legs = |first| [first, leg(10, 0)];
        assert_eq!(demand.legs(&legs(waiting(3 << 20, 0)), 1, start), 1);
        let slow = waiting(1 << 20, 90_000);
        assert_eq!(demand.legs(&legs(slow), 1, at(start, 100)), 1);
        let limited = waiting(3 << 20, 180_000);
        assert_eq!(demand.legs(&legs(limited), 1, at(start, 200)), 2);
    }

    #[test]
    fn a_short_path_needs_one_leg() {
        let start = Instant::now();
        let mut demand = Demand::new(BUFFER, start);
        let near = TcpInfo {
            rtt_us: 50_000,
            rtt_min_us: 1000,
            ..leg(5000, 0)
        };
        assert_eq!(demand.legs(&[near, near], 1, start), 1);
    }

    #[test]
    fn goes_back_to_what_the_windows_need_when_only_congestion_limits() {
        let start = Instant::now();
        let mut demand = Demand::new(BUFFER, start);
        let legs = [leg(300, 0); 8];
        assert_eq!(demand.legs(&legs, 8, at(start, 9_900)), 8);
        assert_eq!(demand.legs(&legs, 8, at(start, 10_000)), 4);
        assert_eq!(
            demand.legs(&legs, 4, at(start, 10_100)),
            4,
            "not at once again"
        );
    }
}
