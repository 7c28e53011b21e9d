// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of flows: ports of the servers, the hosts between which each flow connects, and the options of the sender's
//! socket, congestion control and pacing.

use super::Topology;
use crate::scenario::{Direction, Flow, Pacing, Program, Scenario};
use longhaul_linux::socket::Options;
use longhaul_units::{BitRate, Time};
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

/// Options of the sender's socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SenderOptions {
    pub(crate) congestion_control: Option<String>,
    /// SO_MAX_PACING_RATE.
    pub(crate) pacing_rate: Option<BitRate>,
}

/// Pacing rate that limits nothing: a socket with a rate is paced (`SO_MAX_PACING_RATE`,
/// net/core/sock.c). It is the largest rate that fits in 32 bits of bytes a second, as iperf3
/// counts.
const UNLIMITED: BitRate = BitRate::from_bits((u32::MAX as u64 - 1) * 8);

/// Headers of a full segment in bytes: IPv4, and TCP with time stamps.
const HEADERS: u32 = 52;

impl SenderOptions {
    /// Sender options of a flow whose congestion control has the kernel's name.
    pub(crate) fn of(scenario: &Scenario, topology: &Topology, flow: &Flow) -> Self {
        let cc = flow.cc.as_ref();
        let paced =
            cc.is_some_and(|control| control.paced) || flow.pacing == Some(Pacing::Own(true));
        let rate = match (flow.pacing, flow.inter_packet_gap) {
            (Some(Pacing::Rate(rate)), _) => Some(rate),
            (_, Some(gap)) => Some(rate_for_gap(gap, segment_size(scenario, topology, flow))),
            _ => paced.then_some(UNLIMITED),
        };
        Self {
            congestion_control: cc.and_then(|control| control.name()).map(str::to_owned),
            pacing_rate: rate,
        }
    }

    /// Returns the options of a listening socket. Accepted connections inherit them.
    pub(crate) fn options(&self) -> Options {
        Options {
            congestion_control: self.congestion_control.clone(),
            pacing_rate: self.pacing_rate.map(|rate| rate.bits() / 8),
            ..Options::default()
        }
    }
}

/// Payload of a full segment in bytes: the smallest MTU of the path less headers.
pub(crate) fn segment_size(scenario: &Scenario, topology: &Topology, flow: &Flow) -> u32 {
    let mtu = topology.mtu(&scenario.links, &flow.from, &flow.to);
    mtu.unwrap_or(1500) - HEADERS
}

/// Pacing rate that gives this gap between segments. The kernel paces by payload
/// (`tcp_update_skb_after_send`).
fn rate_for_gap(gap: Time, segment: u32) -> BitRate {
    BitRate::from_bits((f64::from(segment) * 8.0 / gap.as_secs_f64()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options_of(keys: &str) -> SenderOptions {
        let scenario: Scenario = toml::from_str(&format!(
            "title = 't'\nquestion = 'q'\n\
             [[links]]\nname = 'l'\nkind = 'veth'\nendpoints = ['a', 'b']\n\
             [[flows]]\nname = 'f'\nprogram = 'iperf3'\nfrom = 'a'\nto = 'b'\n{keys}"
        ))
        .unwrap();
        SenderOptions::of(&scenario, &Topology::of(&scenario), &scenario.flows[0])
    }

    #[test]
    fn pace_is_a_rate_or_unlimited_pacing() {
        let rate = |keys| options_of(keys).pacing_rate.map(BitRate::bits);
        assert_eq!(rate("pacing = '800mbit'"), Some(800_000_000));
        assert_eq!(rate("pacing = true"), Some(UNLIMITED.bits()));
        assert_eq!(rate("cc = 'reno+pace'"), Some(UNLIMITED.bits()));
        assert_eq!(rate("cc = '+pace'\npacing = '1gbit'"), Some(1_000_000_000));
        assert_eq!(rate("pacing = false"), None);
        assert_eq!(
            options_of("cc = 'reno'").congestion_control.as_deref(),
            Some("reno")
        );
        assert_eq!(options_of(""), SenderOptions::default());
    }

    #[test]
    fn gap_is_the_time_between_full_segments() {
        // 1448 bytes each 12 µs.
        let rate = options_of("inter_packet_gap = '12us'").pacing_rate;
        assert_eq!(rate, Some(BitRate::from_bits(965_333_333)));
    }
}
