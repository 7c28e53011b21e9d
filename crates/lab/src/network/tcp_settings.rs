// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP settings of hosts for simulation and prediction. A setting that the scenario does not have
//! is Linux's default, never this machine's: a simulation depends on its scenario and seed only.

use crate::scenario::{CcSpec, Direction, Flow, Scenario, Setting};
use longhaul_units::Bytes;

/// Defaults of `tcp_rmem[2]` and `tcp_wmem[2]` on a machine with enough memory (`tcp_init`,
/// net/ipv4/tcp.c).
const RMEM_MAX: u64 = 6 << 20;
const WMEM_MAX: u64 = 4 << 20;

/// Whether window scaling is used: both ends must offer it (RFC 7323 §2.2).
pub(crate) fn is_scaled(scenario: &Scenario, ends: [&str; 2]) -> bool {
    let offers = |host| number(scenario, host, "net.ipv4.tcp_window_scaling", 0) != Some(0);
    ends.into_iter().all(offers)
}

/// Largest window of a connection between `ends`: 1 GiB, or 65,535 bytes without window scaling
/// (RFC 7323 §2.3).
pub(crate) fn largest_window(scenario: &Scenario, ends: [&str; 2]) -> Bytes {
    Bytes::new(if is_scaled(scenario, ends) {
        1 << 30
    } else {
        65_535
    })
}

/// Largest receive buffer of a host.
pub(crate) fn receive_buffer(scenario: &Scenario, host: &str) -> Bytes {
    let buffer = number(scenario, host, "net.ipv4.tcp_rmem", 2);
    Bytes::new(buffer.unwrap_or(RMEM_MAX))
}

/// Largest window that the second of `ends` advertises to the first: half its buffer, as with the
/// default `tcp_adv_win_scale`.
pub(crate) fn receive_window(scenario: &Scenario, ends: [&str; 2]) -> Bytes {
    let half = receive_buffer(scenario, ends[1]).get() / 2;
    Bytes::new(half.clamp(4096, largest_window(scenario, ends).get()))
}

/// Largest send buffer of a host, which holds payload until it is acknowledged.
pub(crate) fn send_buffer(scenario: &Scenario, host: &str) -> Bytes {
    let buffer = number(scenario, host, "net.ipv4.tcp_wmem", 2);
    Bytes::new(buffer.unwrap_or(WMEM_MAX).max(4096))
}

/// Congestion control of the connection on which `host` sends `flow`, as the scenario writes it. At
/// the flow's source it is the flow's own; at a relay, that of the side on which the data leaves.
/// Otherwise it is the host's.
pub(crate) fn sender_control(scenario: &Scenario, host: &str, flow: &Flow) -> String {
    let own = if host == flow.from {
        flow.cc.clone()
    } else {
        relay_control(scenario, host, flow.direction)
    };
    own.and_then(|control| control.key())
        .unwrap_or_else(|| congestion_control(scenario, host))
}

/// Congestion control of a relay for a direction. Clients connect to relays, so uploaded data
/// leaves on the upstream leg.
fn relay_control(scenario: &Scenario, host: &str, direction: Direction) -> Option<CcSpec> {
    // The second is the option's old name.
    let names = match direction {
        Direction::Download => ["cc_downstream", "cc_downstream"],
        Direction::Upload => ["cc_upstream", "cc_upstream"],
    };
    let mut here = scenario
        .relays()
        .filter(|(_, on, relay)| *on == host && relay.enabled);
    let text = here.find_map(|(_, _, relay)| {
        let mut named = names.iter().filter_map(|name| relay.options.get(*name));
        named.next()?.as_str()
    });
    text?.parse().ok()
}

/// Congestion control of all other connections of a host.
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

/// Number at index `place` of a setting with several numbers.
fn number(scenario: &Scenario, host: &str, name: &str, place: usize) -> Option<u64> {
    let text = setting(scenario, host, name)?;
    text.split_whitespace().nth(place)?.parse().ok()
}
