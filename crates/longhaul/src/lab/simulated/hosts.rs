// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a host's kernel settings mean for simulated TCP. What a scenario does not set is Linux's
//! default, never this machine's: a simulation depends on its scenario and seed alone.

use crate::lab::scenario::{Scenario, Setting};
use units::Bytes;

/// `tcp_rmem[2]` and `tcp_wmem[2]` of a machine with memory enough (`tcp_init`, net/ipv4/tcp.c).
const RMEM_MAX: u64 = 6 << 20;
const WMEM_MAX: u64 = 4 << 20;

/// The largest window that a host advertises: half its buffer, as `tcp_adv_win_scale` has it, and 64 KB
/// less one byte unless windows are scaled (RFC 7323 §2.2); 1 GiB at most (§2.3).
pub(super) fn receive_window(scenario: &Scenario, host: &str) -> Bytes {
    let scaled = number(scenario, host, "net.ipv4.tcp_window_scaling", 0).unwrap_or(1) != 0;
    let buffer = number(scenario, host, "net.ipv4.tcp_rmem", 2).unwrap_or(RMEM_MAX);
    let most = if scaled { 1 << 30 } else { 65_535 };
    Bytes::new((buffer / 2).clamp(4096, most))
}

/// The payload that a host's sockets keep until it is acknowledged.
pub(super) fn send_buffer(scenario: &Scenario, host: &str) -> Bytes {
    let buffer = number(scenario, host, "net.ipv4.tcp_wmem", 2);
    Bytes::new(buffer.unwrap_or(WMEM_MAX).max(4096))
}

/// What connections of a host use that say nothing else.
pub(super) fn congestion_control(scenario: &Scenario, host: &str) -> String {
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
