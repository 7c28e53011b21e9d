// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many packets leave as one super-packet, and when it pays to wait for more.

use longhaul_units::Time;

/// Payload of the largest super-packet: `GSO_LEGACY_MAX_SIZE` − (`MAX_TCP_HEADER` + 1).
pub(crate) const GSO_BYTES: u64 = 65_536 - 321;
/// `net.ipv4.tcp_min_tso_segs`.
const SEGMENTS_MIN: u64 = 2;
/// `sk_pacing_shift`: a super-packet is worth about a millisecond.
const PACING_SHIFT: u32 = 10;
/// `net.ipv4.tcp_tso_rtt_log`, on microseconds.
const RTT_LOG: u32 = 9;
/// `net.ipv4.tcp_tso_win_divisor`.
const WINDOW_DIVISOR: u64 = 3;
const MILLISECOND: Time = Time::from_millis(1);

/// Packets of one super-packet (`tcp_tso_autosize`), for a pacing rate in bytes a second.
#[inline]
pub(crate) fn autosize(pacing_rate: u64, min_rtt: Time, mss: u32) -> u32 {
    let near = (min_rtt.as_nanos() / 1_000) >> RTT_LOG;
    let extra = if near < 32 { GSO_BYTES >> near } else { 0 };
    let bytes = ((pacing_rate >> PACING_SHIFT) + extra).min(GSO_BYTES);
    (bytes / u64::from(mss)).max(SEGMENTS_MIN) as u32
}

/// What `tcp_tso_should_defer` looks at. Counts are packets.
pub(crate) struct Occasion {
    /// What the congestion window and the receiver's window allow.
    pub(crate) allowed: u64,
    /// What a full super-packet has.
    pub(crate) full: u64,
    /// What the first super-packet of the write queue has.
    pub(crate) head: u64,
    /// The smaller of both windows.
    pub(crate) window: u64,
    /// Since new data was sent last.
    pub(crate) since_write: Time,
    /// Since the oldest packet that is out was sent; `None` if none is.
    pub(crate) since_oldest: Option<Time>,
    pub(crate) srtt: Time,
}

impl Occasion {
    /// Whether to wait for the next ACK, which will allow a larger super-packet.
    #[inline]
    pub(crate) fn is_worth_waiting(&self) -> bool {
        let Some(oldest) = self.since_oldest else {
            return false;
        };
        let enough = self.allowed >= self.full
            || self.allowed >= self.head
            || self.allowed >= self.window / WINDOW_DIVISOR;
        let soon = Time::from_nanos(self.srtt.as_nanos() / 2).min(MILLISECOND);
        !enough && self.since_write <= MILLISECOND && self.srtt.since(oldest) <= soon
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_super_packet_is_a_millisecond_but_never_more_than_64_kb() {
        let far = Time::from_millis(100);
        assert_eq!(autosize(1_000_000_000, far, 1448), 45);
        assert_eq!(autosize(10_000_000, far, 1448), 6);
        assert_eq!(autosize(1_000, far, 1448), 2);
        assert_eq!(autosize(1_000, Time::from_micros(100), 1448), 45, "near");
    }

    #[test]
    fn waits_only_while_an_ack_is_near_and_the_window_is_large() {
        let occasion = |allowed, since_write, since_oldest| Occasion {
            allowed,
            full: 45,
            head: 45,
            window: 1_000,
            since_write: Time::from_micros(since_write),
            since_oldest: Some(Time::from_micros(since_oldest)),
            srtt: Time::from_millis(10),
        };
        assert!(occasion(8, 100, 9_500).is_worth_waiting());
        assert!(!occasion(45, 100, 9_500).is_worth_waiting(), "full");
        assert!(!occasion(8, 1_001, 9_500).is_worth_waiting(), "idle");
        assert!(!occasion(8, 100, 8_900).is_worth_waiting(), "far ACK");
    }
}
