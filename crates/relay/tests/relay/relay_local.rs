// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of the relay's own host: clients from elsewhere do not reach them, in whatever words they ask, through one
//! relay or several.

use longhaul_linux::process::inside;
use longhaul_protocol::{
    convert::{Answer, ErrorCode, Request},
    destination::{Destination, HostName},
};
use longhaul_testnet::name_server::{Files, NameServer};
use longhaul_testnet::relay_process::{
    PATIENCE, Relay, accept, assert_turned_away, convert_answer, dial, exchange, http_head,
    http_status, may_use_namespaces, patient, read_array,
};
use longhaul_testnet::relay_testbed::{IPV4, IPV6, Testbed, ip};
use std::{
    io::{ErrorKind, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::Command,
    time::{Duration, Instant},
};

const PORT: u16 = 9100;
const EVERYBODY: [&str; 4] = ["--allow-from", "10.77.0.0/16", "--allow-from", "fd77::/16"];

/// Listeners on the router, where the client reaches them.
const NEAR: [&str; 6] = [
    "--http",
    "10.77.1.2:3128",
    "--socks5",
    "10.77.1.2:1080",
    "--convert",
    "10.77.1.2:5124",
];

/// Forms of loopback, unspecified and link-local addresses.
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

/// Names, and what they lead to.
const NAMES: &str = "127.0.0.1 loop.test\n0.0.0.0 zero.test\n169.254.169.254 meta.test\n\
                     ::1 six.test\n::ffff:127.0.0.1 mapped.test\n10.77.1.2 router.test\n\
                     10.77.2.1 server.test\n10.77.2.1 both.test\n127.0.0.1 both.test\n";

/// Services that ask nobody who they are, on one port of all addresses of a host.
struct Services(Vec<TcpListener>);

impl Services {
    fn on(netns: &longhaul_linux::netns::Netns) -> Self {
        ip(netns, "address replace 169.254.169.254/32 dev lo");
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

    /// Waits for a connection to any of them.
    fn accept(&self) -> TcpStream {
        let start = Instant::now();
        loop {
            for listener in &self.0 {
                if let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(false).unwrap();
                    patient(&stream);
                    return stream;
                }
            }
            assert!(start.elapsed() < PATIENCE, "nobody came");
            std::thread::yield_now();
        }
    }

    /// Whether nobody has connected to any.
    fn assert_unreached(&self, how: &str) {
        for listener in &self.0 {
            let error = listener.accept().expect_err(how);
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{how}");
        }
    }
}

fn testbed(name: &str) -> Option<Testbed> {
    may_use_namespaces().then(|| Testbed::new(name))
}

fn start(bed: &Testbed, args: &[&str]) -> Relay {
    bed.relay(&[&EVERYBODY[..], args].concat())
}

/// A relay on a host that knows the [`NAMES`].
fn start_on(netns: &longhaul_linux::netns::Netns, args: &[&str]) -> (Relay, Files) {
    let server = netns.run(|| Ok(NameServer::start(&[]))).unwrap();
    let files = server.files("", NAMES);
    let mut command = files.relay(&[&EVERYBODY[..], args].concat());
    inside(&mut command, netns);
    (Relay::spawn(command), files)
}

fn open(bed: &Testbed, to: SocketAddr) -> TcpStream {
    let stream = bed.connect(to).unwrap();
    patient(&stream);
    stream
}

/// A literal address is one on the wire, everything else a name: the relay must not rely on clients for that.
fn host_on_the_wire(host: &str) -> Vec<u8> {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(v4)) => [&[1][..], &v4.octets()].concat(),
        Ok(IpAddr::V6(v6)) => [&[4][..], &v6.octets()].concat(),
        Err(_) => [&[3, host.len() as u8], host.as_bytes()].concat(),
    }
}

fn authority(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

fn http(bed: &Testbed, relay: &Relay, request: &str) -> u16 {
    let mut client = open(bed, relay.address("http"));
    write!(client, "{request}\r\nHost: x\r\n\r\n").unwrap();
    http_status(&http_head(&mut client))
}

/// The reply's code.
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
    convert_answer(&mut client)
}

