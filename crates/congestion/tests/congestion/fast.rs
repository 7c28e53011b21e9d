// SPDX-License-Identifier: MIT OR Apache-2.0
//! FAST TCP alone on 1 Gbit/s with an unlimited queue, on a path whose delay or rate changes.

use longhaul_congestion::math::{Algorithm, Connection, algorithm};
use longhaul_tcpsim::congestion_control::{Ack, AckSample, CongestionControl, State, Window};
use longhaul_units::Time;
use std::collections::VecDeque;

/// Most packets that are sent together and share an ACK.
const TRAIN: u32 = 8;
const PACKET_BITS: u64 = 12_000;

struct Train {
    packets: u32,
    sent: Time,
    acked: Time,
    delivered_before: u32,
}

/// A flow that always has something to send, on its link.
struct Flow {
    fast: Connection,
    window: Window,
    propagation: Time,
    bits_per_second: u64,
    now: Time,
    /// Time at which the transmitter has sent its queue.
    free: Time,
    trains: VecDeque<Train>,
    out: u32,
    delivered: u32,
}

fn fast() -> Algorithm {
    algorithm("fast").unwrap()
}

impl Flow {
    fn new(propagation_ms: u64, given: &[(&str, u32)]) -> Self {
        let value = |name, initial| given.iter().find(|g| g.0 == name).map_or(initial, |g| g.1);
        let values: Vec<u32> = fast()
            .parameters()
            .map(|p| value(p.name, p.default))
            .collect();
        let mut flow = Self {
            fast: fast().connection(&values),
            window: Window::new(10),
            propagation: Time::from_millis(propagation_ms),
            bits_per_second: 1_000_000_000,
            now: Time::ZERO,
            free: Time::ZERO,
            trains: VecDeque::new(),
            out: 0,
            delivered: 0,
        };
        flow.fast.init(&mut flow.window, Time::ZERO);
        flow.send();
        flow
    }

    fn send(&mut self) {
        while self.out < self.window.cwnd {
            let packets = TRAIN.min(self.window.cwnd - self.out);
            let bits = u64::from(packets) * PACKET_BITS;
            self.free = self.free.max(self.now)
                + Time::from_nanos(bits * 1_000_000_000 / self.bits_per_second);
            let last = self.trains.back().map_or(Time::ZERO, |train| train.acked);
            self.trains.push_back(Train {
                packets,
                sent: self.now,
                acked: last.max(self.free + self.propagation),
                delivered_before: self.delivered,
            });
            self.out += packets;
        }
    }

    fn next_ack(&mut self) {
        let train = self.trains.pop_front().expect("something is out");
        self.now = train.acked;
        self.out -= train.packets;
        self.delivered += train.packets;
        let in_flight = self.delivered - train.delivered_before;
        let sample = AckSample {
            now: self.now,
            pkts_acked: train.packets,
            rtt: Some(self.now.since(train.sent)),
            in_flight,
            state: State::Open,
        };
        let ack = Ack {
            now: self.now,
            acked: train.packets,
            in_flight,
            cwnd_limited: true,
        };
        self.fast.pkts_acked(&self.window, &sample);
        self.fast.cong_avoid(&mut self.window, &ack);
        self.send();
    }

    /// Runs for `seconds` and returns the mean rate in Mbit/s.
    fn run(&mut self, seconds: u64) -> f64 {
        let (end, before) = (self.now + Time::from_secs(seconds), self.delivered);
        while self.now < end {
            self.next_ack();
        }
        megabits(self.delivered - before) / seconds as f64
    }

    /// Returns the packets in the queue.
    fn queue(&self) -> u64 {
        self.free.since(self.now).as_nanos() * self.bits_per_second / 1_000_000_000 / PACKET_BITS
    }

    /// Returns its estimate of the propagation delay, in ms.
    fn base_rtt(&self) -> i64 {
        let at = fast().fields().position(|f| f.name == "base_rtt").unwrap();
        self.fast.values()[at] / 1000
    }
}

fn megabits(packets: u32) -> f64 {
    f64::from(packets) * PACKET_BITS as f64 / 1e6
}

fn near(value: f64, want: f64, share: f64) -> bool {
    (value - want).abs() <= want * share
}

