// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interfaces, addresses and routes of a network namespace, through rtnetlink.
//!
//! Each function opens its netlink socket inside the namespace that it changes, makes one change and
//! returns when the kernel has acknowledged it.

use super::netns::Netns;
use netlink_packet_route::{
    address::AddressHeaderFlags,
    link::{InfoData, InfoVeth},
    route::{RouteAttribute, RouteMetric, RouteProtocol, RouteScope},
};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};
use std::{
    io,
    net::{IpAddr, Ipv4Addr},
};

/// One end of a veth pair: an interface to create, and its namespace and address.
#[derive(Debug, Clone)]
pub struct VethEndpoint<'a> {
    /// Its network namespace.
    pub netns: &'a Netns,
    /// Its name, up to 15 bytes (`IFNAMSIZ` of `linux/if.h` counts the final NUL).
    pub name: &'a str,
    /// Its address.
    pub address: IpAddr,
    /// Length of the subnet's prefix in bits.
    pub prefix: u8,
}

/// Creates a pair of virtual Ethernet interfaces, gives both their addresses and brings them up.
/// `mtu` is in bytes.
pub fn create_veth(left: &VethEndpoint, right: &VethEndpoint, mtu: u32) -> io::Result<()> {
    let peer = LinkUnspec::new_with_name(right.name)
        .mtu(mtu)
        .setns_by_fd(right.netns.raw());
    let pair = LinkMessageBuilder::<LinkVeth>::new(left.name, right.name)
        .mtu(mtu)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer.build())))
        .build();
    let doing = format!("create the veth pair {}–{}", left.name, right.name);
    request(left.netns, &doing, async |kernel| {
        kernel.link().add(pair).execute().await
    })?;
    [left, right].into_iter().try_for_each(set_address_and_up)
}

/// Sets the MTU in bytes, the transmit queue in packets and the addresses of an existing interface, and
/// brings it up.
pub fn configure(
    netns: &Netns,
    name: &str,
    mtu: u32,
    queue: u32,
    addresses: &[(IpAddr, u8)],
) -> io::Result<()> {
    let sizes = LinkUnspec::new_with_name(name).mtu(mtu).txqueuelen(queue);
    let doing = format!("set the MTU of {name} to {mtu} and its queue to {queue}");
    request(netns, &doing, async |kernel| {
        kernel.link().set(sizes.build()).execute().await
    })?;
    for &(address, prefix) in addresses {
        add_address(netns, name, address, prefix)?;
    }
    bring_up(netns, name)
}

fn set_address_and_up(end: &VethEndpoint) -> io::Result<()> {
    add_address(end.netns, end.name, end.address, end.prefix)?;
    bring_up(end.netns, end.name)
}

/// Adds an address. An IPv6 address can be bound to at once: duplicate address detection is off
/// (IFA_F_NODAD; RFC 4862, section 5.4), as a new veth pair has no other hosts. With it, an address is
/// tentative until a work queue has run.
fn add_address(netns: &Netns, name: &str, address: IpAddr, prefix: u8) -> io::Result<()> {
    let index = index_of(netns, name)?;
    let doing = format!("give {name} the address {address}/{prefix}");
    request(netns, &doing, async |kernel| {
        let mut add = kernel.address().add(index, address, prefix);
        if address.is_ipv6() {
            add.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        }
        add.execute().await
    })
}

/// Brings an interface up; `lo` of a fresh namespace is down.
pub fn bring_up(netns: &Netns, name: &str) -> io::Result<()> {
    let up = LinkUnspec::new_with_name(name).up().build();
    let doing = format!("bring {name} up");
    request(netns, &doing, async |kernel| {
        kernel.link().set(up).execute().await
    })
}

