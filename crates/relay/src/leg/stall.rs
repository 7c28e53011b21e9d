// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detectors of stalled receivers and of idle tunnels.
//!
//! A receiver is stalled if it takes none of the waiting bytes because its receive window is closed
//! and stays so. A path that loses everything is a different case, which TCP itself gives up on. A
//! tunnel is idle if it has carried no bytes; both its ends may be alive and the tunnel forgotten.

use longhaul_linux::tcp_info::TcpInfo;
use parking_lot::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Stall detector of the receiver at one end of a connection.
#[derive(Debug, Default)]
pub(crate) struct StallDetector {
    acked: u64,
    /// Whether the kernel reports the receive window of the remote end (Linux 5.4).
    windows_reported: bool,
    since: Option<Instant>,
}

impl StallDetector {
    /// Updates the detector with the counters of the legs at `now`.
    pub(crate) fn update(&mut self, legs: &[TcpInfo], now: Instant) {
        let acked = legs.iter().map(|leg| leg.acked_bytes).sum();
        self.windows_reported |= legs.iter().any(|leg| leg.send_window_bytes > 0);
        let windows_reported = self.windows_reported;
        let waits = |leg: &TcpInfo| match leg.unacked_segments {
            0 => leg.notsent_bytes > 0,
            // A receiver short of memory drops segments in its window, and closes the window
            // (`tcp_data_queue`, net/ipv4/tcp_input.c).
            _ => windows_reported && leg.send_window_bytes == 0,
        };
        let moved = acked != std::mem::replace(&mut self.acked, acked);
        self.since = if legs.iter().any(waits) && !moved {
            self.since.or(Some(now))
        } else {
            None
        };
    }

    /// Returns the duration of the stall.
    pub(crate) fn duration(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now - since)
    }
}

/// Idle timer of one tunnel.
#[derive(Debug, Default)]
pub(crate) struct IdleTimer(
    /// `None` before the connection is a tunnel.
    Mutex<Option<LastProgress>>,
);

#[derive(Debug, Clone, Copy)]
struct LastProgress {
    bytes: u64,
    since: Instant,
}

impl IdleTimer {
    /// Starts the timer: the connection is a tunnel now.
    pub(crate) fn start(&self, now: Instant) {
        let progress = LastProgress {
            bytes: 0,
            since: now,
        };
        *self.lock() = Some(progress);
    }

    /// Returns whether no byte was carried for `limit`; `bytes` is the total so far.
    pub(crate) fn exceeds(&self, limit: Duration, bytes: u64, now: Instant) -> bool {
        let mut progress = self.lock();
        let Some(progress) = progress.as_mut() else {
            return false;
        };
        if progress.bytes != bytes {
            *progress = LastProgress { bytes, since: now };
        }
        now.saturating_duration_since(progress.since) >= limit
    }

    fn lock(&self) -> MutexGuard<'_, Option<LastProgress>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn leg(acked_bytes: u64, notsent_bytes: u32, unacked_segments: u32) -> TcpInfo {
        TcpInfo {
            acked_bytes,
            notsent_bytes,
            unacked_segments,
            ..TcpInfo::default()
        }
    }

    /// Returns the stall after samples a second apart.
    fn stall_after(samples: &[TcpInfo]) -> Duration {
        let (mut detector, mut now) = (StallDetector::default(), Instant::now());
        for sample in samples {
            now += S;
            detector.update(&[*sample], now);
        }
        detector.duration(now)
    }

    #[test]
    fn closed_window_is_stall() {
        assert_eq!(stall_after(&[leg(5, 9, 0); 4]), 2 * S);
    }

    #[test]
    fn window_closed_over_bytes_in_flight_is_stall() {
        let open = TcpInfo {
            send_window_bytes: 100,
            ..leg(5, 9, 3)
        };
        let closed = leg(5, 9, 3);
        assert_eq!(stall_after(&[open, closed, closed, closed]), 2 * S);
        assert_eq!(stall_after(&[open; 4]), Duration::ZERO, "lost in flight");
    }

    #[test]
    fn progress_ends_stall() {
        let taken = [leg(5, 9, 0), leg(5, 9, 0), leg(5, 9, 0), leg(6, 8, 0)];
        assert_eq!(stall_after(&taken), Duration::ZERO);
    }

    #[test]
    fn silence_and_loss_are_not_stalls() {
        assert_eq!(
            stall_after(&[leg(5, 0, 0); 4]),
            Duration::ZERO,
            "nothing to take"
        );
        assert_eq!(stall_after(&[leg(5, 9, 3); 4]), Duration::ZERO, "in flight");
    }

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn tunnel_without_bytes_becomes_idle() {
        let (timer, start) = (IdleTimer::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(!timer.exceeds(LIMIT, 0, after(100)), "not a tunnel yet");
        timer.start(after(100));
        assert!(!timer.exceeds(LIMIT, 0, after(109)));
        assert!(!timer.exceeds(LIMIT, 1, after(115)), "a byte has passed");
        assert!(!timer.exceeds(LIMIT, 1, after(124)));
        assert!(timer.exceeds(LIMIT, 1, after(125)));
    }
}
