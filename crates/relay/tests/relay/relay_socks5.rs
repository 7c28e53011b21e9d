// SPDX-License-Identifier: MIT OR Apache-2.0
//! SOCKS5 beyond CONNECT: users, BIND, UDP ASSOCIATE, and the reply codes.

use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, assert_connect_reset, connect, dial, listen_as_origin, read_array,
    transfer_both_ways,
};
use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    os::unix::fs::PermissionsExt,
    process::Command,
    time::Duration,
};

const ANY: &str = "127.0.0.1:0";
const CONNECT: u8 = 1;
const BIND: u8 = 2;
const UDP_ASSOCIATE: u8 = 3;

fn users(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

fn connect_greeted(relay: &Relay) -> TcpStream {
    let mut client = connect(relay.address("socks5"));
    client.write_all(&[5, 1, 0]).unwrap();
    assert_eq!(read_array(&mut client), [5, 0]);
    client
}

fn address(to: SocketAddr) -> Vec<u8> {
    let IpAddr::V4(ip) = to.ip() else {
        panic!("{to} is not IPv4");
    };
    [&[1], &ip.octets()[..], &to.port().to_be_bytes()].concat()
}

fn name(name: &str, port: u16) -> Vec<u8> {
    let len = [3, name.len() as u8];
    [&len, name.as_bytes(), &port.to_be_bytes()].concat()
}

fn request(client: &mut TcpStream, command: u8, to: &[u8]) {
    client.write_all(&[&[5, command, 0], to].concat()).unwrap();
}

fn reply(client: &mut TcpStream) -> (u8, SocketAddr) {
    let [5, code, 0, 1, a, b, c, d, high, low] = read_array(client) else {
        panic!("no SOCKS5 reply with an IPv4 address");
    };
    let port = u16::from_be_bytes([high, low]);
    (code, (Ipv4Addr::new(a, b, c, d), port).into())
}

const NOWHERE: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

#[test]
fn requires_password() {
    let file = users("me:secret\n");
    let relay = Relay::start(&["--socks5", ANY, "--users", file.path().to_str().unwrap()]);
    let (listener, to) = listen_as_origin();

    let mut silent = connect(relay.address("socks5"));
    silent.write_all(&[5, 1, 0]).unwrap();
    assert_eq!(read_array(&mut silent), [5, 0xFF]);
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);

    for (password, answer) in [("secret", 0), ("secre", 1), ("secrets", 1)] {
        let mut client = connect(relay.address("socks5"));
        client.write_all(&[5, 2, 0, 2]).unwrap();
        assert_eq!(read_array(&mut client), [5, 2]);
        let len = password.len() as u8;
        let message = [&[1, 2, b'm', b'e', len], password.as_bytes()].concat();
        client.write_all(&message).unwrap();
        assert_eq!(read_array(&mut client), [1, answer], "{password}");
        if answer == 0 {
            request(&mut client, CONNECT, &address(to));
            assert_eq!(reply(&mut client).0, 0);
            transfer_both_ways(&client, &accept(&listener), 1);
        } else {
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
        }
    }
}

#[test]
fn curl_authenticates() {
    let file = users("me:secret\n");
    let relay = Relay::start(&["--socks5", ANY, "--users", file.path().to_str().unwrap()]);
    let (listener, to) = listen_as_origin();
    let server = std::thread::spawn(move || {
        let mut server = accept(&listener);
        longhaul_testnet::relay_process::read_http_head(&mut server);
        let page = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";
        server.write_all(page).unwrap();
    });
    let curl = |user: &str| {
        let proxy = format!("socks5h://{user}@{}", relay.address("socks5"));
        let url = format!("http://{to}/");
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "20", "-x", &proxy, &url]);
        curl.output().unwrap()
    };
    assert_eq!(curl("me:wrong").status.code(), Some(97));
    assert_eq!(curl("me:secret").stdout, b"hi");
    server.join().unwrap();
}

#[test]
fn refuses_users_file_readable_by_others() {
    let file = users("me:secret\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = Command::new(longhaul_testprograms::longhaul());
    let path = file.path().to_str().unwrap();
    let output = command
        .args(["relay", "--http", ANY, "--users", path])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.contains("chmod 600"), "{log}");
}

