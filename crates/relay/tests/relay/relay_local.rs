// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of the relay's own host: clients from other hosts do not reach them, in any spelling,
//! through one relay or several.

use longhaul_linux::process::inside;
use longhaul_protocol::{
    convert::{Answer, ErrorCode, Request},
    destination::{Destination, HostName},
};
use longhaul_testnet::name_server::{NameServer, ResolverFiles};
use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, assert_connect_reset, dial, may_use_namespaces, parse_http_status,
    read_array, read_convert_answer, read_http_head, set_timeouts, transfer_both_ways,
};
use longhaul_testnet::relay_testbed::{IPV4, IPV6, Testbed, run_ip};
use std::{
    io::{ErrorKind, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::Command,
    time::{Duration, Instant},
};

const PORT: u16 = 9100;
const ALLOW_ALL: [&str; 4] = ["--allow-from", "10.77.0.0/16", "--allow-from", "fd77::/16"];

/// Listeners on the router, which the client reaches.
const NEAR: [&str; 6] = [
    "--http",
    "10.77.1.2:3128",
    "--socks5",
    "10.77.1.2:1080",
    "--convert",
    "10.77.1.2:5124",
];

/// Spellings of loopback, unspecified and link-local addresses.
const HOSTS: [&str; 27] = [
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "0",
    "127.1",
    "0x7f.1",
    "0x7f000001",
    "2130706433",
    "017700000001",
    "0177.0.0.1",
    "127.0.0.1.",
    "169.254.169.254",
    "0xa9fea9fe",
    "2852039166",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:0:0",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::1",
    "fe80::1",
    "localhost",
    "LocalHost.",
    "a.localhost",
    "10.77.1.2",
];

/// Names and their addresses, as in /etc/hosts.
const NAMES: &str = "127.0.0.1 loop.test\n0.0.0.0 zero.test\n169.254.169.254 meta.test\n\
                     ::1 six.test\n::ffff:127.0.0.1 mapped.test\n10.77.1.2 router.test\n\
                     10.77.2.1 server.test\n10.77.2.1 both.test\n127.0.0.1 both.test\n";

/// Services without authentication, on one port of all addresses of a host.
struct Services(Vec<TcpListener>);

impl Services {
    fn on(netns: &longhaul_linux::netns::Netns) -> Self {
        run_ip(netns, "address replace 169.254.169.254/32 dev lo");
        let listen = || {
            let ipv4 = TcpListener::bind(("0.0.0.0", PORT))?;
            let ipv6 = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None)?;
            ipv6.set_only_v6(true)?;
            ipv6.bind(&SocketAddr::from(([0u16; 8], PORT)).into())?;
            ipv6.listen(16)?;
            Ok(Self(vec![ipv4, ipv6.into()]))
        };
        let services = netns.run(listen).unwrap();
        for listener in &services.0 {
            listener.set_nonblocking(true).unwrap();
        }
        services
    }

    /// Waits for a connection to any service.
    fn accept(&self) -> TcpStream {
        let start = Instant::now();
        loop {
            for listener in &self.0 {
                if let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(false).unwrap();
                    set_timeouts(&stream);
                    return stream;
                }
            }
            assert!(start.elapsed() < TEST_TIMEOUT, "nobody came");
            std::thread::yield_now();
        }
    }

    /// Checks that no service had a connection.
    fn assert_unreached(&self, context: &str) {
        for listener in &self.0 {
            let error = listener.accept().expect_err(context);
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{context}");
        }
    }
}

fn testbed(name: &str) -> Option<Testbed> {
    may_use_namespaces().then(|| Testbed::new(name))
}

fn start(bed: &Testbed, args: &[&str]) -> Relay {
    bed.relay(&[&ALLOW_ALL[..], args].concat())
}

/// Starts a relay on a host with the [`NAMES`].
fn start_on(netns: &longhaul_linux::netns::Netns, args: &[&str]) -> (Relay, ResolverFiles) {
    let server = netns.run(|| Ok(NameServer::start(&[]))).unwrap();
    let files = server.create_resolver_files("", NAMES);
    let mut command = files.relay(&[&ALLOW_ALL[..], args].concat());
    inside(&mut command, netns);
    (Relay::spawn(command), files)
}

fn open(bed: &Testbed, to: SocketAddr) -> TcpStream {
    let stream = bed.connect(to).unwrap();
    set_timeouts(&stream);
    stream
}