#[test]
fn keeps_alpha_packets_in_the_queue() {
    for alpha in [100, 200, 500] {
        let mut flow = Flow::new(38, &[("alpha", alpha)]);
        flow.run(20);
        let queue = flow.queue() as f64;
        assert!(near(queue, f64::from(alpha), 0.1), "α = {alpha}: {queue}");
        assert!(flow.run(5) > 995.0);
    }
}

#[test]
fn settles_at_the_same_queue_with_any_gamma() {
    for gamma in [10, 20, 50] {
        let mut flow = Flow::new(180, &[("gamma", gamma)]);
        flow.run(30);
        let queue = flow.queue() as f64;
        assert!(near(queue, 200.0, 0.1), "γ = {gamma} %: {queue}");
    }
}

/// JGN II, figure 4 (a): 38 ms for 30 s, then 80 ms, then 38 ms again. As published, FAST takes 42 ms
/// of propagation for queueing delay, and α packets in 42 ms are 57 Mbit/s.
#[test]
fn mistakes_a_longer_path_for_queueing() {
    let mut flow = Flow::new(38, &[]);
    flow.run(30);
    flow.propagation = Time::from_millis(80);
    flow.run(30);
    let rate = flow.run(30);
    assert!(near(rate, 200.0 * 12.0 / 42.0, 0.03), "{rate} Mbit/s");
    assert_eq!(flow.base_rtt(), 38);

    flow.propagation = Time::from_millis(38);
    flow.run(5);
    assert!(flow.run(10) > 990.0, "shorter again");
}

#[test]
fn base_rtt_window_adapts_to_a_longer_path() {
    let mut flow = Flow::new(38, &[("base_rtt_window", 10)]);
    flow.run(30);
    flow.propagation = Time::from_millis(80);
    flow.run(15);
    assert_eq!(flow.base_rtt(), 80);
    let rate = flow.run(30);
    assert!(rate > 970.0, "{rate} Mbit/s");
    flow.propagation = Time::from_millis(38);
    flow.run(5);
    assert!(flow.run(10) > 970.0, "shorter again");
}

/// Each probe drains the queue first: baseRTT does not include the queue of the flow itself.
#[test]
fn repeated_probes_do_not_fill_the_queue() {
    let mut flow = Flow::new(38, &[("base_rtt_window", 2)]);
    let rate = flow.run(120);
    assert_eq!(flow.base_rtt(), 38);
    assert!(flow.queue() < 400, "{} packets wait", flow.queue());
    assert!(rate > 930.0, "{rate} Mbit/s");
}

/// 1 Gbit/s, 250 Mbit/s, 1 Gbit/s.
#[test]
fn uses_a_rate_that_recovers() {
    let mut flow = Flow::new(38, &[]);
    flow.run(20);
    flow.bits_per_second /= 4;
    flow.run(20);
    assert!(
        near(flow.queue() as f64, 200.0, 0.1),
        "{} wait",
        flow.queue()
    );
    flow.bits_per_second *= 4;
    flow.run(5);
    assert!(flow.run(10) > 990.0);
}

#[test]
fn a_loss_halves_and_a_time_out_restarts_slow_start() {
    let mut flow = Flow::new(38, &[]);
    flow.run(10);
    let before = flow.window.cwnd;
    let ssthresh = flow.fast.ssthresh(&flow.window, flow.now);
    assert_eq!(ssthresh, before / 2);
    let smallest = Window {
        cwnd: 2,
        ..flow.window
    };
    assert_eq!(flow.fast.ssthresh(&smallest, flow.now), 2);

    flow.window = Window {
        cwnd: 1,
        cwnd_cnt: 0,
        ssthresh,
    };
    flow.fast.set_state(&flow.window, State::Loss, flow.now);
    let ack = Ack {
        now: flow.now,
        acked: 1,
        in_flight: 1,
        cwnd_limited: true,
    };
    flow.fast.cong_avoid(&mut flow.window, &ack);
    assert_eq!(flow.window.cwnd, 2);
}

/// The window shrinks at once and grows over a round trip, to at most twice in one update.
#[test]
fn the_window_grows_in_steps_of_one() {
    let mut flow = Flow::new(38, &[]);
    flow.run(5);
    for _ in 0..200_000 {
        let before = flow.window.cwnd;
        flow.next_ack();
        assert!(
            flow.window.cwnd <= before + TRAIN,
            "{before} → {}",
            flow.window.cwnd
        );
        assert!(flow.window.cwnd >= 2);
    }
}
