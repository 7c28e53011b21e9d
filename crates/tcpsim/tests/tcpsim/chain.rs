// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chains of legs. A chain of one leg is a plain simulation, and no packet is lost. A relay's buffer bounds the
//! packets that wait before a slow leg. Splitting a path makes Reno faster.

use longhaul_netem::{LinkConfig, Setting};
use longhaul_tcpsim::{
    chain::{Chain, Leg},
    congestion_control::reno::Reno,
    receiver::AckPolicy,
    sender::SenderConfig,
    simulation::{FlowConfig, Path, Simulation},
};
use longhaul_units::{Bytes, Time};

fn path(settings: &[(&str, &str)], seed: u64) -> Path {
    let mut forth = LinkConfig::default();
    for (key, value) in settings {
        forth.apply(Setting::parse(key, value).unwrap());
    }
    let back = LinkConfig {
        delay: forth.delay,
        ..LinkConfig::default()
    };
    Path {
        forward: forth,
        reverse: back,
        seed,
        ..Path::default()
    }
}

fn flow(packets: Option<u64>) -> FlowConfig {
    FlowConfig {
        start: Time::ZERO,
        extra_rtt: Time::ZERO,
        sender: SenderConfig {
            packets,
            receive_window: Bytes::new(64 << 20),
            ..SenderConfig::default()
        },
        acks: AckPolicy::default(),
        control: Box::new(Reno),
    }
}

fn leg(settings: &[(&str, &str)], packets: Option<u64>, store: u64) -> Leg {
    Leg {
        path: path(settings, 7),
        flows: vec![flow(packets)],
        relay_buffer: store,
    }
}

const LOSSY: [(&str, &str); 3] = [("rate", "100mbit"), ("delay", "20ms"), ("loss", "0.1%")];
const END: Time = Time::from_secs(20);

#[test]
fn one_leg_is_a_plain_simulation() {
    let mut chain = Chain::new(vec![leg(&LOSSY, None, 0)]);
    let mut plain = Simulation::new(path(&LOSSY, 7), vec![flow(None)]);
    chain.run_until(END);
    plain.run_until(END);
    assert_eq!(chain.sender(0, 0).counters(), plain.sender(0).counters());
    assert!(plain.sender(0).counters().retransmitted > 0);
}

#[test]
fn every_packet_reaches_the_sink_exactly_once() {
    let far = [("rate", "50mbit"), ("delay", "10ms"), ("loss", "1%")];
    let mut chain = Chain::new(vec![leg(&LOSSY, Some(5000), 200), leg(&far, None, 0)]);
    chain.run_until(Time::from_secs(60));
    assert_eq!(chain.delivered(1, 0), 5000);
    assert_eq!(chain.sender(1, 0).acked(), 5000);
    let finished = chain.finished_at(0).unwrap();
    // At 50 Mbit/s, 5,000 packets of 1,500 bytes take at least 1.2 s.
    assert!(
        finished > Time::from_millis(1200) && finished < END,
        "{finished}"
    );
}

#[test]
fn relay_buffer_bounds_the_packets_before_a_slow_leg() {
    let fast = [("rate", "1gbit"), ("delay", "1ms")];
    let slow = [("rate", "10mbit"), ("delay", "1ms")];
    let mut chain = Chain::new(vec![leg(&fast, None, 300), leg(&slow, None, 0)]);
    for step in 1..=2000 {
        chain.run_until(Time::from_millis(step));
        let waiting = chain.delivered(0, 0) - chain.sender(1, 0).acked();
        assert!(waiting <= 300, "{waiting} at {step} ms");
    }
    // The slow leg is never idle: 10 Mbit/s are 833 packets a second.
    let delivered = chain.delivered(1, 0);
    assert!((1600..=1667).contains(&delivered), "{delivered}");
}

#[test]
fn delivers_everything_sent_before_the_source_stops() {
    let mut chain = Chain::new(vec![leg(&LOSSY, None, 1000), leg(&LOSSY, None, 0)]);
    chain.run_until(Time::from_secs(5));
    chain.stop(0);
    chain.run_until(END);
    assert!(
        chain
            .finished_at(0)
            .is_some_and(|at| at > Time::from_secs(5))
    );
    assert_eq!(chain.delivered(1, 0), chain.sender(0, 0).acked());
}

#[test]
fn split_of_a_lossy_path_doubles_goodput() {
    // Reno by its formula: 1.22 × 1448 × 8 / (RTT √p). At 80 ms and p = 0.1 % that is 5.6 Mbit/s. The clean
    // half does not limit, and the lossy half has 40 ms and so twice that rate.
    let clean = [("rate", "100mbit"), ("delay", "20ms")];
    let whole = [("rate", "100mbit"), ("delay", "40ms"), ("loss", "0.1%")];
    let end = Time::from_secs(300);
    let mut direct = Chain::new(vec![leg(&whole, None, 0)]);
    let mut split = Chain::new(vec![leg(&clean, None, 5000), leg(&LOSSY, None, 0)]);
    direct.run_until(end);
    split.run_until(end);
    let ratio = split.delivered(1, 0) as f64 / direct.delivered(0, 0) as f64;
    assert!((1.8..2.2).contains(&ratio), "{ratio}");
}