/// SOCKS5 encoding of a host: a literal address as an address, everything else as a name.
fn socks5_host(host: &str) -> Vec<u8> {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(v4)) => [&[1][..], &v4.octets()].concat(),
        Ok(IpAddr::V6(v6)) => [&[4][..], &v6.octets()].concat(),
        Err(_) => [&[3, host.len() as u8], host.as_bytes()].concat(),
    }
}

fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn http(bed: &Testbed, relay: &Relay, request: &str) -> u16 {
    let mut client = open(bed, relay.address("http"));
    write!(client, "{request}\r\nHost: x\r\n\r\n").unwrap();
    parse_http_status(&read_http_head(&mut client))
}

/// Sends a SOCKS5 request and returns the code of the reply.
fn socks5(bed: &Testbed, relay: &Relay, command: u8, host: &[u8], port: u16) -> u8 {
    let mut client = open(bed, relay.address("socks5"));
    client.write_all(&[5, 1, 0]).unwrap();
    assert_eq!(read_array(&mut client), [5, 0]);
    let request = [&[5, command, 0], host, &port.to_be_bytes()].concat();
    client.write_all(&request).unwrap();
    read_array::<2>(&mut client)[1]
}

fn convert(bed: &Testbed, relay: &Relay, request: &Request) -> Answer {
    let mut client = open(bed, relay.address("convert"));
    client.write_all(&request.encode()).unwrap();
    read_convert_answer(&mut client)
}

/// Destination as a malicious client would encode it.
fn destination(host: &str, port: u16) -> Destination {
    match host.parse() {
        Ok(ip) => Destination::Address(SocketAddr::new(ip, port)),
        Err(_) => Destination::Name(HostName::new(host).unwrap(), port),
    }
}

/// Checks that no listener connects a client to `host`.
fn assert_refused(bed: &Testbed, relay: &Relay, host: &str, port: u16) {
    let to = authority(host, port);
    for request in [
        format!("CONNECT {to} HTTP/1.1"),
        format!("GET http://{to}/ HTTP/1.1"),
        format!("GET ftp://{to}/ HTTP/1.1"),
    ] {
        assert_eq!(http(bed, relay, &request), 403, "{request}");
    }
    let wire = socks5_host(host);
    assert_eq!(socks5(bed, relay, 1, &wire, port), 2, "SOCKS5 to {to}");
    // An address as a name, as some clients send it.
    let text = [&[3, host.len() as u8], host.as_bytes()].concat();
    assert_eq!(socks5(bed, relay, 1, &text, port), 2, "SOCKS5 to name {to}");
    let answer = convert(bed, relay, &Request::new(destination(host, port), vec![]));
    assert_eq!(
        answer,
        Answer::refused(ErrorCode::NotAuthorized),
        "Convert to {to}"
    );
}

#[test]
fn remote_clients_cannot_reach_local_addresses() {
    let Some(bed) = testbed("local") else { return };
    let services = Services::on(&bed.router);
    let (relay, _files) = start_on(&bed.router, &NEAR);
    for host in HOSTS.iter().filter(|host| **host != "10.77.1.2") {
        assert_refused(&bed, &relay, host, PORT);
        services.assert_unreached(host);
    }
    for name in ["loop", "zero", "meta", "six", "mapped"] {
        let name = format!("{name}.test");
        assert_refused(&bed, &relay, &name, PORT);
        services.assert_unreached(&name);
    }
}

#[test]
fn remote_clients_reach_other_addresses() {
    let Some(bed) = testbed("local-else") else {
        return;
    };
    let (relay, _files) = start_on(&bed.router, &NEAR);
    let listener = bed.listen(IPV4.server_port(8080));
    for host in [
        "10.77.2.1",
        "0x0a4d0201",
        "::ffff:10.77.2.1",
        "server.test",
        "both.test",
    ] {
        for kind in ["http", "socks5", "convert"] {
            let to = destination(host, 8080);
            let dialled = || Ok(dial(kind, relay.address(kind), &to).unwrap());
            let client = bed.client.run(dialled).unwrap();
            transfer_both_ways(&client, &accept(&listener), 1);
        }
    }
}

