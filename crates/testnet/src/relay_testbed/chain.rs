// SPDX-License-Identifier: MIT OR Apache-2.0
//! client – A – m1 ═link═ m2 – B – server in network namespaces, with both IP families: relays at A and B, and a link
//! between two routers without relays. The namespaces are deleted on drop.

use crate::{
    namespace::{Namespace, run_ip, run_with_input, set_sysctl},
    relay_process::{Relay, TEST_TIMEOUT},
};
use longhaul_linux::{netns::Netns, process::inside};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    process::Command,
};

/// Chain of six hosts.
pub struct Chain([Namespace; 6]);

/// Returns the address of `host` (1 or 2) in a network. Network n connects the hosts n and n + 1 of the chain, which are
/// its hosts 1 and 2.
fn address(network: usize, host: u8, ipv4: bool) -> IpAddr {
    if ipv4 {
        Ipv4Addr::new(10, 78, network as u8, host).into()
    } else {
        Ipv6Addr::new(0xfd78, network as u16, 0, 0, 0, 0, 0, host.into()).into()
    }
}

/// Number of the network between the routers.
const LINK_NETWORK: usize = 2;

impl Chain {
    /// Creates the namespaces, with names that begin with `name`. MTUs are in bytes: of the link between the routers,
    /// and of all other networks.
    pub fn new(name: &str, link_mtu: u32, other_mtu: u32) -> Self {
        let create = |host: &str| Namespace::new(&format!("{name}-{host}"));
        let chain = Self(["cl", "a", "m1", "m2", "b", "sv"].map(create));
        for netns in &chain.0 {
            set_sysctl(netns, "net.ipv4.ip_forward", "1");
            set_sysctl(netns, "net.ipv6.conf.all.forwarding", "1");
        }
        for network in 0..5 {
            chain.connect_neighbours(
                network,
                if network == LINK_NETWORK {
                    link_mtu
                } else {
                    other_mtu
                },
            );
        }
        (0..6).for_each(|host| chain.add_routes(host));
        chain
    }

    /// Connects two neighbours by a veth pair with this MTU.
    fn connect_neighbours(&self, network: usize, mtu: u32) {
        let (left, right) = (&self.0[network], &self.0[network + 1]);
        left.connect("right", right, "left");
        for (netns, device, host) in [(left, "right", 1), (right, "left", 2)] {
            let [v4, v6] = [true, false].map(|ipv4| address(network, host, ipv4));
            run_ip(netns, &format!("link set {device} mtu {mtu}"));
            netns.bring_up(device, &[&format!("{v4}/24"), &format!("{v6}/64")]);
        }
        left.wait_until_up("right");
        right.wait_until_up("left");
    }

    fn add_routes(&self, host: usize) {
        for ipv4 in [true, false] {
            let prefix = if ipv4 { 24 } else { 64 };
            let other_networks = (0..5).filter(|network| *network + 1 != host && *network != host);
            for network in other_networks {
                let gateway = if network < host {
                    address(host - 1, 1, ipv4)
                } else {
                    address(host, 2, ipv4)
                };
                let to = address(network, 0, ipv4);
                run_ip(
                    &self.0[host],
                    &format!("route add {to}/{prefix} via {gateway}"),
                );
            }
        }
    }

    /// Returns the client's namespace.
    pub fn client(&self) -> &Netns {
        &self.0[0]
    }

    /// Returns the namespaces of the two hosts for relays: near the client, near the server.
    pub fn relays(&self) -> [&Netns; 2] {
        [&self.0[1], &self.0[4]]
    }

    /// Returns the namespaces of the two routers between the relays, and of the server.
    pub fn routers_and_server(&self) -> [&Netns; 3] {
        [&self.0[2], &self.0[3], &self.0[5]]
    }

    /// Returns the client's IPv4 or IPv6 address.
    pub fn client_address(ipv4: bool) -> IpAddr {
        address(0, 1, ipv4)
    }

    /// Returns a socket address of the server.
    pub fn server_address(ipv4: bool, port: u16) -> SocketAddr {
        (address(4, 2, ipv4), port).into()
    }

    /// Starts a relay on a host of [`Self::relays`]. Its transparent listener has port 3129. It intercepts connections to
    /// the server's network.
    pub fn relay(netns: &Netns, more: &[&str]) -> Relay {
        let mut command = Command::new(longhaul_testprograms::longhaul());
        let own_args = "relay --transparent 127.0.0.1:3129 --transparent [::1]:3129 \
                   --intercept 10.78.4.0/24 --intercept fd78:4::/64";
        command.args(own_args.split_whitespace()).args(more);
        inside(&mut command, netns);
        Relay::spawn(command)
    }

    /// Makes the routers drop their ICMP errors.
    pub fn drop_icmp_errors(&self) {
        for router in &self.0[2..4] {
            let rules = "table inet silent {
                chain output {
                    type filter hook output priority 0
                    icmp type { destination-unreachable, time-exceeded } drop
                    icmpv6 type { destination-unreachable, packet-too-big, time-exceeded } drop
                }
            }";
            run_with_input(router, "nft", &["-f", "-"], rules);
        }
    }

    /// Opens a listener on the server.
    pub fn listen(&self, address: SocketAddr) -> TcpListener {
        self.0[5].listen(address)
    }

    /// Connects from the client.
    pub fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        self.0[0].run(|| TcpStream::connect_timeout(&to, TEST_TIMEOUT))
    }
}
