// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that need more than loopback: TPROXY between a client, a relay and a server in network
//! namespaces, and clients that are not on the allow list.

use longhaul_linux::process::inside;
use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, assert_connect_reset, may_use_namespaces, transfer_both_ways,
};
use longhaul_testnet::relay_testbed::{BOTH, IPV4, Testbed, run_ip};
use socket2::{Domain, Socket, Type};
use std::{
    net::{IpAddr, SocketAddr, TcpStream},
    process::Command,
};

/// Transparent listeners, one for each address family.
const LISTENERS: [&str; 4] = [
    "--transparent",
    "0.0.0.0:3129",
    "--transparent",
    "[::]:3129",
];

fn source(server: &TcpStream) -> IpAddr {
    server.peer_addr().unwrap().ip()
}

#[test]
fn diverted_connections_reach_original_destination() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("tproxy");
    bed.install_divert_rules();
    for mode in ["splice", "copy"] {
        let _relay = bed.relay(&[&LISTENERS[..], &["--mode", mode]].concat());
        for family in BOTH {
            let listener = bed.listen(family.server_port(8080));
            let client = bed.connect(family.server_port(8080)).unwrap();
            let server = accept(&listener);
            // The relay's own address: without --keep-source, the relay connects as itself.
            assert_eq!(source(&server), family.upstream);
            transfer_both_ways(&client, &server, 4);
        }
    }
}

#[test]
fn keep_source_preserves_client_address() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("source");
    bed.install_divert_rules();
    let _relay = bed.relay(&[&LISTENERS[..], &["--keep-source"]].concat());
    for family in BOTH {
        let listener = bed.listen(family.server_port(8080));
        let client = bed.connect(family.server_port(8080)).unwrap();
        let server = accept(&listener);
        assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
        transfer_both_ways(&client, &server, 4);
    }
}

#[test]
fn rejects_connection_to_listener_itself() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("loop");
    bed.install_divert_rules();
    let _relay = bed.relay(&LISTENERS);
    for family in BOTH {
        assert_connect_reset(bed.connect((family.downstream, 3129).into()));
    }
}

#[test]
fn relays_diverted_connection_through_peer() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("peer");
    bed.install_divert_rules();
    let _far = bed.relay(&["--convert", "127.0.0.1:5124"]);
    let _near = bed.relay(&[&LISTENERS[..], &["--peer", "127.0.0.1"]].concat());
    for family in BOTH {
        let listener = bed.listen(family.server_port(8080));
        let client = bed.connect(family.server_port(8080)).unwrap();
        transfer_both_ways(&client, &accept(&listener), 4);
    }
}

#[test]
fn serves_only_clients_on_allow_list() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("allow");
    let listener = bed.listen(IPV4.server_port(8080));
    let listen_address = SocketAddr::from((IPV4.downstream, 80));
    let forward = ["--forward", "10.77.1.2:80=10.77.2.1:8080", "--allow-from"];
    let stranger = bed.relay(&[forward.as_slice(), &["192.0.2.0/24"]].concat());
    assert_connect_reset(bed.connect(listen_address));
    drop(stranger);
    let _relay = bed.relay(&[forward.as_slice(), &["10.77.1.0/24"]].concat());
    let client = bed.connect(listen_address).unwrap();
    transfer_both_ways(&client, &accept(&listener), 1);
}

#[test]
fn missing_capability_is_named_with_exit_code_3() {
    if !may_use_namespaces() {
        return;
    }
    let longhaul = longhaul_testprograms::longhaul();
    let output = Command::new("timeout")
        .args([
            "20",
            "setpriv",
            "--bounding-set",
            "-net_admin,-net_raw",
            "--inh-caps",
            "-all",
            longhaul,
        ])
        .args(["relay", "--transparent", "127.0.0.1:0"])
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{log}");
    assert!(log.contains("CAP_NET_ADMIN"), "{log}");
}

/// The peer's path to the destination leads through this relay's host. Its legs are not sent to it
/// again.
#[test]
fn connections_of_intercepted_peer_go_directly() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("loop");
    run_ip(&bed.client, "address add 10.77.1.7/24 dev eth0");
    let mut peer = Command::new(longhaul_testprograms::longhaul());
    peer.args([
        "relay",
        "--convert",
        "10.77.1.7:5124",
        "--allow-from",
        "10.77.0.0/16",
    ]);
    // The peer's source address is its listening address.
    run_ip(
        &bed.client,
        "route replace 10.77.2.0/24 via 10.77.1.2 src 10.77.1.7",
    );
    inside(&mut peer, &bed.client);
    let _peer = Relay::spawn(peer);
    for verify in [&[][..], &["--verify-connect"]] {
        let intercept = [
            "--transparent",
            "127.0.0.1:3129",
            "--intercept",
            "10.77.2.0/24:8080",
            "--peer",
            "10.77.1.7",
        ];
        let _relay = bed.relay(&[&intercept[..], verify].concat());
        let server = bed.listen(IPV4.server_port(8080));
        let connect = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.bind(&SocketAddr::new(IPV4.client, 0).into())?;
            socket.connect_timeout(&IPV4.server_port(8080).into(), TEST_TIMEOUT)?;
            Ok(TcpStream::from(socket))
        };
        let client = bed.client.run(connect).unwrap();
        transfer_both_ways(&client, &accept(&server), 1);
    }
}
