// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments a second that one core simulates: `cargo bench -p longhaul-tcpsim --bench simulation`.
//!
//! Each flow lasts ten simulated minutes. `SECONDS=3600` makes it an hour, as the manual quotes it. `-- 100`
//! runs only the cases with 100 in their name.

#![allow(missing_docs, reason = "a program")]

use longhaul_netem::{LinkConfig, Setting};
use longhaul_tcpsim::{
    congestion_control::{CongestionControl, cubic::Cubic, reno::Reno},
    receiver::AckPolicy,
    sender::SenderConfig,
    simulation::{FlowConfig, Path, Simulation},
};
use longhaul_units::Time;
use std::time::Instant;

struct Case {
    name: &'static str,
    rate: &'static str,
    delay: &'static str,
    loss: &'static str,
    flows: usize,
    control: fn() -> Box<dyn CongestionControl>,
    acks: AckPolicy,
}

fn cases() -> Vec<Case> {
    let reno: fn() -> Box<dyn CongestionControl> = || Box::new(Reno);
    let cubic: fn() -> Box<dyn CongestionControl> = || Box::new(Cubic::new(false));
    let acks = AckPolicy::default();
    let no_gro = AckPolicy {
        gro_interval: Time::ZERO,
        ..acks
    };
    let case = |name, rate, control| Case {
        name,
        rate,
        delay: "175ms",
        loss: "none",
        flows: 1,
        control,
        acks,
    };
    vec![
        case("10 Gbit/s, 350 ms, cubic", "10gbit", cubic),
        Case {
            loss: "0.00001%",
            ..case("the same, loss 1e-7", "10gbit", cubic)
        },
        Case {
            acks: no_gro,
            ..case("the same, an ACK for 2 packets", "10gbit", cubic)
        },
        Case {
            flows: 16,
            ..case("the same, 16 flows", "10gbit", cubic)
        },
        case("10 Gbit/s, 350 ms, reno", "10gbit", reno),
        case("100 Gbit/s, 350 ms, cubic", "100gbit", cubic),
    ]
}

fn main() {
    let seconds = std::env::var("SECONDS").ok().and_then(|s| s.parse().ok());
    let span = Time::from_secs(seconds.unwrap_or(600));
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    for case in cases() {
        if filter
            .as_ref()
            .is_some_and(|arg| !case.name.contains(arg.as_str()))
        {
            continue;
        }
        run(&case, span);
    }
}

fn run(case: &Case, span: Time) {
    let mut simulation = simulation(case);
    let begin = Instant::now();
    simulation.run_until(span);
    let wall = begin.elapsed().as_secs_f64();
    let (mut sent, mut acked, mut acks) = (0, 0, 0);
    for flow in 0..case.flows {
        sent += simulation.sender(flow).counters().sent;
        acks += simulation.sender(flow).counters().acks;
        acked += simulation.sender(flow).acked();
    }
    println!(
        "{:<32} {wall:6.2} s  {:7.1} M segments/s  {:5.2} M ACKs/s  {:6.3} Gbit/s",
        case.name,
        sent as f64 / wall / 1e6,
        acks as f64 / wall / 1e6,
        acked as f64 * 1448.0 * 8.0 / span.as_secs_f64() / 1e9
    );
}

fn simulation(case: &Case) -> Simulation {
    let path = Path {
        forward: shape(&[
            ("rate", case.rate),
            ("delay", case.delay),
            ("queue", "1bdp"),
            ("loss", case.loss),
        ]),
        reverse: shape(&[("delay", case.delay)]),
        seed: 1,
        ..Path::default()
    };
    let flow = |_| FlowConfig {
        start: Time::ZERO,
        extra_rtt: Time::ZERO,
        sender: SenderConfig::default(),
        acks: case.acks,
        control: (case.control)(),
    };
    Simulation::new(path, (0..case.flows).map(flow).collect())
}

fn shape(settings: &[(&str, &str)]) -> LinkConfig {
    let mut shape = LinkConfig::default();
    for (key, value) in settings {
        shape.apply(Setting::parse(key, value).expect("a setting"));
    }
    shape
}
