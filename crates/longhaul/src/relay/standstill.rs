// SPDX-License-Identifier: MIT OR Apache-2.0
//! Neighbours that take nothing of what is there for them: their receive window is closed, and stays
//! so. A path that loses everything is another matter, which TCP itself gives up on.

use host::tcp_info::TcpInfo;
use std::time::{Duration, Instant};

/// What is known of the neighbour at one end of a connection.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    acked: u64,
    since: Option<Instant>,
}

impl Standstill {
    /// Takes note of how the legs to the neighbour are at `now`.
    pub(crate) fn look(&mut self, legs: &[TcpInfo], now: Instant) {
        let acked = legs.iter().map(|leg| leg.acked_bytes).sum();
        let waits = |leg: &TcpInfo| leg.notsent_bytes > 0 && leg.unacked_segments == 0;
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
