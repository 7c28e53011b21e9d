// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intercepted connections between a client, a router with the relay, and a server in network
//! namespaces, over IPv4 and IPv6. The source address shows whether a connection was relayed: it is
//! the router's address, or the client's.

use longhaul_linux::netns::Netns;
use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, assert_connect_reset, may_use_namespaces, transfer_both_ways,
};
use longhaul_testnet::relay_testbed::{
    Addresses, BOTH, INTERCEPT, IPV4, Testbed, run_with_input, set_sysctl,
};
use rustix::process::Signal;
use std::{
    io::{self, ErrorKind, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

/// Returns the arguments of a listener for one address family, with the intercepted destinations.
fn single_family_args(family: &Addresses, port: u16) -> [String; 4] {
    let (listener, targets) = match family.server {
        IpAddr::V4(_) => (format!("127.0.0.1:{port}"), INTERCEPT[5]),
        IpAddr::V6(_) => (format!("[::1]:{port}"), INTERCEPT[7]),
    };
    [
        "--transparent".into(),
        listener,
        "--intercept".into(),
        targets.into(),
    ]
}

/// Returns a testbed whose router has strict reverse-path filtering (RFC 3704), as some distributions do.
fn testbed(name: &str) -> Testbed {
    let bed = Testbed::new(name);
    set_sysctl(&bed.router, "net.ipv4.conf.all.rp_filter", "1");
    bed
}

/// Helpers that connect through the router, and that read its rules.
trait TestbedExt {
    fn connect_pair(&self, netns: &Netns, listener: &TcpListener) -> (TcpStream, TcpStream);
    fn connection_source(&self, listener: &TcpListener) -> IpAddr;
    fn wait_for_source(&self, wanted: IpAddr, listener: &TcpListener) -> Duration;
    fn leftover_rules(&self) -> String;
    fn router_output(&self, command: &[&str]) -> String;
}

impl TestbedExt for Testbed {
    /// Connects from `netns`. Returns the sockets of the client and of the server.
    fn connect_pair(&self, netns: &Netns, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let to = listener.local_addr().unwrap();
        let client = netns
            .run(|| TcpStream::connect_timeout(&to, TEST_TIMEOUT))
            .unwrap();
        (client, accept(listener))
    }

    /// Returns the source address of a new connection of the client, as the server sees it.
    fn connection_source(&self, listener: &TcpListener) -> IpAddr {
        let (_client, server) = self.connect_pair(&self.client, listener);
        server.peer_addr().unwrap().ip()
    }

    /// Connects until the source is `wanted`. Returns the time that this took.
    fn wait_for_source(&self, wanted: IpAddr, listener: &TcpListener) -> Duration {
        let began = Instant::now();
        let to = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        while began.elapsed() < TEST_TIMEOUT {
            // The kernel still completes handshakes for a stopped relay for a while, but no
            // connection may reach the server.
            let limit = Duration::from_millis(100);
            let client = self.client.run(|| TcpStream::connect_timeout(&to, limit));
            std::thread::sleep(Duration::from_millis(20));
            while let Ok((_, from)) = listener.accept() {
                if client.is_ok() && from.ip() == wanted {
                    let took = began.elapsed();
                    // Connections of a resumed relay may still arrive.
                    std::thread::sleep(Duration::from_millis(100));
                    while listener.accept().is_ok() {}
                    listener.set_nonblocking(false).unwrap();
                    return took;
                }
            }
        }
        panic!("no connection from {wanted} after {TEST_TIMEOUT:?}");
    }

    /// Returns the tables, policy rules and routes that a relay left on the router.
    fn leftover_rules(&self) -> String {
        let mut all = self.router_output(&["nft", "list", "tables"]);
        for family in ["-4", "-6"] {
            let rules = self.router_output(&["ip", family, "rule"]);
            let ours = |l: &&str| l.contains("fwmark");
            all.extend(rules.lines().filter(ours).map(str::to_owned));
            let routes = self.router_output(&["ip", family, "route", "show", "table", "all"]);
            let ours = |l: &&str| l.starts_with("local default");
            all.extend(routes.lines().filter(ours).map(str::to_owned));
        }
        all
    }

    /// Runs a command on the router and returns its standard output.
    fn router_output(&self, command: &[&str]) -> String {
        let (program, args) = command.split_first().unwrap();
        let output = self.command_on_router(program).args(args).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    }
}

#[test]
fn relays_both_families_and_removes_all_rules() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("whole");
    for extra_flags in [
        &[][..],
        &["--verify-connect"],
        &["--verify-connect", "--mode", "copy"],
    ] {
        let relay = bed.relay(&[&INTERCEPT[..], extra_flags].concat());
        for family in BOTH {
            let listener = bed.listen(family.server_port(8080));
            let (client, server) = bed.connect_pair(&bed.client, &listener);
            assert_eq!(
                server.peer_addr().unwrap().ip(),
                family.upstream,
                "{extra_flags:?}"
            );
            transfer_both_ways(&client, &server, 8);
        }
        let (status, log) = relay.stop();
        assert!(status.success(), "{log}");
        assert_eq!(bed.leftover_rules(), "", "{log}");
    }
}

#[test]
fn other_ports_and_networks_are_not_intercepted() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("pass");
    let _relay = bed.relay(&[
        "--transparent",
        "127.0.0.1:3129",
        "--intercept",
        "10.77.2.1:8080-8081,9000",
        "--intercept",
        "10.77.2.0/24:8081",
    ]);
    let [v4, v6] = BOTH;
    for (to, wanted) in [
        (v4.server_port(8080), v4.upstream),
        (v4.server_port(8081), v4.upstream),
        (v4.server_port(9000), v4.upstream),
        (v4.server_port(8082), v4.client),
        // The listener's own port, on another host.
        (v4.server_port(3129), v4.client),
        (v6.server_port(8080), v6.client),
    ] {
        assert_eq!(bed.connection_source(&bed.listen(to)), wanted, "{to}");
    }
}

