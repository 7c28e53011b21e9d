// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limiting factor of the sending side of a leg, found from two snapshots ([`Snapshot`]) of its TCP_INFO.
//!
//! The kernel keeps a stopwatch for each connection (Linux net/ipv4/tcp_output.c, `tcp_chrono_start`). Time
//! with data in flight or waiting is *busy*. Within it the stopwatch tells two causes apart, one at a time:
//!
//! - The receive window: data waits, the congestion window has room, and the next segment does not fit into the
//!   window that the other end announces (`tcp_write_xmit`).
//! - The send buffer: everything in it is in flight, the congestion window has room, and the writer waits for
//!   space (`tcp_cwnd_validate`).
//!
//! The rest of the busy time belongs to the congestion window, to pacing (or a device that is behind), or to an
//! application whose last bytes are in flight. The kernel does not keep time for these three: the second
//! snapshot decides between them.
//!
//! The second snapshot also finds a small send buffer that the kernel overlooks. The kernel's stopwatch for it
//! starts only when a segment leaves *while* the writer waits. With a buffer of one segment or less that never
//! happens. But the writer itself knows that it waits.

use serde::{Deserialize, Serialize};

/// Snapshot of a sending socket. Times are totals since its start; all other values are those of the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Time with data in flight or waiting (`tcpi_busy_time`), in microseconds.
    pub busy_us: u64,
    /// Part of the busy time that waited for the receive window (`tcpi_rwnd_limited`), in microseconds.
    pub rwnd_limited_us: u64,
    /// Part of the busy time that waited for room in the send buffer (`tcpi_sndbuf_limited`), in microseconds.
    pub sndbuf_limited_us: u64,
    /// Bytes in the send buffer that were never sent.
    pub notsent_bytes: u32,
    /// Segments in flight by the sender's estimate.
    pub in_flight_segments: u32,
    /// Congestion window in segments.
    pub cwnd_segments: u32,
    /// Segment size in bytes.
    pub mss_bytes: u32,
    /// Window that the other end announces, in bytes.
    pub send_window_bytes: u32,
    /// Whether the writer has more data and waits for room in the send buffer.
    pub writer_waits: bool,
}

/// Limiting factor of a leg's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limiter {
    /// Application: it writes more slowly than the leg sends, or is idle.
    Application,
    /// Receive window: the reader at the other end is slow, or its receive buffer is smaller than the path's
    /// bandwidth × delay.
    ReceiveWindow,
    /// Send buffer: all of it is in flight, and it is smaller than the path's bandwidth × delay.
    SendBuffer,
    /// Congestion window: the path's capacity, or losses.
    CongestionWindow,
    /// Pacing, or a busy device, which lets segments out more slowly than the windows would.
    Pacing,
}

impl Limiter {
    /// Every limiting factor.
    pub const ALL: [Self; 5] = [
        Self::Application,
        Self::ReceiveWindow,
        Self::SendBuffer,
        Self::CongestionWindow,
        Self::Pacing,
    ];

    /// Returns the name in records and labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::ReceiveWindow => "receive_window",
            Self::SendBuffer => "send_buffer",
            Self::CongestionWindow => "congestion_window",
            Self::Pacing => "pacing",
        }
    }
}

/// Returns the factor that limited the leg for the largest part of the `elapsed_us` microseconds between two
/// snapshots.
///
/// The stopwatch ticks in jiffies (1 to 10 ms): snapshots should be a tenth of a second apart or more.
#[must_use]
pub fn limiter(before: &Snapshot, now: &Snapshot, elapsed_us: u64) -> Limiter {
    let spent = |of: fn(&Snapshot) -> u64| of(now).saturating_sub(of(before));
    let busy = spent(|snapshot| snapshot.busy_us);
    let receiver = spent(|snapshot| snapshot.rwnd_limited_us);
    let buffer = spent(|snapshot| snapshot.sndbuf_limited_us);
    let idle = elapsed_us.saturating_sub(busy);
    let rest = busy.saturating_sub(receiver + buffer);
    let largest = idle.max(receiver).max(buffer).max(rest);
    match largest {
        _ if receiver == largest && receiver > 0 => Limiter::ReceiveWindow,
        _ if buffer == largest && buffer > 0 => Limiter::SendBuffer,
        _ if idle == largest => Limiter::Application,
        _ => now.classify_rest(),
    }
}

