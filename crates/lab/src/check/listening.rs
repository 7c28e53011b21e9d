// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP listeners on each host in one cell: those of relays, and those of the flows' servers.
//! Without this check, only the testbed of a run would show that two programs use the same port, or
//! that nothing listens at the address that a flow connects to.

use crate::{
    network::{Topology, loopback, sockets},
    scenario::{
        Flow, Program, Scenario,
        config_error::{CheckResult, ensure, locate_error},
    },
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The TCP listeners of a cell.
#[derive(Debug)]
pub(crate) struct Listeners<'a> {
    topology: &'a Topology,
    all: Vec<Listener>,
    intercepted: Vec<Intercepted>,
}

/// Networks and ports that a relay intercepts.
#[derive(Debug)]
struct Intercepted {
    relay: String,
    host: String,
    target: String,
}

#[derive(Debug)]
struct Listener {
    host: String,
    at: SocketAddr,
    /// Name of the program for messages.
    owner: String,
}

impl<'a> Listeners<'a> {
    /// Returns the listeners of the flows' servers. Each listens at every address of its host.
    pub(crate) fn of_flows(scenario: &Scenario, topology: &'a Topology) -> Self {
        let flows: Vec<&Flow> = scenario.flows.iter().filter(|flow| flow.enabled).collect();
        let mut all = Vec::new();
        for (host, option_sets) in sockets::web_servers(scenario, topology, &flows) {
            let ports = (0..option_sets.len()).map(sockets::web_port);
            all.extend(ports.map(|port| on_all_addresses(&host, port, "nginx".to_owned())));
        }
        for (number, flow) in flows.iter().enumerate() {
            let (host, owner) = (
                sockets::accepting_host(flow),
                format!("flow {:?}", flow.name),
            );
            match flow.program {
                Program::Ftp => all.push(on_all_addresses(host, sockets::FTP, owner)),
                Program::Iperf3 => {
                    all.push(on_all_addresses(host, sockets::iperf_port(number), owner));
                }
                Program::Command => {
                    let port = flow.server_port.filter(|_| !flow.server.is_empty());
                    all.extend(port.map(|port| on_all_addresses(host, port, owner)));
                }
                Program::Curl | Program::Probe | Program::Udt => {}
            }
        }
        Self {
            topology,
            all,
            intercepted: Vec::new(),
        }
    }

    /// Adds the listeners of a relay, each with its option. Each must be at an address of the relay's host at which
    /// nothing else listens.
    pub(crate) fn add_relay(
        &mut self,
        name: &str,
        host: &str,
        listeners: Vec<(String, SocketAddr)>,
    ) -> CheckResult {
        listeners.into_iter().try_for_each(|(option, address)| {
            locate_error(&option, self.check_listener(host, address))?;
            self.all.push(Listener {
                host: host.to_owned(),
                at: address,
                owner: format!("relay {name:?}"),
            });
            Ok(())
        })
    }

    /// Adds what a relay intercepts. Of two relays on one host that intercept the same, one would take all connections.
    pub(crate) fn add_intercepted(
        &mut self,
        name: &str,
        host: &str,
        targets: Vec<String>,
    ) -> CheckResult {
        targets.into_iter().try_for_each(|target| {
            let same = |other: &&Intercepted| other.host == host && other.target == target;
            if let Some(Intercepted { relay, .. }) = self.intercepted.iter().find(same) {
                let problem =
                    format!("relay {relay:?} already intercepts {target} on host {host:?}");
                return locate_error("intercept", Err(problem));
            }
            self.intercepted.push(Intercepted {
                relay: name.to_owned(),
                host: host.to_owned(),
                target,
            });
            Ok(())
        })
    }

    fn check_listener(&self, host: &str, at: SocketAddr) -> CheckResult {
        ensure(at.port() != 0, || {
            format!("{at}: port 0 means a random port, which no flow can know")
        })?;
        self.check_address(host, at)?;
        self.check_free(host, at)
    }

    fn check_address(&self, host: &str, at: SocketAddr) -> CheckResult {
        let host_addresses = self.topology.addresses(host);
        let ip = at.ip();
        let is_own =
            ip.is_unspecified() || ip.is_loopback() || host_addresses.iter().any(|one| ip == *one);
        ensure(is_own, || {
            let host_addresses: Vec<String> =
                host_addresses.iter().map(Ipv4Addr::to_string).collect();
            format!(
                "{at}: host {host:?} has no such address; it has {}",
                host_addresses.join(", ")
            )
        })
    }

