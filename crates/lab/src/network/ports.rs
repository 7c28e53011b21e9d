// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which end of a flow waits for the connection, and at which port its server listens.

use super::{Sending, Topology};
use crate::scenario::{Direction, Flow, Program, Scenario};
use std::collections::BTreeMap;

/// Where the first server of iperf3 listens.
const IPERF3: u16 = 5201;

/// Where vsftpd listens.
pub(crate) const FTP: u16 = 21;

/// Where nginx listens first.
const WEB: u16 = 80;
/// And for each further way of sending, one port higher.
const WEB_NEXT: u16 = 8081;

/// Where connections of the `number`th way of sending are served, counted from 0.
pub(crate) fn web_port(number: usize) -> u16 {
    match number {
        0 => WEB,
        _ => WEB_NEXT.saturating_add(number as u16 - 1),
    }
}

/// The hosts that curl fetches from, each with the ways in which its connections send.
pub(crate) type WebServers = BTreeMap<String, Vec<Sending>>;

/// Those of `flows`: nginx has a port for each way.
pub(crate) fn web_servers(scenario: &Scenario, topology: &Topology, flows: &[&Flow]) -> WebServers {
    let mut servers = WebServers::new();
    for flow in flows.iter().filter(|flow| flow.program == Program::Curl) {
        let sending = Sending::of(scenario, topology, flow);
        let ways = servers.entry(flow.from.clone()).or_default();
        if !ways.contains(&sending) {
            ways.push(sending);
        }
    }
    servers
}

/// The host that waits for the connection; a probe's packets go where its data goes.
pub(crate) fn accepting(flow: &Flow) -> &str {
    match (flow.program, flow.direction) {
        (program, Direction::Download) if program.has_a_client() => &flow.from,
        _ => &flow.to,
    }
}

/// The host that opens it.
pub(crate) fn opening(flow: &Flow) -> &str {
    match (flow.program, flow.direction) {
        (program, Direction::Download) if program.has_a_client() => &flow.to,
        _ => &flow.from,
    }
}

/// Flows that share a host need a port each.
pub(crate) fn iperf_port(number: usize) -> u16 {
    IPERF3.saturating_add(number as u16)
}

/// Where the server of the flow of this number listens.
pub(crate) fn server(web: &WebServers, number: usize, flow: &Flow, sending: &Sending) -> u16 {
    let way = || {
        let ways = web.get(&flow.from)?;
        ways.iter().position(|way| way == sending)
    };
    match flow.program {
        Program::Curl => web_port(way().unwrap_or_default()),
        Program::Ftp => FTP,
        _ => iperf_port(number),
    }
}
