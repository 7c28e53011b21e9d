// SPDX-License-Identifier: MIT OR Apache-2.0
//! A warm simulated flow allocates no memory for a packet: invariant 1.

use assert_no_alloc::{AllocDisabler, assert_no_alloc};
use longhaul_netem::Setting;
use longhaul_tcpsim::{
    congestion_control::reno::Reno,
    receiver::AckPolicy,
    sender::SenderConfig,
    simulation::{FlowConfig, Path, Simulation},
};
use longhaul_units::Time;

#[global_allocator]
static ALLOCATOR: AllocDisabler = AllocDisabler;

#[test]
fn warm_flow_allocates_nothing() {
    let mut path = Path::default();
    for (key, value) in [("rate", "10gbit"), ("delay", "5ms"), ("queue", "1bdp")] {
        path.forward.apply(Setting::parse(key, value).unwrap());
    }
    let flow = FlowConfig {
        start: Time::ZERO,
        extra_rtt: Time::from_millis(5),
        sender: SenderConfig::default(),
        acks: AckPolicy::default(),
        control: Box::new(Reno),
    };
    let mut simulation = Simulation::new(path, vec![flow]);
    // Slow start and its recovery are over: the queues have reached their largest size.
    simulation.run_until(Time::from_secs(2));
    let before = simulation.sender(0).acked();
    assert_no_alloc(|| simulation.run_until(Time::from_secs(3)));
    assert!(simulation.sender(0).acked() - before > 600_000);
}