#[test]
fn own_listeners_are_denied() {
    let Some(bed) = testbed("local-own") else {
        return;
    };
    let args = [
        &NEAR[..],
        &["--socks5", "0.0.0.0:1081", "--http", "[::]:3129"],
    ]
    .concat();
    let (relay, _files) = start_on(&bed.router, &args);
    for (host, port) in [
        ("10.77.1.2", 3128),
        ("router.test", 1080),
        ("10.77.1.2", 5124),
        ("10.77.1.2", 1081),
        ("10.77.2.2", 1081),
        ("fd77:1::2", 3129),
        ("fd77:2::2", 3129),
    ] {
        assert_refused(&bed, &relay, host, port);
    }
}

#[test]
fn checks_name_at_each_resolution() {
    let Some(bed) = testbed("local-rebind") else {
        return;
    };
    let services = Services::on(&bed.router);
    let names = bed.router.run(|| Ok(NameServer::start(&[]))).unwrap();
    let files = names.create_resolver_files("", "");
    let mut command = files.relay(&[&ALLOW_ALL[..], &NEAR].concat());
    inside(&mut command, &bed.router);
    let relay = Relay::spawn(command);
    let listener = bed.listen(IPV4.server_port(PORT));
    for _ in 0..3 {
        names.set("turns.test", &["10.77.2.1"]);
        let to = destination("turns.test", PORT);
        let dialled = || Ok(dial("http", relay.address("http"), &to).unwrap());
        let client = bed.client.run(dialled).unwrap();
        transfer_both_ways(&client, &accept(&listener), 1);
        names.set("turns.test", &["127.0.0.1"]);
        assert_refused(&bed, &relay, "turns.test", PORT);
        services.assert_unreached("turns.test");
    }
}

/// The first relay allows everything, as a client's own relay might.
#[test]
fn last_relay_checks_by_itself() {
    let Some(bed) = testbed("local-chain") else {
        return;
    };
    let services = Services::on(&bed.server);
    let (_far, _files) = start_on(&bed.server, &["--convert", "10.77.2.1:5124"]);
    let near = start(
        &bed,
        &[&NEAR[..], &["--allow-local", "--peer", "10.77.2.1:5124"]].concat(),
    );
    for host in HOSTS.iter().filter(|host| **host != "10.77.1.2") {
        assert_refused(&bed, &near, host, PORT);
        services.assert_unreached(host);
    }
    for name in ["loop.test", "zero.test", "mapped.test"] {
        assert_refused(&bed, &near, name, PORT);
        services.assert_unreached(name);
    }
}

/// For the second relay, the first one is a client on loopback.
#[test]
fn second_relay_on_same_host_checks_original_client() {
    let Some(bed) = testbed("local-same") else {
        return;
    };
    let services = Services::on(&bed.router);
    let (far, _files) = start_on(&bed.router, &["--convert", "127.0.0.1:5125"]);
    let near = start(&bed, &[&NEAR[..], &["--peer", "127.0.0.1:5125"]].concat());
    for host in [
        "127.0.0.1",
        "localhost",
        "loop.test",
        "six.test",
        "::ffff:0:0",
    ] {
        assert_refused(&bed, &near, host, PORT);
        services.assert_unreached(host);
    }
    // A local client of the second relay may reach local addresses.
    let dialled = || {
        Ok(dial(
            "convert",
            far.address("convert"),
            &destination("127.0.0.1", PORT),
        )
        .unwrap())
    };
    bed.router.run(dialled).unwrap();
}

#[test]
fn hop_is_checked_unless_configured_as_peer() {
    let Some(bed) = testbed("local-hop") else {
        return;
    };
    let (_far, _files) = start_on(&bed.router, &["--convert", "127.0.0.1:5125"]);
    let listener = bed.listen(IPV4.server_port(8080));
    let request = |hop: &str| {
        Request::new(
            Destination::Address(IPV4.server_port(8080)),
            vec![hop.parse().unwrap()],
        )
    };
    let refused = Answer::refused(ErrorCode::NotAuthorized);
    {
        let near = start(&bed, &NEAR);
        for hop in [
            "127.0.0.1:5125",
            "0.0.0.0:5125",
            "[::ffff:127.0.0.1]:5125",
            "10.77.1.2:5124",
        ] {
            assert_eq!(convert(&bed, &near, &request(hop)), refused, "{hop}");
        }
    }
    let near = start(&bed, &[&NEAR[..], &["--peer", "127.0.0.1:5125"]].concat());
    let mut client = open(&bed, near.address("convert"));
    client
        .write_all(&request("127.0.0.1:5125").encode())
        .unwrap();
    assert_eq!(read_convert_answer(&mut client), Answer::Accepted);
    transfer_both_ways(&client, &accept(&listener), 1);
}