    fn check_free(&self, host: &str, at: SocketAddr) -> CheckResult {
        let taken = |other: &&Listener| other.host == host && overlap(other.at, at);
        let other = self.all.iter().find(taken);
        other.map_or(Ok(()), |Listener { owner, at: old, .. }| {
            Err(format!("{at}: {owner} listens at {old} of host {host:?} already").into())
        })
    }

    /// Checks that something listens at the `via` or `proxy` of `flow`, if it has one.
    pub(crate) fn check_target(&self, flow: &Flow) -> CheckResult {
        let proxy = flow.proxy.as_ref().map(|proxy| &proxy.at);
        let (key, target) = match &flow.via {
            Some(via) => ("via", Some(via)),
            None => ("proxy", proxy),
        };
        let Some(target) = target.filter(|_| flow.enabled) else {
            return Ok(());
        };
        let client = sockets::opening_host(flow);
        let address = self.topology.address(client, &target.host);
        let host = match loopback(&target.host) {
            Some(_) => client,
            None => &target.host,
        };
        let address = address.map(|ip| SocketAddr::from((ip, target.port)));
        let serves = |listener: &Listener| {
            listener.host == host && address.is_some_and(|at| overlap(listener.at, at))
        };
        let served = ensure(self.all.iter().any(serves), || {
            format!("flow {:?}: nothing listens at {target}", flow.name)
        });
        locate_error(key, served)
    }
}

fn on_all_addresses(host: &str, port: u16, owner: String) -> Listener {
    Listener {
        host: host.to_owned(),
        at: (Ipv4Addr::UNSPECIFIED, port).into(),
        owner,
    }
}

/// Returns whether some address and port belongs to both listeners. `[::]` has no IPv4 address,
/// because relays set IPV6_V6ONLY.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let any = |ip: IpAddr| ip.is_unspecified();
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (any(one.ip()) || any(other.ip()) || one.ip() == other.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the refusal of an iperf3 flow from a to c that connects to `via`. The relay listens
    /// at `address` of the host `relay`.
    fn refusal(relay: &str, address: &str, via: &str) -> Option<String> {
        let text = format!(
            "title = 't'\nquestion = 'q'\n\
             links = [{{ name = 'wan', endpoints = ['a', 'b'] }}, {{ name = 'lan', endpoints = ['b', 'c'] }}]\n\
             [relays.{relay}]\nsocks5 = '{address}'\n\
             [[flows]]\nname = 'f'\nprogram = 'iperf3'\ndirection = 'upload'\nfrom = 'a'\nto = 'c'\nsize = '1MB'\nvia = '{via}'"
        );
        let scenario: Scenario = toml::from_str(&text).unwrap();
        let topology = Topology::of(&scenario);
        let mut all = Listeners::of_flows(&scenario, &topology);
        let added = all.add_relay(
            relay,
            relay,
            vec![("socks5".to_owned(), address.parse().unwrap())],
        );
        let checked = added.and_then(|()| all.check_target(&scenario.flows[0]));
        checked.err().map(|error| error.to_string())
    }

    /// If both listened at the port, a client might reach either.
    #[test]
    fn refuses_a_relay_at_the_port_of_a_server() {
        let taken = refusal("c", "10.9.1.2:5201", "c:5201").unwrap();
        assert!(
            taken.contains("flow \"f\" listens at 0.0.0.0:5201"),
            "{taken}"
        );
        assert_eq!(refusal("c", "10.9.1.2:5202", "c:5202"), None);
    }

    #[test]
    fn refuses_a_via_where_nothing_listens() {
        assert_eq!(refusal("b", "10.9.0.2:1080", "b:1080"), None);
        assert_eq!(refusal("b", "0.0.0.0:1080", "b:1080"), None);
        for nowhere in [
            "127.0.0.1:1080",
            "10.9.1.1:1080",
            "0.0.0.0:1081",
            "[::]:1080",
        ] {
            let refused = refusal("b", nowhere, "b:1080").unwrap();
            assert!(refused.contains("nothing listens at b:1080"), "{refused}");
        }
    }
}
