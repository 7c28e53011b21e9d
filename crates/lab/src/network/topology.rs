// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts, links with their addresses, and routes. This module only computes; `testbed` builds it.

use crate::scenario::{Address, Link, Scenario};
use indexmap::{IndexMap, IndexSet};
use std::{collections::VecDeque, net::Ipv4Addr};

/// Hosts, links with addresses, and static routes.
#[derive(Debug)]
pub(crate) struct Topology {
    /// Hosts in the order in which the links name them.
    pub(crate) hosts: IndexSet<String>,
    /// Links in the order of the scenario.
    pub(crate) addressed_links: Vec<AddressedLink>,
}

/// Link with the hosts and addresses of its two ends.
#[derive(Debug, Clone)]
pub(crate) struct AddressedLink {
    pub(crate) name: String,
    pub(crate) ends: [(String, Address); 2],
}

/// One entry of a host's routing table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) network: Ipv4Addr,
    pub(crate) prefix: u8,
    pub(crate) gateway: Ipv4Addr,
}

/// Most links of a scenario, so that each has its own subnet of 10.9.0.0/16.
pub(crate) const LINKS_MAX: usize = 256;

impl Topology {
    /// Topology of a scenario with at most [`LINKS_MAX`] links.
    pub(crate) fn of(scenario: &Scenario) -> Self {
        let hosts = scenario
            .links
            .iter()
            .flat_map(|link| link.endpoints.clone())
            .collect();
        let addressed_links = scenario
            .links
            .iter()
            .enumerate()
            .map(|(n, link)| AddressedLink::of(n, link))
            .collect();
        Self {
            hosts,
            addressed_links,
        }
    }

    /// Routes of `host` to every subnet that it is not part of. Unreachable subnets have none.
    pub(crate) fn routes(&self, host: &str) -> Vec<Route> {
        let first_hops = self.first_hops(host);
        let remote_links = self
            .addressed_links
            .iter()
            .filter(|addressed_link| addressed_link.address_of(host).is_none());
        remote_links
            .filter_map(|addressed_link| {
                let nearest = first_hops
                    .keys()
                    .find(|host| addressed_link.address_of(host).is_some())?;
                let address = addressed_link.ends[0].1;
                let (network, prefix) = (address.network(), address.prefix);
                Some(Route {
                    network,
                    prefix,
                    gateway: first_hops[nearest].other_address(host)?.ip,
                })
            })
            .collect()
    }

    /// All addresses of `host`, in the order of its links.
    pub(crate) fn addresses(&self, host: &str) -> Vec<Ipv4Addr> {
        let addresses = self
            .addressed_links
            .iter()
            .filter_map(|addressed_link| addressed_link.address_of(host));
        addresses.map(|address| address.ip).collect()
    }

    /// Address at which `from` reaches `to`: that of `to`'s interface on their path. `to` may be a loopback address, of
    /// `from` itself.
    pub(crate) fn address(&self, from: &str, to: &str) -> Option<Ipv4Addr> {
        if let Some(loopback) = loopback(to) {
            return Some(loopback);
        }
        let addressed_link = *self.first_hops(to).get(from)?;
        Some(addressed_link.address_of(to)?.ip)
    }

    /// Hosts from `from` to `to`, both included; `None` if they are not connected.
    pub(crate) fn path(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let mut path = vec![from.to_owned()];
        while path.last()? != to {
            let here = path.last()?;
            let next = self.first_hops(here).get(to)?.neighbour(here)?.to_owned();
            path.push(next);
        }
        Some(path)
    }

    /// Smallest MTU on the path from `from` to `to`; `None` if they are not connected, or the same
    /// host. `links` are those of the scenario.
    pub(crate) fn mtu(&self, links: &[Link], from: &str, to: &str) -> Option<u32> {
        let path = self.path(from, to)?;
        let addressed_links = path
            .windows(2)
            .filter_map(|pair| self.between(&pair[0], &pair[1]));
        addressed_links
            .map(|addressed_link| links[addressed_link].mtu)
            .min()
    }

    /// Index of the link between two neighbours.
    pub(crate) fn between(&self, one: &str, other: &str) -> Option<usize> {
        let joins = |addressed_link: &AddressedLink| {
            addressed_link.address_of(one).is_some() && addressed_link.address_of(other).is_some()
        };
        self.addressed_links.iter().position(joins)
    }