#[test]
fn keep_source_preserves_address_and_port() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("keep");
    for extra_flags in [&[][..], &["--verify-connect"]] {
        let args = [
            &INTERCEPT[..],
            &["--keep-source", "--counters", "-"],
            extra_flags,
        ]
        .concat();
        let mut command = bed.command(&args);
        let records = tempfile::NamedTempFile::new().unwrap();
        command.stdout(records.reopen().unwrap());
        let relay = Relay::spawn(command);
        for family in BOTH {
            let listener = bed.listen(family.server_port(8080));
            let (client, server) = bed.connect_pair(&bed.client, &listener);
            assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
            transfer_both_ways(&client, &server, 4);
        }
        relay.stop();
        assert_eq!(
            count_relayed(records.path()),
            2,
            "the connections were not relayed"
        );
    }
}

/// Returns the number of connection records in the file.
fn count_relayed(records: &std::path::Path) -> usize {
    let text = std::fs::read_to_string(records).unwrap();
    text.matches(r#""record":"connection""#).count()
}

#[test]
fn earlier_connections_continue_during_and_after_relay() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("before");
    for family in BOTH {
        let listener = bed.listen(family.server_port(8080));
        let (client, server) = bed.connect_pair(&bed.client, &listener);
        let (later_client, later_server) = bed.connect_pair(&bed.client, &listener);
        let relay = bed.relay(&INTERCEPT);
        assert_eq!(bed.connection_source(&listener), family.upstream);
        transfer_both_ways(&client, &server, 2);
        relay.stop();
        transfer_both_ways(&later_client, &later_server, 2);
    }
}

#[test]
fn next_start_removes_rules_of_killed_relay() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("kill");
    for extra_flags in [&[][..], &["--verify-connect"]] {
        for family in BOTH {
            let listener = bed.listen(family.server_port(8080));
            let other = single_family_args(&family, 3130);
            let other: Vec<_> = other.iter().map(String::as_str).collect();
            let relay = bed.relay(&[&other[..], extra_flags].concat());
            assert_eq!(bed.connection_source(&listener), family.upstream);
            relay.signal(Signal::KILL);
            let took = bed.wait_for_source(family.client, &listener);
            println!("kill -9 {}: direct after {took:?}", family.client);
            relay.wait();
            assert!(
                bed.leftover_rules().contains("longhaul-3130"),
                "nothing to remove"
            );

            let relay = bed.relay(&INTERCEPT);
            assert!(
                !bed.leftover_rules().contains("longhaul-3130"),
                "{}",
                bed.leftover_rules()
            );
            assert_eq!(bed.connection_source(&listener), family.upstream);
            relay.stop();
            assert_eq!(bed.leftover_rules(), "");
        }
    }
}

