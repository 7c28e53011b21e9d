// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP flows under simulated time against theory, RFCs and the kernel's rules.

use longhaul_netem::{LinkConfig, Schedule, Setting};
use longhaul_tcpsim::{
    congestion_control::{Ack, CongestionControl, State, Window, cubic::Cubic, reno::Reno},
    receiver::{self, AckPolicy},
    sender::{Backoff, Counters, SenderConfig},
    simulation::{FlowConfig, Observer, Path, Simulation},
};
use longhaul_units::{BitRate, Bytes, Time};
use proptest::prelude::*;

fn shape(settings: &[(&str, &str)]) -> LinkConfig {
    let mut shape = LinkConfig::default();
    for (key, value) in settings {
        shape.apply(Setting::parse(key, value).unwrap());
    }
    shape.check().unwrap();
    shape
}

/// Path with a delay of 50 ms in each direction.
fn path(forth: &[(&str, &str)]) -> Path {
    Path {
        forward: shape(&[&[("delay", "50ms")], forth].concat()),
        reverse: shape(&[("delay", "50ms")]),
        seed: 1,
        ..Path::default()
    }
}

fn reno() -> FlowConfig {
    flow(Box::new(Reno))
}

fn flow(control: Box<dyn CongestionControl>) -> FlowConfig {
    FlowConfig {
        start: Time::ZERO,
        extra_rtt: Time::ZERO,
        sender: SenderConfig::default(),
        acks: AckPolicy::default(),
        control,
    }
}

fn seconds(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

fn run(path: Path, flows: Vec<FlowConfig>, end: Time) -> Simulation {
    let mut simulation = Simulation::new(path, flows);
    simulation.run_until(end);
    simulation
}

/// Returns the payload bits a second of flow `number` since the start.
fn goodput(simulation: &mut Simulation, number: usize) -> f64 {
    let span = simulation.now().as_secs_f64();
    simulation.sender(number).acked() as f64 * 1448.0 * 8.0 / span
}

fn outcome(simulation: &mut Simulation) -> (u64, Counters, Vec<Backoff>, u32) {
    let sender = simulation.sender(0);
    (
        sender.acked(),
        sender.counters(),
        sender.take_backoffs(),
        sender.window().cwnd,
    )
}

#[test]
fn slow_start_doubles_each_round_trip() {
    let mut simulation = Simulation::new(path(&[("rate", "100gbit")]), vec![reno()]);
    // The handshake takes the first round trip.
    for (round, cwnd) in [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160)] {
        simulation.run_until(seconds(0.1 * f64::from(round) + 0.09));
        assert_eq!(simulation.sender(0).window().cwnd, cwnd, "round {round}");
    }
}

#[test]
fn trains_give_the_results_of_their_segments() {
    let cases: [&[(&str, &str)]; 4] = [
        &[("rate", "100mbit"), ("queue", "100p")],
        &[("rate", "100mbit"), ("queue", "400KB"), ("loss", "0.01%")],
        &[
            ("rate", "300mbit"),
            ("queue", "1bdp"),
            ("loss", "gilbert:p=0.01%,r=20%"),
        ],
        &[
            ("rate", "50mbit"),
            ("queue", "1bdp"),
            ("loss", "at:900-1400,5000,5300,9000"),
        ],
    ];
    for forth in cases {
        for paced in [false, true] {
            let simulate = |exact| {
                let mut flow = flow(Box::new(Cubic::new(paced)));
                flow.acks.gro_interval = Time::ZERO;
                flow.sender.paced = paced;
                let path = Path {
                    per_packet: exact,
                    ..path(forth)
                };
                outcome(&mut run(path, vec![flow], seconds(20.0)))
            };
            let (trains, segments) = (simulate(false), simulate(true));
            assert!(trains.1.backoffs > 0, "{forth:?}");
            assert_eq!(trains, segments, "{forth:?} paced {paced}");
        }
    }
}

/// Times at which ACKs are sent and arrive.
#[derive(Default)]
struct AckTimes {
    sent: Vec<Time>,
    arrived: Vec<Time>,
}

impl Observer for AckTimes {
    fn acknowledged(&mut self, _flow: usize, ack: &receiver::Ack) {
        self.sent.push(ack.at);
    }

    fn ack_arrived(&mut self, _flow: usize, ack: &receiver::Ack) {
        self.arrived.push(ack.at);
    }
}

