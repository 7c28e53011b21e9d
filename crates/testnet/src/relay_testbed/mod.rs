// SPDX-License-Identifier: MIT OR Apache-2.0
//! client – router – server in network namespaces, with both IP families, and relays on the router. The
//! namespaces are deleted on drop.

pub mod chain;

pub use crate::namespace::{run_ip, run_with_input, set_sysctl};
use crate::{
    namespace::Namespace,
    relay_process::{Relay, TEST_TIMEOUT},
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    process::Command,
};

/// Namespaces of a client, a router with relays, and a server.
pub struct Testbed {
    /// Namespace of the client.
    pub client: Namespace,
    /// Namespace of the router.
    pub router: Namespace,
    /// Namespace of the server.
    pub server: Namespace,
}

/// Addresses of the testbed in one IP family.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// Client's address.
    pub client: IpAddr,
    /// Router's address towards the client.
    pub downstream: IpAddr,
    /// Router's address towards the server.
    pub upstream: IpAddr,
    /// Server's address.
    pub server: IpAddr,
    /// Unassigned address on the server's network.
    pub unassigned: IpAddr,
    /// Address in a network to which the router has no route.
    pub unreachable: IpAddr,
}

const fn v4(network: u8, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 77, network, host))
}

const fn v6(network: u16, host: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0xfd77, network, 0, 0, 0, 0, 0, host))
}

/// Addresses of IPv4.
pub const IPV4: Addresses = Addresses {
    client: v4(1, 1),
    downstream: v4(1, 2),
    upstream: v4(2, 2),
    server: v4(2, 1),
    unassigned: v4(2, 9),
    unreachable: v4(9, 1),
};
/// Addresses of IPv6.
pub const IPV6: Addresses = Addresses {
    client: v6(1, 1),
    downstream: v6(1, 2),
    upstream: v6(2, 2),
    server: v6(2, 1),
    unassigned: v6(2, 9),
    unreachable: v6(9, 1),
};
/// Both families.
pub const BOTH: [Addresses; 2] = [IPV4, IPV6];

impl Addresses {
    /// Returns a socket address of the server.
    pub fn server_port(&self, port: u16) -> SocketAddr {
        (self.server, port).into()
    }
}

/// Flags of a relay on the router: a listener of each family, and the destinations to intercept.
pub const INTERCEPT: [&str; 8] = [
    "--transparent",
    "127.0.0.1:3129",
    "--transparent",
    "[::1]:3129",
    "--intercept",
    "10.77.2.0/24,10.77.9.0/24:8080-8089",
    "--intercept",
    "[fd77:2::/64],[fd77:9::/64]:8080-8089",
];

/// Router's interface towards the client and towards the server, each with the number of its network.
const ENDS: [(&str, u8); 2] = [("near", 1), ("far", 2)];

impl Testbed {
    /// Creates the namespaces, with names that begin with `name`.
    pub fn new(name: &str) -> Self {
        let [client, router, server] =
            ["c", "r", "s"].map(|end| Namespace::new(&format!("{name}-{end}")));
        let bed = Self {
            client,
            router,
            server,
        };
        for (end, (port, network)) in [&bed.client, &bed.server].into_iter().zip(ENDS) {
            bed.connect_to_router(end, port, network);
        }
        set_sysctl(&bed.router, "net.ipv4.ip_forward", "1");
        set_sysctl(&bed.router, "net.ipv6.conf.all.forwarding", "1");
        bed
    }

    /// Connects an end to the router by a veth pair, with addresses and routes.
    fn connect_to_router(&self, end: &Namespace, port: &str, network: u8) {
        end.connect("eth0", &self.router, port);
        for (netns, device, host) in [(end, "eth0", 1), (&self.router, port, 2)] {
            let v4 = format!("10.77.{network}.{host}/24");
            let v6 = format!("fd77:{network}::{host}/64");
            netns.bring_up(device, &[&v4, &v6]);
        }
        end.wait_until_up("eth0");
        self.router.wait_until_up(port);
        run_ip(
            end,
            &format!(
                "route add default via 10.77.{network}.2
                 -6 route add default via fd77:{network}::2"
            ),
        );
    }

    /// Installs the rules of docs/relay.md for a listener on port 3129 that intercepts nothing by itself. They do not
    /// divert packets to the router itself.
    pub fn install_divert_rules(&self) {
        let v4 = ("ip", IPV4.downstream, "-4", "icmp");
        let v6 = ("ip6", IPV6.downstream, "-6", "ipv6-icmp");
        for (family, router, version, errors) in [v4, v6] {
            let rules = format!(
                "table {family} divert {{
                    chain divert {{
                        type filter hook prerouting priority mangle;
                        meta l4proto {{ tcp, {errors} }} socket transparent 1 meta mark set 0x1 accept
                        iifname near {family} daddr != {router} meta l4proto tcp \
                            tproxy to :3129 meta mark set 0x1 accept
                    }}
                }}"
            );
            run_with_input(&self.router, "nft", &["-f", "-"], &rules);
            run_ip(
                &self.router,
                &format!(
                    "{version} rule add fwmark 1 lookup 100
                     {version} route add local default dev lo table 100"
                ),
            );
        }
    }

    /// Returns a command on the router.
    pub fn command_on_router(&self, program: &str) -> Command {
        self.router.command(program)
    }

    /// Returns the command of a relay on the router.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.command_on_router(longhaul_testprograms::longhaul());
        command.arg("relay").args(args);
        command
    }

    /// Starts a relay on the router.
    pub fn relay(&self, args: &[&str]) -> Relay {
        Relay::spawn(self.command(args))
    }

    /// Opens a listener on the server.
    pub fn listen(&self, address: SocketAddr) -> TcpListener {
        self.server.listen(address)
    }

    /// Connects from the client.
    pub fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let connect = || TcpStream::connect_timeout(&to, TEST_TIMEOUT);
        self.client.run(connect)
    }
}
