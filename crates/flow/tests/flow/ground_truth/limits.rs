// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the limiting factors: their shares of the time equal the truth to within 5 % of the run.

use super::simulated_flow::{Case, GroundTruth, MSS, Sample, analyse, analyse_with, case};
use longhaul_flow::record::{
    CaptureLocation, Flow,
    Limit::{self, AckStream, Application, BottleneckBandwidth, CongestionWindow, ReceiveWindow},
    LimitPeriod,
};
use longhaul_flow::segment::{NO_SCALE, Segment};
use longhaul_tcpsim::congestion_control::{Ack, CongestionControl, Window, cubic::Cubic};
use longhaul_units::{BitRate, Time};

struct Found {
    truth: GroundTruth,
    limits: Vec<LimitPeriod>,
    flow: Flow,
}

fn assess(case: Case) -> Found {
    let truth = case.run();
    let flow = truth.flow();
    Found {
        limits: flow.upload.limits.clone(),
        truth,
        flow,
    }
}

fn share(limits: &[LimitPeriod], by: Limit) -> f64 {
    let span = |period: &LimitPeriod| (period.to_ns - period.from_ns) as f64;
    let of = limits.iter().filter(|period| period.limit == by);
    of.map(span).sum::<f64>() / limits.iter().map(span).sum::<f64>()
}

impl Found {
    fn share(&self, by: Limit) -> f64 {
        share(&self.limits, by)
    }

    /// Returns the true share of the assessed time in which `so` holds.
    fn true_share(&self, so: impl Fn(&Sample) -> bool) -> f64 {
        let (from, to) = (self.limits[0].from_ns, self.limits.last().unwrap().to_ns);
        let during = |sample: &&Sample| (from..to).contains(&sample.at_ns);
        let samples: Vec<_> = self.truth.samples.iter().filter(during).collect();
        samples.iter().filter(|sample| so(sample)).count() as f64 / samples.len() as f64
    }

    fn assert_share(&self, by: Limit, share: f64) {
        let found = self.share(by);
        assert!(
            (found - share).abs() < 0.05,
            "{by:?}: {found} is not {share} {self}"
        );
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for period in &self.limits {
            let (from, to) = (period.from_ns as f64 / 1e9, period.to_ns as f64 / 1e9);
            writeln!(f, "\n{from:.3}..{to:.3} {:?}", period.limit)?;
        }
        Ok(())
    }
}

#[test]
fn on_off_application_limits_while_idle() {
    let writes = (0..6).map(|n| (1.0 + 2.0 * f64::from(n), 8_000));
    let found =
        assess(case("10ms", &[("rate", "100mbit"), ("queue", "2bdp")], 13.0).writes(writes));
    found.assert_share(Application, found.true_share(|s| s.in_flight == 0));
    assert!(found.share(Application) > 0.3, "{found}");
}

/// 5.8 Mbit/s of 100: four packets in flight, fewer than a window of ten allows.
#[test]
fn small_writes_are_application_limited() {
    let writes = (0..1_000).map(|n| (0.1 + f64::from(n) / 100.0, 5));
    let found = assess(case("10ms", &[("rate", "100mbit")], 10.0).writes(writes));
    found.assert_share(Application, 1.0);
}

#[test]
fn receive_window_limits_once_cwnd_exceeds_it() {
    let window = 4 << 20;
    let found = assess(case("50ms", &[("rate", "1gbit")], 10.0).receive_window(window));
    found.assert_share(ReceiveWindow, found.true_share(|s| s.cwnd * MSS >= window));
    found.assert_share(
        CongestionWindow,
        found.true_share(|s| s.cwnd * MSS < window),
    );
}

#[test]
fn bottleneck_bandwidth_limits_with_standing_queue() {
    for queue in ["1bdp", "4bdp"] {
        let path = [("rate", "50mbit"), ("queue", queue)];
        let found = assess(case("20ms", &path, 30.0));
        found.assert_share(BottleneckBandwidth, found.true_share(|s| s.queue > 0));
        assert!(found.share(BottleneckBandwidth) > 0.85, "{found}");
    }
}

