// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP listeners on each host in one cell: those of relays, and those of the flows' servers.
//! Without this check, only the testbed of a run would show that two programs use the same port, or
//! that nothing listens at the address that a flow connects to.

use crate::{
    network::{Topology, ports},
    scenario::{
        Flow, Program, Relay, Scenario,
        fault::{Checked, at, each, ensure},
    },
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use toml::{Table, Value};

/// The TCP listeners of a cell.
#[derive(Debug)]
pub(crate) struct Listeners<'a> {
    topology: &'a Topology,
    all: Vec<Listener>,
    /// Intercepted ports: host, port and name of the relay.
    intercepted: Vec<(String, u16, String)>,
}

#[derive(Debug)]
struct Listener {
    host: String,
    at: SocketAddr,
    /// Name of the program for messages.
    owner: String,
}

impl<'a> Listeners<'a> {
    /// Listeners of the flows' servers. Each listens at every address of its host.
    pub(crate) fn of_flows(scenario: &Scenario, topology: &'a Topology) -> Self {
        let flows: Vec<&Flow> = scenario.flows.iter().filter(|flow| flow.when).collect();
        let mut all = Vec::new();
        for (host, ways) in ports::web_servers(scenario, topology, &flows) {
            let ports = (0..ways.len()).map(ports::web_port);
            all.extend(ports.map(|port| everywhere(&host, port, "nginx".to_owned())));
        }
        for (number, flow) in flows.iter().enumerate() {
            let (host, owner) = (ports::accepting(flow), format!("flow {:?}", flow.name));
            match flow.program {
                Program::Ftp => all.push(everywhere(host, ports::FTP, owner)),
                Program::Iperf3 => all.push(everywhere(host, ports::iperf_port(number), owner)),
                Program::Command => {
                    let ready = flow.ready.filter(|_| !flow.server.is_empty());
                    all.extend(ready.map(|port| everywhere(host, port, owner)));
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

    /// Adds the listeners of a relay. Each must use an address of its host at which nothing else
    /// listens.
    pub(crate) fn add_relay(
        &mut self,
        name: &str,
        host: &str,
        relay: &Relay,
        own: Vec<SocketAddr>,
    ) -> Checked {
        at("intercept", self.intercept(name, host, &relay.intercept))?;
        own.into_iter().try_for_each(|address| {
            match key_of(&relay.options, address) {
                Some(key) => at(key, self.may_have(host, address)),
                None => self.may_have(host, address),
            }?;
            self.all.push(Listener {
                host: host.to_owned(),
                at: address,
                owner: format!("relay {name:?}"),
            });
            Ok(())
        })
    }

    /// Adds the intercepted ports of a relay. Of two relays on one host, the first would take all
    /// connections to a port.
    fn intercept(&mut self, name: &str, host: &str, ports: &[u16]) -> Checked {
        each(ports, |port| {
            let mut taken = self.intercepted.iter();
            let other = taken.find(|(at, taken, _)| at == host && taken == port);
            ensure(other.is_none(), || {
                let other = other.map_or("", |(.., other)| other);
                format!("relay {other:?} takes port {port} on host {host:?} already")
            })?;
            let own = (host.to_owned(), *port, name.to_owned());
            self.intercepted.push(own);
            Ok(())
        })
    }

    fn may_have(&self, host: &str, at: SocketAddr) -> Checked {
        ensure(at.port() != 0, || {
            format!("{at}: port 0 is another port in each run, so no flow could know it")
        })?;
        self.belongs(host, at)?;
        self.is_free(host, at)
    }

    fn belongs(&self, host: &str, at: SocketAddr) -> Checked {
        let own = self.topology.addresses(host);
        let ip = at.ip();
        let known = ip.is_unspecified() || ip.is_loopback() || own.iter().any(|own| ip == *own);
        ensure(known, || {
            let own: Vec<String> = own.iter().map(Ipv4Addr::to_string).collect();
            format!(
                "{at}: host {host:?} has no such address; it has {}",
                own.join(", ")
            )
        })
    }

    fn is_free(&self, host: &str, at: SocketAddr) -> Checked {
        let taken = |other: &&Listener| other.host == host && meet(other.at, at);
        let other = self.all.iter().find(taken);
        other.map_or(Ok(()), |Listener { owner, at: old, .. }| {
            Err(format!("{at}: {owner} listens at {old} of host {host:?} already").into())
        })
    }

    /// Checks that something listens at the relay that `flow` connects to, if it uses one.
    pub(crate) fn serve(&self, flow: &Flow) -> Checked {
        let proxy = flow.proxy.as_ref().map(|proxy| &proxy.at);
        let (key, target) = match &flow.via {
            Some(via) => ("via", Some(via)),
            None => ("proxy", proxy),
        };
        let Some(target) = target.filter(|_| flow.when) else {
            return Ok(());
        };
        let address = self.topology.address(ports::opening(flow), &target.host);
        let address = address.map(|ip| SocketAddr::from((ip, target.port)));
        let serves =
            |one: &Listener| one.host == target.host && address.is_some_and(|at| meet(one.at, at));
        let served = ensure(self.all.iter().any(serves), || {
            format!("flow {:?}: nothing listens at {target}", flow.name)
        });
        at(key, served)
    }
}

/// Returns the option that holds `address`, unless it is in the configuration file.
fn key_of(options: &Table, address: SocketAddr) -> Option<&String> {
    let address = address.to_string();
    let says = |value: &Value| {
        value
            .as_str()
            .is_some_and(|text| text.starts_with(&address))
    };
    let mut all = options.iter();
    let found = all.find(|(_, value)| match value {
        Value::Array(all) => all.iter().any(says),
        one => says(one),
    });
    found.map(|(key, _)| key)
}

fn everywhere(host: &str, port: u16, owner: String) -> Listener {
    Listener {
        host: host.to_owned(),
        at: (Ipv4Addr::UNSPECIFIED, port).into(),
        owner,
    }
}

/// Whether the two overlap in an address and port. `[::]` has no IPv4 address, because relays set
/// IPV6_V6ONLY.
fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    let any = |ip: IpAddr| ip.is_unspecified();
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (any(one.ip()) || any(other.ip()) || one.ip() == other.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the refusal of an iperf3 flow from a to c by `via`, with a relay at `address`.
    fn said(relay: &str, address: &str, via: &str) -> Option<String> {
        let text = format!(
            "title = 't'\nquestion = 'q'\n\
             links = [{{ name = 'wan', between = ['a', 'b'] }}, {{ name = 'lan', between = ['b', 'c'] }}]\n\
             [relays.{relay}]\nsocks5 = '{address}'\n\
             [[flows]]\nname = 'f'\nprogram = 'iperf3'\ndirection = 'upload'\nfrom = 'a'\nto = 'c'\nsize = '1MB'\nvia = '{via}'"
        );
        let scenario: Scenario = toml::from_str(&text).unwrap();
        let topology = Topology::of(&scenario);
        let mut all = Listeners::of_flows(&scenario, &topology);
        let own = &scenario.relays[relay];
        let added = all.add_relay(relay, relay, own, vec![address.parse().unwrap()]);
        let checked = added.and_then(|()| all.serve(&scenario.flows[0]));
        checked.err().map(|fault| fault.to_string())
    }

    /// Both would listen at the port, and clients would reach either.
    #[test]
    fn refuses_a_relay_at_the_port_of_a_server() {
        let taken = said("c", "10.9.1.2:5201", "c:5201").unwrap();
        assert!(
            taken.contains("flow \"f\" listens at 0.0.0.0:5201"),
            "{taken}"
        );
        assert_eq!(said("c", "10.9.1.2:5202", "c:5202"), None);
    }

    #[test]
    fn refuses_a_via_where_nothing_listens() {
        assert_eq!(said("b", "10.9.0.2:1080", "b:1080"), None);
        assert_eq!(said("b", "0.0.0.0:1080", "b:1080"), None);
        for nowhere in [
            "127.0.0.1:1080",
            "10.9.1.1:1080",
            "0.0.0.0:1081",
            "[::]:1080",
        ] {
            let refused = said("b", nowhere, "b:1080").unwrap();
            assert!(refused.contains("nothing listens at b:1080"), "{refused}");
        }
    }
}
