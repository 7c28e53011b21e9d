// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the phases, to within a round trip or 5 % of the run, whichever is longer.

use super::simulated_flow::{GroundTruth, case};
use longhaul_flow::record::{
    Phase,
    PhaseKind::{self, Idle, Peak, RampUp, Recovery, Steady},
};
use longhaul_tcpsim::congestion_control::{Ack, CongestionControl, Window, cubic::Cubic};
use longhaul_units::Time;

struct Found {
    phases: Vec<Phase>,
    tolerance: f64,
}

impl Found {
    fn of(truth: &GroundTruth, rtt: f64) -> Self {
        let phases = truth.flow().upload.phases;
        let run = phases.last().map_or(0.0, |last| last.to_ns as f64 / 1e9);
        Self {
            phases,
            tolerance: rtt.max(0.05 * run),
        }
    }

    fn kinds(&self) -> Vec<PhaseKind> {
        self.phases.iter().map(|phase| phase.kind).collect()
    }

    fn assert_near(&self, ns: u64, truth: f64) {
        let found = ns as f64 / 1e9;
        let off = (found - truth).abs();
        assert!(off <= self.tolerance, "{found} is not {truth}: {self}");
    }

    fn assert_begins(&self, phase: usize, truth: f64) {
        self.assert_near(self.phases[phase].from_ns, truth);
    }

    fn assert_ends(&self, phase: usize, truth: f64) {
        self.assert_near(self.phases[phase].to_ns, truth);
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for phase in &self.phases {
            let seconds = |ns: u64| ns as f64 / 1e9;
            let (from, to) = (seconds(phase.from_ns), seconds(phase.to_ns));
            let rate = phase.data_bps / 1e6;
            writeln!(f, "\n{:?} {from:.3}..{to:.3} {rate:.1} Mbit/s", phase.kind)?;
        }
        Ok(())
    }
}

/// 4 MB at 100 ms are 335 Mbit/s on a faster path.
#[test]
fn slow_start_into_window_is_ramp_up_then_steady() {
    let truth = case("50ms", &[("rate", "1gbit")], 10.0)
        .receive_window(4 << 20)
        .run();
    let found = Found::of(&truth, 0.1);
    assert_eq!(found.kinds(), [RampUp, Steady], "{found}");
    found.assert_ends(0, truth.first_time(|s| s.cwnd * 1448 >= 4 << 20));
    assert!(
        (found.phases[1].data_bps / 335e6 - 1.0).abs() < 0.05,
        "{found}"
    );
}

#[test]
fn slow_start_into_full_queue_peaks_until_loss() {
    for (delay, seconds) in [("50ms", 10.0), ("100ms", 30.0), ("5ms", 4.0)] {
        let rtt = 2.0 * delay.trim_end_matches("ms").parse::<f64>().unwrap() / 1e3;
        let path = [("rate", "100mbit"), ("queue", "1bdp")];
        let truth = case(delay, &path, seconds).run();
        let found = Found::of(&truth, rtt);
        let loss = truth.loss_times()[0];
        assert_eq!(found.kinds()[..2], [RampUp, Peak], "{found}");
        found.assert_begins(1, truth.queue_start(loss));
        found.assert_ends(1, loss);
        assert!(found.phases[1].data_bps > 80e6, "{found}");
    }
}

/// A queue of a tenth of the BDP: each loss empties it, and the rate halves and recovers.
#[test]
fn saw_tooth_has_one_recovery_per_loss() {
    let path = [("rate", "20mbit"), ("queue", "10p")];
    let truth = case("50ms", &path, 60.0).run();
    let found = Found::of(&truth, 0.1);
    let losses = truth.loss_times();
    let teeth: Vec<_> = found.phases.iter().filter(|p| p.kind == Recovery).collect();
    assert_eq!(teeth.len(), losses.len(), "{losses:?} {found}");
    for (tooth, loss) in teeth.iter().zip(&losses) {
        found.assert_near(tooth.from_ns, *loss);
    }
}

/// The first loss ends slow start within two steps of 1/256 of the run, and is not distinguished.
#[test]
fn cubic_recovers_after_each_loss() {
    let path = [("rate", "100mbit"), ("queue", "20p")];
    // The next loss is at 58 s; the run ends before, because its recovery would be too short to detect.
    let truth = case("50ms", &path, 55.0).control(Cubic::new(false)).run();
    let found = Found::of(&truth, 0.1);
    let losses = &truth.loss_times()[1..];
    let teeth: Vec<_> = found.phases.iter().filter(|p| p.kind == Recovery).collect();
    assert_eq!(teeth.len(), losses.len(), "{losses:?} {found}");
    for (tooth, loss) in teeth.iter().zip(losses) {
        found.assert_near(tooth.from_ns, *loss);
    }
}

/// The application writes for a second and pauses for a second.
#[test]
fn on_off_application_is_idle_between_writes() {
    let writes: Vec<_> = (0..6).map(|n| (1.0 + 2.0 * f64::from(n), 4_000)).collect();
    let truth = case("10ms", &[("rate", "100mbit")], 12.0)
        .writes(writes)
        .run();
    let found = Found::of(&truth, 0.02);
    let idle: Vec<_> = found.phases.iter().filter(|p| p.kind == Idle).collect();
    assert_eq!(idle.len(), 5, "{found}");
    for (n, phase) in idle.iter().enumerate() {
        found.assert_near(phase.to_ns, 3.0 + 2.0 * n as f64);
        assert_eq!(phase.data_bps, 0.0);
    }
}

