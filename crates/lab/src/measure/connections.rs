// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assignment of sampled connections to flows. A flow is identified by the port of its server, or
//! of the relay that its client connects to.

use super::{Recording, Sample};
use crate::{
    network::{
        SenderOptions, Topology,
        sockets::{accepting_host, iperf_port, server_port, web_servers},
    },
    scenario::{Flow, Program, Scenario},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

/// Flows that run in a cell, with the ports that identify their connections.
#[derive(Debug)]
pub(crate) struct Flows<'a> {
    pub(crate) all: Vec<&'a Flow>,
    /// Ports of each flow's server. Empty for a program that opens connections at arbitrary ports
    /// (FTP's data).
    servers: Vec<Vec<u16>>,
}

impl<'a> Flows<'a> {
    pub(crate) fn of(scenario: &'a Scenario, topology: &Topology) -> Self {
        let all: Vec<&Flow> = scenario.flows.iter().filter(|flow| flow.enabled).collect();
        let web = web_servers(scenario, topology, &all);
        let of_curl = |number: usize| {
            let sender_options = SenderOptions::of(scenario, topology, all[number]);
            server_port(&web, number, all[number], &sender_options)
        };
        let ports = |number: usize| match all[number].program {
            // The second is the port of a simulated server.
            Program::Curl => vec![of_curl(number), iperf_port(number)],
            Program::Iperf3 | Program::Udt => vec![iperf_port(number)],
            _ => Vec::new(),
        };
        Self {
            servers: (0..all.len()).map(ports).collect(),
            all,
        }
    }

    /// Returns the number of the flow `name`, or the numbers of all flows that transfer data.
    pub(crate) fn select_transfers(&self, name: Option<&str>) -> Vec<usize> {
        let wanted = |flow: &&Flow| flow.transfers() && name.is_none_or(|name| flow.name == name);
        let all = self.all.iter().enumerate();
        all.filter(|(_, flow)| wanted(flow))
            .map(|(number, _)| number)
            .collect()
    }

    /// Endpoint that sends the data of flow `number`.
    pub(crate) fn sender(&self, number: usize) -> FlowEndpoint<'a> {
        self.endpoint(&self.all[number].from, number)
    }

    /// Endpoint that receives the data of flow `number`.
    pub(crate) fn receiver(&self, number: usize) -> FlowEndpoint<'a> {
        self.endpoint(&self.all[number].to, number)
    }

    fn endpoint(&self, host: &'a str, number: usize) -> FlowEndpoint<'a> {
        let accepts = accepting_host(self.all[number]) == host;
        let others = (0..self.all.len()).filter(|other| *other != number);
        FlowEndpoint {
            host,
            accepts,
            ports: self.ports(number, accepts),
            others: others
                .flat_map(|other| self.ports(other, accepts))
                .collect(),
        }
    }

    /// Ports of the server, and for its client also the port of its relay.
    fn ports(&self, number: usize, accepts: bool) -> Vec<u16> {
        let (flow, server) = (self.all[number], &self.servers[number]);
        let relay = flow
            .via
            .as_ref()
            .or(flow.proxy.as_ref().map(|proxy| &proxy.at));
        let relay = relay.filter(|_| !accepts && !server.is_empty());
        server
            .iter()
            .copied()
            .chain(relay.map(|at| at.port))
            .collect()
    }
}

/// Endpoint of a flow: a host, and the ports that identify the flow's connections there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FlowEndpoint<'a> {
    host: &'a str,
    /// Whether the port is on this side of the connection.
    accepts: bool,
    /// Ports of the flow. If empty: every connection without a port of another flow.
    ports: Vec<u16>,
    /// Ports of all other flows.
    others: Vec<u16>,
}

impl FlowEndpoint<'_> {
    /// Returns whether ports do not distinguish the samples of the two.
    pub(crate) fn is_ambiguous_with(&self, other: &Self) -> bool {
        let shared = self.ports.iter().any(|port| other.ports.contains(port));
        self.host == other.host
            && self.accepts == other.accepts
            && (shared || self.ports == other.ports)
    }

    fn matches(&self, sample: &Sample) -> bool {
        let connection = &sample.connection;
        let [local, remote] = [&connection.local, &connection.remote].map(SocketAddr::port);
        let port = if self.accepts { local } else { remote };
        *sample.host == *self.host
            && if self.ports.is_empty() {
                !self.others.contains(&local) && !self.others.contains(&remote)
            } else {
                self.ports.contains(&port)
            }
    }

    /// Returns its connections in the order of their addresses, each with its samples in order of
    /// time.
    pub(crate) fn connections(&self, recording: &Recording) -> Vec<Vec<Sample>> {
        let mut found: BTreeMap<(SocketAddr, SocketAddr), Vec<Sample>> = BTreeMap::new();
        for sample in recording.samples().filter(|sample| self.matches(sample)) {
            let connection = &sample.connection;
            let ends = (connection.local, connection.remote);
            found.entry(ends).or_default().push(sample.clone());
        }
        found.into_values().collect()
    }
}