#[test]
fn bind_reports_listen_address_and_peer() {
    let relay = Relay::start(&["--socks5", ANY]);
    for expected in [address((Ipv4Addr::LOCALHOST, 20).into()), NOWHERE.to_vec()] {
        let mut client = connect_greeted(&relay);
        request(&mut client, BIND, &expected);
        let (code, bound) = reply(&mut client);
        assert_eq!(code, 0);
        let peer = connect(bound);
        assert_eq!(reply(&mut client), (0, peer.local_addr().unwrap()));
        transfer_both_ways(&client, &peer, 3);
        // A BIND accepts one connection.
        assert!(TcpStream::connect(bound).is_err());
    }
}

#[test]
fn bind_resets_unexpected_peers() {
    let relay = Relay::start(&["--socks5", ANY]);
    let mut client = connect_greeted(&relay);
    request(&mut client, BIND, &address(([127, 0, 0, 2], 1).into()));
    let (code, bound) = reply(&mut client);
    assert_eq!(code, 0);
    assert_connect_reset(TcpStream::connect(bound));
    let from = SocketAddr::from(([127, 0, 0, 2], 0));
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&from.into()).unwrap();
    socket.connect(&bound.into()).unwrap();
    let peer = TcpStream::from(socket);
    assert_eq!(reply(&mut client), (0, peer.local_addr().unwrap()));
    transfer_both_ways(&client, &peer, 1);
}

#[test]
fn bind_ends_on_timeout_and_when_client_closes() {
    let relay = Relay::start(&["--socks5", ANY, "--connect-timeout", "300ms"]);
    let mut client = connect_greeted(&relay);
    request(&mut client, BIND, &NOWHERE);
    assert_eq!(reply(&mut client).0, 0);
    assert_eq!(reply(&mut client).0, 4);

    let relay = Relay::start(&["--socks5", ANY]);
    let mut client = connect_greeted(&relay);
    request(&mut client, BIND, &NOWHERE);
    let (_, bound) = reply(&mut client);
    drop(client);
    refuses_soon(bound);
}

