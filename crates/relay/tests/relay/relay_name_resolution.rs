// SPDX-License-Identifier: MIT OR Apache-2.0
//! Name resolution of destinations and peers: name servers, quotas, and the choice between
//! addresses.

use longhaul_protocol::destination::Destination;
use longhaul_testnet::name_server::{LATE, NameServer, ResolverFiles};
use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, connect, dial, listen_as_origin, may_use_namespaces, set_timeouts,
    transfer_both_ways,
};
use socket2::{Domain, Socket, Type};
use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    process::Command,
    time::Instant,
};

const ANY: &str = "127.0.0.1:0";
/// Timeouts that no lookup and no connect reaches during a test.
const PATIENT: [&str; 4] = ["--connect-timeout", "10m", "--handshake-timeout", "10m"];

fn start(files: &ResolverFiles, args: &[&str]) -> Relay {
    Relay::spawn(files.relay(&[&PATIENT[..], args].concat()))
}

fn named(name: &str, port: u16) -> Destination {
    format!("{name}:{port}").parse().unwrap()
}

/// Checks that the listener is reached through each kind of listener that accepts names.
fn assert_reached(relay: &Relay, name: &str, listener: &TcpListener) {
    let to = named(name, listener.local_addr().unwrap().port());
    for kind in ["http", "socks5"] {
        let client = dial(kind, relay.address(kind), &to);
        let client = client.unwrap_or_else(|code| panic!("{kind} to {to}: {code}"));
        transfer_both_ways(&client, &accept(listener), 1);
    }
}

