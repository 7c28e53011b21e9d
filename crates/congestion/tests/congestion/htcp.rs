// SPDX-License-Identifier: MIT OR Apache-2.0
//! H-TCP against its paper's formulas, and against what Linux makes of them in jiffies.

use longhaul_congestion::math::{Algorithm, Connection, algorithm};
use longhaul_tcpsim::congestion_control::{Ack, AckSample, CongestionControl, State, Window};
use longhaul_units::Time;

/// The congestion window of most tests.
const CWND: u32 = 1000;

fn htcp() -> Algorithm {
    algorithm("htcp").unwrap()
}

/// Returns the default parameters with `changes`.
fn parameters(changes: &[(&str, u32)]) -> Vec<u32> {
    let value = |parameter: longhaul_congestion::math::Parameter| {
        let changed = changes.iter().find(|(name, _)| *name == parameter.name);
        changed.map_or(parameter.default, |(_, value)| *value)
    };
    htcp().parameters().map(value).collect()
}

/// A connection in congestion avoidance over a path, and its clock.
struct Flow {
    connection: Connection,
    window: Window,
    now: Time,
    rtt: Time,
    state: State,
}

impl Flow {
    fn new(changes: &[(&str, u32)], rtt_ms: u64) -> Self {
        let mut flow = Self {
            connection: htcp().connection(&parameters(changes)),
            window: Window {
                cwnd: CWND,
                ssthresh: 2,
                ..Window::new(10)
            },
            now: Time::from_secs(1000),
            rtt: Time::from_millis(rtt_ms),
            state: State::Open,
        };
        flow.connection.init(&mut flow.window, flow.now);
        flow
    }

    /// Returns a field that `cc watch` shows.
    fn field(&self, name: &str) -> f64 {
        let at = htcp()
            .fields()
            .position(|field| field.name == name)
            .unwrap();
        let divisor = htcp().fields().nth(at).unwrap().divisor;
        self.connection.values()[at] as f64 / f64::from(divisor)
    }

    /// ACKs a window at once, a round trip later, without growth.
    fn round_trip(&mut self) {
        self.now += self.rtt;
        let sample = AckSample {
            now: self.now,
            pkts_acked: self.window.cwnd,
            rtt: Some(self.rtt),
            in_flight: self.window.cwnd,
            state: self.state,
        };
        self.connection.pkts_acked(&self.window, &sample);
    }

    /// Grows the window for `acked` packets.
    fn ack(&mut self, acked: u32) {
        let ack = Ack {
            now: self.now,
            acked,
            in_flight: self.window.cwnd,
            cwnd_limited: true,
        };
        self.connection.cong_avoid(&mut self.window, &ack);
    }

    /// ACKs a window, `per_ack` packets at a time, without delay; returns the growth.
    fn grow(&mut self, per_ack: u32) -> u32 {
        let before = self.window.cwnd;
        for _ in 0..before / per_ack {
            let sample = AckSample {
                now: self.now,
                pkts_acked: per_ack,
                rtt: None,
                in_flight: before,
                state: self.state,
            };
            self.connection.pkts_acked(&self.window, &sample);
            self.ack(per_ack);
        }
        self.window.cwnd - before
    }

    fn enter(&mut self, state: State) {
        self.connection.set_state(&self.window, state, self.now);
        self.state = state;
    }

    /// Runs enough round trips at `rtt_ms` to measure a rate.
    fn steady(&mut self, rtt_ms: u64) {
        self.rtt = Time::from_millis(rtt_ms);
        for _ in 0..20 {
            self.round_trip();
        }
    }

    fn lose(&mut self) -> u32 {
        let ssthresh = self.connection.ssthresh(&self.window, self.now);
        self.enter(State::Recovery);
        ssthresh
    }

    /// Simulates a loss that is recovered after a round trip. The window is unchanged, so that rates are
    /// equal.
    fn loss(&mut self) -> u32 {
        let ssthresh = self.lose();
        self.round_trip();
        self.enter(State::Open);
        ssthresh
    }

    /// Simulates two losses at equal rates, after which beta adapts.
    fn adaptive(changes: &[(&str, u32)], rtt_ms: u64) -> Self {
        let mut flow = Self::new(changes, rtt_ms);
        for _ in 0..2 {
            flow.steady(rtt_ms);
            assert_eq!(flow.loss(), CWND / 2);
        }
        flow
    }

    /// Returns alpha at the next growth, `after` the end of the last congestion.
    fn alpha(mut self, after: Time) -> f64 {
        self.now += after;
        while self.window.cwnd == CWND {
            self.round_trip_of_no_time();
            self.ack(CWND);
        }
        self.field("alpha")
    }

