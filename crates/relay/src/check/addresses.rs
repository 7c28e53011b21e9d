// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks for routes back to this relay and for ports used twice.

use crate::{
    config::{
        Config,
        listener::{Kind, ListenerConfig},
        location::{Finding, Part, Table},
        settings::Transport,
    },
    route::local::{effective_address, is_localhost, reaches_listener},
};
use longhaul_command::exit::Refusal;
use longhaul_protocol::destination::Destination;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

pub(crate) fn find(config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    for (n, listener) in config.listeners.iter().enumerate() {
        let mut add = |key, text: String| {
            let text = format!("listener {}: {key}: {text}", listener.name);
            found.push(Finding::new(Table::Listener(n), Some(Part::Key(key)), text));
        };
        for conflict in port_conflicts(config, n) {
            add("address", format!("{conflict}: the start will fail"));
        }
        if let Kind::Forward(destination) = &listener.kind
            && let Some(text) = forwarding_loop(config, listener, destination)
        {
            add("destination", text);
        }
    }
    found.extend(own_peers(config));
    found
}

/// Refuses ports that are used twice.
pub(crate) fn refuse_conflicts(config: &Config) -> anyhow::Result<()> {
    for (n, listener) in config.listeners.iter().enumerate() {
        if let Some(conflict) = port_conflicts(config, n).first() {
            let name = &listener.name;
            return Err(Refusal::usage(format!(
                "listener {name}: address: {conflict}"
            )));
        }
    }
    Ok(())
}

/// Ports that are used twice, which would make the start fail.
fn port_conflicts(config: &Config, n: usize) -> Vec<String> {
    let listener = &config.listeners[n];
    let mut found = Vec::new();
    let same = |other: &&ListenerConfig| {
        other.transport == listener.transport && overlap(other.address, listener.address)
    };
    if let Some(other) = config.listeners[..n].iter().find(same) {
        let (kind, name) = (&other.kind, &other.name);
        found.push(format!("{kind} listener {name} has this port"));
    }
    let is_tcp = listener.transport == Transport::Tcp;
    if config
        .admin
        .is_some_and(|admin| is_tcp && overlap(admin, listener.address))
    {
        found.push("the admin endpoint has this port".to_owned());
    }
    found
}

/// Whether two addresses conflict. Port 0 never does, since the kernel chooses a free port. A
/// listener on [::] leaves IPv4 to a listener that has the port there.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let one_for_all = a.ip().is_unspecified() || b.ip().is_unspecified();
    let same_ip = a.ip() == b.ip() || (one_for_all && a.is_ipv4() == b.is_ipv4());
    a.port() == b.port() && a.port() != 0 && same_ip
}

/// Loop of a forward listener to itself, directly or through other forward listeners.
fn forwarding_loop(
    config: &Config,
    first: &ListenerConfig,
    destination: &Destination,
) -> Option<String> {
    let (mut listener, mut destination) = (first, destination);
    for _ in &config.listeners {
        // Through a peer, the address is resolved at the peer's host.
        if !config.policy.is_direct(&listener.name, destination) {
            return None;
        }
        if config
            .admin
            .is_some_and(|admin| reaches(destination, admin))
        {
            return Some("it leads to the admin endpoint".to_owned());
        }
        let next = config
            .listeners
            .iter()
            .find(|l| reaches(destination, l.address))?;
        if next == first {
            return Some(format!("{destination} leads back to itself"));
        }
        match &next.kind {
            Kind::Forward(onward) => (listener, destination) = (next, onward),
            _ => return None,
        }
    }
    None
}

/// Whether `destination` reaches `address` on this host. Other hosts' names are not resolved: a
/// check sends nothing.
fn reaches(destination: &Destination, address: SocketAddr) -> bool {
    let reaches = |to| reaches_listener(address, effective_address(to)).unwrap_or(false);
    match destination {
        _ if address.port() == 0 => false,
        Destination::Address(to) => reaches(*to),
        Destination::Name(name, port) if is_localhost(name) => {
            reaches((Ipv4Addr::LOCALHOST, *port).into())
                || reaches((Ipv6Addr::LOCALHOST, *port).into())
        }
        Destination::Name(..) => false,
    }
}

/// Peers that are this relay itself. A relay that is its own peer answers each request with `relay
/// loop`; other kinds of listeners do not speak Convert.
fn own_peers(config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    for peer in config.peers.values() {
        let destination = &peer.destination;
        let is_here =
            |l: &&ListenerConfig| l.transport == peer.transport && reaches(destination, l.address);
        let own = config.listeners.iter().find(is_here);
        let own = own.map(|listener| format!("listener {}", listener.name));
        let admin = config.admin.filter(|admin| reaches(destination, *admin));
        let admin = admin.map(|_| "admin endpoint".to_owned());
        if let Some(own) = own.or(admin) {
            let table = Table::Peer(peer.name.clone());
            let text = format!("address: {destination} is this relay's own {own}");
            found.push(Finding::named(table, Some(Part::Key("address")), text));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_reaches(destination: &str, address: &str) -> bool {
        reaches(&destination.parse().unwrap(), address.parse().unwrap())
    }

    #[test]
    fn recognizes_all_addresses_of_this_host() {
        for (destination, address) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("localhost:80", "127.0.0.1:80"),
            ("LOCALHOST.:80", "[::1]:80"),
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("127.0.0.1:80", "0.0.0.0:80"),
            ("127.9.9.9:80", "0.0.0.0:80"),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("[::1]:80", "[::]:80"),
            ("127.0.0.1:80", "[::]:80"),
        ] {
            assert!(
                check_reaches(destination, address),
                "{destination} {address}"
            );
        }
        for (destination, address) in [
            ("127.0.0.1:81", "127.0.0.1:80"),
            ("127.0.0.2:80", "127.0.0.1:80"),
            ("192.0.2.1:80", "0.0.0.0:80"),
            ("example.org:80", "127.0.0.1:80"),
        ] {
            assert!(
                !check_reaches(destination, address),
                "{destination} {address}"
            );
        }
    }
}
