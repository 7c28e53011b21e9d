// SPDX-License-Identifier: MIT OR Apache-2.0
//! SOCKS4 and SOCKS4a on the SOCKS5 listener, with third-party clients.

use longhaul_testnet::relay_process::{
    Relay, accept, connect, listen_as_origin, read_array, read_http_head, refusing_address,
    transfer_both_ways,
};
use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    process::{Command, Output, Stdio},
    thread,
};

const ANY: &str = "127.0.0.1:0";
const GRANTED: u8 = 90;
const REJECTED: u8 = 91;

fn request(command: u8, to: SocketAddr, user: &str, name: Option<&str>) -> Vec<u8> {
    let SocketAddr::V4(to) = to else {
        panic!("{to} is not IPv4")
    };
    let ip = name.map_or(to.ip().octets(), |_| [0, 0, 0, 1]);
    let name = name.map(|name| format!("{name}\0")).unwrap_or_default();
    let port = to.port().to_be_bytes();
    [
        &[4, command],
        &port[..],
        &ip,
        user.as_bytes(),
        &[0],
        name.as_bytes(),
    ]
    .concat()
}

fn reply(client: &mut TcpStream) -> (u8, SocketAddr) {
    let [0, code, high, low, a, b, c, d] = read_array(client) else {
        panic!("not a SOCKS4 reply");
    };
    (code, ([a, b, c, d], u16::from_be_bytes([high, low])).into())
}

#[test]
fn connects_to_addresses_and_names_directly_and_through_a_peer() {
    let remote = Relay::start(&["--convert", ANY]);
    let peer = remote.address("convert").to_string();
    for peers in [vec![], vec!["--peer", &peer]] {
        let relay = Relay::start(&[&["--socks5", ANY], &peers[..]].concat());
        let (listener, to) = listen_as_origin();
        for name in [None, Some("localhost"), Some("127.0.0.1")] {
            let mut client = connect(relay.address("socks5"));
            // Bytes after the request are for the server.
            client
                .write_all(&[&request(1, to, "me", name)[..], b"early"].concat())
                .unwrap();
            let mut server = accept(&listener);
            assert_eq!(&read_array::<5>(&mut server), b"early");
            assert_eq!(reply(&mut client).0, GRANTED);
            transfer_both_ways(&client, &server, 1);
        }
    }
}

#[test]
fn bind_reports_listen_address_and_peer() {
    let relay = Relay::start(&["--socks5", ANY]);
    let mut client = connect(relay.address("socks5"));
    client
        .write_all(&request(2, ([127, 0, 0, 1], 20).into(), "", None))
        .unwrap();
    let (code, bound) = reply(&mut client);
    assert_eq!(code, GRANTED);
    let peer = connect(bound);
    assert_eq!(reply(&mut client), (GRANTED, peer.local_addr().unwrap()));
    transfer_both_ways(&client, &peer, 1);
}

#[test]
fn rejects_failed_requests_with_code_91() {
    let relay = Relay::start(&["--socks5", ANY]);
    let (_refusing, closed) = refusing_address();
    let long = "x".repeat(300);
    for message in [
        request(1, closed, "", None),
        request(1, closed, "", Some("no such name")),
        request(9, closed, "", None),
        request(1, closed, &long, None),
        request(1, closed, "", Some(&long)),
    ] {
        let mut client = connect(relay.address("socks5"));
        client.write_all(&message).unwrap();
        assert_eq!(reply(&mut client).0, REJECTED, "{}", message.escape_ascii());
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn socks4_user_is_not_a_password() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, "me:secret\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let relay = Relay::start(&["--socks5", ANY, "--users", file.path().to_str().unwrap()]);
    let (listener, to) = listen_as_origin();
    let mut client = connect(relay.address("socks5"));
    client.write_all(&request(1, to, "me", None)).unwrap();
    assert_eq!(reply(&mut client).0, REJECTED);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    listener.set_nonblocking(true).unwrap();
    listener.accept().unwrap_err();
}

/// Serves one page to each of `clients` clients.
fn serve(listener: TcpListener, clients: usize) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for _ in 0..clients {
            let mut server = accept(&listener);
            read_http_head(&mut server);
            let page = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";
            server.write_all(page).unwrap();
        }
    })
}

fn is_installed(program: &str, package: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output()
        .unwrap();
    longhaul_testprograms::skip::require(
        found.status.success(),
        format!("{program} (package {package})"),
    )
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn curl_works_with_socks4_and_socks4a() {
    let relay = Relay::start(&["--socks5", ANY]);
    let (listener, to) = listen_as_origin();
    let server = serve(listener, 3);
    for (form, host) in [
        ("socks4", "127.0.0.1"),
        ("socks4a", "127.0.0.1"),
        ("socks4a", "localhost"),
    ] {
        let proxy = format!("{form}://someone@{}", relay.address("socks5"));
        let url = format!("http://{host}:{}/", to.port());
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "20", "-x", &proxy, &url]);
        let output = curl.output().unwrap();
        assert_eq!(output.stdout, b"hi", "{form}: {output:?}");
    }
    server.join().unwrap();
}

#[test]
#[ignore = "needs proxychains: make test-peers"]
fn netcat_works() {
    if !is_installed("nc", "netcat-openbsd") {
        return;
    }
    let relay = Relay::start(&["--socks5", ANY]);
    let (listener, to) = listen_as_origin();
    let server = serve(listener, 1);
    let mut nc = Command::new("nc");
    nc.args([
        "-X",
        "4",
        "-x",
        &relay.address("socks5").to_string(),
        "-w",
        "20",
    ]);
    nc.args([&to.ip().to_string(), &to.port().to_string()]);
    let mut child = nc
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(stdout(&output).ends_with("\r\n\r\nhi"), "{output:?}");
    server.join().unwrap();
}

#[test]
#[ignore = "needs proxychains: make test-peers"]
fn proxychains_works() {
    if !is_installed("proxychains4", "proxychains4") {
        return;
    }
    let relay = Relay::start(&["--socks5", ANY]);
    let (listener, to) = listen_as_origin();
    let server = serve(listener, 1);
    let file = tempfile::NamedTempFile::new().unwrap();
    let proxy = relay.address("socks5");
    let list = format!(
        "strict_chain\n[ProxyList]\nsocks4 {} {} me\n",
        proxy.ip(),
        proxy.port()
    );
    fs::write(&file, list).unwrap();
    let mut proxychains = Command::new("proxychains4");
    proxychains.args([
        "-q",
        "-f",
        file.path().to_str().unwrap(),
        "curl",
        "-sS",
        "--max-time",
        "20",
    ]);
    let output = proxychains.arg(format!("http://{to}/")).output().unwrap();
    assert_eq!(stdout(&output), "hi", "{output:?}");
    server.join().unwrap();
}
