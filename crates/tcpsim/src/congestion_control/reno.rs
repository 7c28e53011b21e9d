// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reno as Linux has it (net/ipv4/tcp_cong.c), and its two growth functions, which other controls share.

use super::{Ack, CongestionControl, Window};
use longhaul_units::Time;

/// NewReno: half the window at a loss, one packet more each round trip.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reno;

impl CongestionControl for Reno {
    fn init(&mut self, _window: &mut Window, _now: Time) {}

    fn ssthresh(&mut self, window: &Window, _now: Time) -> u32 {
        (window.cwnd / 2).max(2)
    }

    fn cong_avoid(&mut self, window: &mut Window, ack: &Ack) {
        let acked = grow_in_slow_start(window, ack);
        if acked > 0 {
            additive_increase(window, window.cwnd, acked);
        }
    }
}

/// Grows the window in slow start and returns the ACKed packets left for congestion avoidance. Where the window
/// does not limit the sender, nothing grows and nothing is left.
pub(super) fn grow_in_slow_start(window: &mut Window, ack: &Ack) -> u32 {
    match (ack.cwnd_limited, window.in_slow_start()) {
        (false, _) => 0,
        (true, true) => slow_start(window, ack.acked),
        (true, false) => ack.acked,
    }
}

/// Grows the window by the ACKed packets up to ssthresh, and returns the ACKed packets left (`tcp_slow_start`).
pub fn slow_start(window: &mut Window, acked: u32) -> u32 {
    let cwnd = window.cwnd.saturating_add(acked).min(window.ssthresh);
    let left = acked - (cwnd - window.cwnd);
    window.cwnd = cwnd;
    left
}

/// Grows the window by one packet for each `every` (at least 1) ACKed packets (`tcp_cong_avoid_ai`).
pub fn additive_increase(window: &mut Window, every: u32, acked: u32) {
    // Credit earned when a packet of growth cost more gives one packet only.
    if window.cwnd_cnt >= every {
        window.cwnd_cnt = 0;
        window.cwnd += 1;
    }
    window.cwnd_cnt += acked;
    if window.cwnd_cnt >= every {
        let more = window.cwnd_cnt / every;
        window.cwnd_cnt -= more * every;
        window.cwnd += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(acked: u32) -> Ack {
        Ack {
            now: Time::ZERO,
            acked,
            in_flight: 0,
            cwnd_limited: true,
        }
    }

    #[test]
    fn slow_start_leaves_the_rest_to_congestion_avoidance() {
        let mut window = Window {
            cwnd: 98,
            cwnd_cnt: 0,
            ssthresh: 100,
        };
        Reno.cong_avoid(&mut window, &ack(45));
        assert_eq!((window.cwnd, window.cwnd_cnt), (100, 43));
    }

    #[test]
    fn grows_one_packet_for_each_window_of_acked_packets() {
        for size in [1, 2, 10, 50] {
            let mut window = Window {
                cwnd: 100,
                cwnd_cnt: 0,
                ssthresh: 50,
            };
            (0..100 / size).for_each(|_| Reno.cong_avoid(&mut window, &ack(size)));
            assert_eq!((window.cwnd, window.cwnd_cnt), (101, 0), "{size}");
        }
    }

    #[test]
    fn does_not_grow_when_the_window_does_not_limit() {
        let mut window = Window::new(10);
        let idle = Ack {
            cwnd_limited: false,
            ..ack(10)
        };
        Reno.cong_avoid(&mut window, &idle);
        assert_eq!(window.cwnd, 10);
    }
}
