// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that never complete a request: they are disconnected after the handshake time-out,
//! however often they send, and delay no other client.

use crate::relay_conformance::chain::{accept, make_certificates, tls, wait_until};
use longhaul_protocol::{destination::Destination, proxy_protocol::encode_v1};
use longhaul_testnet::relay_process::{
    Relay, connect, dial, listen_as_origin, read_array, transfer_both_ways,
};
use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
};

const SLOW: usize = 200;

const ANY: &str = "127.0.0.1:0";
const LIMIT: [&str; 2] = ["--handshake-timeout", "1s"];

/// Opens slow clients, which send `beginning` and then any number of bytes `more`, runs `honest`,
/// and waits until the relay has closed the slow ones.
fn check_slow_clients(listener: SocketAddr, beginning: &[u8], more: u8, honest: impl Fn()) {
    let mut slow: Vec<_> = (0..SLOW)
        .map(|_| start_slow_client(listener, beginning))
        .collect();
    honest();
    wait_until("the end of the slow clients", || {
        slow.retain_mut(|client| send_more(client, more));
        slow.is_empty()
    });
}

fn start_slow_client(relay: SocketAddr, beginning: &[u8]) -> TcpStream {
    let mut client = connect(relay);
    client.write_all(beginning).unwrap();
    client.set_nonblocking(true).unwrap();
    client
}

/// Sends one more byte. Returns whether the connection is still open.
fn send_more(client: &mut TcpStream, more: u8) -> bool {
    let waits = |error: std::io::Error| error.kind() == ErrorKind::WouldBlock;
    let open = match client.read(&mut [0; 512]) {
        Ok(read) => read > 0,
        Err(error) => waits(error),
    };
    std::thread::sleep(std::time::Duration::from_micros(200));
    open && client.write(&[more]).map_or_else(waits, |_| true)
}

fn assert_all_closed(relay: Relay) {
    let (_, log) = relay.stop();
    assert!(log.contains("no connection reset"), "{log}");
}

#[test]
fn times_out_slow_handshakes() {
    let (listener, address) = listen_as_origin();
    let listeners = ["--socks5", ANY, "--http", ANY, "--convert", ANY];
    let relay = Relay::start(&[&listeners[..], &LIMIT].concat());
    let messages: [(&str, &[u8], u8); 5] = [
        ("socks5", &[5, 255], 2),
        // A SOCKS4 user name without its end.
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
        check_slow_clients(relay.address(kind), beginning, more, || {
            let to = Destination::Address(address);
            let client = dial(kind, relay.address(kind), &to).unwrap();
            transfer_both_ways(&client, &accept(&listener), 1);
        });
    }
    assert_all_closed(relay);
}

/// A PROXY header of version 1 or 2 precedes the protocol of the listener's clients, if any.
#[test]
fn times_out_slow_proxy_headers() {
    let (listener, address) = listen_as_origin();
    let forward = format!("{ANY}={address}");
    let mut listeners = vec!["--forward", &forward, "--http", ANY, "--socks5", ANY];
    listeners.extend(["--convert", ANY]);
    let relay = Relay::start(&[&listeners[..], &["--accept-proxy"], &LIMIT].concat());
    let headers: [(&[u8], u8); 2] = [
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 7", b'0'),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x01\0", 0),
    ];
    for (kind, (beginning, more)) in ["forward", "http", "socks5", "convert"]
        .map(|k| headers.map(|h| (k, h)))
        .concat()
    {
        eprintln!("{kind}, {}", beginning.escape_ascii());
        check_slow_clients(relay.address(kind), beginning, more, || {
            let mut client = connect(relay.address("forward"));
            client.write_all(&encode_v1(address, address)).unwrap();
            transfer_both_ways(&client, &accept(&listener), 1);
        });
    }
    assert_all_closed(relay);
}

/// A password of 255 bytes that is never complete (RFC 1929 §2).
#[test]
fn times_out_slow_passwords() {
    let (listener, address) = listen_as_origin();
    let users = tempfile::NamedTempFile::new().unwrap();
    fs::write(&users, "me:secret\n").unwrap();
    fs::set_permissions(&users, fs::Permissions::from_mode(0o600)).unwrap();
    let file = users.path().to_str().unwrap();
    let relay = Relay::start(&[&["--socks5", ANY, "--users", file][..], &LIMIT].concat());
    let beginning = [5, 1, 2, 1, 2, b'm', b'e', 255];
    check_slow_clients(relay.address("socks5"), &beginning, b'x', || {
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
        transfer_both_ways(&client, &accept(&listener), 1);
    });
    assert_all_closed(relay);
}

/// A ClientHello that is never complete.
#[test]
fn times_out_slow_tls_handshakes() {
    let (listener, address) = listen_as_origin();
    let files = tempfile::tempdir().unwrap();
    make_certificates(files.path(), 1);
    let [here, there] = [0, 1].map(|hop| tls(files.path(), hop));
    let convert_listener = "[[listener]]\nkind = 'convert'\naddress = '127.0.0.1:0'";
    let limits = "[limits]\nhandshake_timeout = '1s'\n";
    let relay = Relay::start_with_config(&format!("{convert_listener}\n{there}{limits}"), 1);
    let convert = relay.address("convert");
    let near = Relay::start_with_config(
        &format!(
            "[[listener]]\nkind = 'forward'\naddress = '{ANY}'\ndestination = '{address}'\n\
             [[route]]\nvia = ['hop1']\n[peer.hop1]\naddress = '{convert}'\n{here}"
        ),
        1,
    );
    // A handshake record of 512 bytes with a ClientHello of 508 (RFC 8446 §5.1, §4).
    let hello = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
    check_slow_clients(convert, &hello, 0, || {
        let client = connect(near.address("forward"));
        transfer_both_ways(&client, &accept(&listener), 1);
    });
    drop(near);
    assert_all_closed(relay);
}