#[test]
fn stopped_relay_releases_and_resumes_interception() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("stall");
    for extra_flags in [&[][..], &["--verify-connect"]] {
        let relay = bed.relay(&[&INTERCEPT[..], extra_flags].concat());
        for family in BOTH {
            let listener = bed.listen(family.server_port(8080));
            let (client, server) = bed.connect_pair(&bed.client, &listener);
            assert_eq!(server.peer_addr().unwrap().ip(), family.upstream);
            relay.signal(Signal::STOP);
            let took = bed.wait_for_source(family.client, &listener);
            println!(
                "SIGSTOP {} {extra_flags:?}: direct after {took:?}",
                family.client
            );
            let (direct_client, direct_server) = bed.connect_pair(&bed.client, &listener);
            relay.signal(Signal::CONT);
            let took = bed.wait_for_source(family.upstream, &listener);
            println!(
                "SIGCONT {} {extra_flags:?}: relayed after {took:?}",
                family.client
            );
            transfer_both_ways(&direct_client, &direct_server, 1);
            transfer_both_ways(&client, &server, 1);
        }
    }
}

#[test]
fn restores_flushed_rules() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("flush");
    let relay = bed.relay(&INTERCEPT);
    bed.router_output(&["nft", "flush", "ruleset"]);
    for family in BOTH {
        bed.wait_for_source(family.upstream, &bed.listen(family.server_port(8080)));
    }
    let (_, log) = relay.stop();
    assert!(
        log.contains("removed by another program, restored: the nft rules of "),
        "{log}"
    );
    assert_eq!(bed.leftover_rules(), "");
}

#[test]
fn verified_connect_reports_error_of_destination() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("verify");
    let verify = ["--verify-connect", "--connect-timeout", "8s"];
    let _relay = bed.relay(&[&INTERCEPT[..], &verify].concat());
    // A port of the server that drops all packets.
    run_with_input(
        &bed.server,
        "nft",
        &["-f", "-"],
        "table inet test {
            chain c {
                type filter hook input priority 0
                tcp dport 8088 drop
            }
        }",
    );
    for family in BOTH {
        let kind = |to: SocketAddr| bed.connect(to).unwrap_err().kind();
        assert_eq!(kind(family.server_port(8081)), ErrorKind::ConnectionRefused);
        assert_eq!(
            kind((family.unassigned, 8080).into()),
            ErrorKind::HostUnreachable
        );
        assert_eq!(
            kind((family.unreachable, 8080).into()),
            ErrorKind::NetworkUnreachable
        );
        let silent = bed
            .client
            .run(|| TcpStream::connect_timeout(&family.server_port(8088), Duration::from_secs(2)));
        assert_eq!(silent.unwrap_err().kind(), ErrorKind::TimedOut);

        let listener = bed.listen(family.server_port(8080));
        let (client, server) = bed.connect_pair(&bed.client, &listener);
        assert_eq!(server.peer_addr().unwrap().ip(), family.upstream);
        transfer_both_ways(&client, &server, 2);
    }
}

/// The kernel delivers no ICMP error with a foreign source address to a socket of its own host. The socket gets RST.
#[test]
fn verified_connects_of_own_host_fail_at_once() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("ownverify");
    let flags = ["--verify-connect", "--intercept-local"];
    let _relay = bed.relay(&[&INTERCEPT[..], &flags].concat());
    for family in BOTH {
        for to in [family.server_port(8081), (family.unassigned, 8080).into()] {
            let connect = || TcpStream::connect_timeout(&to, TEST_TIMEOUT);
            let error = bed.router.run(connect).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{to}");
        }
    }
}

