// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether routers may cut packets (ip(7), IP_MTU_DISCOVER).

use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};
use std::net::UdpSocket;

/// Lets packets of IPv4 be cut on the way, or not. Where they may be, what the kernel has heard of the path, maybe from a stranger,
/// counts for nothing (`IP_PMTUDISC_OMIT`). Of IPv6 routers cut nothing, and quinn-udp forbids the kernel to.
pub(super) fn cuts(socket: &UdpSocket, may: bool) {
    let how = match may {
        true => Ipv4PathMtuDiscovery::OMIT,
        false => Ipv4PathMtuDiscovery::PROBE,
    };
    // Sockets of IPv6 alone have no such option, and need none.
    let _none = set_ip_mtu_discover(socket, how);
}
