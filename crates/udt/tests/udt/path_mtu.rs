// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path MTU discovery over three namespaces. The middle one routes packets no longer than it carries. It drops or
//! fragments longer ones, and sends no ICMP message about them.

use crate::testbed::{byte, config, native};
use longhaul_linux::{netns::Netns, process::inside};
use longhaul_udt::socket::{Socket, Stream};
use std::{
    net::{IpAddr, SocketAddr},
    process::Command,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

/// Time after which a test counts as hung.
const TIMEOUT: Duration = Duration::from_secs(60);

/// MTU of the second half of the path, in bytes.
const NARROW: usize = 1400;

/// Namespaces left, middle and right. The first two share 10.90.1.0/24 and fd90:1::/64, the last two 10.90.2.0/24 and
/// fd90:2::/64.
struct Path([Netns; 3]);

impl Path {
    /// Creates the namespaces; `None` if this process may not.
    fn new(name: &str) -> Option<Self> {
        if !may_use_namespaces() {
            return None;
        }
        let create = |end: &str| Netns::create(&format!("udt-{name}-{}-{end}", std::process::id()));
        let path = Self(["l", "m", "r"].map(|end| create(end).unwrap()));
        for (end, number, near, far) in [(0, 1, "a", "b"), (2, 2, "d", "c")] {
            let there = path.0[1].name().unwrap();
            let add = format!("link add name {near} type veth peer name {far} netns {there}");
            path.ip(end, &add);
            path.address(end, near, number, 1);
            path.address(1, far, number, 2);
            path.ip(end, &format!("route add default via 10.90.{number}.2"));
            path.ip(end, &format!("route add default via fd90:{number}::2"));
        }
        for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            let write = || std::fs::write(format!("/proc/sys/net/{key}"), "1");
            path.0[1].run(write).unwrap();
        }
        Some(path)
    }

    fn address(&self, netns: usize, interface: &str, network: u8, host: u8) {
        for address in [
            format!("10.90.{network}.{host}/24"),
            format!("fd90:{network}::{host}/64 nodad"),
        ] {
            self.ip(netns, &format!("address add {address} dev {interface}"));
        }
        self.ip(netns, &format!("link set dev {interface} up"));
    }

    fn ip(&self, netns: usize, arguments: &str) {
        run(
            Command::new("ip").args(arguments.split(' ')),
            &self.0[netns],
        );
    }

    /// Sets the MTU of the second half.
    fn narrow(&self, bytes: usize) {
        self.ip(1, &format!("link set dev c mtu {bytes}"));
        self.ip(2, &format!("link set dev d mtu {bytes}"));
    }

    /// Stops ICMP messages of the middle about packets that are too long.
    fn drop_icmp_of_the_middle(&self) {
        let rules = "table inet silence { chain out { type filter hook output priority 0; \
            icmp type destination-unreachable drop; icmpv6 type packet-too-big drop; }; }";
        run(Command::new("nft").arg(rules), &self.0[1]);
    }

    /// Opens a connection from the left to the right.
    async fn connect(&self, ends: [&str; 2]) -> (Stream, Stream) {
        let [left, right] = ends.map(|end| SocketAddr::new(end.parse::<IpAddr>().unwrap(), 0));
        let bind = |netns: usize, at| {
            let control = Box::new(native);
            let bind = || Socket::bind(at, config(), control);
            self.0[netns].run(bind).unwrap()
        };
        let (left, right) = (bind(0, left), bind(2, right));
        right.listen();
        let to = right.local_addr();
        let (connected, accepted) = tokio::join!(left.connect(to), right.accept());
        (connected.unwrap(), accepted.unwrap())
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        for name in self.0.iter().filter_map(Netns::name) {
            drop(Netns::delete(name));
        }
    }
}

fn run(command: &mut Command, netns: &Netns) {
    let output = inside(command, netns).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn may_use_namespaces() -> bool {
    longhaul_testbed::skip::require(rustix::process::geteuid().is_root(), "root (CAP_NET_ADMIN)")
}

/// Sends `bytes` bytes and checks that they arrive.
async fn carry(from: &mut Stream, to: &mut Stream, bytes: usize) {
    let sent: Vec<u8> = (0..bytes as u64).map(byte).collect();
    let mut received = vec![0; bytes];
    let sending = async {
        from.write_all(&sent).await.unwrap();
        from.flush().await.unwrap();
    };
    let all = async {
        tokio::join!(sending, to.read_exact(&mut received))
            .1
            .unwrap()
    };
    timeout(TIMEOUT, all).await.expect("the transfer hangs");
    assert!(received == sent);
}

fn packet_len(stream: &Stream) -> usize {
    stream.packet_len().unwrap()
}

#[tokio::test]
async fn uses_the_longest_packets_that_the_path_carries() {
    for (family, ends) in [
        (4, ["10.90.1.1", "10.90.2.1"]),
        (6, ["fd90:1::1", "fd90:2::1"]),
    ] {
        for narrow in [false, true] {
            let Some(path) = Path::new(&format!("as{family}{narrow}")) else {
                return;
            };
            path.drop_icmp_of_the_middle();
            if narrow {
                path.narrow(NARROW);
            }
            let (mut left, mut right) = path.connect(ends).await;
            // Transfer until the search is over.
            for _ in 0..20 {
                carry(&mut left, &mut right, 300_000).await;
                carry(&mut right, &mut left, 300_000).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let mtu = if narrow { NARROW } else { 1500 };
            // UDT counts the headers of IPv4 only.
            let expected = if family == 4 { mtu } else { mtu - 20 };
            assert_eq!([packet_len(&left), packet_len(&right)], [expected; 2]);
        }
    }
}

/// Packets of 1500 bytes that were sent before are fragmented.
#[tokio::test]
async fn fragments_packets_after_the_path_mtu_shrinks() {
    let Some(path) = Path::new("shrinks") else {
        return;
    };
    path.drop_icmp_of_the_middle();
    let (mut left, mut right) = path.connect(["10.90.1.1", "10.90.2.1"]).await;
    carry(&mut left, &mut right, 300_000).await;
    assert_eq!(packet_len(&left), 1500);
    path.narrow(NARROW);
    carry(&mut left, &mut right, 3_000_000).await;
}

/// If this host itself must fragment, the kernel accepts no GSO batches.
#[tokio::test]
async fn sends_without_gso_after_the_interface_mtu_shrinks() {
    let Some(path) = Path::new("near") else {
        return;
    };
    let (mut left, mut right) = path.connect(["10.90.1.1", "10.90.2.1"]).await;
    carry(&mut left, &mut right, 300_000).await;
    path.ip(0, "link set dev a mtu 1400");
    carry(&mut left, &mut right, 3_000_000).await;
    let counts = left.stats().unwrap().counts;
    assert_eq!(counts.timeouts, 0, "no packet was dropped");
}