#[test]
fn parallel_verified_connects_reach_their_destinations() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("many");
    let _relay = bed.relay(&[&INTERCEPT[..], &["--verify-connect", "--keep-source"]].concat());
    for family in BOTH {
        let listener = bed.listen(family.server_port(8080));
        let clients = bed.client.run(|| {
            let connect = |_| TcpStream::connect_timeout(&family.server_port(8080), TEST_TIMEOUT);
            std::thread::scope(|scope| {
                let all: Vec<_> = (0..50).map(|n| scope.spawn(move || connect(n))).collect();
                all.into_iter().map(|c| c.join().unwrap()).collect()
            })
        });
        let clients: Vec<TcpStream> = clients.unwrap();
        for _ in 0..clients.len() {
            // The preserved source port identifies the client.
            let server = accept(&listener);
            let from = server.peer_addr().unwrap();
            let mut matching = clients.iter().filter(|c| c.local_addr().unwrap() == from);
            let mut client = matching.next().expect("a client with this source port");
            (&server).write_all(&from.port().to_be_bytes()).unwrap();
            let mut received = [0; 2];
            io::Read::read_exact(&mut client, &mut received).unwrap();
            assert_eq!(u16::from_be_bytes(received), from.port());
        }
    }
}

#[test]
fn verified_connect_works_through_peer() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("chain");
    let _far = bed.relay(&["--convert", "127.0.0.1:5124"]);
    for streams in ["1", "4"] {
        let peer = ["--verify-connect", "--peer", "127.0.0.1"];
        let near = bed.relay(&[&INTERCEPT[..], &peer, &["--streams", streams]].concat());
        for family in BOTH {
            let refused = bed.connect(family.server_port(8081)).unwrap_err().kind();
            assert_eq!(refused, ErrorKind::ConnectionRefused);
            let (client, server) =
                bed.connect_pair(&bed.client, &bed.listen(family.server_port(8080)));
            assert_eq!(server.peer_addr().unwrap().ip(), family.upstream);
            transfer_both_ways(&client, &server, 2);
        }
        assert!(near.stop().0.success());
    }
}

/// Clients do not know about the relay. So a server-side relay that is down must not cut them off.
#[test]
fn clients_connect_directly_while_peer_is_down() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("direct");
    let peer = ["--peer", "127.0.0.1"];
    for verify in [&[][..], &["--verify-connect"]] {
        let near = bed.relay(&[&INTERCEPT[..], &peer, verify].concat());
        for family in BOTH {
            for _ in 0..2 {
                let (client, server) =
                    bed.connect_pair(&bed.client, &bed.listen(family.server_port(8080)));
                assert_eq!(server.peer_addr().unwrap().ip(), family.upstream);
                transfer_both_ways(&client, &server, 1);
            }
        }
        let (_, log) = near.stop();
        let message =
            "clients connect directly to their destinations while peer 127.0.0.1:5124 is down";
        assert_eq!(log.matches(message).count(), 1, "{log}");
    }
}

/// For networks in which all traffic must go through a peer.
#[test]
fn no_direct_fallback_refuses_clients_while_peer_is_down() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("strict");
    let strict = ["--peer", "127.0.0.1", "--no-direct-fallback"];
    let near = bed.relay(&[&INTERCEPT[..], &strict].concat());
    for family in BOTH {
        let _listener = bed.listen(family.server_port(8080));
        assert_connect_reset(bed.connect(family.server_port(8080)));
    }
    drop(near);
    let near = bed.relay(&[&INTERCEPT[..], &strict, &["--verify-connect"]].concat());
    for family in BOTH {
        let _listener = bed.listen(family.server_port(8080));
        assert!(bed.connect(family.server_port(8080)).is_err());
    }
    let (_, log) = near.stop();
    assert!(!log.contains("connect directly"), "{log}");
}

#[test]
fn without_verification_client_is_reset_after_connect() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("late");
    let _relay = bed.relay(&INTERCEPT);
    for family in BOTH {
        assert_connect_reset(bed.connect(family.server_port(8081)));
    }
}

#[test]
fn relays_connections_of_own_host_once() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("own");
    for extra_flags in [&[][..], &["--verify-connect"]] {
        let records = tempfile::NamedTempFile::new().unwrap();
        let mut command = bed.command(
            &[
                &INTERCEPT[..],
                &["--intercept-local", "--counters", "-"],
                extra_flags,
            ]
            .concat(),
        );
        command.stdout(records.reopen().unwrap());
        let relay = Relay::spawn(command);
        for family in BOTH {
            let listener = bed.listen(family.server_port(8080));
            let (client, server) = bed.connect_pair(&bed.router, &listener);
            transfer_both_ways(&client, &server, 2);
            // Forwarded connections are relayed as before.
            let (client, server) = bed.connect_pair(&bed.client, &listener);
            transfer_both_ways(&client, &server, 2);
        }
        relay.stop();
        assert_eq!(count_relayed(records.path()), 4, "{extra_flags:?}");
        assert_eq!(bed.leftover_rules(), "");
    }
}

