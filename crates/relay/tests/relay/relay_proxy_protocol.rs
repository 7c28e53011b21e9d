// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PROXY protocol, received and sent by the relay.

use longhaul_protocol::proxy_protocol::{Header, bytes_missing, encode_v1, encode_v2, parse};
use longhaul_testnet::relay_process::{
    Relay, accept, connect, listen_as_origin, read_array, transfer_both_ways,
};
use serde_json::Value;
use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
};

const ANY: &str = "127.0.0.1:0";

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn forward(to: SocketAddr, more: &[&str]) -> Relay {
    let forward = format!("{ANY}={to}");
    Relay::start(&[&["--forward", &forward], more].concat())
}

fn header(server: &mut TcpStream) -> Header {
    let mut bytes = Vec::new();
    while let more @ 1.. = bytes_missing(&bytes).unwrap() {
        let mut read = vec![0; more];
        server.read_exact(&mut read).unwrap();
        bytes.extend(read);
    }
    parse(&bytes).unwrap().unwrap().0
}

#[test]
fn records_client_of_proxy_header() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relay.jsonl");
    let (listener, to) = listen_as_origin();
    let relay = forward(
        to,
        &["--accept-proxy", "--counters", file.to_str().unwrap()],
    );
    let (client, destination) = (address("192.0.2.7:777"), address("198.51.100.1:80"));
    let six = address("[2001:db8::7]:777");
    for head in [
        encode_v1(client, destination),
        encode_v2(six, destination),
        b"PROXY UNKNOWN\r\n".into(),
    ] {
        let mut sender = connect(relay.address("forward"));
        // Header and data in one packet: no byte of the data may be lost.
        sender.write_all(&[&head[..], b"x"].concat()).unwrap();
        let mut server = accept(&listener);
        assert_eq!(read_array(&mut server), *b"x");
        transfer_both_ways(&sender, &server, 1);
    }
    assert!(relay.stop().0.success());
    let text = fs::read_to_string(file).unwrap();
    let records = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let clients: Vec<String> = records
        .filter(|record| record["record"] == "connection")
        .map(|record| record["client"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(clients[..2], [client.to_string(), six.to_string()]);
    assert!(clients[2].starts_with("127.0.0.1:"), "{clients:?}");
}

#[test]
fn sends_proxy_header_to_destination() {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    let (listener, to) = listen_as_origin();
    for version in ["v1", "v2"] {
        for peers in [vec![], vec!["--peer", &peer]] {
            let relay = forward(to, &[&["--send-proxy", version], &peers[..]].concat());
            let client = connect(relay.address("forward"));
            let mut server = accept(&listener);
            let want = Header::Proxied {
                source: client.local_addr().unwrap(),
                destination: relay.address("forward"),
            };
            assert_eq!(header(&mut server), want, "{version} {peers:?}");
            transfer_both_ways(&client, &server, 1);
        }
    }
}

#[test]
fn passes_on_received_proxy_header() {
    let (listener, to) = listen_as_origin();
    let relay = forward(to, &["--accept-proxy", "--send-proxy", "v2"]);
    let (source, destination) = (address("192.0.2.7:777"), address("198.51.100.1:80"));
    let mut sender = connect(relay.address("forward"));
    sender.write_all(&encode_v1(source, destination)).unwrap();
    let want = Header::Proxied {
        source,
        destination,
    };
    assert_eq!(header(&mut accept(&listener)), want);
}

fn is_reset(mut client: TcpStream) {
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn resets_on_missing_invalid_or_slow_header() {
    let (listener, to) = listen_as_origin();
    let relay = forward(to, &["--accept-proxy", "--handshake-timeout", "300ms"]);
    for sent in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"PROXY TCP4 1 2 3 4\r\n",
        b"",
        b"PROXY TCP4 10.0.",
    ] {
        let mut client = connect(relay.address("forward"));
        client.write_all(sent).unwrap();
        is_reset(client);
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
}

#[test]
fn denies_client_named_in_proxy_header() {
    let (_listener, to) = listen_as_origin();
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "[[listener]]\nkind = 'forward'\naddress = '127.0.0.1:0'\ndestination = '{to}'\n\
         accept_proxy = true\ndeny_from = ['192.0.2.0/24']\n"
    );
    fs::write(&file, text).unwrap();
    // The harness counts the listener of the flag; the file's listener is logged first.
    let relay = Relay::start(&["--config", file.path().to_str().unwrap(), "--socks5", ANY]);
    let mut sender = connect(relay.address("forward"));
    let head = encode_v2(address("192.0.2.7:777"), address("198.51.100.1:80"));
    sender.write_all(&head).unwrap();
    is_reset(sender);
}

#[test]
fn sends_proxy_header_to_http_origin() {
    let (listener, to) = listen_as_origin();
    let relay = Relay::start(&["--http", ANY, "--send-proxy", "v1"]);
    let proxy = format!("http://{}", relay.address("http"));
    let server = std::thread::spawn(move || {
        let mut server = accept(&listener);
        let head = header(&mut server);
        longhaul_testnet::relay_process::read_http_head(&mut server);
        let page = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";
        server.write_all(page).unwrap();
        head
    });
    let url = format!("http://{to}/");
    let mut curl = Command::new("curl");
    let output = curl
        .args(["-sS", "--max-time", "20", "-x", &proxy, &url])
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"hi", "{output:?}");
    let Header::Proxied { destination, .. } = server.join().unwrap() else {
        panic!("no client named");
    };
    assert_eq!(destination, relay.address("http"));
}