fn refuses_soon(bound: SocketAddr) {
    let start = std::time::Instant::now();
    while TcpStream::connect(bound).is_ok() {
        assert!(start.elapsed() < TEST_TIMEOUT, "{bound} still listens");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn unsupported_commands_get_reply_7() {
    let direct = Relay::start(&["--socks5", ANY]);
    let through = Relay::start(&["--socks5", ANY, "--peer", "127.0.0.1:9"]);
    for (relay, command) in [(&direct, 9), (&through, BIND), (&through, UDP_ASSOCIATE)] {
        let mut client = connect_greeted(relay);
        request(&mut client, command, &NOWHERE);
        assert_eq!(reply(&mut client).0, 7, "{command}");
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
    let mut client = connect_greeted(&direct);
    request(&mut client, CONNECT, &[2, 0, 0]);
    assert_eq!(reply(&mut client).0, 8);
}

#[test]
fn denied_destinations_get_reply_2() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let rules = "[[listener]]\nkind = 'socks5'\naddress = '127.0.0.1:0'\n\
                 [[route]]\nto = ['127.0.0.2/32']\ndeny = true\n";
    fs::write(&file, rules).unwrap();
    // The flag only lets the harness count one more listener.
    let relay = Relay::start(&["--config", file.path().to_str().unwrap(), "--socks5", ANY]);
    for command in [CONNECT, BIND] {
        let mut client = connect_greeted(&relay);
        request(&mut client, command, &address(([127, 0, 0, 2], 9).into()));
        assert_eq!(reply(&mut client).0, 2, "{command}");
    }
}

fn udp() -> UdpSocket {
    let socket = UdpSocket::bind(ANY).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    socket
}

fn associate(relay: &Relay) -> (TcpStream, SocketAddr) {
    let mut control = connect_greeted(relay);
    request(&mut control, UDP_ASSOCIATE, &NOWHERE);
    let (code, bound) = reply(&mut control);
    assert_eq!(code, 0);
    (control, bound)
}

fn datagram(fragment: u8, to: &[u8], data: &[u8]) -> Vec<u8> {
    [&[0, 0, fragment], to, data].concat()
}

fn received(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 65535];
    let (len, from) = socket.recv_from(&mut buffer).unwrap();
    (buffer[..len].to_vec(), from)
}

#[test]
fn relays_datagrams_in_both_directions() {
    let relay = Relay::start(&["--socks5", ANY]);
    let (_control, bound) = associate(&relay);
    let (client, server) = (udp(), udp());
    let at = server.local_addr().unwrap();
    for to in [
        address(at),
        name("127.0.0.1", at.port()),
        name("localhost", at.port()),
    ] {
        client.send_to(&datagram(0, &to, b"ask"), bound).unwrap();
        let (data, relay_side) = received(&server);
        assert_eq!(data, b"ask");
        server.send_to(b"answer", relay_side).unwrap();
        let (data, _) = received(&client);
        assert_eq!(data, datagram(0, &address(at), b"answer"));
    }
    let large = vec![7; 60_000];
    client
        .send_to(&datagram(0, &address(at), &large), bound)
        .unwrap();
    assert_eq!(received(&server).0, large);
}

#[test]
fn drops_fragments_and_datagrams_of_others() {
    let relay = Relay::start(&["--socks5", ANY]);
    let (_control, bound) = associate(&relay);
    let (client, server, stranger) = (udp(), udp(), udp());
    let at = server.local_addr().unwrap();
    let send = |from: &UdpSocket, message: &[u8]| from.send_to(message, bound).unwrap();
    // The first datagram sets the client's port; loopback keeps the order.
    send(&client, &datagram(1, &address(at), b"fragment"));
    send(&stranger, &datagram(0, &address(at), b"stranger"));
    send(&client, b"");
    send(&client, &[0, 0, 0, 2, 1]);
    send(&client, &datagram(0, &address(at), b"good"));
    let (data, relay_side) = received(&server);
    assert_eq!(data, b"good");
    // Datagrams from hosts that the client has not contacted are dropped.
    let unasked = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    let elsewhere = SocketAddr::from(([127, 0, 0, 2], 0));
    unasked.bind(&elsewhere.into()).unwrap();
    UdpSocket::from(unasked)
        .send_to(b"spam", relay_side)
        .unwrap();
    server.send_to(b"ham", relay_side).unwrap();
    assert_eq!(received(&client).0, datagram(0, &address(at), b"ham"));
}

#[test]
fn association_ends_with_tcp_connection() {
    let relay = Relay::start(&["--socks5", ANY]);
    let (control, bound) = associate(&relay);
    drop(control);
    // A port without a socket answers with ICMP, which a connected socket reports.
    let client = udp();
    client.connect(bound).unwrap();
    let start = std::time::Instant::now();
    while client.send(b"x").is_ok() {
        assert!(
            start.elapsed() < TEST_TIMEOUT,
            "{bound} still takes datagrams"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn resets_slow_and_silent_clients() {
    let file = users("me:secret\n");
    let path = file.path().to_str().unwrap();
    let limit = ["--handshake-timeout", "300ms"];
    let relay = Relay::start(&[&["--socks5", ANY, "--users", path], &limit[..]].concat());
    // Silent; in the middle of the greeting; before the password; in the middle of it.
    for (sent, expected) in [
        (&b""[..], &b""[..]),
        (&[5, 3, 2], b""),
        (&[5, 1, 2], &[5, 2]),
        (&[5, 1, 2, 1, 2, b'm'], &[5, 2]),
    ] {
        let mut client = connect(relay.address("socks5"));
        client.write_all(sent).unwrap();
        let mut answer = vec![0; expected.len()];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, expected);
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

#[test]
fn last_relay_resolves_names() {
    let (listener, to) = listen_as_origin();
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    let near = Relay::start(&["--socks5", ANY, "--peer", &peer]);
    let to = format!("localhost:{}", to.port()).parse().unwrap();
    let client = dial("socks5", near.address("socks5"), &to).unwrap();
    transfer_both_ways(&client, &accept(&listener), 1);
}

/// A client with more than two sockets takes another permit or is refused, so that the descriptors
/// suffice.
#[test]
fn bind_and_associate_take_extra_permits() {
    let with_limit = |limit| Relay::start(&["--socks5", ANY, "--max-connections", limit]);
    let (one, two) = (with_limit("1"), with_limit("2"));
    for command in [UDP_ASSOCIATE, BIND] {
        let mut client = connect_greeted(&one);
        request(&mut client, command, &NOWHERE);
        assert_eq!(reply(&mut client).0, 1, "{command}");
        // One after the other: the permits are released shortly after the client has closed.
        let start = std::time::Instant::now();
        for _ in 0..3 {
            loop {
                let mut client = connect_greeted(&two);
                request(&mut client, command, &NOWHERE);
                match reply(&mut client).0 {
                    0 => break,
                    code => assert_eq!(code, 1, "{command}"),
                }
                assert!(start.elapsed() < TEST_TIMEOUT, "{command}: never released");
            }
        }
    }
}