    fn round_trip_of_no_time(&mut self) {
        let sample = AckSample {
            now: self.now,
            pkts_acked: CWND,
            rtt: Some(self.rtt),
            in_flight: CWND,
            state: self.state,
        };
        self.connection.pkts_acked(&self.window, &sample);
    }
}

/// Returns the paper's f, D seconds after congestion.
fn f(d: f64) -> f64 {
    if d > 1.0 {
        1.0 + 10.0 * (d - 1.0) + ((d - 1.0) / 2.0).powi(2)
    } else {
        1.0
    }
}

const AFTER_MS: [u64; 10] = [
    0, 500, 1000, 1001, 1100, 2000, 3000, 5000, 20_000, 3_600_000,
];

#[test]
fn alpha_matches_the_paper() {
    for after in AFTER_MS.map(Time::from_millis) {
        let alpha = Flow::new(&[("rtt_scaling", 0)], 80).alpha(after);
        let wanted = f(after.as_secs_f64());
        assert!((alpha - wanted).abs() < 0.02, "{after}: {alpha} {wanted}");
    }
}

#[test]
fn alpha_scales_with_the_round_trip_from_10_to_200_ms() {
    for (rtt_ms, scale) in [
        (1, 0.1),
        (10, 0.1),
        (38, 0.38),
        (80, 0.8),
        (180, 1.8),
        (200, 2.0),
        (350, 2.0),
    ] {
        for after in AFTER_MS.map(Time::from_millis) {
            let alpha = Flow::new(&[], rtt_ms).alpha(after);
            let wanted = f64::max(1.0, scale * f(after.as_secs_f64()));
            assert!(
                (alpha - wanted).abs() < 0.03,
                "{rtt_ms} ms {after}: {alpha} {wanted}"
            );
        }
    }
}

/// At HZ = 250, 38, 80 and 180 ms are 10, 20 and 45 jiffies. So f is multiplied by 0.4, 0.8 and 2 (the
/// maximum), and rounded down: f(3) = 22, f(20) = 281.
#[test]
fn linux_scales_in_jiffies() {
    for (rtt_ms, at_3s, at_20s) in [(38, 8.0, 112.0), (80, 17.0, 224.0), (180, 44.0, 562.0)] {
        let alpha =
            |seconds| Flow::new(&[("jiffy_us", 4000)], rtt_ms).alpha(Time::from_secs(seconds));
        assert_eq!(
            (alpha(0), alpha(3), alpha(20)),
            (if rtt_ms == 180 { 2.0 } else { 1.0 }, at_3s, at_20s)
        );
    }
}

#[test]
fn alpha_goes_down_as_beta_goes_up() {
    let mut flow = Flow::adaptive(&[], 80);
    flow.steady(80);
    flow.loss();
    assert_eq!(flow.field("beta"), 102.0 / 128.0);
    let wanted = 2.0 * (1.0 - 102.0 / 128.0) * 0.8 * f(5.0);
    assert!((flow.alpha(Time::from_secs(5)) - wanted).abs() < 0.03);
}

#[test]
fn a_loss_reduces_the_window_by_the_queue() {
    for (longest_ms, left) in [(38, 102), (47, 102), (50, 97), (60, 81), (75, 64), (90, 64)] {
        let mut flow = Flow::adaptive(&[], 38);
        for rtt_ms in (38..longest_ms).step_by(15).chain([longest_ms]) {
            flow.rtt = Time::from_millis(rtt_ms);
            flow.round_trip();
        }
        // Rate and so the bandwidth switch are to see the shortest round trip alone.
        flow.steady(38);
        assert_eq!(flow.field("max_rtt"), longest_ms as f64 * 1000.0);
        assert_eq!(flow.loss(), CWND * left / 128, "{longest_ms} ms");
    }
}

#[test]
fn a_loss_halves_without_adaptive_backoff() {
    let third = |changes: &[_], rtt_ms| {
        let mut flow = Flow::adaptive(changes, rtt_ms);
        flow.steady(rtt_ms);
        flow.loss()
    };
    assert_eq!(third(&[], 11), CWND * 102 / 128);
    assert_eq!(third(&[], 10), CWND / 2);
    assert_eq!(third(&[("adaptive_backoff", 0)], 11), CWND / 2);
}

#[test]
fn a_rate_that_changed_by_more_than_a_fifth_halves_the_window() {
    for (cwnd, adaptive) in [(790, false), (810, true), (1190, true), (1210, false)] {
        let mut flow = Flow::adaptive(&[], 38);
        flow.window.cwnd = cwnd;
        flow.steady(38);
        let beta = if adaptive { 102 } else { 64 };
        assert_eq!(flow.loss(), cwnd * beta / 128, "{cwnd}");
    }
}

