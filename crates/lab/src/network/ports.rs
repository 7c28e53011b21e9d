// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports of the flows' servers, and the hosts between which each flow connects.

use super::{SenderOptions, Topology};
use crate::scenario::{Direction, Flow, Program, Scenario};
use std::collections::BTreeMap;

/// Port of the first iperf3 server.
const IPERF3: u16 = 5201;

/// Port of vsftpd.
pub(crate) const FTP: u16 = 21;

/// Port of nginx for the first set of sender options.
const WEB: u16 = 80;
/// Port of nginx for the second set. Each further set is one port higher.
const WEB_NEXT: u16 = 8081;

/// Port of nginx for set `number` of sender options, from 0.
pub(crate) fn web_port(number: usize) -> u16 {
    match number {
        0 => WEB,
        _ => WEB_NEXT.saturating_add(number as u16 - 1),
    }
}

/// Hosts that curl downloads from, each with its distinct sets of sender options.
pub(crate) type WebServers = BTreeMap<String, Vec<SenderOptions>>;

/// Returns the web servers of `flows`. nginx has one port for each set of sender options.
pub(crate) fn web_servers(scenario: &Scenario, topology: &Topology, flows: &[&Flow]) -> WebServers {
    let mut servers = WebServers::new();
    for flow in flows.iter().filter(|flow| flow.program == Program::Curl) {
        let sender_options = SenderOptions::of(scenario, topology, flow);
        let option_sets = servers.entry(flow.from.clone()).or_default();
        if !option_sets.contains(&sender_options) {
            option_sets.push(sender_options);
        }
    }
    servers
}

/// Returns the host that accepts the connection. For a probe, that is the destination of its
/// packets.
pub(crate) fn accepting_host(flow: &Flow) -> &str {
    match (flow.program, flow.direction) {
        (program, Direction::Download) if program.has_a_client() => &flow.from,
        _ => &flow.to,
    }
}

/// Returns the host that opens the connection.
pub(crate) fn opening_host(flow: &Flow) -> &str {
    match (flow.program, flow.direction) {
        (program, Direction::Download) if program.has_a_client() => &flow.to,
        _ => &flow.from,
    }
}

/// Returns the port of the iperf3 server of flow `number`. Servers on one host need distinct ports.
pub(crate) fn iperf_port(number: usize) -> u16 {
    IPERF3.saturating_add(number as u16)
}

/// Returns the port at which the server of flow `number` listens.
pub(crate) fn server_port(
    web: &WebServers,
    number: usize,
    flow: &Flow,
    sender_options: &SenderOptions,
) -> u16 {
    let find_set = || {
        let option_sets = web.get(&flow.from)?;
        option_sets.iter().position(|set| set == sender_options)
    };
    match flow.program {
        Program::Curl => web_port(find_set().unwrap_or_default()),
        Program::Ftp => FTP,
        _ => iperf_port(number),
    }
}
