// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds of the bytes that a leg has in flight, besides congestion: the sender's buffer, and the receiver's window.
//!
//! The kernel enlarges a send buffer with the congestion window, up to the third value of `net.ipv4.tcp_wmem`. With
//! CAP_NET_ADMIN the relay goes on from there by the same rule (SO_SNDBUFFORCE). Without it, and where the other end is
//! the limit, the operator has to know.

use crate::faults::limited_leg::{Limit, LimitedLeg};
use longhaul_linux::{
    send_buffer::{self, RTT_MIN},
    tcp_info::TcpInfo,
};
use longhaul_transport::leg::Leg;
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Bytes between two looks at a leg, so that idle and slow legs cost nothing.
const BYTES_PER_LOOK: usize = 256 * 1024;

/// Time for which a leg is limited before that is reported.
const LIMITED_MIN: Duration = Duration::from_secs(3);

/// Receive window from which on its size is the limit, and not the receiver's speed, in bytes.
const OPEN_WINDOW_MIN: u32 = 1 << 20;

/// Observes the sending direction of one leg.
#[derive(Debug, Default)]
pub(crate) struct SendWindow {
    unseen: usize,
    next_look: Option<Instant>,
    is_reported: bool,
}

impl SendWindow {
    /// Counts bytes that `leg` has taken. Enlarges its send buffer if that is about to limit it, this process may do so,
    /// and `may_enlarge` is set. Returns, once, that the leg is limited all the same.
    pub(crate) fn count(
        &mut self,
        bytes: usize,
        leg: &Leg,
        may_enlarge: bool,
    ) -> Option<LimitedLeg> {
        self.unseen += bytes;
        if self.unseen < BYTES_PER_LOOK {
            return None;
        }
        self.unseen = 0;
        let now = Instant::now();
        if self.next_look.is_some_and(|at| now < at) {
            return None;
        }
        let info = leg.transport().tcp_info()?;
        self.next_look = Some(now + info.base_rtt().max(RTT_MIN));
        if may_enlarge {
            enlarge(leg, &info);
        }
        self.report(&[info], leg)
    }

    /// Returns, once, what has limited the sender over these connections to the same host for some seconds.
    pub(crate) fn report(&mut self, infos: &[TcpInfo], leg: &Leg) -> Option<LimitedLeg> {
        if self.is_reported {
            return None;
        }
        let limit = infos.iter().find_map(limit)?;
        self.is_reported = true;
        Some(LimitedLeg {
            to: leg.transport().peer_addr()?,
            limit,
            rtt: infos.first().map(TcpInfo::base_rtt)?,
            streams: infos.len(),
            bytes_per_s: infos
                .iter()
                .map(|info| info.delivery_rate_bytes_per_s)
                .sum(),
        })
    }
}

/// Returns what has limited a connection for most of its time, and for some seconds.
fn limit(info: &TcpInfo) -> Option<Limit> {
    let (limited_us, limit) = if info.sndbuf_limited_us >= info.rwnd_limited_us {
        (info.sndbuf_limited_us, Limit::SendBuffer)
    } else {
        (info.rwnd_limited_us, Limit::ReceiveWindow)
    };
    let is_long = Duration::from_micros(limited_us) >= LIMITED_MIN && info.base_rtt() >= RTT_MIN;
    let is_window_used = limit == Limit::SendBuffer || uses_receive_window(info);
    (is_long && is_window_used && !sees_queue(info) && limited_us * 2 >= info.busy_us)
        .then_some(limit)
}

/// Whether the receive window is large, and as much is delivered in a round trip as half of it. A receiver that is slow
/// takes less: that is no setting of its host.
fn uses_receive_window(info: &TcpInfo) -> bool {
    let in_rtt = info.delivery_rate_bytes_per_s as f64 * info.base_rtt().as_secs_f64();
    info.send_window_bytes >= OPEN_WINDOW_MIN && 2.0 * in_rtt >= f64::from(info.send_window_bytes)
}

/// Whether a queue stands on the path: then the line is the limit.
fn sees_queue(info: &TcpInfo) -> bool {
    u64::from(info.rtt_us) * 4 > u64::from(info.rtt_min_us) * 5
}

/// Enlarges the send buffer if the congestion window will soon outgrow the kernel's maximum.
fn enlarge(leg: &Leg, info: &TcpInfo) {
    static IS_REFUSED: AtomicBool = AtomicBool::new(false);
    let Some(socket) = leg.transport().tcp().filter(|_| !IS_REFUSED.load(Relaxed)) else {
        return;
    };
    if send_buffer::enlarge(&**socket, info).is_err() {
        IS_REFUSED.store(true, Relaxed);
    }
}

/// Widens the receive window of a leg whose bytes wait for those of other legs.
///
/// The kernel takes bytes that wait for a sign that nobody reads, and does not enlarge the window then
/// (`tcp_rcv_space_adjust`, net/ipv4/tcp_input.c). But here each leg's bytes wait for their turn. So this follows the bytes
/// that were taken in a round trip, whatever still waits. If the client is slow, they are few, and the window stays small.
#[derive(Debug)]
pub(crate) struct ReceiveWindow {
    since: Instant,
    rtt: Duration,
    taken: u64,
    /// Largest window that was asked for, in bytes.
    window: u64,
}

