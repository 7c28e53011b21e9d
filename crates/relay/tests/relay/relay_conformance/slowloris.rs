// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that never come to the point: they lose their place after the handshake time-out
//! however busily they go on, and nobody else waits for them.

use crate::relay_conformance::way::{accept, make_certificates, tls, wait_until};
use longhaul_protocol::{destination::Destination, proxy_protocol::encode_v1};
use longhaul_testnet::relay_process::{Relay, connect, dial, exchange, origin, read_array};
use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
};

const SLOW: usize = 200;

const ANY: &str = "127.0.0.1:0";
const LIMIT: [&str; 2] = ["--handshake-timeout", "1s"];

/// Clients at a door that begin a message, and go on with a byte that any number of may follow.
fn come_to_no_point(door: SocketAddr, beginning: &[u8], more: u8, honest: impl Fn()) {
    let mut slow: Vec<_> = (0..SLOW).map(|_| begin(door, beginning)).collect();
    honest();
    wait_until("the slow clients' ends", || {
        slow.retain_mut(|client| goes_on(client, more));
        slow.is_empty()
    });
}

fn begin(relay: SocketAddr, beginning: &[u8]) -> TcpStream {
    let mut client = connect(relay);
    client.write_all(beginning).unwrap();
    client.set_nonblocking(true).unwrap();
    client
}

/// Sends one byte more; whether the relay still listens to it.
fn goes_on(client: &mut TcpStream, more: u8) -> bool {
    let waits = |error: std::io::Error| error.kind() == ErrorKind::WouldBlock;
    let heard = match client.read(&mut [0; 512]) {
        Ok(read) => read > 0,
        Err(error) => waits(error),
    };
    std::thread::sleep(std::time::Duration::from_micros(200));
    heard && client.write(&[more]).map_or_else(waits, |_| true)
}

fn assert_none_left(relay: Relay) {
    let (_, said) = relay.stop();
    assert!(said.contains("no connection cut"), "{said}");
}

#[test]
fn slow_handshakes_end_and_hinder_nobody() {
    let (listener, address) = origin();
    let doors = ["--socks5", ANY, "--http", ANY, "--convert", ANY];
    let relay = Relay::start(&[&doors[..], &LIMIT].concat());
    let messages: [(&str, &[u8], u8); 5] = [
        ("socks5", &[5, 255], 2),
        // A user of SOCKS4 that does not end, though it would in time.
        ("socks5", &[4, 1, 0, 80, 10, 0, 0, 1], b'x'),
        // A name of 255 bytes behind the greeting.
        ("socks5", &[5, 1, 0, 5, 1, 0, 3, 255], b'x'),
        (
            "http",
            b"GET http://192.0.2.1/ HTTP/1.1\r\nHost: x\r\nX: ",
            b'x',
        ),
        ("convert", &[1, 255, 0x22, 0x63], 0),
    ];
    for (kind, beginning, more) in messages {
        eprintln!("{kind}");
        come_to_no_point(relay.address(kind), beginning, more, || {
            let to = Destination::Address(address);
            let client = dial(kind, relay.address(kind), &to).unwrap();
            exchange(&client, &accept(&listener), 1);
        });
    }
    assert_none_left(relay);
}

/// The header of version 1 or 2 before whatever the listener's own clients say, if anything.
#[test]
fn slow_proxy_headers_end_and_hinder_nobody() {
    let (listener, address) = origin();
    let forward = format!("{ANY}={address}");
    let mut doors = vec!["--forward", &forward, "--http", ANY, "--socks5", ANY];
    doors.extend(["--convert", ANY]);
    let relay = Relay::start(&[&doors[..], &["--accept-proxy"], &LIMIT].concat());
    let headers: [(&[u8], u8); 2] = [
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 7", b'0'),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x01\0", 0),
    ];
    for (kind, (beginning, more)) in ["forward", "http", "socks5", "convert"]
        .map(|k| headers.map(|h| (k, h)))
        .concat()
    {
        eprintln!("{kind}, {}", beginning.escape_ascii());
        come_to_no_point(relay.address(kind), beginning, more, || {
            let mut client = connect(relay.address("forward"));
            client.write_all(&encode_v1(address, address)).unwrap();
            exchange(&client, &accept(&listener), 1);
        });
    }
    assert_none_left(relay);
}

/// A password of 255 bytes that never comes whole (RFC 1929 §2).
#[test]
fn slow_passwords_end_and_hinder_nobody() {
    let (listener, address) = origin();
    let users = tempfile::NamedTempFile::new().unwrap();
    fs::write(&users, "me:secret\n").unwrap();
    fs::set_permissions(&users, fs::Permissions::from_mode(0o600)).unwrap();
    let file = users.path().to_str().unwrap();
    let relay = Relay::start(&[&["--socks5", ANY, "--users", file][..], &LIMIT].concat());
    let beginning = [5, 1, 2, 1, 2, b'm', b'e', 255];
    come_to_no_point(relay.address("socks5"), &beginning, b'x', || {
        let mut client = connect(relay.address("socks5"));
        client
            .write_all(b"\x05\x01\x02\x01\x02me\x06secret")
            .unwrap();
        assert_eq!(read_array(&mut client), [5, 2, 1, 0]);
        let SocketAddr::V4(to) = address else {
            panic!("{address} is not IPv4");
        };
        let (ip, port) = (to.ip().octets(), to.port().to_be_bytes());
        let request = [&[5, 1, 0, 1][..], &ip, &port].concat();
        client.write_all(&request).unwrap();
        assert_eq!(read_array::<10>(&mut client)[1], 0);
        exchange(&client, &accept(&listener), 1);
    });
    assert_none_left(relay);
}

/// A ClientHello that is announced and never comes whole.
#[test]
fn slow_tls_handshakes_end_and_hinder_nobody() {
    let (listener, address) = origin();
    let files = tempfile::tempdir().unwrap();
    make_certificates(files.path(), 1);
    let [here, there] = [0, 1].map(|hop| tls(files.path(), hop));
    let door = "[[listener]]\nkind = 'convert'\naddress = '127.0.0.1:0'";
    let limits = "[limits]\nhandshake_timeout = '1s'\n";
    let relay = Relay::configured(&format!("{door}\n{there}{limits}"), 1);
    let convert = relay.address("convert");
    let near = Relay::configured(
        &format!(
            "[[listener]]\nkind = 'forward'\naddress = '{ANY}'\ndestination = '{address}'\n\
             [[route]]\nvia = ['hop1']\n[peer.hop1]\naddress = '{convert}'\n{here}"
        ),
        1,
    );
    // A handshake record of 512 bytes with a ClientHello of 508 (RFC 8446 §5.1, §4).
    let hello = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
    come_to_no_point(convert, &hello, 0, || {
        let client = connect(near.address("forward"));
        exchange(&client, &accept(&listener), 1);
    });
    drop(near);
    assert_none_left(relay);
}
