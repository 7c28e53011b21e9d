// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limiting factor of the sending side of a connection, found from two samples of its [`TcpInfo`].
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
//! sample decides between them.
//!
//! The second sample also finds a small send buffer that the kernel overlooks. The kernel's stopwatch for it
//! starts only when a segment leaves *while* the writer waits. With a buffer of one segment or less that never
//! happens. But the writer itself knows that it waits.

use super::tcp_info::TcpInfo;
use serde::{Deserialize, Serialize};

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
    /// Every limiting factor. The order is part of the protocol of copies.
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

/// Times of the kernel's stopwatch between two samples of a socket, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyTimes {
    /// Time in which data waited for the receive window.
    pub receive_window_us: u64,
    /// Time in which the writer waited for room in the send buffer.
    pub send_buffer_us: u64,
    /// The rest of the busy time.
    pub rest_us: u64,
}

impl BusyTimes {
    /// Returns the times between two samples that were taken `elapsed_us` microseconds apart.
    pub fn between(before: &TcpInfo, now: &TcpInfo, elapsed_us: u64) -> Self {
        let spent = |of: fn(&TcpInfo) -> u64| of(now).saturating_sub(of(before));
        let receive_window_us = spent(|info| info.rwnd_limited_us);
        let send_buffer_us = spent(|info| info.sndbuf_limited_us);
        let busy = spent(|info| info.busy_us).min(elapsed_us);
        Self {
            receive_window_us,
            send_buffer_us,
            rest_us: busy.saturating_sub(receive_window_us + send_buffer_us),
        }
    }
}

/// Returns the factor that limited the connection for the largest part of the `elapsed_us` microseconds between two
/// samples. `writer_waits` says whether the writer has more data and waits for room in the send buffer.
///
/// The stopwatch ticks in jiffies (1 to 10 ms): samples should be a tenth of a second apart or more.
pub fn limiter(before: &TcpInfo, now: &TcpInfo, writer_waits: bool, elapsed_us: u64) -> Limiter {
    let times = BusyTimes::between(before, now, elapsed_us);
    let (receiver, buffer) = (times.receive_window_us, times.send_buffer_us);
    let idle = elapsed_us.saturating_sub(receiver + buffer + times.rest_us);
    let largest = idle.max(receiver).max(buffer).max(times.rest_us);
    match largest {
        _ if receiver == largest && receiver > 0 => Limiter::ReceiveWindow,
        _ if buffer == largest && buffer > 0 => Limiter::SendBuffer,
        _ if idle == largest => Limiter::Application,
        _ => limiter_of_rest(now, writer_waits),
    }
}

/// Divisor of the congestion window. The kernel may hold back that part to send larger bursts
/// (net/ipv4/tcp_output.c, `tcp_tso_should_defer`; net.ipv4.tcp_tso_win_divisor = 3).
const TSO_WINDOW_DIVISOR: u32 = 3;

/// Returns the factor for busy time that the stopwatch does not attribute.
pub fn limiter_of_rest(info: &TcpInfo, writer_waits: bool) -> Limiter {
    if info.in_flight_segments >= info.cwnd_segments {
        return Limiter::CongestionWindow;
    }
    // Less than a segment waits for more data (net/ipv4/tcp_rate.c, `tcp_rate_check_app_limited`).
    if info.notsent_bytes < info.mss_bytes.max(1) {
        return if writer_waits {
            Limiter::SendBuffer
        } else {
            Limiter::Application
        };
    }
    let deferred = info.cwnd_segments / TSO_WINDOW_DIVISOR;
    if info.in_flight_segments + deferred >= info.cwnd_segments {
        Limiter::CongestionWindow
    } else if fills_window(info) {
        Limiter::ReceiveWindow
    } else {
        Limiter::Pacing
    }
}