#[test]
fn connections_of_own_host_bypass_killed_relay() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("ownkill");
    let relay = bed.relay(&[&INTERCEPT[..], &["--intercept-local"]].concat());
    for family in BOTH {
        let listener = bed.listen(family.server_port(8080));
        let (client, server) = bed.connect_pair(&bed.router, &listener);
        transfer_both_ways(&client, &server, 1);
    }
    relay.signal(Signal::KILL);
    relay.wait();
    for family in BOTH {
        let listener = bed.listen(family.server_port(8080));
        let to = family.server_port(8080);
        let began = Instant::now();
        let direct = loop {
            match bed
                .router
                .run(|| TcpStream::connect_timeout(&to, TEST_TIMEOUT))
            {
                Ok(client) => break client,
                Err(error) => assert!(began.elapsed() < TEST_TIMEOUT, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        println!(
            "own connections after kill -9: direct after {:?}",
            began.elapsed()
        );
        transfer_both_ways(&direct, &accept(&listener), 1);
    }
}

#[test]
fn two_relays_intercept_on_one_host() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("two");
    let v4 = IPV4;
    let relay = |port: &str, target: &str| {
        bed.relay(&[
            "--transparent",
            port,
            "--intercept",
            target,
            "--intercept-local",
        ])
    };
    let first = relay("127.0.0.1:3129", "10.77.2.0/24:8080,8082");
    let _second = relay("127.0.0.1:3130", "10.77.2.0/24:8081,8082");
    for port in [8080, 8081, 8082] {
        let listener = bed.listen(v4.server_port(port));
        for ns in [&bed.client, &bed.router] {
            let (client, server) = bed.connect_pair(ns, &listener);
            assert_eq!(server.peer_addr().unwrap().ip(), v4.upstream, "{port}");
            transfer_both_ways(&client, &server, 1);
        }
    }
    first.stop();
    let sources =
        [8080, 8081, 8082].map(|port| bed.connection_source(&bed.listen(v4.server_port(port))));
    assert_eq!(sources, [v4.client, v4.upstream, v4.upstream]);
}

/// A second relay starts while the first one drains. On the same port, its rules must outlive the first relay. On
/// another port, it must not remove the rules that the first relay's connections need.
#[test]
fn draining_relay_and_next_one_keep_each_others_rules() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("handover");
    for family in BOTH {
        let listener = bed.listen(family.server_port(8080));
        for port in [3129, 3130] {
            let [first, next] = [3129, port].map(|port| single_family_args(&family, port));
            let [first, next] = [&first, &next].map(|args| args.each_ref().map(String::as_str));
            let first = bed.relay(&first);
            let (client, server) = bed.connect_pair(&bed.client, &listener);
            assert_eq!(server.peer_addr().unwrap().ip(), family.upstream);
            first.signal(Signal::TERM);
            bed.wait_for_source(family.client, &listener);

            let next = bed.relay(&next);
            assert_eq!(bed.connection_source(&listener), family.upstream);
            transfer_both_ways(&client, &server, 8);
            drop((client, server));
            let (status, log) = first.wait();
            assert!(status.success(), "{log}");
            assert_eq!(bed.connection_source(&listener), family.upstream, "{port}");
            let (status, log) = next.stop();
            assert!(
                status.success() && !log.contains("removed by another program, restored"),
                "{log}"
            );
            assert_eq!(bed.leftover_rules(), "");
        }
    }
}

#[test]
fn relays_ipv4_without_ipv6() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed("nosix");
    set_sysctl(&bed.router, "net.ipv6.conf.all.disable_ipv6", "1");
    let v4 = IPV4;
    let relay = Relay::spawn_with_listeners(
        bed.command(&[&INTERCEPT[..], &["--verify-connect"]].concat()),
        1,
    );
    assert_eq!(
        bed.connection_source(&bed.listen(v4.server_port(8080))),
        v4.upstream
    );
    assert!(
        !bed.router_output(&["nft", "list", "tables"])
            .contains("ip6")
    );
    relay.stop();
    assert_eq!(bed.leftover_rules(), "");
}