/// Returns the connections of all `endpoints`, each once. Flows whose ports are the same share
/// connections.
pub(crate) fn connections_of(
    endpoints: &[FlowEndpoint<'_>],
    recording: &Recording,
) -> Vec<Vec<Sample>> {
    let mut seen = BTreeSet::new();
    let all = endpoints
        .iter()
        .flat_map(|endpoint| endpoint.connections(recording));
    let is_new = |samples: &Vec<Sample>| {
        let first = samples.first().map(|sample| {
            let connection = &sample.connection;
            (sample.host.clone(), connection.local, connection.remote)
        });
        seen.insert(first)
    };
    all.filter(is_new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKS: &str =
        "title = 't'\nquestion = 'q'\n[[links]]\nname = 'wan'\nendpoints = ['a', 'b']\n";

    /// Flows from a to b with these additional keys.
    fn scenario(flows: &[&str]) -> Scenario {
        let flow = |(n, keys): (usize, &&str)| {
            format!("[[flows]]\nname = 'f{n}'\nfrom = 'a'\nto = 'b'\n{keys}\n")
        };
        let flows: String = flows.iter().enumerate().map(flow).collect();
        toml::from_str(&format!("{LINKS}{flows}")).unwrap()
    }

    fn ambiguous(flows: &[&str]) -> [bool; 2] {
        let scenario = scenario(flows);
        let flows = Flows::of(&scenario, &Topology::of(&scenario));
        [
            flows.sender(0).is_ambiguous_with(&flows.sender(1)),
            flows.receiver(0).is_ambiguous_with(&flows.receiver(1)),
        ]
    }

    #[test]
    fn identifies_flows_by_the_ports_of_their_servers() {
        let (iperf, curl) = (
            "program = 'iperf3'\nsize = '1MB'",
            "program = 'curl'\nsize = '1MB'",
        );
        assert_eq!(ambiguous(&[iperf, iperf]), [false, false]);
        assert_eq!(ambiguous(&[iperf, curl]), [false, false]);
        assert_eq!(ambiguous(&[curl, curl]), [true, true]);
        let paced = format!("{curl}\npacing = '1mbit'");
        assert_eq!(
            ambiguous(&[curl, &paced]),
            [false, false],
            "nginx has a port for each set of sender options"
        );
        let via = format!("{iperf}\nvia = 'b:8080'");
        assert_eq!(
            ambiguous(&[&via, &via]),
            [false, true],
            "the clients use one relay"
        );
    }

    #[test]
    fn counts_connections_of_ambiguous_flows_once() {
        for program in ["curl", "ftp", "command"] {
            let flow = format!("program = '{program}'\nsize = '1MB'");
            let scenario = scenario(&[&flow, &flow]);
            let flows = Flows::of(&scenario, &Topology::of(&scenario));
            let sample =
                |client| crate::measure::time_series::tests::sample(1.0, "a", 80, client, 1);
            let recording = Recording::new(vec![sample(40_000), sample(40_001)]);
            let ends: Vec<FlowEndpoint<'_>> = (0..2).map(|number| flows.sender(number)).collect();
            assert_eq!(connections_of(&ends, &recording).len(), 2, "{program}");
        }
    }

    #[test]
    fn ftp_flow_gets_connections_of_no_other_flow() {
        let scenario = scenario(&[
            "program = 'ftp'\nsize = '1MB'",
            "program = 'iperf3'\nsize = '1MB'",
        ]);
        let flows = Flows::of(&scenario, &Topology::of(&scenario));
        let sample = |port| crate::measure::time_series::tests::sample(1.0, "a", port, 40_000, 1);
        let end = flows.sender(0);
        assert!(end.matches(&sample(34_567)) && end.matches(&sample(21)));
        assert!(!end.matches(&sample(5202)));
        assert!(flows.sender(1).matches(&sample(5202)));
    }
}