#[test]
fn second_loss_adapts_without_bandwidth_switch() {
    let mut flow = Flow::new(&[("bandwidth_switch", 0)], 38);
    flow.steady(38);
    assert_eq!(flow.loss(), CWND / 2);
    flow.window.cwnd = 300;
    flow.steady(38);
    assert_eq!(flow.loss(), 300 * 102 / 128);
}

#[test]
fn max_rtt_decays_by_a_twentieth_at_each_loss() {
    let mut flow = Flow::new(&[], 38);
    flow.round_trip();
    flow.rtt = Time::from_millis(58);
    flow.round_trip();
    assert_eq!(flow.field("max_rtt"), 58_000.0);
    flow.lose();
    assert_eq!(flow.field("max_rtt"), 57_000.0);
}

/// A step from 38 to 80 ms, as in the JGN II paper, is not queueing delay.
#[test]
fn max_rtt_ignores_samples_20_ms_above_it() {
    for (rtt_ms, longest) in [(58, 58_000.0), (59, 38_000.0), (80, 38_000.0)] {
        let mut flow = Flow::new(&[], 38);
        flow.round_trip();
        flow.rtt = Time::from_millis(rtt_ms);
        flow.round_trip();
        assert_eq!(flow.field("max_rtt"), longest, "{rtt_ms} ms");
        assert_eq!(flow.field("min_rtt"), 38_000.0);
    }
}

#[test]
fn congestion_ends_when_the_flow_is_open_again() {
    let mut flow = Flow::new(&[("rtt_scaling", 0)], 80);
    flow.now += Time::from_secs(10);
    flow.lose();
    flow.now += Time::from_secs(10);
    flow.enter(State::Open);
    let alpha = flow.alpha(Time::from_secs(2));
    assert!((alpha - f(2.0)).abs() < 0.02, "{alpha}");
}

#[test]
fn undo_restores_all_state() {
    let mut flow = Flow::adaptive(&[], 38);
    flow.rtt = Time::from_millis(57);
    flow.round_trip();
    flow.steady(38);
    flow.now += Time::from_secs(5);
    flow.ack(CWND);
    let (before, window) = (flow.connection.values(), flow.window);

    let ssthresh = flow.lose();
    assert_ne!(flow.connection.values(), before);
    let reduced = Window {
        cwnd: ssthresh,
        ssthresh,
        ..window
    };
    assert_eq!(
        flow.connection.undo_cwnd(&reduced, window.cwnd, flow.now),
        window.cwnd
    );
    flow.enter(State::Open);
    assert_eq!(flow.connection.values(), before);
}

/// Linux saves values that the backoff has changed already.
#[test]
fn linux_undo_restores_only_the_time_of_the_loss() {
    let mut flow = Flow::adaptive(&[("jiffy_us", 4000)], 40);
    flow.rtt = Time::from_millis(60);
    flow.round_trip();
    flow.steady(40);
    assert_eq!(flow.field("max_rtt"), 60_000.0);
    flow.lose();
    let lost = flow.connection.values();
    let window = flow.window;
    flow.connection.undo_cwnd(&window, window.cwnd, flow.now);
    assert_eq!(flow.connection.values(), lost);
    assert_eq!(flow.field("max_rtt"), 56_000.0);
}

#[test]
fn a_round_trip_adds_alpha_for_any_packets_per_ack() {
    for per_ack in [1, 2, 10, 50] {
        let mut flow = Flow::new(&[("rtt_scaling", 0)], 80);
        flow.now += Time::from_secs(10);
        flow.grow(per_ack);
        let alpha = flow.field("alpha");
        let grown = f64::from(flow.grow(per_ack));
        // The window grows as it is ACKed, so that the last packets cost more than the first.
        assert!(
            (alpha * 0.9..alpha).contains(&grown),
            "{per_ack}: {grown} of {alpha}"
        );
    }
}

/// With two packets an ACK and w = 9.2 to 10 alpha, five ACKs add a packet, and a sixth is not counted:
/// a packet for twelve.
#[test]
fn linux_ignores_an_ack_at_each_step() {
    let mut flow = Flow::new(&[("rtt_scaling", 0), ("jiffy_us", 4000)], 80);
    flow.now += Time::from_millis(10_604);
    while flow.grow(2) == 0 {}
    assert_eq!(flow.field("alpha"), 120.0);
    flow.window = Window {
        cwnd: 1104,
        cwnd_cnt: 0,
        ..flow.window
    };
    assert_eq!(flow.grow(2), 1104 / 12);
}

#[test]
fn never_grows_faster_than_slow_start() {
    let mut flow = Flow::new(&[], 180);
    flow.round_trip();
    flow.now += Time::from_secs(3600);
    flow.ack(CWND);
    let before = flow.window.cwnd;
    for _ in 0..100 {
        flow.ack(3);
    }
    assert_eq!(flow.window.cwnd, before + 300);
}
