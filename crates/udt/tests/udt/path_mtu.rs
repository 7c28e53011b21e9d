// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path MTU discovery over three namespaces. The middle one routes packets no longer than it carries. It drops or
//! fragments longer ones, and sends no ICMP message about them.

use crate::testbed::{byte, config, native};
use longhaul_linux::netns::Netns;
use longhaul_testnet::{
    namespace::{may_use_namespaces, run_ip, run_with_input},
    relay_testbed::{Addresses, BOTH, IPV4, Testbed},
};
use longhaul_udt::socket::{Socket, Stream};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

/// Time after which a test counts as hung.
const TIMEOUT: Duration = Duration::from_secs(60);

/// MTU of the second half of the path, in bytes.
const NARROW: usize = 1400;

/// Sets the MTU of the second half.
fn narrow(path: &Testbed) {
    run_ip(&path.router, &format!("link set far mtu {NARROW}"));
    run_ip(&path.server, &format!("link set eth0 mtu {NARROW}"));
}

/// Stops ICMP messages of the middle about packets that are too long.
fn drop_icmp_of_the_middle(path: &Testbed) {
    let rules = "table inet silence { chain out { type filter hook output priority 0; \
        icmp type destination-unreachable drop; icmpv6 type packet-too-big drop; }; }";
    run_with_input(&path.router, "nft", &["-f", "-"], rules);
}

/// Opens a connection from the left to the right.
async fn connect(path: &Testbed, addresses: Addresses) -> (Stream, Stream) {
    let bind = |netns: &Netns, ip| {
        let bind = || Socket::bind((ip, 0).into(), config(), Box::new(native));
        netns.run(bind).unwrap()
    };
    let left = bind(&path.client, addresses.client);
    let right = bind(&path.server, addresses.server);
    right.listen();
    let to = right.local_addr();
    let (connected, accepted) = tokio::join!(left.connect(to), right.accept());
    (connected.unwrap(), accepted.unwrap())
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
    if !may_use_namespaces() {
        return;
    }
    for addresses in BOTH {
        for is_narrow in [false, true] {
            let path = Testbed::new("udt-longest");
            drop_icmp_of_the_middle(&path);
            if is_narrow {
                narrow(&path);
            }
            let (mut left, mut right) = connect(&path, addresses).await;
            // Transfer until the search is over.
            for _ in 0..20 {
                carry(&mut left, &mut right, 300_000).await;
                carry(&mut right, &mut left, 300_000).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let mtu = if is_narrow { NARROW } else { 1500 };
            // UDT counts the headers of IPv4 only.
            let expected = if addresses.client.is_ipv4() {
                mtu
            } else {
                mtu - 20
            };
            assert_eq!([packet_len(&left), packet_len(&right)], [expected; 2]);
        }
    }
}

/// Packets of 1500 bytes that were sent before are fragmented.
#[tokio::test]
async fn fragments_packets_after_the_path_mtu_shrinks() {
    if !may_use_namespaces() {
        return;
    }
    let path = Testbed::new("udt-shrinks");
    drop_icmp_of_the_middle(&path);
    let (mut left, mut right) = connect(&path, IPV4).await;
    carry(&mut left, &mut right, 300_000).await;
    assert_eq!(packet_len(&left), 1500);
    narrow(&path);
    carry(&mut left, &mut right, 3_000_000).await;
}

/// If this host itself must fragment, the kernel accepts no GSO batches.
#[tokio::test]
async fn sends_without_gso_after_the_interface_mtu_shrinks() {
    if !may_use_namespaces() {
        return;
    }
    let path = Testbed::new("udt-near");
    let (mut left, mut right) = connect(&path, IPV4).await;
    carry(&mut left, &mut right, 300_000).await;
    run_ip(&path.client, "link set eth0 mtu 1400");
    carry(&mut left, &mut right, 3_000_000).await;
    let counts = left.stats().unwrap().counts;
    assert_eq!(counts.timeouts, 0, "no packet was dropped");
}
