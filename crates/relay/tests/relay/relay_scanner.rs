// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port scanner under `--verify-connect`, which sends SYNs to a silent port. Other clients keep
//! their connections, and the scanner's own SYNs go directly to their destinations.

use longhaul_testnet::{
    relay_process::{TEST_TIMEOUT, may_use_namespaces},
    relay_testbed::{Addresses, BOTH, Testbed, run_ip, run_with_input},
};
use socket2::{Domain, Socket, Type};
use std::net::{IpAddr, SocketAddr, TcpListener};

/// Number of SYNs: more than a listener holds, also if the kernel drops some.
const SYNS: usize = 3000;

/// Port that answers nothing.
const SILENT: u16 = 8088;

/// Returns the address of a second client, in another /64 than the first one's.
fn modest(family: &Addresses) -> IpAddr {
    match family.client {
        IpAddr::V4(_) => [10, 77, 1, 7].into(),
        IpAddr::V6(_) => [0xfd77, 7, 0, 0, 0, 0, 0, 7].into(),
    }
}

fn testbed(name: &str) -> Testbed {
    let bed = Testbed::new(name);
    run_ip(
        &bed.client,
        "address add 10.77.1.7/24 dev eth0\naddress add fd77:7::7/64 dev eth0 nodad",
    );
    run_ip(&bed.router, "-6 route add fd77:7::/64 via fd77:1::1");
    run_with_input(
        &bed.server,
        "nft",
        &["-f", "-"],
        "table inet test { chain c { type filter hook input priority 0; tcp dport 8088 drop\n}\n}",
    );
    bed
}

/// Sends SYNs from the client's first address. They stay unanswered as long as the sockets live.
fn scan(bed: &Testbed, to: SocketAddr) -> Vec<Socket> {
    let syn = |_| {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let error = socket.connect(&to.into()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(115), "EINPROGRESS: {error}");
        socket
    };
    bed.client.run(|| Ok((0..SYNS).map(syn).collect())).unwrap()
}

/// Returns the source address of a connection from `client`, as the server sees it.
fn source(bed: &Testbed, client: IpAddr, server: &TcpListener) -> IpAddr {
    let to = server.local_addr().unwrap();
    let connect = || {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(client, 0).into()).unwrap();
        socket
            .connect_timeout(&to.into(), TEST_TIMEOUT)
            .map(|()| socket)
    };
    let _client = bed.client.run(connect).unwrap();
    server.accept().unwrap().1.ip()
}

#[test]
fn scanner_does_not_block_others_and_connects_directly() {
    if !may_use_namespaces() {
        return;
    }
    let _ = longhaul_linux::descriptors::raise_limit();
    let bed = testbed("scan");
    let relay = bed.relay(&[
        "--transparent",
        "127.0.0.1:3129",
        "--transparent",
        "[::1]:3129",
        "--intercept",
        "10.77.2.0/24,[fd77:2::/64]:8080-8089",
        "--verify-connect",
        "--connect-timeout",
        "30s",
        "--counters",
        "-",
    ]);
    for family in BOTH {
        let server = bed.listen(family.server_port(8080));
        let scanner = scan(&bed, family.server_port(SILENT));
        assert_eq!(source(&bed, modest(&family), &server), family.upstream);
        assert_eq!(source(&bed, family.client, &server), family.client);
        drop(scanner);
    }
    let (_, log) = relay.stop();
    for family in BOTH {
        let line = format!(
            "client has 128 handshakes in progress, or all connections that it may have: its others bypass the relay client={}",
            family.client
        );
        assert_eq!(log.matches(&line).count(), 1, "{log}");
    }
}

#[test]
fn client_over_its_limit_connects_directly() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("share");
    let relay = bed.relay(&[
        "--transparent",
        "127.0.0.1:3129",
        "--intercept",
        "10.77.2.0/24:8080-8089",
        "--verify-connect",
        "--max-connections",
        "8",
    ]);
    let family = BOTH[0];
    let server = bed.listen(family.server_port(8080));
    let to = family.server_port(8080);
    let connect = || {
        bed.client
            .run(|| std::net::TcpStream::connect_timeout(&to, TEST_TIMEOUT))
    };
    let pairs: Vec<_> = (0..20)
        .map(|_| (connect().unwrap(), server.accept().unwrap()))
        .collect();
    let from = |address: IpAddr| {
        let sources = pairs.iter().map(|(_, (_, source))| source.ip());
        sources.filter(|source| *source == address).count()
    };
    assert_eq!((from(family.upstream), from(family.client)), (6, 14));
    let (_, log) = relay.stop();
    assert!(
        log.contains("or all connections that it may have: its others bypass the relay"),
        "{log}"
    );
}
