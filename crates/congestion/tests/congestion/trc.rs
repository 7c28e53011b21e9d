// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of TRC-TCP: Reno's windows, and its pacing rate.

use longhaul_congestion::math::{Algorithm, Connection, algorithm};
use longhaul_tcpsim::congestion_control::{Ack, CongestionControl, Window};
use longhaul_units::{BitRate, Time};

/// Packet size in bits with which a simulated connection computes its rate: 1448 B.
const PACKET_BITS: f64 = 1448.0 * 8.0;

fn trc(given: &[(&str, u32)]) -> Connection {
    let algorithm = algorithm("trc").unwrap();
    let value = |name, initial| given.iter().find(|g| g.0 == name).map_or(initial, |g| g.1);
    let values: Vec<u32> = algorithm
        .parameters()
        .map(|p| value(p.name, p.default))
        .collect();
    algorithm.connection(&values)
}

fn window(cwnd: u32, ssthresh: u32) -> Window {
    Window {
        cwnd,
        cwnd_cnt: 0,
        ssthresh,
    }
}

/// Returns the seconds between packets.
fn packet_interval(rate: Option<BitRate>) -> f64 {
    PACKET_BITS / rate.expect("it has a rate").bits() as f64
}

fn assert_near(value: f64, want: f64) {
    assert!((value - want).abs() <= want * 1e-3, "{value}, not {want}");
}

const INFINITE: u32 = 0x7fff_ffff;

/// With cwnd packets in flight an ACK arrives every RTT/cwnd. In slow start it releases two packets. The second is
/// sent half an ACK interval after the first.
#[test]
fn slow_start_spaces_packets_by_half_an_ack_interval() {
    for (cwnd, rtt_ms) in [(10, 350), (1000, 200), (100_000, 38)] {
        let rtt = Time::from_millis(rtt_ms);
        let rate = trc(&[]).pacing_rate(&window(cwnd, INFINITE), rtt);
        assert_near(
            packet_interval(rate),
            rtt.as_secs_f64() / f64::from(cwnd) / 2.0,
        );
    }
}

#[test]
fn interval_follows_the_window_after_slow_start() {
    let rtt = Time::from_millis(350);
    let rate = |percent| trc(&[("steady_percent", percent)]).pacing_rate(&window(7000, 7000), rtt);
    assert_near(packet_interval(rate(100)), 0.35 / 7000.0);
    assert_near(packet_interval(rate(120)), 0.35 / 7000.0 / 1.2);
}

#[test]
fn last_doubling_has_the_steady_interval() {
    let rtt = Time::from_millis(100);
    let trc = trc(&[]);
    let slow = packet_interval(trc.pacing_rate(&window(499, 1000), rtt));
    let steady = packet_interval(trc.pacing_rate(&window(500, 1000), rtt));
    assert_near(slow / steady, 120.0 / 200.0 * 500.0 / 499.0);
}

#[test]
fn rate_limit_applies() {
    let rtt = Time::from_millis(38);
    let large = window(1_000_000, INFINITE);
    let by_rate = trc(&[("rate_mbit", 900)]).pacing_rate(&large, rtt);
    assert_eq!(by_rate, Some(BitRate::from_bits(900_000_000)));
    let by_gap = trc(&[("gap_ns", 12_871)]).pacing_rate(&large, rtt);
    assert_near(packet_interval(by_gap), 12_871e-9);
    let both = trc(&[("rate_mbit", 900), ("gap_ns", 115_840)]).pacing_rate(&large, rtt);
    assert_near(packet_interval(both), 115_840e-9);
}

#[test]
fn rate_limit_does_not_speed_up_small_windows() {
    let rtt = Time::from_millis(350);
    let rate = trc(&[("rate_mbit", 900)]).pacing_rate(&window(10, INFINITE), rtt);
    assert_near(packet_interval(rate), 0.35 / 20.0);
}

#[test]
fn only_the_limit_applies_without_a_round_trip() {
    let large = window(10, INFINITE);
    assert_eq!(trc(&[]).pacing_rate(&large, Time::ZERO), None);
    let rate = trc(&[("rate_mbit", 100)]).pacing_rate(&large, Time::ZERO);
    assert_eq!(rate, Some(BitRate::from_bits(100_000_000)));
}

#[test]
fn the_largest_windows_do_not_overflow() {
    let rtt = Time::from_millis(350);
    let rate = |cwnd| trc(&[]).pacing_rate(&window(cwnd, INFINITE), rtt).unwrap();
    let most = 1 << 27;
    assert_near(
        rate(most).bits() as f64,
        f64::from(most) * PACKET_BITS * 2.0 / 0.35,
    );
    assert_eq!(rate(1 << 29), rate(most));
}

#[test]
fn windows_match_reno() {
    let mut trc = trc(&[]);
    let ack = |acked| Ack {
        now: Time::ZERO,
        acked,
        in_flight: 0,
        cwnd_limited: true,
    };
    let mut slow = window(10, 100);
    trc.cong_avoid(&mut slow, &ack(10));
    assert_eq!(slow.cwnd, 20);
    let mut steady = window(100, 100);
    for _ in 0..50 {
        trc.cong_avoid(&mut steady, &ack(2));
    }
    assert_eq!(steady.cwnd, 101);
    assert_eq!(trc.ssthresh(&steady, Time::ZERO), 50);
    assert_eq!(trc.ssthresh(&window(3, 3), Time::ZERO), 2);
}

#[test]
fn other_algorithms_do_not_pace() {
    let paced = |name| {
        let connection = algorithm(name).unwrap().connection(&[]);
        connection
            .pacing_rate(&window(100, INFINITE), Time::from_millis(100))
            .is_some()
    };
    let paced: Vec<_> = longhaul_congestion::math::algorithms()
        .map(Algorithm::name)
        .filter(|n| paced(n))
        .collect();
    assert_eq!(paced, ["trc"]);
}