/// As somebody would say it who does not mean well.
fn destination(host: &str, port: u16) -> Destination {
    match host.parse() {
        Ok(ip) => Destination::Address(SocketAddr::new(ip, port)),
        Err(_) => Destination::Name(HostName::new(host).unwrap(), port),
    }
}

/// No way in that takes destinations leads to `host`.
fn assert_refused(bed: &Testbed, relay: &Relay, host: &str, port: u16) {
    let to = authority(host, port);
    for request in [
        format!("CONNECT {to} HTTP/1.1"),
        format!("GET http://{to}/ HTTP/1.1"),
        format!("GET ftp://{to}/ HTTP/1.1"),
    ] {
        assert_eq!(http(bed, relay, &request), 403, "{request}");
    }
    let wire = host_on_the_wire(host);
    assert_eq!(socks5(bed, relay, 1, &wire, port), 2, "SOCKS5 to {to}");
    // An address in text, as some clients send it.
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
fn clients_from_elsewhere_reach_no_local_address() {
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
fn they_reach_everything_else() {
    let Some(bed) = testbed("local-else") else {
        return;
    };
    let (relay, _files) = start_on(&bed.router, &NEAR);
    let listener = bed.listen(IPV4.at(8080));
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
            exchange(&client, &accept(&listener), 1);
        }
    }
}