/// As on 10 Gbit/s and 200 ms, where more packets are in flight than the table holds.
#[test]
fn finds_bottleneck_bandwidth_with_small_unacked_table() {
    let path = [("rate", "50mbit"), ("queue", "4bdp")];
    let truth = case("20ms", &path, 30.0).run();
    let settings = longhaul_flow::Settings {
        unacked_max: 100,
        ..longhaul_flow::Settings::default()
    };
    let few = analyse_with(&truth.at_sender, settings).upload.limits;
    let all = truth.flow().upload.limits;
    let shares = [&few, &all].map(|limits| share(limits, BottleneckBandwidth));
    assert!((shares[0] - shares[1]).abs() < 0.05, "{shares:?}");
}

#[test]
fn random_loss_is_cwnd_limited() {
    for cubic in [false, true] {
        let path = [("rate", "10gbit"), ("loss", "0.02%")];
        let mut case = case("20ms", &path, 30.0);
        if cubic {
            case = case.control(Cubic::new(false));
        }
        let found = assess(case);
        assert!(found.truth.backoffs.len() > 5);
        found.assert_share(CongestionWindow, 1.0);
    }
}

/// Figures 6 and 7 at a tenth of the rate: 250 ms, and ACKs at a constant 6,000 a second. A deep buffer queues them; in
/// a shallow one a later ACK replaces an earlier one.
#[test]
fn paced_acks_are_ack_stream_limited() {
    for (buffer, packets_per_ack) in [("100000", 2.0), ("1000", 4.63)] {
        let case = case("125ms", &[("rate", "10gbit")], 40.0)
            .receive_window(16 << 20)
            .reverse("ack-rate", "6000")
            .reverse("ack-buffer", buffer);
        let found = assess(case);
        assert_eq!(found.truth.lost, 0);
        let steady = *found.flow.upload.phases.last().unwrap();
        assert!(
            (steady.acks_per_s / 6_000.0 - 1.0).abs() < 0.01,
            "{steady:?}"
        );
        assert!(
            (steady.packets_per_ack / packets_per_ack - 1.0).abs() < 0.02,
            "{steady:?}"
        );
        // From the time when ACKs come at their fixed rate: the window has outgrown it.
        let paced = 6_000.0 * 2.0 * 0.25;
        found.assert_share(AckStream, found.true_share(|s| s.in_flight as f64 > paced));
        assert!(found.share(AckStream) > 0.8, "{found}");
    }
}

/// The same path and window with all ACKs, and with one in 64: the sender does not wait for them.
#[test]
fn thinned_acks_do_not_limit() {
    for thin in ["0", "5"] {
        let case = case("125ms", &[("rate", "10gbit")], 20.0)
            .receive_window(16 << 20)
            .reverse("ack-thin", thin);
        let found = assess(case);
        assert_eq!(found.share(AckStream), 0.0, "{found}");
        found.assert_share(
            ReceiveWindow,
            found.true_share(|s| s.cwnd * MSS >= 16 << 20),
        );
    }
}

/// With merged ACKs (GRO) and delayed ACKs, a queue of data is still recognised.
#[test]
fn merged_acks_on_full_path_are_bandwidth_limited() {
    for (packets, aggregate) in [(2, 100), (8, 0), (16, 0)] {
        let path = [("rate", "200mbit"), ("queue", "1bdp")];
        let case = case("50ms", &path, 20.0).acks(packets, Time::from_micros(aggregate));
        let found = assess(case);
        assert_eq!(found.share(AckStream), 0.0, "{found}");
        found.assert_share(BottleneckBandwidth, found.true_share(|s| s.queue > 0));
    }
}