#[test]
fn allow_local_permits_local_addresses() {
    let Some(bed) = testbed("local-allow") else {
        return;
    };
    let services = Services::on(&bed.router);
    let relay = start(&bed, &[&NEAR[..], &["--allow-local"]].concat());
    for host in [
        "127.0.0.1",
        "0",
        "169.254.169.254",
        "::1",
        "::",
        "localhost",
    ] {
        let status = http(
            &bed,
            &relay,
            &format!("CONNECT {} HTTP/1.1", authority(host, PORT)),
        );
        assert_eq!(status, 200, "{host}");
    }
    let reached: usize = services
        .0
        .iter()
        .map(|l| std::iter::from_fn(|| l.accept().ok()).count())
        .sum();
    assert_eq!(reached, 6);
}

/// `allow_local` does not bypass rules, however an address is written.
#[test]
fn rules_match_canonical_addresses() {
    let Some(bed) = testbed("local-rules") else {
        return;
    };
    let services = Services::on(&bed.router);
    let text = "allow_local = true\nallow_from = ['10.77.0.0/16']\n\
                [[listener]]\nkind = 'http'\naddress = '10.77.1.2:3128'\n\
                [[listener]]\nkind = 'socks5'\naddress = '10.77.1.2:1080'\n\
                [[listener]]\nkind = 'convert'\naddress = '10.77.1.2:5124'\n\
                [[route]]\nto = ['127.0.0.0/8', '::1', '10.77.1.2', '169.254.0.0/16']\ndeny = true\n";
    let relay = bed
        .router
        .run(|| Ok(Relay::start_with_config(text, 3)))
        .unwrap();
    for host in HOSTS {
        // The rule does not cover these.
        if ![
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::1",
            "fe80::1",
        ]
        .contains(&host)
        {
            assert_refused(&bed, &relay, host, PORT);
            services.assert_unreached(host);
        }
    }
}

