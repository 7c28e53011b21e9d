// SPDX-License-Identifier: MIT OR Apache-2.0
//! DSCP of a client's SYN, which both its legs have, directly and through another relay, unless a
//! profile sets one.

use longhaul_linux::socket;
use longhaul_testnet::{
    relay_process::{Relay, TEST_TIMEOUT, accept, may_use_namespaces, transfer_both_ways},
    relay_testbed::{Addresses, BOTH, INTERCEPT, Testbed, run_with_input},
};
use socket2::{Domain, Socket, Type};
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

/// Counters of packets at server and client, with and without the expected DSCP.
const COUNTERS: &str = "table inet seen {
    chain in {
        type filter hook input priority filter
        tcp dport 8080 ip dscp af31 counter
        tcp dport 8080 ip dscp != af31 counter
        tcp dport 8080 ip6 dscp af31 counter
        tcp dport 8080 ip6 dscp != af31 counter
        tcp sport 8080 ip dscp af31 counter
        tcp sport 8080 ip dscp != af31 counter
        tcp sport 8080 ip6 dscp af31 counter
        tcp sport 8080 ip6 dscp != af31 counter
    }
}
";

/// AF31, as used for video (RFC 4594).
const AF31: u8 = 26;

/// Packets without the DSCP: the kernel sends the SYN/ACK to a client before the relay knows of it.
const SYN_ACK: u64 = 1;

fn connect(bed: &Testbed, to: SocketAddr) -> TcpStream {
    let connect = || {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        match to {
            SocketAddr::V4(_) => socket.set_tos_v4(u32::from(AF31) << 2)?,
            SocketAddr::V6(_) => socket.set_tclass_v6(u32::from(AF31) << 2)?,
        }
        socket.connect_timeout(&to.into(), TEST_TIMEOUT)?;
        Ok(TcpStream::from(socket))
    };
    bed.client.run(connect).unwrap()
}

/// Number of packets without AF31 that server and client receive over one connection.
fn unmarked(bed: &Testbed, family: &Addresses) -> u64 {
    for netns in [&bed.client, &bed.server] {
        run_with_input(netns, "nft", &["-f", "-"], COUNTERS);
    }
    let listener = bed.listen(family.server_port(8080));
    let client = connect(bed, family.server_port(8080));
    let server = accept(&listener);
    socket::set_dscp(&server, AF31).unwrap();
    // A relay that verifies has the server's connection before the client's. Until it accepts that, the kernel
    // acknowledges the client's data.
    (&server).write_all(b"!").unwrap();
    (&client).read_exact(&mut [0]).unwrap();
    transfer_both_ways(&client, &server, 8);
    drop((client, server));
    let [mut marked, mut unmarked] = [0; 2];
    for netns in [&bed.client, &bed.server] {
        for line in list_counters(netns)
            .lines()
            .filter(|line| line.contains("counter packets "))
        {
            let count = line
                .split("packets ")
                .nth(1)
                .unwrap()
                .split(' ')
                .next()
                .unwrap();
            let count: u64 = count.parse().unwrap();
            if line.contains("!= af31") {
                unmarked += count;
            } else {
                marked += count;
            }
        }
        run_with_input(netns, "nft", &["-f", "-"], "delete table inet seen\n");
    }
    assert!(marked + unmarked > 8, "{marked} {unmarked}");
    unmarked
}

fn list_counters(netns: &longhaul_linux::netns::Netns) -> String {
    let mut command = std::process::Command::new("nft");
    command.args(["list", "table", "inet", "seen"]);
    let output = longhaul_linux::process::inside(&mut command, netns)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn both_legs_have_client_dscp() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("dscp");
    for flags in [&[][..], &["--verify-connect"], &["--keep-source"]] {
        let _relay = bed.relay(&[&INTERCEPT[..], flags].concat());
        for family in BOTH {
            assert!(unmarked(&bed, &family) <= SYN_ACK, "{flags:?} {family:?}");
        }
    }
}

#[test]
fn far_relay_has_client_dscp() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("dscp-far");
    let _far = bed.relay(&["--convert", "127.0.0.1:5124"]);
    for flags in [&["--peer-pool", "2"][..], &["--verify-connect"]] {
        let _near = bed.relay(&[&INTERCEPT[..], &["--peer", "127.0.0.1:5124"], flags].concat());
        for family in BOTH {
            assert!(unmarked(&bed, &family) <= SYN_ACK, "{flags:?} {family:?}");
        }
    }
}

#[test]
fn profile_dscp_takes_precedence() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("dscp-own");
    let file = tempfile::NamedTempFile::new().unwrap();
    let listener = "[[listener]]\nkind = 'transparent'\naddress = '127.0.0.1:3129'\nintercept = ['10.77.2.0/24:8080']\n";
    std::fs::write(
        file.path(),
        format!("{listener}[profile.upstream]\ndscp = 0\n"),
    )
    .unwrap();
    let _relay =
        Relay::spawn_with_listeners(bed.command(&["--config", file.path().to_str().unwrap()]), 1);
    assert!(unmarked(&bed, &BOTH[0]) > 2 * SYN_ACK);
}