#[test]
fn verdict_states_shares_of_time() {
    let window = || case("50ms", &[("rate", "1gbit")], 10.0).receive_window(4 << 20);
    let truth = window().run();
    assert_eq!(
        truth.flow().upload.verdict,
        "Captured near the sender: limited most of the time (91 %) by the receive window of at most 4.19 MB; \
         9 % by the congestion window (growth)."
    );
    assert_eq!(truth.flow().download.verdict, "");
    // Without the handshake, the ACKs that data echoes show the distance to the sender.
    let late = analyse(&truth.at_sender[3..]).upload;
    assert_eq!(late.tap_position.location, CaptureLocation::NearSender);
    let late: Vec<_> = truth.at_receiver[3..].to_vec();
    let at_receiver = analyse(&late).upload.tap_position;
    assert_eq!(at_receiver.location, CaptureLocation::NearReceiver);
    let without_timestamps = |mut segment: Segment| {
        segment.has_timestamps = false;
        segment
    };
    let late: Vec<_> = late.into_iter().map(without_timestamps).collect();
    let late = analyse(&late).upload;
    assert_eq!(late.tap_position.location, CaptureLocation::Unknown);
    assert!(
        late.verdict.contains("Without a handshake"),
        "{}",
        late.verdict
    );
    let short = window().packets(5).run().flow().upload.verdict;
    assert_eq!(short, "Too few packets to say what limited it.");
}

/// Windows of 4 MiB are 1,024 in the header, which is less than a segment.
#[test]
fn unscaled_windows_limit_only_if_zero() {
    let path = [("rate", "50mbit"), ("queue", "4bdp")];
    let truth = case("20ms", &path, 10.0).receive_window(4 << 20).run();
    let mut cut = truth.at_sender.clone();
    for syn in cut.iter_mut().filter(|s| s.window_scale != NO_SCALE) {
        (syn.window_scale, syn.options_cut) = (NO_SCALE, true);
    }
    let mut closed = truth.at_sender[3..].to_vec();
    let half = closed.len() / 2;
    for ack in closed[half..].iter_mut().filter(|s| !s.from_low) {
        ack.window = 0;
    }
    let whole = share(&truth.flow().upload.limits, BottleneckBandwidth);
    for segments in [&cut[..], &truth.at_sender[3..]] {
        let seen = analyse(segments).upload;
        assert_eq!(seen.acks.window_scale, None);
        let path = share(&seen.limits, BottleneckBandwidth);
        assert!(
            (path - whole).abs() < 0.05,
            "{path}, with the scale {whole}"
        );
        assert_eq!(share(&seen.limits, ReceiveWindow), 0.0, "{}", seen.verdict);
        assert!(
            seen.verdict.contains("only a window of zero shows"),
            "{}",
            seen.verdict
        );
    }
    let closed = analyse(&closed).upload;
    assert!(
        share(&closed.limits, ReceiveWindow) > 0.3,
        "{}",
        closed.verdict
    );
}

/// A round trip of 100 ms and a window of 4 MiB, seen from three positions.
#[test]
fn verdict_states_tap_position_and_caveats() {
    let truth = case("50ms", &[("rate", "1gbit")], 10.0)
        .receive_window(4 << 20)
        .run();
    let near = truth.flow().upload;
    let middle = truth.flow_before_receiver(Time::from_millis(30)).upload;
    let far = truth.flow_before_receiver(Time::ZERO).upload;
    for (seen, location, to_sender_ms, to_receiver_ms, prefix, caveat) in [
        (
            &near,
            CaptureLocation::NearSender,
            0,
            100,
            "Captured near the sender: limited",
            "",
        ),
        (
            &middle,
            CaptureLocation::Middle,
            40,
            60,
            "Captured in the middle of the path: limited",
            "the ACKs that its packets echo",
        ),
        (
            &far,
            CaptureLocation::NearReceiver,
            100,
            0,
            "Captured near the receiver: limited",
            "the ACKs that its packets echo",
        ),
    ] {
        let position = seen.tap_position;
        assert_eq!(position.location, location, "{position:?}");
        let ms = |ns: Option<u64>| (ns.unwrap() + 500_000) / 1_000_000;
        assert_eq!(ms(position.to_sender_ns), to_sender_ms, "{position:?}");
        assert_eq!(ms(position.to_receiver_ns), to_receiver_ms, "{position:?}");
        assert!(seen.verdict.starts_with(prefix), "{}", seen.verdict);
        assert!(seen.verdict.contains(caveat), "{}", seen.verdict);
    }
    // Only a capture point near the sender sees the whole window in flight.
    assert!(near.in_flight_max_bytes > 4_000_000);
    assert!(far.in_flight_max_bytes < near.in_flight_max_bytes / 10);
}

