// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a host's kernel settings mean for TCP, for those who simulate or predict. What a scenario does not set is
//! Linux's default, never this machine's: a simulation depends on its scenario and seed alone.

use crate::scenario::{Control, Direction, Flow, Scenario, Setting};
use longhaul_units::Bytes;

/// `tcp_rmem[2]` and `tcp_wmem[2]` of a machine with memory enough (`tcp_init`, net/ipv4/tcp.c).
const RMEM_MAX: u64 = 6 << 20;
const WMEM_MAX: u64 = 4 << 20;

/// Window scaling is used if both ends offer it (RFC 7323 §2.2).
pub(crate) fn is_scaled(scenario: &Scenario, ends: [&str; 2]) -> bool {
    let offers = |host| number(scenario, host, "net.ipv4.tcp_window_scaling", 0) != Some(0);
    ends.into_iter().all(offers)
}

/// The largest window of a connection between `ends`: 1 GiB, or 64 KB less one byte if it is not scaled (RFC 7323
/// §2.3).
pub(crate) fn largest_window(scenario: &Scenario, ends: [&str; 2]) -> Bytes {
    Bytes::new(if is_scaled(scenario, ends) {
        1 << 30
    } else {
        65_535
    })
}

/// The largest buffer that a host receives into.
pub(crate) fn receive_buffer(scenario: &Scenario, host: &str) -> Bytes {
    let buffer = number(scenario, host, "net.ipv4.tcp_rmem", 2);
    Bytes::new(buffer.unwrap_or(RMEM_MAX))
}

/// The largest window that the second of `ends` advertises to the first: half its buffer, as `tcp_adv_win_scale` has
/// it.
pub(crate) fn receive_window(scenario: &Scenario, ends: [&str; 2]) -> Bytes {
    let half = receive_buffer(scenario, ends[1]).get() / 2;
    Bytes::new(half.clamp(4096, largest_window(scenario, ends).get()))
}

/// The payload that a host's sockets keep until it is acknowledged.
pub(crate) fn send_buffer(scenario: &Scenario, host: &str) -> Bytes {
    let buffer = number(scenario, host, "net.ipv4.tcp_wmem", 2);
    Bytes::new(buffer.unwrap_or(WMEM_MAX).max(4096))
}

/// Of the connection on which `host` sends `flow`, as the scenario writes it: the flow's own at its source, elsewhere
/// that of the relay's side that the data leaves by; without one, the host's.
pub(crate) fn sender_control(scenario: &Scenario, host: &str, flow: &Flow) -> String {
    let own = match host == flow.from {
        true => flow.cc.clone(),
        false => relay_control(scenario, host, flow.direction),
    };
    own.and_then(|control| control.key())
        .unwrap_or_else(|| congestion_control(scenario, host))
}

/// Clients connect to relays: what is uploaded leaves by the far side.
fn relay_control(scenario: &Scenario, host: &str, direction: Direction) -> Option<Control> {
    let side = match direction {
        Direction::Download => "cc_near",
        Direction::Upload => "cc_far",
    };
    let mut here = scenario
        .relays()
        .filter(|(_, on, relay)| *on == host && relay.when);
    let text = here.find_map(|(_, _, relay)| relay.options.get(side)?.as_str());
    text?.parse().ok()
}

/// What connections of a host use that say nothing else.
fn congestion_control(scenario: &Scenario, host: &str) -> String {
    let own = scenario.hosts.get(host);
    let own = own.and_then(|host| host.congestion_control.as_ref());
    let set = || setting(scenario, host, "net.ipv4.tcp_congestion_control");
    let routed = own.or(scenario.congestion_control.as_ref()).cloned();
    routed.or_else(set).unwrap_or_else(|| "cubic".to_owned())
}

fn setting(scenario: &Scenario, host: &str, name: &str) -> Option<String> {
    let own = scenario.hosts.get(host);
    let own = own.and_then(|host| host.sysctl.get(name));
    own.or_else(|| scenario.sysctl.get(name))
        .map(Setting::to_string)
}

/// The number at `place` of a setting's numbers.
fn number(scenario: &Scenario, host: &str, name: &str, place: usize) -> Option<u64> {
    let text = setting(scenario, host, name)?;
    text.split_whitespace().nth(place)?.parse().ok()
}