/// Whether the next segment would exceed the announced window.
fn fills_window(info: &TcpInfo) -> bool {
    let next = u64::from(info.in_flight_segments) + 1;
    next * u64::from(info.mss_bytes) > u64::from(info.send_window_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000;

    /// Limiter of a second with these stopwatch times, for a writer that does not wait.
    fn limiter_of_second(busy: u64, receiver: u64, buffer: u64, now: TcpInfo) -> Limiter {
        let before = TcpInfo {
            busy_us: 7 * SECOND,
            rwnd_limited_us: SECOND,
            sndbuf_limited_us: SECOND,
            ..TcpInfo::default()
        };
        let now = TcpInfo {
            busy_us: before.busy_us + busy,
            rwnd_limited_us: before.rwnd_limited_us + receiver,
            sndbuf_limited_us: before.sndbuf_limited_us + buffer,
            ..now
        };
        limiter(&before, &now, false, SECOND)
    }

    fn sending(in_flight: u32, waiting: u32) -> TcpInfo {
        TcpInfo {
            notsent_bytes: waiting,
            in_flight_segments: in_flight,
            cwnd_segments: 90,
            mss_bytes: 1000,
            send_window_bytes: 1_000_000,
            ..TcpInfo::default()
        }
    }

    #[test]
    fn longest_stopwatch_time_decides() {
        let info = sending(90, 100_000);
        assert_eq!(
            limiter_of_second(SECOND, 600_000, 0, info),
            Limiter::ReceiveWindow
        );
        assert_eq!(
            limiter_of_second(SECOND, 0, 600_000, info),
            Limiter::SendBuffer
        );
        assert_eq!(
            limiter_of_second(SECOND, 300_000, 200_000, info),
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
        let rest = |info| limiter_of_second(SECOND, 0, 0, info);
        assert_eq!(rest(sending(90, 0)), Limiter::CongestionWindow);
        assert_eq!(rest(sending(89, 0)), Limiter::Application);
        assert_eq!(rest(sending(60, 1000)), Limiter::CongestionWindow);
        assert_eq!(rest(sending(59, 1000)), Limiter::Pacing);
        let narrow = |bytes| TcpInfo {
            send_window_bytes: bytes,
            ..sending(30, 1000)
        };
        assert_eq!(rest(narrow(30_999)), Limiter::ReceiveWindow);
        assert_eq!(rest(narrow(31_000)), Limiter::Pacing);
    }

    #[test]
    fn waiting_writer_is_send_buffer_limited() {
        let rest = |info| limiter_of_rest(&info, true);
        assert_eq!(rest(sending(20, 999)), Limiter::SendBuffer);
        assert_eq!(rest(sending(90, 0)), Limiter::CongestionWindow);
        assert_eq!(rest(sending(59, 1000)), Limiter::Pacing);
    }

    fn any_sample() -> impl Strategy<Value = TcpInfo> {
        let times = (0..SECOND, 0..SECOND, 0..SECOND);
        let sizes = (
            0..u32::MAX,
            0..100_000u32,
            1..100_000u32,
            1..65_536u32,
            0..u32::MAX,
        );
        (times, sizes).prop_map(
            |((rest, rwnd, sndbuf), (notsent, flight, cwnd, mss, window))| TcpInfo {
                busy_us: rest + rwnd + sndbuf,
                rwnd_limited_us: rwnd,
                sndbuf_limited_us: sndbuf,
                notsent_bytes: notsent,
                in_flight_segments: flight,
                cwnd_segments: cwnd,
                mss_bytes: mss,
                send_window_bytes: window,
                ..TcpInfo::default()
            },
        )
    }

    fn advance(info: TcpInfo, by: u64) -> TcpInfo {
        TcpInfo {
            busy_us: info.busy_us + 3 * by,
            rwnd_limited_us: info.rwnd_limited_us + by,
            sndbuf_limited_us: info.sndbuf_limited_us + by,
            ..info
        }
    }

    proptest! {
        #[test]
        fn ignores_time_before_the_first_sample(now in any_sample(), past in 0..SECOND, elapsed in 1..4 * SECOND) {
            let from_zero = limiter(&TcpInfo::default(), &now, false, elapsed);
            let from_past = limiter(&advance(TcpInfo::default(), past), &advance(now, past), false, elapsed);
            prop_assert_eq!(from_zero, from_past);
        }

        #[test]
        fn never_reports_a_stopwatch_that_did_not_run(mut now in any_sample(), elapsed in 1..4 * SECOND) {
            now.busy_us -= now.sndbuf_limited_us;
            now.sndbuf_limited_us = 0;
            prop_assert_ne!(limiter(&TcpInfo::default(), &now, false, elapsed), Limiter::SendBuffer);
        }

        #[test]
        fn reports_the_factor_of_more_than_half_the_time(now in any_sample()) {
            let elapsed = now.busy_us.max(1);
            let verdict = limiter(&TcpInfo::default(), &now, false, elapsed);
            if 2 * now.rwnd_limited_us > elapsed {
                prop_assert_eq!(verdict, Limiter::ReceiveWindow);
            }
            if 2 * now.sndbuf_limited_us > elapsed {
                prop_assert_eq!(verdict, Limiter::SendBuffer);
            }
            prop_assert_eq!(limiter(&now, &now, false, elapsed), Limiter::Application, "nothing ran");
        }

        /// Replaced sockets and clocks that go back must not panic.
        #[test]
        fn any_two_samples_give_a_limiter(a in any_sample(), b in any_sample(), elapsed in 0..4 * SECOND) {
            let verdict = limiter(&a, &b, false, elapsed);
            prop_assert!(Limiter::ALL.contains(&verdict));
        }
    }
}
