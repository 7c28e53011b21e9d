// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of the own host and of its link, and the clients that may connect to them through a
//! relay. Services there often have no authentication: they treat everyone who can reach them as a
//! user of the host.

use crate::config::listener::{Kind, ListenerConfig};
use longhaul_linux::socket::is_local_address;
use longhaul_protocol::destination::{Destination, HostName};
use longhaul_protocol::networks::{canonical, embedded_ipv4};
use parking_lot::RwLock;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// Access of a client to the relay's own host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalAccess<'a> {
    origin: Origin<'a>,
    /// Listeners that a client of another host may not reach, nor any local address. `None` is no
    /// such limit.
    protected: Option<&'a ListenAddresses>,
}

/// Host of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// A host other than the relay's, or the client acts for such a host.
    Remote,
    /// Host of these addresses, as the listener sees them. The check costs a socket, so it is made
    /// only when needed.
    Addresses(&'a ListenerConfig, [SocketAddr; 2]),
}

/// Addresses of this relay's listeners.
#[derive(Debug, Default)]
pub(crate) struct ListenAddresses(RwLock<Vec<SocketAddr>>);

impl ListenAddresses {
    /// Replaces the addresses.
    pub(crate) fn set(&self, all: impl Iterator<Item = SocketAddr>) {
        *self.0.write() = all.collect();
    }

    /// Returns whether a connection from this host to `address` reaches a listener.
    fn has(&self, address: SocketAddr) -> bool {
        let all = self.0.read();
        // After an error, assume that it does.
        all.iter()
            .any(|own| reaches_listener(*own, address).unwrap_or(true))
    }
}

impl<'a> LocalAccess<'a> {
    /// Returns the access of a client. `allowed`: clients of other hosts have no limit.
    pub(crate) fn new(origin: Origin<'a>, allowed: bool, own: &'a ListenAddresses) -> Self {
        Self {
            origin,
            protected: (!allowed).then_some(own),
        }
    }

    /// Returns whether the client may reach `to`.
    pub(crate) fn permits(self, to: SocketAddr) -> bool {
        let is_protected = |own: &ListenAddresses| is_local(to.ip()) || own.has(to);
        !(self.protected.is_some_and(is_protected) && self.is_remote())
    }

    /// Returns whether the client may be on another host, or acts for one.
    pub(crate) fn is_remote(self) -> bool {
        match self.origin {
            Origin::Remote => true,
            Origin::Addresses(listener, addresses) => addresses
                .iter()
                .any(|address| is_remote_client(listener, *address)),
        }
    }
}

/// Returns whether `client` of `listener` may be on another host. Loopback is this host. An address
/// of this host is this host too if the kernel diverted the connection, since no other host can
/// have it there. Elsewhere, a NAT may give that address to other hosts.
fn is_remote_client(listener: &ListenerConfig, client: SocketAddr) -> bool {
    let ip = client.ip().to_canonical();
    let diverted = matches!(listener.kind, Kind::Transparent { .. });
    let own = || diverted && is_local_address(ip).unwrap_or(false);
    !ip.is_loopback() && !own()
}

/// Returns whether the listener's configuration itself names a local destination, and no client
/// chooses it: an address, or a name for this host.
pub(crate) fn is_configured_local(kind: &Kind) -> bool {
    match kind {
        Kind::Forward(Destination::Address(_)) => true,
        Kind::Forward(Destination::Name(name, _)) => is_localhost(name),
        _ => false,
    }
}

/// Returns whether a name stands for this host (RFC 6761 §6.3).
pub(crate) fn is_localhost(name: &HostName) -> bool {
    let name = canonical(name.as_str());
    name == "localhost" || name.ends_with(".localhost")
}

/// Returns the canonical address that a connection to `address` reaches. The unspecified address
/// reaches this host (ip(7)).
pub(crate) fn effective_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    match (ip, address) {
        // Kept as it is, since it may have a scope.
        (IpAddr::V6(_), SocketAddr::V6(_)) if ip == address.ip() => address,
        _ => (ip, address.port()).into(),
    }
}

