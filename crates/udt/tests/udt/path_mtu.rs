// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths that carry less than the ends agreed on: three namespaces, of which the middle one routes, and says nothing of what it
//! throws away for its length, or cuts it.

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

/// How long anything may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the second half of the path carries.
const NARROW: usize = 1400;

/// Left, middle and right, of which the first two have 10.90.1.0/24 and fd90:1::/64, the others 10.90.2.0/24 and fd90:2::/64.
struct Path([Netns; 3]);

impl Path {
    /// Nothing if this process may make no namespaces.
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

    /// The second half carries no more than so many bytes.
    fn narrow(&self, bytes: usize) {
        self.ip(1, &format!("link set dev c mtu {bytes}"));
        self.ip(2, &format!("link set dev d mtu {bytes}"));
    }

    /// The middle says nothing of what is too long.
    fn silence_the_middle(&self) {
        let rules = "table inet silence { chain out { type filter hook output priority 0; \
            icmp type destination-unreachable drop; icmpv6 type packet-too-big drop; }; }";
        run(Command::new("nft").arg(rules), &self.0[1]);
    }

    /// A connection from the left to the right.
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
    longhaul_testbed::skip::unless(rustix::process::geteuid().is_root(), "root (CAP_NET_ADMIN)")
}

/// Sends so many bytes, which arrive.
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
    timeout(PATIENCE, all).await.expect("it hangs");
    assert!(received == sent);
}

fn packet_len(stream: &Stream) -> usize {
    stream.packet_len().unwrap()
}

#[tokio::test]
async fn packets_are_as_long_as_the_path_carries() {
    for (family, ends) in [
        (4, ["10.90.1.1", "10.90.2.1"]),
        (6, ["fd90:1::1", "fd90:2::1"]),
    ] {
        for narrow in [false, true] {
            let Some(path) = Path::new(&format!("as{family}{narrow}")) else {
                return;
            };
            path.silence_the_middle();
            if narrow {
                path.narrow(NARROW);
            }
            let (mut left, mut right) = path.connect(ends).await;
            // Until the search is over.
            for _ in 0..20 {
                carry(&mut left, &mut right, 300_000).await;
                carry(&mut right, &mut left, 300_000).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let most = if narrow { NARROW } else { 1500 };
            // As UDT counts, which knows of IPv4 alone.
            let expected = if family == 4 { most } else { most - 20 };
            assert_eq!([packet_len(&left), packet_len(&right)], [expected; 2]);
        }
    }
}

/// What has been cut to 1500 bytes already goes through in pieces.
#[tokio::test]
async fn a_path_that_becomes_narrower_carries_what_was_long() {
    let Some(path) = Path::new("shrinks") else {
        return;
    };
    path.silence_the_middle();
    let (mut left, mut right) = path.connect(["10.90.1.1", "10.90.2.1"]).await;
    carry(&mut left, &mut right, 300_000).await;
    assert_eq!(packet_len(&left), 1500);
    path.narrow(NARROW);
    carry(&mut left, &mut right, 3_000_000).await;
}

/// And where this host itself must cut it the kernel takes no trains.
#[tokio::test]
async fn an_interface_that_becomes_narrower_takes_packets_one_by_one() {
    let Some(path) = Path::new("near") else {
        return;
    };
    let (mut left, mut right) = path.connect(["10.90.1.1", "10.90.2.1"]).await;
    carry(&mut left, &mut right, 300_000).await;
    path.ip(0, "link set dev a mtu 1400");
    carry(&mut left, &mut right, 3_000_000).await;
    let counts = left.stats().unwrap().counts;
    assert_eq!(counts.timeouts, 0, "nothing was thrown away");
}