#[test]
fn each_path_rate_has_steady_phase() {
    let truth = case("20ms", &[("rate", "100mbit"), ("queue", "1bdp")], 30.0)
        .change("10s: rate 50mbit")
        .change("20s: rate 80mbit")
        .run();
    let found = Found::of(&truth, 0.04);
    let long = |p: &&Phase| (p.to_ns - p.from_ns) as f64 / 1e9 > found.tolerance;
    let steady: Vec<_> = found.phases.iter().filter(long).collect();
    assert!(steady.iter().all(|p| p.kind == Steady), "{found}");
    let rates: Vec<_> = steady.iter().map(|p| (p.data_bps / 1e6).round()).collect();
    assert_eq!(steady.len(), 3, "{rates:?} {found}");
    for (phase, (rate, from)) in steady.iter().zip([(97.0, 0.5), (48.0, 10.0), (77.0, 20.0)]) {
        assert!((phase.data_bps / 1e6 / rate - 1.0).abs() < 0.06, "{found}");
        found.assert_near(phase.from_ns, from);
    }
}

#[test]
fn short_transfer_has_at_most_one_phase() {
    let run = |packets| {
        let truth = case("20ms", &[("rate", "100mbit")], 2.0)
            .packets(packets)
            .run();
        Found::of(&truth, 0.04)
    };
    assert_eq!(run(9).kinds(), []);
    assert_eq!(run(20).kinds().len(), 1);
}

/// At 1 ms a rate is a burst or nothing; with pacing it is even. The phases are equal.
#[test]
fn bursts_do_not_split_phases() {
    let rtt = 0.2;
    let flow = || case("100ms", &[("rate", "10gbit")], 20.0).receive_window(8 << 20);
    for truth in [
        flow().run(),
        flow().paced().run(),
        flow().acks(64, Time::ZERO).run(),
    ] {
        let found = Found::of(&truth, rtt);
        assert_eq!(found.kinds(), [RampUp, Steady], "{found}");
        found.assert_ends(0, truth.first_time(|s| s.cwnd * 1448 >= 8 << 20));
    }
}

/// Slow start to a small window, then a constant number of packets more each round trip, as BIC's `Smax` limits it: the
/// paper's sender does this for 24 s (figure 3).
struct Linear(u32);

impl CongestionControl for Linear {
    fn init(&mut self, window: &mut Window, _: Time) {
        window.ssthresh = 100;
    }

    fn ssthresh(&mut self, window: &Window, _: Time) -> u32 {
        window.cwnd / 2
    }

    fn cong_avoid(&mut self, window: &mut Window, ack: &Ack) {
        if ack.cwnd_limited {
            window.cwnd_cnt += ack.acked * self.0;
            window.cwnd += window.cwnd_cnt / window.cwnd;
            window.cwnd_cnt %= window.cwnd;
        }
    }
}

/// Figures 3 and 4 of the paper at a twentieth of the rate: 200 ms, no loss, a window slightly above the BDP,
/// and one ACK in 2ⁿ.
#[test]
fn paper_flow_has_three_phases_at_any_ack_rate() {
    for (n, thin) in ["0", "1", "2", "3", "4", "5", "6"].into_iter().enumerate() {
        let path = [("rate", "350mbit"), ("queue", "4MB")];
        let window = 19 << 19;
        let truth = case("100ms", &path, 40.0)
            .control(Linear(50))
            .receive_window(window)
            .reverse("ack-thin", thin)
            .run_with_super_packets();
        assert_eq!(truth.lost, 0);
        let found = Found::of(&truth, 0.2);
        assert_eq!(found.kinds(), [RampUp, Peak, Steady], "{thin} {found}");
        let full = truth.first_time(|s| s.in_flight * 1448 >= window - (1 << 15));
        found.assert_begins(1, truth.queue_start(full));
        found.assert_ends(1, full);
        let per_ack = found.phases[2].packets_per_ack;
        let truth = 2.0 * f64::from(1 << n);
        assert!(
            (per_ack / truth - 1.0).abs() < 0.05,
            "{per_ack} is not {truth}"
        );
    }
}

/// At the receiver's end the handshake is the only round trip.
#[test]
fn phases_match_at_receivers_tap() {
    let path = [("rate", "100mbit"), ("queue", "1bdp")];
    let truth = case("50ms", &path, 10.0).run();
    let found = Found {
        phases: super::simulated_flow::analyse(&truth.at_receiver)
            .upload
            .phases,
        tolerance: 0.5,
    };
    assert_eq!(found.phases[0].kind, RampUp, "{found}");
    found.assert_ends(0, truth.queue_start(truth.loss_times()[0]));
    assert!(!found.kinds().contains(&Idle), "{found}");
}

/// Three round trips of slow start to a window of 70 packets, in a run of 10 s.
#[test]
fn small_window_has_ramp_up() {
    let truth = case("50ms", &[("rate", "100mbit")], 10.0)
        .receive_window(100_000)
        .run();
    let found = Found::of(&truth, 0.1);
    assert_eq!(found.kinds(), [RampUp, Steady], "{found}");
}
