// SPDX-License-Identifier: MIT OR Apache-2.0
//! Size of super-packets, and deferral of small ones in favour of larger ones.

use longhaul_units::Time;

/// Payload of the largest super-packet: `GSO_LEGACY_MAX_SIZE` − (`MAX_TCP_HEADER` + 1).
pub(crate) const GSO_BYTES: u64 = 65_536 - 321;
/// `net.ipv4.tcp_min_tso_segs`.
const SEGMENTS_MIN: u64 = 2;
/// `sk_pacing_shift`: a super-packet lasts about a millisecond.
const PACING_SHIFT: u32 = 10;
/// `net.ipv4.tcp_tso_rtt_log`, for microseconds.
const RTT_LOG: u32 = 9;
/// `net.ipv4.tcp_tso_win_divisor`.
const WINDOW_DIVISOR: u64 = 3;
const MILLISECOND: Time = Time::from_millis(1);

/// Returns the packets of one super-packet for a pacing rate in bytes a second (`tcp_tso_autosize`).
#[inline]
pub(crate) fn autosize(pacing_rate: u64, min_rtt: Time, mss: u32) -> u32 {
    let shift = (min_rtt.as_nanos() / 1_000) >> RTT_LOG;
    let extra = if shift < 32 { GSO_BYTES >> shift } else { 0 };
    let bytes = ((pacing_rate >> PACING_SHIFT) + extra).min(GSO_BYTES);
    (bytes / u64::from(mss)).max(SEGMENTS_MIN) as u32
}

/// Inputs of `tcp_tso_should_defer`. Counts are packets.
pub(crate) struct TsoDeferral {
    /// Packets that the congestion window and the receiver's window allow.
    pub(crate) allowed: u64,
    /// Packets of a full super-packet.
    pub(crate) full: u64,
    /// Packets of the first super-packet in the write queue.
    pub(crate) head: u64,
    /// Smaller of both windows.
    pub(crate) window: u64,
    /// Time since new data was last sent.
    pub(crate) since_last_sent: Time,
    /// Time since the oldest packet in flight was sent; `None` if there is none.
    pub(crate) since_oldest: Option<Time>,
    pub(crate) srtt: Time,
}

impl TsoDeferral {
    /// Whether to wait for the next ACK, which will allow a larger super-packet.
    #[inline]
    pub(crate) fn should_defer(&self) -> bool {
        let Some(oldest) = self.since_oldest else {
            return false;
        };
        let is_large = self.allowed >= self.full
            || self.allowed >= self.head
            || self.allowed >= self.window / WINDOW_DIVISOR;
        let horizon = Time::from_nanos(self.srtt.as_nanos() / 2).min(MILLISECOND);
        !is_large && self.since_last_sent <= MILLISECOND && self.srtt.since(oldest) <= horizon
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn super_packet_lasts_a_millisecond_up_to_64_kb() {
        let far = Time::from_millis(100);
        assert_eq!(autosize(1_000_000_000, far, 1448), 45);
        assert_eq!(autosize(10_000_000, far, 1448), 6);
        assert_eq!(autosize(1_000, far, 1448), 2);
        assert_eq!(autosize(1_000, Time::from_micros(100), 1448), 45, "near");
    }

    #[test]
    fn defers_only_while_an_ack_is_due_soon_and_the_window_is_large() {
        let deferral = |allowed, since_last_sent, since_oldest| TsoDeferral {
            allowed,
            full: 45,
            head: 45,
            window: 1_000,
            since_last_sent: Time::from_micros(since_last_sent),
            since_oldest: Some(Time::from_micros(since_oldest)),
            srtt: Time::from_millis(10),
        };
        assert!(deferral(8, 100, 9_500).should_defer());
        assert!(!deferral(45, 100, 9_500).should_defer(), "full");
        assert!(!deferral(8, 1_001, 9_500).should_defer(), "idle");
        assert!(!deferral(8, 100, 8_900).should_defer(), "far ACK");
    }
}