/// Connects from the address `source`.
fn connect_from(source: &str, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let source: SocketAddr = (source.parse::<IpAddr>().unwrap(), 0).into();
    socket.bind(&source.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    set_timeouts(&stream);
    stream
}

/// Address that answers no SYN as long as this lives, because its listen queue is full.
struct Silent {
    _listener: Socket,
    _queue: Vec<Socket>,
}

impl Silent {
    fn at(address: SocketAddr) -> Self {
        let new = || Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        let listener = new();
        listener.bind(&address.into()).unwrap();
        listener.listen(0).unwrap();
        let mut queue = Vec::new();
        // The first ones are accepted; the others stay in SYN-SENT.
        for _ in 0..4 {
            let client = new();
            client.set_nonblocking(true).unwrap();
            let _ = client.connect(&address.into());
            queue.push(client);
        }
        Self {
            _listener: listener,
            _queue: queue,
        }
    }
}

#[test]
fn silent_name_server_does_not_block_other_clients() {
    if !may_use_namespaces() {
        return;
    }
    let server = NameServer::start(&[("good.test", &["127.0.0.1"])]);
    let files = server.create_resolver_files("", "");
    let relay = start(&files, &["--http", ANY, "--workers", "1"]);
    let greedy: Vec<_> = (0..100)
        .map(|n| {
            let mut client = connect(relay.address("http"));
            write!(client, "CONNECT silent{n}.test:80 HTTP/1.1\r\n\r\n").unwrap();
            client
        })
        .collect();
    let begun = Instant::now();
    while server.count_queried("silent") < 64 {
        assert!(
            begun.elapsed() < TEST_TIMEOUT,
            "{}",
            server.count_queried("silent")
        );
    }
    let (listener, at) = listen_as_origin();
    for n in 0..20 {
        let mut client = connect_from("127.0.0.9", relay.address("http"));
        let port = at.port();
        write!(client, "CONNECT good.test:{port} HTTP/1.1\r\n\r\n").unwrap();
        let head = longhaul_testnet::relay_process::read_http_head(&mut client);
        assert!(head.starts_with("HTTP/1.1 200"), "client {n}: {head}");
        accept(&listener);
    }
    assert_eq!(
        server.count_queried("silent"),
        64,
        "the bound for one client"
    );
    drop(greedy);
}

#[test]
fn falls_back_to_address_family_that_answers() {
    if !may_use_namespaces() {
        return;
    }
    let (listener, at) = listen_as_origin();
    let _silent = Silent::at(SocketAddr::new("::1".parse().unwrap(), at.port()));
    let both: &[&str] = &["::1", "127.0.0.1"];
    let server = NameServer::start(&[
        ("both.test", both),
        // The name server does not answer queries for IPv6 addresses.
        ("half.test", &["127.0.0.1"]),
        ("dead-first.test", &["127.0.0.5", "::1", "127.0.0.1"]),
    ]);
    let files = server.create_resolver_files("", "");
    let relay = start(&files, &["--http", ANY, "--socks5", ANY]);
    for name in ["both.test", "half.test", "dead-first.test"] {
        assert_reached(&relay, name, &listener);
    }
}

#[test]
fn reaches_peer_by_address_family_that_answers() {
    if !may_use_namespaces() {
        return;
    }
    let far = Relay::start(&["--convert", ANY]);
    let at = far.address("convert");
    let _silent = Silent::at(SocketAddr::new("::1".parse().unwrap(), at.port()));
    let server = NameServer::start(&[("far.test", &["::1", "127.0.0.1"])]);
    let files = server.create_resolver_files("", "");
    let peer = format!("far.test:{}", at.port());
    let near = start(&files, &["--http", ANY, "--socks5", ANY, "--peer", &peer]);
    let (listener, _) = listen_as_origin();
    assert_reached(&near, "localhost", &listener);
}

/// A socket of one address family can't reach an address of the other.
#[test]
fn reaches_udt_peer_by_ipv4_and_ipv6() {
    if !may_use_namespaces() {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let directory = files.path().display();
    let made = Command::new(longhaul_testprograms::longhaul())
        .args(["relay", "--make-certificates"])
        .arg(files.path())
        .args(["near", "far"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let leg = |owner| {
        format!(
            "transport = 'udt'\ntls = {{ ca = '{directory}/ca.pem', certificate = \
             '{directory}/{owner}.pem', key = '{directory}/{owner}-key.pem' }}\n"
        )
    };
    let far = |at: &str| {
        let listener = format!("[[listener]]\nkind = 'convert'\naddress = '{at}'\n");
        Relay::start_with_config(&(listener + &leg("far")), 1)
    };
    let server = NameServer::start(&[("far.test", &["::1", "127.0.0.1"])]);
    let names = server.create_resolver_files("", "");
    let ipv4 = far(ANY);
    let port = ipv4.address("convert").port();
    let config = files.path().join("near.toml");
    let peer = format!("[peer.far]\naddress = 'far.test:{port}'\n{}", leg("near"));
    std::fs::write(&config, format!("[[route]]\nvia = ['far']\n{peer}")).unwrap();
    let config = ["--config", config.to_str().unwrap()];
    let near = start(
        &names,
        &[&config[..], &["--http", ANY, "--socks5", ANY]].concat(),
    );
    let (listener, _) = listen_as_origin();
    assert_reached(&near, "localhost", &listener);
    // The server-side relay moves to the other family under the same name.
    ipv4.stop();
    server.set("far.test", &["::1"]);
    let _ipv6 = far(&format!("[::1]:{port}"));
    assert_reached(&near, "localhost", &listener);
}

#[test]
fn follows_hosts_file_and_resolv_conf() {
    if !may_use_namespaces() {
        return;
    }
    let (listener, at) = listen_as_origin();
    let server = NameServer::start(&[
        ("short.one.test", &["127.0.0.1"]),
        ("deep.name.two.test", &["127.0.0.1"]),
        ("under_score.test", &["127.0.0.1"]),
        // /etc/hosts comes first, and its entry is the only result.
        ("own.test", &["127.0.0.66"]),
        ("own.one.test", &["127.0.0.66"]),
        ("plain", &["127.0.0.1"]),
    ]);
    let files = server.create_resolver_files(
        "search one.test two.test",
        "127.0.0.1 own own.test # here\n",
    );
    let relay = start(&files, &["--http", ANY, "--socks5", ANY]);
    for name in [
        "short",
        "SHORT.ONE.test",
        "short.one.test.",
        "deep.name",
        "under_score.test",
        "own",
        "own.test",
        "plain",
        "localhost",
    ] {
        assert_reached(&relay, name, &listener);
    }
    for (name, code) in [("no-such", 502), ("short.", 502)] {
        let refused = dial("http", relay.address("http"), &named(name, at.port()));
        assert_eq!(refused.map(drop), Err(code), "{name}");
    }
}

#[test]
fn reloads_changed_resolv_conf() {
    if !may_use_namespaces() {
        return;
    }
    let (listener, at) = listen_as_origin();
    let old = NameServer::start(&[]);
    let new = NameServer::start(&[("moved.test", &["127.0.0.1"])]);
    let files = old.create_resolver_files("", "");
    let relay = start(&files, &["--http", ANY, "--socks5", ANY, "--workers", "1"]);
    let to = named("moved.test", at.port());
    assert_eq!(dial("http", relay.address("http"), &to).map(drop), Err(502));
    files.set_server(&new, "");
    let begun = Instant::now();
    while dial("http", relay.address("http"), &to).is_err() {
        assert!(begun.elapsed() < TEST_TIMEOUT);
    }
    accept(&listener);
    assert_reached(&relay, "moved.test", &listener);
}

#[test]
fn applies_rules_to_each_address_of_name() {
    if !may_use_namespaces() {
        return;
    }
    let (allowed, at) = listen_as_origin();
    let denied = TcpListener::bind(("127.0.0.2", at.port())).unwrap();
    let server = NameServer::start(&[
        ("mixed.test", &["127.0.0.2", "127.0.0.1"]),
        ("mapped.test", &["::ffff:127.0.0.2"]),
    ]);
    let files = server.create_resolver_files("", "");
    let mut config = tempfile::NamedTempFile::new().unwrap();
    writeln!(config, "[[route]]\nto = ['127.0.0.2']\ndeny = true").unwrap();
    let config = config.path().to_str().unwrap();
    let relay = start(
        &files,
        &["--config", config, "--http", ANY, "--socks5", ANY],
    );
    assert_reached(&relay, "mixed.test", &allowed);
    let to = named("mapped.test", at.port());
    assert_eq!(dial("http", relay.address("http"), &to).map(drop), Err(403));
    denied.set_nonblocking(true).unwrap();
    assert_eq!(denied.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// The server-side relay moves to another address under the same name.
#[test]
fn resolves_peer_name_again_after_move() {
    if !may_use_namespaces() {
        return;
    }
    let server = NameServer::start(&[("far.test", &["127.0.0.2"])]);
    let files = server.create_resolver_files("", "");
    let far = Relay::start(&["--convert", "127.0.0.2:0"]);
    let port = far.address("convert").port();
    let middle = Relay::start(&["--convert", ANY]);
    let peer = format!("far.test:{port}");
    let listeners = ["--http", ANY, "--socks5", ANY];
    let near = start(&files, &[&listeners[..], &["--peer", &peer]].concat());
    let between = middle.address("convert").to_string();
    let chain = ["--peer", &between, "--peer", &peer];
    let chained = start(&files, &[&listeners[..], &chain].concat());
    let (listener, _) = listen_as_origin();
    for relay in [&near, &chained] {
        assert_reached(relay, "localhost", &listener);
    }
    far.stop();
    server.set("far.test", &["127.0.0.3"]);
    let moved = format!("127.0.0.3:{port}");
    let _far = Relay::start(&["--convert", &moved]);
    for relay in [&near, &chained] {
        assert_reached(relay, "localhost", &listener);
    }
}

/// Checks the log line about a peer whose name does not exist.
#[test]
fn peer_without_address_is_down() {
    if !may_use_namespaces() {
        return;
    }
    let server = NameServer::start(&[]);
    let files = server.create_resolver_files("", "");
    let near = start(&files, &["--http", ANY, "--peer", "nobody.test"]);
    let mut client = connect(near.address("http"));
    client
        .write_all(b"CONNECT 127.0.0.1:9 HTTP/1.1\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    let _ = client.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    let log = near.wait_for_stderr("is down");
    assert!(log.contains("peer nobody.test:5124"), "{log}");
}

/// Whether the name exists is unknown: the answer "no such host" would mislead users.
#[test]
fn distinguishes_failed_name_server_from_missing_name() {
    if !may_use_namespaces() {
        return;
    }
    let server = NameServer::start(&[]);
    let files = server.create_resolver_files("", "");
    let far = Relay::spawn(files.relay(&["--convert", ANY]));
    let peer = far.address("convert").to_string();
    let near = start(&files, &["--http", ANY]);
    let chained = Relay::start(&["--http", ANY, "--peer", &peer]);
    for relay in [&near, &chained] {
        for (name, word) in [
            ("failing.test", "the name servers failed"),
            ("nobody.test", "no such host"),
        ] {
            let mut client = connect(relay.address("http"));
            write!(
                client,
                "CONNECT {name}:9 HTTP/1.1\r\nConnection: close\r\n\r\n"
            )
            .unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
            assert!(answer.contains("error=dns_error"), "{answer}");
            assert!(answer.contains(&format!("{name}:9: {word}")), "{answer}");
        }
    }
}

/// Asks for a name that leads nowhere, and returns the answer.
fn ask(relay: &Relay, name: &str) -> String {
    let mut client = connect(relay.address("http"));
    write!(
        client,
        "CONNECT {name}:9 HTTP/1.1\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

/// The search domain has no such name; but whether the name itself exists is unknown.
#[test]
fn answer_below_search_domain_does_not_hide_failed_name_servers() {
    if !may_use_namespaces() {
        return;
    }
    let server = NameServer::start(&[("failing6.a.test", &[])]);
    let files = server.create_resolver_files("", "");
    for search in ["", "search search.test\n", "search search.test b.test\n"] {
        let options = "options timeout:1 attempts:1\n";
        files.set_lines(&[&server.line(), options, search].concat());
        let relay = start(&files, &["--http", ANY]);
        for (name, status, word) in [
            ("failing.a.test", 502, "the name servers failed"),
            ("refused.a.test", 502, "the name servers failed"),
            ("silent.a.test", 504, "timed out"),
            // Below the search domain, a short name is asked for first.
            ("failing", 502, "the name servers failed"),
            ("silent", 504, "timed out"),
            // One of two families failed, and the other has no address.
            ("failing6.a.test", 502, "the name servers failed"),
            ("nobody.a.test", 502, "no such host"),
            ("nobody", 502, "no such host"),
        ] {
            let answer = ask(&relay, name);
            let begin = format!("HTTP/1.1 {status}");
            assert!(answer.starts_with(&begin), "{search}{name}: {answer}");
            assert!(answer.contains(word), "{search}{name}: {answer}");
        }
    }
}

/// A name server whose port is closed: ICMP says so at once, long before a time-out.
#[test]
fn closed_port_of_name_server_is_its_failure() {
    if !may_use_namespaces() {
        return;
    }
    let server = NameServer::start(&[]);
    let files = server.create_resolver_files("", "");
    for address in ["127.255.255.254", "::1"] {
        files.set_lines(&format!(
            "nameserver {address}\noptions timeout:30 attempts:5\n"
        ));
        let relay = start(&files, &["--http", ANY]);
        let answer = ask(&relay, "any.test");
        assert!(answer.starts_with("HTTP/1.1 502"), "{address}: {answer}");
        assert!(
            answer.contains("the name servers failed"),
            "{address}: {answer}"
        );
    }
}

/// The server answers the first query alone, after `timeout` has passed.
#[test]
fn takes_answer_that_is_later_than_timeout() {
    if !may_use_namespaces() {
        return;
    }
    let (listener, _) = listen_as_origin();
    let server = NameServer::start(&[("late.a.test", &["127.0.0.1"])]);
    let files = server.create_resolver_files("", "");
    files.set_lines(&(server.line() + "options timeout:1 attempts:3\n"));
    assert!(LATE > std::time::Duration::from_secs(1));
    let relay = start(&files, &["--http", ANY]);
    let to = named("late.a.test", listener.local_addr().unwrap().port());
    let client = dial("http", relay.address("http"), &to);
    let client = client.unwrap_or_else(|code| panic!("{code}"));
    transfer_both_ways(&client, &accept(&listener), 1);
}

#[test]
fn asks_next_name_server_if_one_fails_or_is_silent() {
    if !may_use_namespaces() {
        return;
    }
    let (listener, _) = listen_as_origin();
    let good = NameServer::start(&[
        ("good.a.test", &["127.0.0.1"]),
        ("truncated.a.test", &["127.0.0.1"]),
    ]);
    let bad = [2, 4, 5].map(|code| {
        let server = NameServer::start(&[]);
        server.fail(code);
        server.line()
    });
    let [failing, unable, refusing] = bad.each_ref().map(String::as_str);
    let dead = "nameserver 127.255.255.254\n";
    let files = good.create_resolver_files("", "");
    let good = &good.line()[..];
    for lines in [
        [dead, good, ""],
        [good, dead, ""],
        [dead, dead, good],
        [failing, good, ""],
        [unable, refusing, good],
        [good, refusing, failing],
    ] {
        files.set_lines(&lines.concat());
        let relay = start(&files, &["--http", ANY, "--socks5", ANY]);
        for name in ["good.a.test", "truncated.a.test"] {
            assert_reached(&relay, name, &listener);
        }
        let answer = ask(&relay, "nobody.a.test");
        assert!(answer.contains("no such host"), "{lines:?}: {answer}");
    }
}