/// A change of the path that never comes makes it decide ACK by ACK. The delay is such that no ACK arrives in the very
/// nanosecond of another event, whose order differs.
#[test]
fn acks_in_trains_arrive_when_each_alone_does() {
    let run = |is_ack_by_ack: bool| {
        let mut path = Path {
            reverse: shape(&[("delay", "50013us"), ("rate", "20mbit"), ("queue", "1bdp")]),
            ..path(&[("rate", "20mbit"), ("queue", "1bdp")])
        };
        if is_ack_by_ack {
            path.reverse_changes.add_text("1h: delay 1ms").unwrap();
        }
        let flows = vec![reno(), flow(Box::new(Cubic::new(false)))];
        let mut simulation = Simulation::with_observer(path, flows, AckTimes::default());
        simulation.run_until(seconds(20.0));
        std::mem::take(simulation.observer_mut())
    };
    let (trains, alone) = (run(false), run(true));
    assert!(trains.arrived.len() > 1_000);
    assert!(trains.sent == alone.sent && trains.arrived == alone.arrived);
}

#[test]
fn many_flows_get_the_same_goodput_over_trains_and_segments() {
    let simulate = |exact| {
        let flows = (0..5).map(|n| {
            let mut flow = reno();
            flow.acks.gro_interval = Time::ZERO;
            flow.extra_rtt = Time::from_millis(n * 7);
            flow.start = Time::from_millis(n * 300);
            flow
        });
        let path = Path {
            per_packet: exact,
            ..path(&[("rate", "200mbit"), ("queue", "1bdp")])
        };
        let mut simulation = run(path, flows.collect(), seconds(30.0));
        (0..5)
            .map(|n| goodput(&mut simulation, n))
            .collect::<Vec<_>>()
    };
    let (trains, segments) = (simulate(false), simulate(true));
    for (a, b) in trains.iter().zip(&segments) {
        assert!((a / b - 1.0).abs() < 0.02, "{trains:?} {segments:?}");
    }
}

#[test]
fn same_seed_repeats_a_run_and_another_differs() {
    let simulate = |seed| {
        let path = Path {
            seed,
            ..path(&[("rate", "1gbit"), ("loss", "0.01%")])
        };
        outcome(&mut run(path, vec![reno()], seconds(30.0)))
    };
    assert_eq!(simulate(3), simulate(3));
    assert_ne!(simulate(3), simulate(4));
}

/// With random losses of probability p Reno gets MSS/RTT · 1.31/√p, if it grows by a packet each round trip
/// whatever ACKs cover (Mathis et al., 1997, table 1).
#[test]
fn reno_follows_mathis() {
    for loss in ["0.01%", "0.1%"] {
        for gro_interval in [Time::ZERO, Time::from_micros(100)] {
            let p = loss.parse::<longhaul_units::Ratio>().unwrap().get();
            let mut flow = reno();
            flow.acks.gro_interval = gro_interval;
            let path = path(&[("rate", "100gbit"), ("loss", loss)]);
            let mut simulation = run(path, vec![flow], seconds(200.0 / p.sqrt()));
            let predicted = 1448.0 * 8.0 / 0.1 * 1.31 / p.sqrt();
            let ratio = goodput(&mut simulation, 0) / predicted;
            assert!(
                (0.9..=1.1).contains(&ratio),
                "{loss} {gro_interval}: {ratio}"
            );
        }
    }
}

#[test]
fn reno_halves_its_window_when_the_queue_is_full() {
    let path = path(&[("rate", "100mbit"), ("queue", "1bdp")]);
    let mut simulation = run(path, vec![reno()], seconds(400.0));
    let backoffs = simulation.sender(0).take_backoffs();
    // 10 Mbit/s × 100 ms in packets of 1,500 bytes, once on the wire and once in the queue.
    let full = 2.0 * 100e6 * 0.1 / 8.0 / 1500.0;
    for backoff in &backoffs[1..] {
        let ratio = f64::from(backoff.cwnd) / full;
        assert!((0.98..1.02).contains(&ratio), "{backoff:?} {full}");
        assert_eq!(backoff.ssthresh, backoff.cwnd / 2);
        assert!(!backoff.timeout);
    }
    assert!(backoffs.len() > 3, "{backoffs:?}");
    let utilisation = goodput(&mut simulation, 0) / (100e6 * 1448.0 / 1500.0);
    assert!(
        utilisation > 0.98,
        "a BDP of queue keeps the link busy: {utilisation}"
    );
}