    /// For every other host, nearest first: the first link of a shortest path to it.
    fn first_hops(&self, host: &str) -> IndexMap<&str, &AddressedLink> {
        let mut found: IndexMap<&str, &AddressedLink> = IndexMap::new();
        let mut reached: VecDeque<&str> = VecDeque::from([host]);
        while let Some(here) = reached.pop_front() {
            for addressed_link in &self.addressed_links {
                let Some(next) = addressed_link.neighbour(here) else {
                    continue;
                };
                if next != host && !found.contains_key(next) {
                    let first = found.get(here).copied().unwrap_or(addressed_link);
                    found.insert(next, first);
                    reached.push_back(next);
                }
            }
        }
        found
    }
}

impl AddressedLink {
    fn of(number: usize, link: &Link) -> Self {
        let subnet = |last| Address {
            ip: Ipv4Addr::new(10, 9, number as u8, last),
            prefix: 30,
        };
        let [left, right] = link.addresses.unwrap_or([subnet(1), subnet(2)]);
        let [from, to] = link.endpoints.clone();
        Self {
            name: link.name.clone(),
            ends: [(from, left), (to, right)],
        }
    }

    /// The address of `host` on this link.
    pub(crate) fn address_of(&self, host: &str) -> Option<Address> {
        self.ends
            .iter()
            .find(|(name, _)| name == host)
            .map(|(_, address)| *address)
    }

    fn other_address(&self, host: &str) -> Option<Address> {
        self.address_of(host)?;
        self.ends
            .iter()
            .find(|(name, _)| name != host)
            .map(|(_, address)| *address)
    }

    fn neighbour(&self, host: &str) -> Option<&str> {
        self.address_of(host)?;
        self.ends
            .iter()
            .map(|(name, _)| name.as_str())
            .find(|name| *name != host)
    }
}

/// Returns the address if `host` is written as a loopback address.
pub(crate) fn loopback(host: &str) -> Option<Ipv4Addr> {
    host.parse().ok().filter(Ipv4Addr::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain() -> Topology {
        let addressed_link = |n: u8, left: &str, right: &str| AddressedLink {
            name: format!("w{n}"),
            ends: [(left, 1), (right, 2)].map(|(host, last)| {
                (
                    host.to_owned(),
                    Address {
                        ip: Ipv4Addr::new(10, 9, n, last),
                        prefix: 30,
                    },
                )
            }),
        };
        let addressed_links = vec![
            addressed_link(0, "client", "r1"),
            addressed_link(1, "r1", "r2"),
            addressed_link(2, "r2", "server"),
        ];
        let hosts = ["client", "r1", "r2", "server"].map(str::to_owned).into();
        Topology {
            hosts,
            addressed_links,
        }
    }

    #[test]
    fn remote_subnets_are_routed_by_the_next_hop() {
        let gateways = |host| -> Vec<(String, String)> {
            let routes = chain().routes(host);
            routes
                .iter()
                .map(|r| (r.network.to_string(), r.gateway.to_string()))
                .collect()
        };
        let by = |net: &str, via: &str| (net.to_owned(), via.to_owned());
        assert_eq!(
            gateways("client"),
            [by("10.9.1.0", "10.9.0.2"), by("10.9.2.0", "10.9.0.2")]
        );
        assert_eq!(gateways("r1"), [by("10.9.2.0", "10.9.1.2")]);
        assert_eq!(
            gateways("server"),
            [by("10.9.0.0", "10.9.2.1"), by("10.9.1.0", "10.9.2.1")]
        );
    }

    #[test]
    fn address_is_of_the_interface_on_the_path() {
        let topology = chain();
        assert_eq!(
            topology.address("client", "server"),
            Some(Ipv4Addr::new(10, 9, 2, 2))
        );
        assert_eq!(
            topology.address("server", "r2"),
            Some(Ipv4Addr::new(10, 9, 2, 1))
        );
        assert_eq!(
            topology.address("client", "r2"),
            Some(Ipv4Addr::new(10, 9, 1, 2))
        );
        assert_eq!(
            topology.path("server", "client").unwrap(),
            ["server", "r2", "r1", "client"]
        );
        assert_eq!(topology.path("server", "nobody"), None);
    }

    #[test]
    fn chooses_the_shortest_path() {
        let mut ring = chain();
        ring.addressed_links.push(AddressedLink {
            name: "w3".to_owned(),
            ends: [("server", 1), ("client", 2)].map(|(host, last)| {
                (
                    host.to_owned(),
                    Address {
                        ip: Ipv4Addr::new(10, 9, 3, last),
                        prefix: 30,
                    },
                )
            }),
        });
        assert_eq!(ring.path("client", "server").unwrap(), ["client", "server"]);
    }
}