/// A burst each 150 ms, less than a timeout: an earlier burst proved that the window is large enough.
#[test]
fn repeated_equal_bursts_are_application_limited() {
    let writes = (0..60).map(|n| (0.1 + 0.15 * f64::from(n), 60));
    let found = assess(case("10ms", &[("rate", "1gbit")], 9.0).writes(writes));
    found.assert_share(Application, 1.0);
}

/// A segment every 50 ms, whose ACK is delayed by 40 ms: a long round trip without a queue.
#[test]
fn delayed_acks_do_not_indicate_queue() {
    let writes = (0..100).map(|n| (0.1 + 0.05 * f64::from(n), 1));
    let found = assess(case("10ms", &[("rate", "100mbit")], 5.0).writes(writes));
    let rtt = &found.flow.upload.rtt_by_acks;
    assert!(rtt.p50 > 50_000_000, "the ACKs are delayed: {rtt:?}");
    assert_eq!(found.share(BottleneckBandwidth), 0.0, "{found}");
    assert!(found.share(Application) > 0.75, "{found}");
}

/// Sends at the rate of its path whatever is lost, as BBR does.
struct SteadyRate;

impl CongestionControl for SteadyRate {
    fn init(&mut self, window: &mut Window, _now: Time) {
        window.cwnd = 150;
    }

    fn ssthresh(&mut self, window: &Window, _now: Time) -> u32 {
        window.cwnd
    }

    fn cong_avoid(&mut self, _window: &mut Window, _ack: &Ack) {}

    fn pacing_rate(&self, _window: &Window, _srtt: Time) -> Option<BitRate> {
        Some(BitRate::from_bits(20_000_000))
    }
}

#[test]
fn losses_that_do_not_slow_a_sender_do_not_limit_it() {
    let path = [("rate", "20mbit"), ("loss", "1%")];
    let steady = assess(case("20ms", &path, 10.0).control(SteadyRate));
    assert!(steady.share(BottleneckBandwidth) > 0.9, "{steady}");
    let cubic = assess(case("20ms", &path, 10.0).control(Cubic::new(false)));
    assert!(cubic.share(CongestionWindow) > 0.9, "{cubic}");
}

#[test]
fn even_data_with_losses_below_the_rate_of_the_path_is_not_its_limit() {
    let path = [("rate", "80mbit"), ("loss", "3%")];
    let truth = case("20ms", &path, 10.0).control(SteadyRate).run();
    for flow in [truth.flow(), truth.flow_before_receiver(Time::ZERO)] {
        let full = share(&flow.upload.limits, BottleneckBandwidth);
        assert!(full < 0.1, "{}", flow.upload.verdict);
    }
}

#[test]
fn losses_on_a_path_that_becomes_longer_or_shorter_are_not_its_rate() {
    let path = [("rate", "25mbit"), ("loss", "0.8%")];
    for (delay, change) in [("10ms", "5s: delay 25ms"), ("40ms", "5s: delay 15ms")] {
        let found = assess(
            case(delay, &path, 10.0)
                .change(change)
                .control(Cubic::new(false)),
        );
        assert!(found.share(CongestionWindow) > 0.9, "{change}: {found}");
    }
}
