// SPDX-License-Identifier: MIT OR Apache-2.0
//! Neighbours that take nothing of what is there for them: their receive window is closed, and stays
//! so. A path that loses everything is another matter, which TCP itself gives up on.

use longhaul_linux::tcp_info::TcpInfo;
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
}