#[test]
fn receive_window_and_send_buffer_limit_goodput() {
    for limit in ["receive", "send"] {
        let mut flow = reno();
        match limit {
            "receive" => flow.sender.receive_window = Bytes::new(1_448_000),
            _ => flow.sender.send_buffer = Bytes::new(1_448_000),
        }
        let mut simulation = run(path(&[("rate", "10gbit")]), vec![flow], seconds(60.0));
        let ratio = goodput(&mut simulation, 0) / (1_448_000.0 * 8.0 / 0.1);
        assert!((0.96..1.0).contains(&ratio), "{limit}: {ratio}");
        let cwnd = simulation.sender(0).window().cwnd;
        assert!(
            cwnd <= 2_100,
            "a window that is not used does not grow: {cwnd}"
        );
    }
}

#[test]
fn single_loss_costs_one_retransmission_and_one_backoff() {
    let mut flow = reno();
    flow.sender.packets = Some(20_000);
    let path = path(&[("rate", "100mbit"), ("queue", "2bdp"), ("loss", "at:700")]);
    let mut simulation = run(path, vec![flow], seconds(30.0));
    assert!(simulation.is_done());
    let (_, counters, backoffs, _) = outcome(&mut simulation);
    assert_eq!(backoffs.len(), 1);
    assert_eq!((counters.retransmitted, counters.timeouts), (1, 0));
    assert_eq!(simulation.sender(0).state(), State::Open);
}

#[test]
fn lost_retransmission_is_retransmitted_without_a_timeout() {
    // A run that loses the first transmission alone finds the number of the retransmission.
    let simulate = |loss: &str| {
        let mut flow = reno();
        flow.sender.packets = Some(20_000);
        let path = path(&[("rate", "100mbit"), ("queue", "2bdp"), ("loss", loss)]);
        let mut simulation = Simulation::new(path, vec![flow]);
        let mut sent_by_retransmission = None;
        while !simulation.is_done() {
            simulation.run_until(simulation.now() + Time::from_micros(100));
            let counters = simulation.sender(0).counters();
            if counters.retransmitted == 1 {
                sent_by_retransmission.get_or_insert(counters.sent);
            }
        }
        (
            simulation.sender(0).counters(),
            sent_by_retransmission.unwrap(),
        )
    };
    let (_, sent) = simulate("at:700");
    let (counters, _) = simulate(&format!("at:700,{}-{}", sent - 2, sent));
    assert!(counters.retransmitted >= 2, "{counters:?}");
    assert_eq!(counters.timeouts, 0);
}

#[test]
fn resumes_after_an_outage_with_timeouts() {
    let mut changes = Schedule::default();
    changes.add_text("5s: loss 100%").unwrap();
    changes.add_text("9s: loss none").unwrap();
    let path = Path {
        forward_changes: changes,
        ..path(&[("rate", "100mbit"), ("queue", "1bdp")])
    };
    let mut simulation = Simulation::new(path, vec![reno()]);
    simulation.run_until(seconds(8.9));
    let (before, counters) = (
        simulation.sender(0).acked(),
        simulation.sender(0).counters(),
    );
    // The first timeout takes at least 0.3 s, each other twice as long as the one before.
    assert!((3..=5).contains(&counters.timeouts), "{counters:?}");
    simulation.run_until(seconds(30.0));
    let after = simulation.sender(0).acked() - before;
    assert!(after as f64 * 1500.0 * 8.0 > 0.8 * 15.0 * 100e6, "{after}");
}

#[test]
fn equal_flows_share_equally() {
    let flows = (0..4).map(|_| reno()).collect();
    let path = path(&[("rate", "100mbit"), ("queue", "1bdp"), ("loss", "0.001%")]);
    let mut simulation = run(path, flows, seconds(600.0));
    let rates: Vec<f64> = (0..4).map(|n| goodput(&mut simulation, n)).collect();
    let (sum, squares) = rates
        .iter()
        .fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    assert!(sum * sum / (4.0 * squares) > 0.98, "{rates:?}");
    assert!(sum > 0.95 * 100e6 * 1448.0 / 1500.0, "{rates:?}");
}