#[test]
fn the_relay_s_own_listeners_are_no_destinations() {
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
fn a_name_is_looked_at_each_time() {
    let Some(bed) = testbed("local-rebind") else {
        return;
    };
    let services = Services::on(&bed.router);
    let names = bed.router.run(|| Ok(NameServer::start(&[]))).unwrap();
    let files = names.files("", "");
    let mut command = files.relay(&[&EVERYBODY[..], &NEAR].concat());
    inside(&mut command, &bed.router);
    let relay = Relay::spawn(command);
    let listener = bed.listen(IPV4.at(PORT));
    for _ in 0..3 {
        names.set("turns.test", &["10.77.2.1"]);
        let to = destination("turns.test", PORT);
        let dialled = || Ok(dial("http", relay.address("http"), &to).unwrap());
        let client = bed.client.run(dialled).unwrap();
        exchange(&client, &accept(&listener), 1);
        names.set("turns.test", &["127.0.0.1"]);
        assert_refused(&bed, &relay, "turns.test", PORT);
        services.assert_unreached("turns.test");
    }
}

/// The relay before lets everything through, as somebody's own relay would.
#[test]
fn the_last_relay_of_a_chain_decides_for_itself() {
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

/// To the second relay, the first one is a client on loopback.
#[test]
fn a_relay_on_the_same_host_does_not_let_them_in() {
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
    // Its own clients are at home there.
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
fn a_hop_is_a_destination_unless_the_relay_has_such_a_peer() {
    let Some(bed) = testbed("local-hop") else {
        return;
    };
    let (_far, _files) = start_on(&bed.router, &["--convert", "127.0.0.1:5125"]);
    let listener = bed.listen(IPV4.at(8080));
    let request = |hop: &str| {
        Request::new(
            Destination::Address(IPV4.at(8080)),
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
    assert_eq!(convert_answer(&mut client), Answer::Accepted);
    exchange(&client, &accept(&listener), 1);
}

#[test]
fn the_operator_may_allow_it() {
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

/// What allows it is no way past the rules, whatever an address is written as.
#[test]
fn rules_see_addresses_in_their_plainest_form() {
    let Some(bed) = testbed("local-rules") else {
        return;
    };
    let services = Services::on(&bed.router);
    let text = "allow_local = true\nallow_from = ['10.77.0.0/16']\n\
                [[listener]]\nkind = 'http'\naddress = '10.77.1.2:3128'\n\
                [[listener]]\nkind = 'socks5'\naddress = '10.77.1.2:1080'\n\
                [[listener]]\nkind = 'convert'\naddress = '10.77.1.2:5124'\n\
                [[route]]\nto = ['127.0.0.0/8', '::1', '10.77.1.2', '169.254.0.0/16']\ndeny = true\n";
    let relay = bed.router.run(|| Ok(Relay::configured(text, 3))).unwrap();
    for host in HOSTS {
        // Of these the rule has nothing.
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

/// Who comes through a balancer on this host is as far away as the balancer says.
#[test]
fn a_client_that_is_announced_is_where_it_is() {
    let Some(bed) = testbed("local-proxy") else {
        return;
    };
    let services = Services::on(&bed.router);
    let relay = start(&bed, &["--http", "127.0.0.1:3128", "--accept-proxy"]);
    let ask = |source: &str| {
        let connect = || TcpStream::connect(relay.address("http"));
        let mut client = bed.router.run(connect).unwrap();
        patient(&client);
        write!(client, "PROXY TCP4 {source} 127.0.0.1 9 3128\r\nCONNECT 127.0.0.1:{PORT} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        http_status(&http_head(&mut client))
    };
    assert_eq!(ask("10.77.1.1"), 403);
    services.assert_unreached("announced");
    assert_eq!(ask("127.0.0.1"), 200);
}

/// What an operator writes down is meant; where a name leads is not in the operator's hands.
#[test]
fn a_forward_listener_goes_where_its_operator_says() {
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
        let client = bed.connect((IPV4.near, 8000).into());
        if reaches {
            let server = services.accept();
            exchange(&client.unwrap(), &server, 1);
        } else {
            assert_turned_away(client);
            services.assert_unreached(to);
        }
    }
}

#[test]
fn bind_awaits_nobody_of_this_host() {
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
        let code = socks5(&bed, &relay, 2, &host_on_the_wire(host), 9);
        assert_eq!(code, 2, "BIND for {host}");
    }
    // The client does not know who will come.
    assert_eq!(socks5(&bed, &relay, 2, &[1, 0, 0, 0, 0], 0), 0);
    assert_eq!(
        socks5(&bed, &relay, 2, &host_on_the_wire("server.test"), 9),
        0
    );
}

/// Datagrams have nobody to tell; they do not arrive.
#[test]
fn datagrams_reach_no_local_address() {
    let Some(bed) = testbed("local-udp") else {
        return;
    };
    let (relay, _files) = start_on(&bed.router, &NEAR);
    let bind = || UdpSocket::bind(("0.0.0.0", PORT));
    let service = bed.router.run(bind).unwrap();
    let elsewhere = bed.server.run(bind).unwrap();
    elsewhere.set_read_timeout(Some(PATIENCE)).unwrap();
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
        send(&host_on_the_wire(host), b"to a service");
    }
    for name in ["loop.test", "zero.test", "meta.test"] {
        send(&host_on_the_wire(name), b"to a service");
    }
    // Datagrams are taken one after the other: when this has arrived, the others are past.
    send(&host_on_the_wire("server.test"), b"to the server");
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
fn curl_gets_nothing_of_the_admin_endpoint() {
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
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            said.ends_with("403") && !said.contains("client"),
            "{host}: {said}"
        );
    }
}

/// Diverted connections go where they were going, but not to what is on this host's link.
#[test]
fn a_diverted_connection_reaches_no_metadata_service() {
    let Some(bed) = testbed("local-divert") else {
        return;
    };
    ip(&bed.client, "route add 169.254.169.254 via 10.77.1.2");
    let services = Services::on(&bed.router);
    ip(&bed.router, "address del 169.254.169.254/32 dev lo");
    bed.divert();
    let _relay = start(
        &bed,
        &[
            "--transparent",
            "0.0.0.0:3129",
            "--transparent",
            "[::]:3129",
        ],
    );
    ip(&bed.router, "address add 169.254.169.254/32 dev lo");
    assert_turned_away(bed.connect((IPV4_METADATA, PORT).into()));
    services.assert_unreached("diverted");
    let listener = bed.listen(IPV6.at(8080));
    let client = open(&bed, IPV6.at(8080));
    exchange(&client, &accept(&listener), 1);
}

const IPV4_METADATA: std::net::Ipv4Addr = std::net::Ipv4Addr::new(169, 254, 169, 254);
