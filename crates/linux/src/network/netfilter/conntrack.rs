// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detection of connection tracking in this network namespace.

use super::Family;
use socket2::SockRef;
use std::{
    fs, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
};

/// Whether the kernel tracks connections, by its entries or by a trial. The trial connects to itself and asks for the
/// destination before address translation, which only connection tracking knows (net/netfilter/nf_conntrack_proto.c,
/// `getorigdst`).
#[must_use]
pub fn is_on(family: Family) -> bool {
    has_entries() || tracks_a_connection(family).unwrap_or(false)
}

/// Whether the kernel tracks connections of this namespace now. Reads one small file.
#[must_use]
pub fn has_entries() -> bool {
    let count = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count");
    count.is_ok_and(|count| count.trim() != "0")
}

fn tracks_a_connection(family: Family) -> io::Result<bool> {
    let address: SocketAddr = match family {
        Family::Ip => (Ipv4Addr::LOCALHOST, 0).into(),
        Family::Ip6 => (Ipv6Addr::LOCALHOST, 0).into(),
    };
    let listener = TcpListener::bind(address)?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let socket = SockRef::from(&client);
    // Avoids TIME-WAIT: this host may be short of ports.
    socket.set_linger(Some(std::time::Duration::ZERO))?;
    Ok(match family {
        Family::Ip => socket.original_dst_v4().is_ok(),
        Family::Ip6 => socket.original_dst_v6().is_ok(),
    })
}
