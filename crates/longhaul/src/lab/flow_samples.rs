// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which connections of the samples belong to which flow, and how each of them went. A flow is known by the port of
//! its server, or of the relay that its client asks.

use super::{
    flows::{accepting, iperf_port},
    programs::nginx,
    sampler::{Recording, Sample},
    scenario::{Flow, Program},
};
use std::{collections::BTreeMap, net::SocketAddr};

/// One end of a flow: a host, and what its connections there have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct End<'a> {
    host: &'a str,
    /// Its side of the connection has the port.
    accepts: bool,
    /// None of them: every connection that is no other flow's.
    ports: Vec<u16>,
    others: Vec<u16>,
}

impl<'a> End<'a> {
    /// Where the data of flow `number` leaves.
    pub(crate) fn sending(flows: &[&'a Flow], number: usize) -> Self {
        Self::at(&flows[number].from, flows, number)
    }

    /// Where it arrives.
    pub(crate) fn receiving(flows: &[&'a Flow], number: usize) -> Self {
        Self::at(&flows[number].to, flows, number)
    }

    fn at(host: &'a str, flows: &[&'a Flow], number: usize) -> Self {
        let accepts = accepting(flows[number]) == host;
        let ports = |n: usize| ports(flows, n, accepts);
        let others = (0..flows.len()).filter(|other| *other != number);
        Self {
            host,
            accepts,
            ports: ports(number),
            others: others.flat_map(ports).collect(),
        }
    }

    /// Whether the samples of both look alike.
    pub(crate) fn is_mistaken_for(&self, other: &Self) -> bool {
        let shared = self.ports.iter().any(|port| other.ports.contains(port));
        self.host == other.host
            && self.accepts == other.accepts
            && (shared || self.ports == other.ports)
    }

    fn has(&self, sample: &Sample) -> bool {
        let connection = &sample.connection;
        let port = match self.accepts {
            true => connection.local.port(),
            false => connection.remote.port(),
        };
        *sample.host == *self.host
            && match self.ports.is_empty() {
                true => !self.others.contains(&port),
                false => self.ports.contains(&port),
            }
    }

    /// Its connections, in the order of their addresses, each in order of time.
    pub(crate) fn connections(&self, recording: &Recording) -> Vec<Vec<Sample>> {
        let mut found: BTreeMap<(SocketAddr, SocketAddr), Vec<Sample>> = BTreeMap::new();
        for sample in recording.samples().filter(|sample| self.has(sample)) {
            let connection = &sample.connection;
            let ends = (connection.local, connection.remote);
            found.entry(ends).or_default().push(sample.clone());
        }
        found.into_values().collect()
    }
}

/// The ports that tell a flow's connections from others; none of a program that opens some of its own
/// choice (FTP's data connections). A web server has one for each way of sending.
fn ports(flows: &[&Flow], number: usize, accepting: bool) -> Vec<u16> {
    let flow = flows[number];
    let asked = flow
        .via
        .as_ref()
        .or(flow.proxy.as_ref().map(|proxy| &proxy.at));
    let by_relay = asked.filter(|_| !accepting).map(|at| at.port);
    let own = match flow.program {
        Program::Curl => (0..flows.len()).map(nginx::port).collect(),
        Program::Iperf3 => vec![iperf_port(number)],
        _ => return Vec::new(),
    };
    own.into_iter().chain(by_relay).collect()
}
