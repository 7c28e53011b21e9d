// SPDX-License-Identifier: MIT OR Apache-2.0
//! client – router – server in network namespaces, both IP families, and relays on the router. The
//! namespaces go when the testbed goes.
pub mod chain;

use crate::relay_process::{PATIENCE, Relay};
use longhaul_linux::{netns::Netns, process::inside};
use std::{
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// A client, a router with relays, and a server.
pub struct Testbed {
    /// The namespace of the client.
    pub client: Netns,
    /// The namespace of the router.
    pub router: Netns,
    /// The namespace of the server.
    pub server: Netns,
}

/// Who is where, in one IP family.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// The address of the client.
    pub client: IpAddr,
    /// The router's address towards the client.
    pub near: IpAddr,
    /// The router's address towards the server.
    pub far: IpAddr,
    /// The address of the server.
    pub server: IpAddr,
    /// On the server's network, and nobody's.
    pub nobody: IpAddr,
    /// In a network that the router has no way to.
    pub nowhere: IpAddr,
}

const fn v4(network: u8, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 77, network, host))
}

const fn v6(network: u16, host: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0xfd77, network, 0, 0, 0, 0, 0, host))
}

/// Addresses of IPv4.
pub const IPV4: Family = Family {
    client: v4(1, 1),
    near: v4(1, 2),
    far: v4(2, 2),
    server: v4(2, 1),
    nobody: v4(2, 9),
    nowhere: v4(9, 1),
};
/// Addresses of IPv6.
pub const IPV6: Family = Family {
    client: v6(1, 1),
    near: v6(1, 2),
    far: v6(2, 2),
    server: v6(2, 1),
    nobody: v6(2, 9),
    nowhere: v6(9, 1),
};
/// Both families.
pub const BOTH: [Family; 2] = [IPV4, IPV6];

impl Family {
    /// A port of the server's.
    pub fn at(&self, port: u16) -> SocketAddr {
        (self.server, port).into()
    }
}

/// A listener of each family on the router, and what of the server's networks is intercepted.
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

/// Each end's only link, and the router's port of it.
const ENDS: [(&str, u8); 2] = [("near", 1), ("far", 2)];

impl Testbed {
    /// Makes the namespaces; `name` tells them from those of other tests.
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let create = |end| {
            let name = format!("{name}-{}-{number}-{end}", std::process::id());
            Netns::create(&name).unwrap()
        };
        let bed = Self {
            client: create("c"),
            router: create("r"),
            server: create("s"),
        };
        ip(&bed.router, "link set lo up");
        for (end, (port, network)) in [&bed.client, &bed.server].into_iter().zip(ENDS) {
            bed.join(end, port, network);
        }
        set(&bed.router, "net.ipv4.ip_forward", "1");
        set(&bed.router, "net.ipv6.conf.all.forwarding", "1");
        bed
    }

    fn join(&self, end: &Netns, port: &str, network: u8) {
        let router = self.router.name().expect("created by name");
        ip(
            end,
            &format!(
                "link set lo up
                 link add eth0 type veth peer name {port} netns {router}"
            ),
        );
        for (netns, device, host) in [(end, "eth0", 1), (&self.router, port, 2)] {
            ip(
                netns,
                &format!(
                    "address add 10.77.{network}.{host}/24 dev {device}
                     address add fd77:{network}::{host}/64 dev {device} nodad
                     link set {device} up"
                ),
            );
        }
        ip(
            end,
            &format!(
                "route add default via 10.77.{network}.2
                 -6 route add default via fd77:{network}::2"
            ),
        );
    }

    /// The rules of docs/relay.md for a listener on port 3129 that intercepts nothing by itself.
    /// What goes to the router itself passes.
    pub fn divert(&self) {
        let v4 = ("ip", IPV4.near, "-4", "icmp");
        let v6 = ("ip6", IPV6.near, "-6", "ipv6-icmp");
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
            feed(&self.router, "nft", &["-f", "-"], &rules);
            ip(
                &self.router,
                &format!(
                    "{version} rule add fwmark 1 lookup 100
                     {version} route add local default dev lo table 100"
                ),
            );
        }
    }

    /// A command on the router.
    pub fn within(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        inside(&mut command, &self.router);
        command
    }

    /// What becomes a relay on the router.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.within(longhaul_testbed::longhaul());
        command.arg("relay").args(args);
        command
    }

    /// Starts a relay on the router.
    pub fn relay(&self, args: &[&str]) -> Relay {
        Relay::spawn(self.command(args))
    }

    /// A server's socket.
    pub fn listen(&self, address: SocketAddr) -> TcpListener {
        self.server.run(|| TcpListener::bind(address)).unwrap()
    }

    /// From the client.
    pub fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let connect = || TcpStream::connect_timeout(&to, PATIENCE);
        self.client.run(connect)
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        for netns in [&self.client, &self.router, &self.server] {
            let _ = Netns::delete(netns.name().expect("created by name"));
        }
    }
}

/// ip(8) commands, one a line, in a namespace; a line may begin with -4 or -6.
pub fn ip(netns: &Netns, lines: &str) {
    for line in lines.lines() {
        let mut command = Command::new("ip");
        command.args(line.split_whitespace());
        let status = inside(&mut command, netns).status().unwrap();
        assert!(status.success(), "ip {line}");
    }
}

/// A kernel setting of a namespace.
pub fn set(netns: &Netns, name: &str, value: &str) {
    longhaul_linux::sysctl::write(netns, name, value).unwrap();
}

/// Runs a program in a namespace with this as its standard input.
pub fn feed(netns: &Netns, program: &str, args: &[&str], lines: &str) {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped());
    let mut child = inside(&mut command, netns).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines.as_bytes()).unwrap();
    drop(stdin);
    let status = child.wait().unwrap();
    assert!(status.success(), "{program} {args:?}: {lines}");
}
