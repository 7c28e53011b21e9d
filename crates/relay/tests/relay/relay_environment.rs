// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interception together with kernel settings, rules and listeners of other programs.

use longhaul_linux::process::inside;
use longhaul_testnet::{
    relay_process::{Relay, TEST_TIMEOUT, may_use_namespaces},
    relay_testbed::{
        Addresses, BOTH, INTERCEPT, IPV4, IPV6, Testbed, run_ip, run_with_input, set_sysctl,
    },
};
use socket2::{Domain, Socket, Type};
use std::{
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt as _,
    process::Command,
    time::Duration,
};

/// Flag sets for clients' addresses and destinations' answers.
const FLAG_SETS: [&[&str]; 4] = [
    &[],
    &["--keep-source"],
    &["--verify-connect"],
    &["--keep-source", "--verify-connect"],
];

fn relay(bed: &Testbed, flags: &[&str]) -> Relay {
    bed.relay(&[&INTERCEPT[..], flags].concat())
}

/// Passes a byte each way and returns the client's address as the server sees it.
fn exchange(client: io::Result<TcpStream>, server: &TcpListener) -> IpAddr {
    let mut client = client.unwrap();
    client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    client.write_all(b"?").unwrap();
    let (mut accepted, address) = server.accept().unwrap();
    accepted.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut byte = [0];
    accepted.read_exact(&mut byte).unwrap();
    accepted.write_all(b"!").unwrap();
    client.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"!");
    address.ip()
}

/// Source address that the server sees of an intercepted connection.
fn expected(family: Addresses, flags: &[&str]) -> IpAddr {
    if flags.contains(&"--keep-source") {
        family.client
    } else {
        family.upstream
    }
}

/// Checks that connections of both families are relayed with each set of flags.
fn assert_relayed(bed: &Testbed, port: u16) {
    for flags in FLAG_SETS {
        let _relay = relay(bed, flags);
        for family in BOTH {
            let server = bed.listen(family.server_port(port));
            let source = exchange(bed.connect(family.server_port(port)), &server);
            assert_eq!(source, expected(family, flags), "{flags:?}");
        }
    }
}

#[test]
fn relays_with_src_valid_mark() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("valid");
    for interface in ["all", "near"] {
        set_sysctl(
            &bed.router,
            &format!("net.ipv4.conf.{interface}.src_valid_mark"),
            "1",
        );
        assert_relayed(&bed, 8080);
    }
    set_sysctl(&bed.router, "net.ipv4.conf.near.rp_filter", "1");
    assert_relayed(&bed, 8081);
}

#[test]
fn relays_own_connections_with_src_valid_mark() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("valid-own");
    set_sysctl(&bed.router, "net.ipv4.conf.all.src_valid_mark", "1");
    let _relay = relay(&bed, &["--intercept-local", "--verify-connect"]);
    let server = bed.listen(IPV4.server_port(8080));
    for client in [&bed.router, &bed.client] {
        let connect = || TcpStream::connect_timeout(&IPV4.server_port(8080), TEST_TIMEOUT);
        assert_eq!(exchange(client.run(connect), &server), IPV4.upstream);
    }
}

/// Floods the server with SYNs from an address that does not exist, so that no RST ends its
/// handshakes.
fn flood(bed: &Testbed) {
    const SYNS: &str = r"
import socket, struct
def checksum(data):
    total = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return 0xffff - total
source, to = socket.inet_aton('10.77.1.66'), socket.inet_aton('10.77.2.1')
ip = struct.pack('!BBHHHBBH', 0x45, 0, 40, 0, 0, 64, 6, 0) + source + to
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for port in range(1024, 31024):
    head = struct.pack('!HHIIBBHHH', port, 8080, 1, 0, 5 << 4, 2, 65535, 0, 0)
    pseudo = source + to + struct.pack('!HH', socket.IPPROTO_TCP, len(head))
    head = head[:16] + struct.pack('!H', checksum(pseudo + head)) + head[18:]
    s.sendto(ip + head, ('10.77.2.1', 0))
";
    let mut command = Command::new("/usr/bin/python3");
    let command = command.args(["-c", SYNS]);
    assert!(inside(command, &bed.client).status().unwrap().success());
}

/// A listener whose queue is full uses SYN cookies and keeps no socket for the handshake.
#[test]
fn completes_handshakes_with_syn_cookies() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("cookies");
    set_sysctl(&bed.router, "net.ipv4.tcp_syncookies", "2");
    assert_relayed(&bed, 8080);
    run_with_input(&bed.router, "nft", &["-f", "-"], MASQUERADE);
    assert_relayed(&bed, 8081);
}

const MASQUERADE: &str = "table ip nat { chain c { type nat hook postrouting priority srcnat
oifname nosuch masquerade
}
}";

#[test]
fn relays_during_syn_flood() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("flood");
    set_sysctl(&bed.router, "net.core.somaxconn", "64");
    let _relay = relay(&bed, &[]);
    let server = bed.listen(IPV4.server_port(8080));
    flood(&bed);
    for _ in 0..20 {
        assert_eq!(
            exchange(bed.connect(IPV4.server_port(8080)), &server),
            IPV4.upstream
        );
    }
}

/// A listener of another program at the unspecified address receives packets to any destination on
/// its port.
#[test]
fn ignores_ports_of_other_transparent_listeners() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("other");
    let _relay = relay(&bed, &["--keep-source"]);
    for (family, any) in [(IPV4, "0.0.0.0:9000"), (IPV6, "[::]:9000")] {
        let any: SocketAddr = any.parse().unwrap();
        let options = longhaul_linux::socket::Options {
            transparent: true,
            ..Default::default()
        };
        let listen = || longhaul_linux::socket::listen(any, 8, &options);
        let _other = bed.router.run(listen).unwrap();
        let server = bed.listen(family.server_port(9000));
        let source = exchange(bed.connect(family.server_port(9000)), &server);
        assert_eq!(source, family.client);
    }
}