/// Divisor of the congestion window. The kernel may hold back that part to send larger bursts
/// (net/ipv4/tcp_output.c, `tcp_tso_should_defer`; net.ipv4.tcp_tso_win_divisor = 3).
const TSO_WINDOW_DIVISOR: u32 = 3;

impl Snapshot {
    /// Returns the factor for busy time that the stopwatch does not attribute.
    fn classify_rest(&self) -> Limiter {
        if self.in_flight_segments >= self.cwnd_segments {
            return Limiter::CongestionWindow;
        }
        // Less than a segment waits for more data (net/ipv4/tcp_rate.c, `tcp_rate_check_app_limited`).
        if self.notsent_bytes < self.mss_bytes.max(1) {
            return if self.writer_waits {
                Limiter::SendBuffer
            } else {
                Limiter::Application
            };
        }
        let deferred = self.cwnd_segments / TSO_WINDOW_DIVISOR;
        match self.in_flight_segments + deferred >= self.cwnd_segments {
            true => Limiter::CongestionWindow,
            false if self.fills_window() => Limiter::ReceiveWindow,
            false => Limiter::Pacing,
        }
    }

    /// Whether the next segment would exceed the announced window.
    fn fills_window(&self) -> bool {
        let next = u64::from(self.in_flight_segments) + 1;
        next * u64::from(self.mss_bytes) > u64::from(self.send_window_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000;

    /// Limiter of a second with these stopwatch times.
    fn limiter_of_second(busy: u64, receiver: u64, buffer: u64, now: Snapshot) -> Limiter {
        let before = Snapshot {
            busy_us: 7 * SECOND,
            rwnd_limited_us: SECOND,
            sndbuf_limited_us: SECOND,
            ..Snapshot::default()
        };
        let now = Snapshot {
            busy_us: before.busy_us + busy,
            rwnd_limited_us: before.rwnd_limited_us + receiver,
            sndbuf_limited_us: before.sndbuf_limited_us + buffer,
            ..now
        };
        limiter(&before, &now, SECOND)
    }

    fn sending(in_flight: u32, waiting: u32) -> Snapshot {
        Snapshot {
            notsent_bytes: waiting,
            in_flight_segments: in_flight,
            cwnd_segments: 90,
            mss_bytes: 1000,
            send_window_bytes: 1_000_000,
            ..Snapshot::default()
        }
    }

    #[test]
    fn longest_stopwatch_time_decides() {
        let snapshot = sending(90, 100_000);
        assert_eq!(
            limiter_of_second(SECOND, 600_000, 0, snapshot),
            Limiter::ReceiveWindow
        );
        assert_eq!(
            limiter_of_second(SECOND, 0, 600_000, snapshot),
            Limiter::SendBuffer
        );
        assert_eq!(
            limiter_of_second(SECOND, 300_000, 200_000, snapshot),
            Limiter::CongestionWindow
        );
    }

    #[test]
    fn idle_sender_is_application_limited() {
        let idle = sending(0, 0);
        assert_eq!(limiter_of_second(0, 0, 0, idle), Limiter::Application);
        assert_eq!(
            limiter_of_second(400_000, 0, 0, sending(90, 100_000)),
            Limiter::Application
        );
        assert_eq!(
            limiter_of_second(SECOND, 0, 0, sending(20, 999)),
            Limiter::Application
        );
    }

    /// Tests both sides of each boundary.
    #[test]
    fn rest_is_classified_by_segments_in_flight() {
        let rest = |snapshot| limiter_of_second(SECOND, 0, 0, snapshot);
        assert_eq!(rest(sending(90, 0)), Limiter::CongestionWindow);
        assert_eq!(rest(sending(89, 0)), Limiter::Application);
        assert_eq!(rest(sending(60, 1000)), Limiter::CongestionWindow);
        assert_eq!(rest(sending(59, 1000)), Limiter::Pacing);
        let narrow = |bytes| Snapshot {
            send_window_bytes: bytes,
            ..sending(30, 1000)
        };
        assert_eq!(rest(narrow(30_999)), Limiter::ReceiveWindow);
        assert_eq!(rest(narrow(31_000)), Limiter::Pacing);
    }

    #[test]
    fn waiting_writer_is_send_buffer_limited() {
        let waiting = |snapshot| Snapshot {
            writer_waits: true,
            ..snapshot
        };
        let rest = |snapshot| limiter_of_second(SECOND, 0, 0, waiting(snapshot));
        assert_eq!(rest(sending(20, 999)), Limiter::SendBuffer);
        assert_eq!(rest(sending(90, 0)), Limiter::CongestionWindow);
        assert_eq!(rest(sending(59, 1000)), Limiter::Pacing);
    }

    fn any_snapshot() -> impl Strategy<Value = Snapshot> {
        let times = (0..SECOND, 0..SECOND, 0..SECOND);
        let sizes = (
            0..u32::MAX,
            0..100_000u32,
            1..100_000u32,
            1..65_536u32,
            0..u32::MAX,
        );
        (times, sizes).prop_map(
            |((rest, rwnd, sndbuf), (notsent, flight, cwnd, mss, window))| Snapshot {
                busy_us: rest + rwnd + sndbuf,
                rwnd_limited_us: rwnd,
                sndbuf_limited_us: sndbuf,
                notsent_bytes: notsent,
                in_flight_segments: flight,
                cwnd_segments: cwnd,
                mss_bytes: mss,
                send_window_bytes: window,
                writer_waits: false,
            },
        )
    }

    fn advance(snapshot: Snapshot, by: u64) -> Snapshot {
        Snapshot {
            busy_us: snapshot.busy_us + 3 * by,
            rwnd_limited_us: snapshot.rwnd_limited_us + by,
            sndbuf_limited_us: snapshot.sndbuf_limited_us + by,
            ..snapshot
        }
    }

    proptest! {
        #[test]
        fn ignores_time_before_the_first_snapshot(now in any_snapshot(), past in 0..SECOND, elapsed in 1..4 * SECOND) {
            let from_zero = limiter(&Snapshot::default(), &now, elapsed);
            let from_past = limiter(&advance(Snapshot::default(), past), &advance(now, past), elapsed);
            prop_assert_eq!(from_zero, from_past);
        }

        #[test]
        fn never_reports_a_stopwatch_that_did_not_run(mut now in any_snapshot(), elapsed in 1..4 * SECOND) {
            now.busy_us -= now.sndbuf_limited_us;
            now.sndbuf_limited_us = 0;
            prop_assert_ne!(limiter(&Snapshot::default(), &now, elapsed), Limiter::SendBuffer);
        }

        #[test]
        fn reports_the_factor_of_more_than_half_the_time(now in any_snapshot()) {
            let elapsed = now.busy_us.max(1);
            let verdict = limiter(&Snapshot::default(), &now, elapsed);
            if 2 * now.rwnd_limited_us > elapsed {
                prop_assert_eq!(verdict, Limiter::ReceiveWindow);
            }
            if 2 * now.sndbuf_limited_us > elapsed {
                prop_assert_eq!(verdict, Limiter::SendBuffer);
            }
            prop_assert_eq!(limiter(&now, &now, elapsed), Limiter::Application, "nothing ran");
        }

        /// Replaced sockets and clocks that go back must not panic.
        #[test]
        fn any_two_snapshots_give_a_limiter(a in any_snapshot(), b in any_snapshot(), elapsed in 0..4 * SECOND) {
            let verdict = limiter(&a, &b, elapsed);
            prop_assert!(Limiter::ALL.contains(&verdict));
        }
    }
}