/// A client behind a load balancer on this host counts as local only if the PROXY header says so.
#[test]
fn proxy_header_determines_client_location() {
    let Some(bed) = testbed("local-proxy") else {
        return;
    };
    let services = Services::on(&bed.router);
    let relay = start(&bed, &["--http", "127.0.0.1:3128", "--accept-proxy"]);
    let ask = |source: &str| {
        let connect = || TcpStream::connect(relay.address("http"));
        let mut client = bed.router.run(connect).unwrap();
        set_timeouts(&client);
        write!(client, "PROXY TCP4 {source} 127.0.0.1 9 3128\r\nCONNECT 127.0.0.1:{PORT} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        parse_http_status(&read_http_head(&mut client))
    };
    assert_eq!(ask("10.77.1.1"), 403);
    services.assert_unreached("announced");
    assert_eq!(ask("127.0.0.1"), 200);
}

/// A destination written by the operator is permitted; one that a name resolves to is not.
#[test]
fn forward_listener_reaches_configured_local_address() {
    let Some(bed) = testbed("local-forward") else {
        return;
    };
    let services = Services::on(&bed.router);
    for (to, reaches) in [
        ("127.0.0.1", true),
        ("localhost", true),
        ("loop.test", false),
        ("meta.test", false),
    ] {
        let forward = format!("10.77.1.2:8000={to}:{PORT}");
        let (_relay, _files) = start_on(&bed.router, &["--forward", &forward]);
        let client = bed.connect((IPV4.downstream, 8000).into());
        if reaches {
            let server = services.accept();
            transfer_both_ways(&client.unwrap(), &server, 1);
        } else {
            assert_connect_reset(client);
            services.assert_unreached(to);
        }
    }
}

#[test]
fn bind_denies_local_peers() {
    let Some(bed) = testbed("local-bind") else {
        return;
    };
    let (relay, _files) = start_on(&bed.router, &NEAR);
    for host in [
        "127.0.0.1",
        "169.254.169.254",
        "::1",
        "localhost",
        "loop.test",
        "zero.test",
        "127.1",
    ] {
        let code = socks5(&bed, &relay, 2, &socks5_host(host), 9);
        assert_eq!(code, 2, "BIND for {host}");
    }
    // The client does not know its peer.
    assert_eq!(socks5(&bed, &relay, 2, &[1, 0, 0, 0, 0], 0), 0);
    assert_eq!(socks5(&bed, &relay, 2, &socks5_host("server.test"), 9), 0);
}

/// Denied datagrams have no error reply; they do not arrive.
#[test]
fn datagrams_cannot_reach_local_addresses() {
    let Some(bed) = testbed("local-udp") else {
        return;
    };
    let (relay, _files) = start_on(&bed.router, &NEAR);
    let bind = || UdpSocket::bind(("0.0.0.0", PORT));
    let service = bed.router.run(bind).unwrap();
    let elsewhere = bed.server.run(bind).unwrap();
    elsewhere.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut control = open(&bed, relay.address("socks5"));
    control.write_all(&[5, 1, 0]).unwrap();
    assert_eq!(read_array(&mut control), [5, 0]);
    control.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    let [5, 0, 0, 1, a, b, c, d, high, low] = read_array(&mut control) else {
        panic!("no reply");
    };
    let at = SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low])));
    let socket = bed
        .client
        .run(|| UdpSocket::bind(("10.77.1.1", 0)))
        .unwrap();
    let send = |host: &[u8], data: &[u8]| {
        let datagram = [&[0, 0, 0], host, &PORT.to_be_bytes(), data].concat();
        socket.send_to(&datagram, at).unwrap();
    };
    for host in HOSTS.iter().filter(|host| **host != "10.77.1.2") {
        send(&socks5_host(host), b"to a service");
    }
    for name in ["loop.test", "zero.test", "meta.test"] {
        send(&socks5_host(name), b"to a service");
    }
    // Datagrams are handled in order: when this one has arrived, the others were handled.
    send(&socks5_host("server.test"), b"to the server");
    let mut data = [0; 100];
    let (len, _) = elsewhere.recv_from(&mut data).unwrap();
    assert_eq!(&data[..len], b"to the server");
    service
        .set_read_timeout(Some(Duration::from_millis(1)))
        .unwrap();
    assert!(
        service.recv_from(&mut data).is_err(),
        "a datagram has arrived"
    );
}

#[test]
fn curl_cannot_reach_admin_endpoint() {
    let Some(bed) = testbed("local-curl") else {
        return;
    };
    let relay = start(&bed, &[&NEAR[..], &["--admin", "127.0.0.1:9101"]].concat());
    for host in ["127.0.0.1", "0.0.0.0", "0", "[::ffff:0:0]", "localhost"] {
        let mut curl = Command::new("curl");
        let proxy = format!("http://{}", relay.address("http"));
        let url = format!("http://{host}:9101/api/v1/connections");
        curl.args([
            "-s",
            "--max-time",
            "20",
            "-w",
            "%{http_code}",
            "-x",
            &proxy,
            &url,
        ]);
        let output = inside(&mut curl, &bed.client).output().unwrap();
        let body = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            body.ends_with("403") && !body.contains("client"),
            "{host}: {body}"
        );
    }
}

/// Diverted connections reach their destination, except link-local addresses of this host.
#[test]
fn diverted_connection_cannot_reach_metadata_service() {
    let Some(bed) = testbed("local-divert") else {
        return;
    };
    run_ip(&bed.client, "route add 169.254.169.254 via 10.77.1.2");
    let services = Services::on(&bed.router);
    run_ip(&bed.router, "address del 169.254.169.254/32 dev lo");
    bed.install_divert_rules();
    let _relay = start(
        &bed,
        &[
            "--transparent",
            "0.0.0.0:3129",
            "--transparent",
            "[::]:3129",
        ],
    );
    run_ip(&bed.router, "address add 169.254.169.254/32 dev lo");
    assert_connect_reset(bed.connect((IPV4_METADATA, PORT).into()));
    services.assert_unreached("diverted");
    let listener = bed.listen(IPV6.server_port(8080));
    let client = open(&bed, IPV6.server_port(8080));
    transfer_both_ways(&client, &accept(&listener), 1);
}

const IPV4_METADATA: std::net::Ipv4Addr = std::net::Ipv4Addr::new(169, 254, 169, 254);