/// Returns whether an address is one that no router forwards: loopback, unspecified, broadcast or
/// link-local, also as an IPv4 address inside of an IPv6 address (RFC 6890, RFC 4291 §2.5.6 and
/// §2.7).
fn is_local(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_local_v4(ip),
        IpAddr::V6(ip) => is_local_v6(ip) || embedded_ipv4(ip).is_some_and(is_local_v4),
    }
}

fn is_local_v4(ip: Ipv4Addr) -> bool {
    let [first, second, third, _] = ip.octets();
    let multicast_on_link = [first, second, third] == [224, 0, 0];
    first == 0 || ip.is_loopback() || ip.is_link_local() || ip.is_broadcast() || multicast_on_link
}

fn is_local_v6(ip: Ipv6Addr) -> bool {
    const INTERFACE: u16 = 1;
    const LINK: u16 = 2;
    let scope = ip.segments()[0] & 0xf;
    let multicast_on_link = ip.is_multicast() && [INTERFACE, LINK].contains(&scope);
    ip.is_loopback()
        || ip.is_unspecified()
        || ip.is_unicast_link_local()
        || multicast_on_link
        || ip == CLOUD_METADATA
}

/// Metadata address of a cloud, with secrets of the instance, as 169.254.169.254 is. It is not
/// link-local.
const CLOUD_METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Returns whether a connection from this host to `to` reaches a listener on `listener`.
pub(crate) fn reaches_listener(listener: SocketAddr, to: SocketAddr) -> io::Result<bool> {
    let (at, to_ip) = (listener.ip().to_canonical(), to.ip().to_canonical());
    // A listener on [::] may take IPv4, too.
    let is_everywhere = at.is_unspecified() && (at.is_ipv6() || to_ip.is_ipv4());
    if listener.port() != to.port() {
        Ok(false)
    } else if is_everywhere && !to_ip.is_loopback() {
        is_local_address(to_ip)
    } else {
        Ok(is_everywhere || at == to_ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_local_addresses_in_every_form() {
        for ip in [
            "127.0.0.1",
            "127.255.255.254",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "255.255.255.255",
            "224.0.0.251",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:0:0",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::7f00:1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "fe80::1",
            "febf::1",
            "ff02::1",
            "ff12::1",
            "ff01::1",
            "fd00:ec2::254",
        ] {
            assert!(is_local(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn other_addresses_are_not_local() {
        for ip in [
            "10.0.0.1",
            "128.0.0.1",
            "126.255.255.255",
            "169.253.255.255",
            "224.0.1.1",
            "192.0.2.1",
            "2001:db8::1",
            "fec0::1",
            "fd00::1",
            "64:ff9b::192.0.2.1",
            "2002:c000:201::1",
            "ff05::1",
            "ff0e::1",
        ] {
            assert!(!is_local(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn unspecified_address_leads_to_loopback() {
        let led_to = |text: &str| effective_address(text.parse().unwrap()).to_string();
        assert_eq!(led_to("0.0.0.0:1"), "127.0.0.1:1");
        assert_eq!(led_to("[::]:1"), "[::1]:1");
        assert_eq!(led_to("[::ffff:0.0.0.0]:1"), "127.0.0.1:1");
        assert_eq!(led_to("192.0.2.1:1"), "192.0.2.1:1");
        assert_eq!(led_to("[fe80::1%7]:1"), "[fe80::1%7]:1");
    }

    #[test]
    fn listener_on_all_addresses_is_reached_by_those_of_both_families() {
        for (listener, to, reached) in [
            ("[::]:1080", "127.0.0.1:1080", true),
            ("[::]:1080", "[::1]:1080", true),
            ("[::]:1080", "[::ffff:127.0.0.1]:1080", true),
            ("0.0.0.0:1080", "127.0.0.1:1080", true),
            ("0.0.0.0:1080", "[::1]:1080", false),
            ("[::1]:1080", "127.0.0.1:1080", false),
            ("[::]:1080", "127.0.0.1:1081", false),
            ("[::]:1080", "192.0.2.1:1080", false),
        ] {
            let found = reaches_listener(listener.parse().unwrap(), to.parse().unwrap());
            assert_eq!(found.unwrap(), reached, "{listener} {to}");
        }
    }
}
