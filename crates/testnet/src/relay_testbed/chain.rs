// SPDX-License-Identifier: MIT OR Apache-2.0
//! client – A – m1 ═link═ m2 – B – server in network namespaces, both IP families: relays at A and B, and a link between
//! two routers that know nothing of relays. The namespaces go when the chain goes.

use super::{feed, ip, set};
use crate::relay_process::{PATIENCE, Relay};
use longhaul_linux::{netns::Netns, process::inside};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Six hosts in a row.
pub struct Chain([Netns; 6]);

/// The network between two neighbours has the number of the first, who is host 1 in it.
fn address(network: usize, host: u8, ipv4: bool) -> IpAddr {
    match ipv4 {
        true => Ipv4Addr::new(10, 78, network as u8, host).into(),
        false => Ipv6Addr::new(0xfd78, network as u16, 0, 0, 0, 0, 0, host.into()).into(),
    }
}

/// The network of the link between the routers.
const LINK: usize = 2;

impl Chain {
    /// Makes the namespaces; `name` tells them from those of other tests. MTUs are in bytes: of the link, and of all
    /// other networks.
    pub fn new(name: &str, link: u32, edges: u32) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let create = |host: &str| {
            let name = format!("{name}-{}-{number}-{host}", std::process::id());
            Netns::create(&name).unwrap()
        };
        let chain = Self(["cl", "a", "m1", "m2", "b", "sv"].map(create));
        for netns in &chain.0 {
            ip(netns, "link set lo up");
            set(netns, "net.ipv4.ip_forward", "1");
            set(netns, "net.ipv6.conf.all.forwarding", "1");
        }
        for network in 0..5 {
            chain.join(network, if network == LINK { link } else { edges });
        }
        (0..6).for_each(|host| chain.add_routes(host));
        chain
    }

    fn join(&self, network: usize, mtu: u32) {
        let (left, right) = (&self.0[network], &self.0[network + 1]);
        let peer = right.name().expect("created by name");
        ip(
            left,
            &format!("link add right mtu {mtu} type veth peer name left mtu {mtu} netns {peer}"),
        );
        for (netns, device, host) in [(left, "right", 1), (right, "left", 2)] {
            let [v4, v6] = [true, false].map(|ipv4| address(network, host, ipv4));
            ip(
                netns,
                &format!(
                    "address add {v4}/24 dev {device}
                     address add {v6}/64 dev {device} nodad
                     link set {device} up"
                ),
            );
        }
    }

    fn add_routes(&self, host: usize) {
        for ipv4 in [true, false] {
            let prefix = if ipv4 { 24 } else { 64 };
            let far = (0..5).filter(|network| *network + 1 != host && *network != host);
            for network in far {
                let gateway = match network < host {
                    true => address(host - 1, 1, ipv4),
                    false => address(host, 2, ipv4),
                };
                let to = address(network, 0, ipv4);
                ip(
                    &self.0[host],
                    &format!("route add {to}/{prefix} via {gateway}"),
                );
            }
        }
    }

    /// The client's namespace.
    pub fn client(&self) -> &Netns {
        &self.0[0]
    }

    /// The namespaces of the two hosts for relays: near the client, near the server.
    pub fn relays(&self) -> [&Netns; 2] {
        [&self.0[1], &self.0[4]]
    }

    /// The namespaces of the routers between them, and of the server.
    pub fn beyond(&self) -> [&Netns; 3] {
        [&self.0[2], &self.0[3], &self.0[5]]
    }

    /// The client's address in a family.
    pub fn client_address(ipv4: bool) -> IpAddr {
        address(0, 1, ipv4)
    }

    /// A port of the server's.
    pub fn server_address(ipv4: bool, port: u16) -> SocketAddr {
        (address(4, 2, ipv4), port).into()
    }

    /// A relay on one of these hosts that intercepts, on port 3129, what goes to the server's network.
    pub fn relay(netns: &Netns, more: &[&str]) -> Relay {
        let mut command = Command::new(longhaul_testbed::longhaul());
        let own = "relay --transparent 127.0.0.1:3129 --transparent [::1]:3129 \
                   --intercept 10.78.4.0/24 --intercept fd78:4::/64";
        command.args(own.split_whitespace()).args(more);
        inside(&mut command, netns);
        Relay::spawn(command)
    }

    /// The routers drop what they would say about packets.
    pub fn swallow_errors(&self) {
        for router in &self.0[2..4] {
            let rules = "table inet silent {
                chain output {
                    type filter hook output priority 0
                    icmp type { destination-unreachable, time-exceeded } drop
                    icmpv6 type { destination-unreachable, packet-too-big, time-exceeded } drop
                }
            }";
            feed(router, "nft", &["-f", "-"], rules);
        }
    }

    /// A server's socket.
    pub fn listen(&self, address: SocketAddr) -> TcpListener {
        self.0[5].run(|| TcpListener::bind(address)).unwrap()
    }

    /// From the client.
    pub fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        self.0[0].run(|| TcpStream::connect_timeout(&to, PATIENCE))
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for netns in &self.0 {
            let _ = Netns::delete(netns.name().expect("created by name"));
        }
    }
}