#[test]
fn ack_filtering_and_pacing_keep_goodput() {
    let simulate = |back: &[(&str, &str)]| {
        let mut flow = reno();
        flow.acks.gro_interval = Time::ZERO;
        let path = Path {
            reverse: shape(&[&[("delay", "50ms")], back].concat()),
            ..path(&[("rate", "100mbit"), ("queue", "1bdp"), ("loss", "at:30000")])
        };
        let mut simulation = run(path, vec![flow], seconds(30.0));
        (
            goodput(&mut simulation, 0),
            simulation.sender(0).counters().acks,
        )
    };
    let (all, acks) = simulate(&[]);
    let (thinned, fewer) = simulate(&[("ack-thin", "2")]);
    let ratio = acks as f64 / fewer as f64;
    assert!((3.0..4.2).contains(&ratio), "{acks} {fewer}");
    assert!((thinned / all - 1.0).abs() < 0.03, "{all} {thinned}");
    let (paced, _) = simulate(&[("ack-rate", "5000")]);
    assert!((paced / all - 1.0).abs() < 0.03, "{all} {paced}");
}

#[test]
fn pacing_spares_a_short_queue_in_slow_start() {
    let simulate = |paced| {
        let mut flow = reno();
        flow.sender.paced = paced;
        flow.sender.packets = Some(3_000);
        let path = path(&[("rate", "400mbit"), ("queue", "60p")]);
        let mut simulation = run(path, vec![flow], seconds(30.0));
        simulation.sender(0).counters().retransmitted
    };
    let (bursts, spaced) = (simulate(false), simulate(true));
    assert!(spaced * 2 < bursts, "{spaced} of {bursts}");
}

/// Reno with a pacing rate of its own, 10 Mbit/s.
struct TenMegabits(Reno);

impl CongestionControl for TenMegabits {
    fn init(&mut self, window: &mut Window, now: Time) {
        self.0.init(window, now);
    }

    fn ssthresh(&mut self, window: &Window, now: Time) -> u32 {
        self.0.ssthresh(window, now)
    }

    fn cong_avoid(&mut self, window: &mut Window, ack: &Ack) {
        self.0.cong_avoid(window, ack);
    }

    fn pacing_rate(&self, _window: &Window, _srtt: Time) -> Option<BitRate> {
        Some(BitRate::from_bits(10_000_000))
    }
}

/// Pacing without a setting that asks for it, as on the kernel, where lh_trc sets `sk_pacing_status`.
#[test]
fn paces_at_the_congestion_controls_own_rate() {
    let control = flow(Box::new(TenMegabits(Reno)));
    let mut simulation = run(path(&[("rate", "100mbit")]), vec![control], seconds(20.0));
    let rate = goodput(&mut simulation, 0);
    assert!((9e6..=10e6).contains(&rate), "{rate}");
}

/// Paths that lose, duplicate, corrupt and reorder.
fn impaired() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let share = || prop_oneof![Just(0_u32), 1_u32..10];
    (share(), 0_u32..40, share(), share(), 0_u32..9).prop_map(
        |(loss, duplicate, corrupt, reorder, jitter)| {
            vec![
                ("delay", "10ms".to_owned()),
                ("rate", "5mbit".to_owned()),
                ("loss", format!("{loss}%")),
                ("duplicate", format!("{duplicate}%")),
                ("corrupt", format!("{corrupt}%")),
                ("reorder", format!("{reorder}%:15ms")),
                ("jitter", format!("uniform:{jitter}ms,reorder")),
            ]
        },
    )
}

fn impaired_shape(settings: &[(&str, String)]) -> LinkConfig {
    let settings = settings.iter().map(|(key, value)| (*key, value.as_str()));
    shape(&settings.collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn everything_arrives_despite_loss_duplication_and_reordering(forth in impaired(), back in impaired(), seed: u64) {
        let flows = (0..2).map(|_| {
            let mut flow = reno();
            flow.sender.packets = Some(300);
            flow
        });
        let path = Path { forward: impaired_shape(&forth), reverse: impaired_shape(&back), seed, ..Path::default() };
        let mut simulation = run(path, flows.collect(), seconds(10_000.0));
        for number in 0..2 {
            let sender = simulation.sender(number);
            prop_assert!(sender.is_done());
            prop_assert_eq!(sender.acked(), 300);
        }
        prop_assert_eq!(simulation.backlog_bytes(), 0);
    }
}