/// Adds a route to `destination/prefix` via `gateway`. Connections over it use
/// `congestion_control`, if given and unless they choose another.
pub fn add_route(
    netns: &Netns,
    destination: Ipv4Addr,
    prefix: u8,
    gateway: Ipv4Addr,
    congestion_control: Option<&str>,
) -> io::Result<()> {
    let mut route = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(destination, prefix)
        .gateway(gateway)
        .build();
    route.attributes.extend(congestion_control.map(metric));
    let doing = format!("add the route to {destination}/{prefix} via {gateway}");
    request(netns, &doing, async |kernel| {
        kernel.route().add(route).execute().await
    })
}

/// Makes connections in the subnet `network/prefix` of interface `name`, where this host is
/// `source`, use `congestion_control` unless they choose another.
///
/// A namespace other than the first may not make its default an algorithm that the first one does
/// not allow to all users (`tcp_allowed_congestion_control`). A route may name any.
pub fn set_congestion_control(
    netns: &Netns,
    name: &str,
    network: Ipv4Addr,
    prefix: u8,
    source: Ipv4Addr,
    congestion_control: &str,
) -> io::Result<()> {
    let mut route = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(network, prefix)
        .protocol(RouteProtocol::Kernel)
        .scope(RouteScope::Link)
        .pref_source(source)
        .output_interface(index_of(netns, name)?)
        .build();
    route.attributes.push(metric(congestion_control));
    let doing = format!("use {congestion_control} on {name}");
    request(netns, &doing, async |kernel| {
        kernel.route().add(route).replace().execute().await
    })
}

fn metric(congestion_control: &str) -> RouteAttribute {
    RouteAttribute::Metrics(vec![RouteMetric::CcAlgo(congestion_control.to_owned())])
}

/// Whether this namespace has no IPv6, by module or by `disable_ipv6`.
#[must_use]
pub fn is_ipv6_disabled() -> bool {
    let disabled = std::fs::read_to_string("/proc/sys/net/ipv6/conf/lo/disable_ipv6");
    disabled.map_or(true, |text| text.trim() != "0")
}

/// Also succeeds if the kernel answers `errno`.
pub(super) fn ignore_errno(
    errno: i32,
    outcome: Result<(), rtnetlink::Error>,
) -> Result<(), rtnetlink::Error> {
    match outcome {
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code() == -errno => Ok(()),
        outcome => outcome,
    }
}

/// Returns the packets that the interface dropped because its transmit queue was full.
pub fn transmit_drops(netns: &Netns, name: &str) -> io::Result<u64> {
    let table = netns.run(|| std::fs::read_to_string("/proc/thread-self/net/dev"))?;
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    // Eight columns for receiving, then bytes, packets, errors and drops for sending.
    line.and_then(|columns| columns.split_whitespace().nth(11)?.parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no interface {name}")))
}

pub(super) fn index_of(netns: &Netns, name: &str) -> io::Result<u32> {
    netns.run(|| index_here(name))
}

/// Returns the index of an interface of this thread's network namespace.
pub(crate) fn index_here(name: &str) -> io::Result<u32> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    Ok(rustix::net::netdevice::name_to_index(&socket, name)?)
}

/// Sends one request to the kernel inside `netns`. An error names the action and the namespace.
pub(super) fn request<T: Send>(
    netns: &Netns,
    doing: &str,
    send: impl AsyncFnOnce(Handle) -> Result<T, rtnetlink::Error> + Send,
) -> io::Result<T> {
    let answer = netns.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        runtime.block_on(async {
            let (connection, kernel, _) = rtnetlink::new_connection()?;
            tokio::spawn(connection);
            send(kernel).await.map_err(io::Error::other)
        })
    });
    let location = netns.name().unwrap_or("this network namespace");
    answer.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot {doing} in {location}: {error}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_interface_and_the_namespace() {
        let here = Netns::current().unwrap();
        let error = bring_up(&here, "nosuch0").unwrap_err().to_string();
        assert!(
            error.contains("nosuch0") && error.contains("namespace"),
            "{error}"
        );
    }
}