/// Receive window over the bytes of the last round trip: they double in slow start, and arrive unevenly.
const WINDOW_PER_TAKEN: u64 = 4;

/// Window of a new connection, in bytes: half of the second value of `net.ipv4.tcp_rmem`.
const WINDOW_INITIAL: u64 = 64 * 1024;

impl ReceiveWindow {
    pub(crate) fn new(leg: &Leg, now: Instant) -> Self {
        Self {
            since: now,
            rtt: smoothed_rtt(leg),
            taken: 0,
            window: WINDOW_INITIAL,
        }
    }

    /// Counts bytes that were taken from `leg`, and widens its window if they are many.
    pub(crate) fn count(&mut self, bytes: usize, leg: &Leg, now: Instant) {
        self.taken += bytes as u64;
        if now < self.since + self.rtt {
            return;
        }
        if let Some(window) = self.next_window(now) {
            leg.transport()
                .widen_receive_window(window.try_into().unwrap_or(u32::MAX));
        }
        self.rtt = smoothed_rtt(leg);
    }

    /// Starts the next round trip. Returns the window, if it is to be wider.
    fn next_window(&mut self, now: Instant) -> Option<u64> {
        let elapsed = now.saturating_duration_since(self.since).max(self.rtt);
        let in_rtt = self.taken as f64 * self.rtt.as_secs_f64() / elapsed.as_secs_f64();
        let window = in_rtt as u64 * WINDOW_PER_TAKEN;
        (self.since, self.taken) = (now, 0);
        (window > self.window).then(|| {
            self.window = window;
            window
        })
    }
}

/// Returns the round-trip time of a leg, of a millisecond at least.
fn smoothed_rtt(leg: &Leg) -> Duration {
    let info = leg.transport().tcp_info().unwrap_or_default();
    Duration::from_micros(info.rtt_us.into()).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(rtt_us: u32, cwnd_segments: u32) -> TcpInfo {
        TcpInfo {
            rtt_us,
            rtt_min_us: rtt_us,
            cwnd_segments,
            mss_bytes: 1000,
            ..TcpInfo::default()
        }
    }

    #[test]
    fn a_receiver_that_is_slow_is_not_reported() {
        let slow = TcpInfo {
            rwnd_limited_us: 6_000_000,
            busy_us: 6_000_000,
            send_window_bytes: 10_000,
            ..info(100_000, 100)
        };
        assert_eq!(limit(&slow), None);
    }

    #[test]
    fn a_slow_receiver_with_an_open_window_is_not_reported() {
        let slow = TcpInfo {
            rwnd_limited_us: 6_000_000,
            busy_us: 6_000_000,
            send_window_bytes: OPEN_WINDOW_MIN,
            delivery_rate_bytes_per_s: 100_000,
            ..info(240_000, 100)
        };
        assert_eq!(limit(&slow), None);
    }

    #[test]
    fn a_leg_with_a_queue_on_its_path_is_not_reported() {
        let queued = TcpInfo {
            sndbuf_limited_us: 6_000_000,
            busy_us: 6_000_000,
            rtt_us: 126_000,
            rtt_min_us: 100_000,
            ..info(100_000, 100)
        };
        assert_eq!(limit(&queued), None);
    }

    #[test]
    fn reports_what_has_limited_a_leg_for_most_of_some_seconds() {
        let limited = |sndbuf_s: u64, rwnd_s: u64, busy_s: u64| {
            limit(&TcpInfo {
                sndbuf_limited_us: sndbuf_s * 1_000_000,
                rwnd_limited_us: rwnd_s * 1_000_000,
                busy_us: busy_s * 1_000_000,
                send_window_bytes: OPEN_WINDOW_MIN,
                delivery_rate_bytes_per_s: 10 * u64::from(OPEN_WINDOW_MIN),
                ..info(100_000, 100)
            })
        };
        assert_eq!(limited(3, 0, 6), Some(Limit::SendBuffer));
        assert_eq!(limited(1, 3, 6), Some(Limit::ReceiveWindow));
        assert_eq!(limited(2, 0, 2), None, "not for long");
        assert_eq!(limited(3, 0, 7), None, "less than half of the time");
    }

    #[test]
    fn receive_window_follows_what_was_taken_in_a_round_trip() {
        let start = Instant::now();
        let rtt = Duration::from_millis(100);
        let mut window = ReceiveWindow {
            since: start,
            rtt,
            taken: 16 << 10,
            window: WINDOW_INITIAL,
        };
        assert_eq!(
            window.next_window(start + rtt),
            None,
            "16 KiB fit four times"
        );
        window.taken = 32 << 10;
        assert_eq!(window.next_window(start + 2 * rtt), Some(128 << 10));
        window.taken = 64 << 10;
        assert_eq!(
            window.next_window(start + 4 * rtt),
            None,
            "the same in twice the time"
        );
    }
}