#[test]
fn ignores_untracked_own_connections() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("notrack");
    let _relay = relay(&bed, &["--intercept-local"]);
    let rules = "table inet own { chain c { type filter hook output priority raw
tcp dport 8081 notrack
}
}";
    run_with_input(&bed.router, "nft", &["-f", "-"], rules);
    for family in BOTH {
        for port in [8080, 8081] {
            let server = bed.listen(family.server_port(port));
            let connect = || TcpStream::connect_timeout(&family.server_port(port), TEST_TIMEOUT);
            exchange(bed.router.run(connect), &server);
        }
    }
}

#[test]
fn ignores_link_local_services() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("link");
    let metadata: [SocketAddr; 2] = [
        "169.254.169.254:8080".parse().unwrap(),
        "[fd00:ec2::254]:8080".parse().unwrap(),
    ];
    run_ip(
        &bed.server,
        "address add 169.254.169.254/32 dev lo\naddress add fd00:ec2::254/128 dev lo nodad",
    );
    run_ip(
        &bed.router,
        "route add 169.254.169.254/32 via 10.77.2.1\n-6 route add fd00:ec2::254/128 via fd77:2::1",
    );
    let everything = ["--intercept", "0.0.0.0/0", "--intercept", "::/0"];
    let listeners = &INTERCEPT[..4];
    let _relay = bed.relay(&[listeners, &everything].concat());
    for (family, metadata) in BOTH.into_iter().zip(metadata) {
        let server = bed.listen(metadata);
        let source = exchange(bed.connect(metadata), &server);
        assert_eq!(source, family.client);
    }
}

/// Interception on this host marks the sockets of all listeners.
#[test]
fn names_the_right_that_the_mark_needs() {
    if !may_use_namespaces() {
        return;
    }
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command
        .args(["relay", "--socks5", "127.0.0.1:0", "--intercept-local"])
        .args(["--transparent", "127.0.0.1:0", "--intercept", "10.5.0.0/16"]);
    let output = command.uid(65534).gid(65534).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(
        message.contains("--socks5 127.0.0.1:0: SO_MARK needs CAP_NET_ADMIN"),
        "{message}"
    );
    assert!(message.contains("--intercept-local"), "{message}");
}

/// The end of one address family does not affect the other.
#[test]
fn ipv4_continues_when_ipv6_ends() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("family");
    let relay = relay(&bed, &[]);
    set_sysctl(&bed.router, "net.ipv6.conf.all.disable_ipv6", "1");
    relay.wait_for_stderr("not intercepting: [::1]:3129");
    // Longer than a lease lasts.
    std::thread::sleep(Duration::from_millis(1500));
    let server = bed.listen(IPV4.server_port(8080));
    assert_eq!(
        exchange(bed.connect(IPV4.server_port(8080)), &server),
        IPV4.upstream
    );
}

/// The destination has not answered when the relay ends; the client's next SYN reaches it directly.
#[test]
fn releases_held_syns_on_exit() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("held");
    let relay = relay(&bed, &["--verify-connect"]);
    let server = bed.listen(IPV4.server_port(8080));
    let silence = "table ip silence { chain c { type filter hook input priority 0
tcp dport 8080 drop
}
}";
    run_with_input(&bed.server, "nft", &["-f", "-"], silence);
    let socket = bed.client.run(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        let _ = socket.connect(&IPV4.server_port(8080).into());
        Ok(socket)
    });
    let socket = socket.unwrap();
    let (status, log) = relay.stop();
    assert!(status.success(), "{log}");
    run_with_input(&bed.server, "nft", &["-f", "-"], "delete table ip silence");
    socket.set_nonblocking(false).unwrap();
    let (_accepted, address) = server.accept().unwrap();
    assert_eq!(address.ip(), IPV4.client);
    assert!(socket.peer_addr().is_ok());
}

/// Connections in the accept queue are served even when the relay ends.
#[test]
fn serves_accept_queue_on_exit() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("queue");
    let relay = relay(&bed, &[]);
    let server = bed.listen(IPV4.server_port(8080));
    let pid = relay.pid();
    let signal = |signal| rustix::process::kill_process(pid, signal).unwrap();
    // The lease of 0.9 s outlasts the stop.
    signal(rustix::process::Signal::STOP);
    let client = bed.connect(IPV4.server_port(8080));
    signal(rustix::process::Signal::TERM);
    signal(rustix::process::Signal::CONT);
    assert_eq!(exchange(client, &server), IPV4.upstream);
    drop(relay);
}

/// The host reports an unreachable neighbor after three seconds, to the client's address.
#[test]
fn reports_unreachable_neighbors() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("neighbor");
    let connect = |family: Addresses| {
        let to = SocketAddr::new(family.unassigned, 8080);
        bed.client
            .run(|| TcpStream::connect_timeout(&to, TEST_TIMEOUT))
    };
    for flags in &FLAG_SETS[2..] {
        let _relay = relay(&bed, flags);
        for family in BOTH {
            let error = connect(family).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::HostUnreachable, "{flags:?}");
        }
    }
    // Longer than the client waits.
    let _relay = relay(&bed, &["--keep-source", "--connect-timeout", "10m"]);
    for family in BOTH {
        let mut client = connect(family).unwrap();
        client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
