// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long nothing has moved: neighbours that take nothing of what is there for them, since their receive window is
//! closed and stays so (a path that loses everything is another matter, which TCP itself gives up on); and tunnels that
//! have carried nothing, both ends of which may be alive and the tunnel forgotten.

use longhaul_linux::tcp_info::TcpInfo;
use parking_lot::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What is known of the neighbour at one end of a connection.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    acked: u64,
    /// The kernel tells the window that the neighbour announces (Linux 5.4).
    windows_are_told: bool,
    since: Option<Instant>,
}

impl Standstill {
    /// Takes note of how the legs to the neighbour are at `now`.
    pub(crate) fn look(&mut self, legs: &[TcpInfo], now: Instant) {
        let acked = legs.iter().map(|leg| leg.acked_bytes).sum();
        self.windows_are_told |= legs.iter().any(|leg| leg.send_window_bytes > 0);
        let told = self.windows_are_told;
        let waits = |leg: &TcpInfo| match leg.unacked_segments {
            0 => leg.notsent_bytes > 0,
            // Short of memory, a receiver drops what was sent into its window, and closes that (`tcp_data_queue`,
            // net/ipv4/tcp_input.c).
            _ => told && leg.send_window_bytes == 0,
        };
        let moved = acked != std::mem::replace(&mut self.acked, acked);
        self.since = match legs.iter().any(waits) && !moved {
            true => self.since.or(Some(now)),
            false => None,
        };
    }

    /// How long it has taken nothing.
    pub(crate) fn time(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now - since)
    }
}

/// How long one tunnel has carried nothing.
#[derive(Debug, Default)]
pub(crate) struct Idleness(
    /// `None` before it is a tunnel.
    Mutex<Option<Seen>>,
);

#[derive(Debug, Clone, Copy)]
struct Seen {
    bytes: u64,
    since: Instant,
}

impl Idleness {
    /// From now on it is a tunnel.
    pub(crate) fn begin(&self, now: Instant) {
        let seen = Seen {
            bytes: 0,
            since: now,
        };
        *self.seen() = Some(seen);
    }

    /// Whether it has carried nothing for `limit`, with `bytes` in all so far.
    pub(crate) fn exceeds(&self, limit: Duration, bytes: u64, now: Instant) -> bool {
        let mut seen = self.seen();
        let Some(seen) = seen.as_mut() else {
            return false;
        };
        if seen.bytes != bytes {
            *seen = Seen { bytes, since: now };
        }
        now.saturating_duration_since(seen.since) >= limit
    }

    fn seen(&self) -> MutexGuard<'_, Option<Seen>> {
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

    /// How long it has stood after looks a second apart.
    fn stood(looks: &[TcpInfo]) -> Duration {
        let (mut standstill, mut now) = (Standstill::default(), Instant::now());
        for look in looks {
            now += S;
            standstill.look(&[*look], now);
        }
        standstill.time(now)
    }

    #[test]
    fn a_closed_window_is_a_standstill() {
        assert_eq!(stood(&[leg(5, 9, 0); 4]), 2 * S);
    }

    #[test]
    fn a_window_that_was_closed_over_what_is_under_way_is_one_too() {
        let open = TcpInfo {
            send_window_bytes: 100,
            ..leg(5, 9, 3)
        };
        let closed = leg(5, 9, 3);
        assert_eq!(stood(&[open, closed, closed, closed]), 2 * S);
        assert_eq!(stood(&[open; 4]), Duration::ZERO, "lost under way");
    }

    #[test]
    fn whoever_takes_something_is_not_still() {
        let taken = [leg(5, 9, 0), leg(5, 9, 0), leg(5, 9, 0), leg(6, 8, 0)];
        assert_eq!(stood(&taken), Duration::ZERO);
    }

    #[test]
    fn silence_and_loss_are_no_standstill() {
        assert_eq!(stood(&[leg(5, 0, 0); 4]), Duration::ZERO, "nothing to take");
        assert_eq!(stood(&[leg(5, 9, 3); 4]), Duration::ZERO, "under way");
    }

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn time_without_a_byte_counts() {
        let (idleness, start) = (Idleness::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(!idleness.exceeds(LIMIT, 0, after(100)), "it is no tunnel");
        idleness.begin(after(100));
        assert!(!idleness.exceeds(LIMIT, 0, after(109)));
        assert!(!idleness.exceeds(LIMIT, 1, after(115)), "a byte has passed");
        assert!(!idleness.exceeds(LIMIT, 1, after(124)));
        assert!(idleness.exceeds(LIMIT, 1, after(125)));
    }
}
