// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS between relays, over TCP and over UDT: both relays must show a certificate, and every kind
//! of end is the same as without TLS.

use longhaul_linux::socket::reset_on_close;
use longhaul_protocol::destination::Destination;
use longhaul_testnet::relay_process::{
    Relay, accept, assert_reset, connect, dial, half_close, listen_as_origin, read_array,
    transfer_both_ways,
};
use std::{
    fmt::Write as _,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

const ANY: &str = "127.0.0.1:0";
const TRANSPORTS: [&str; 2] = ["transport = 'tcp'\n", "transport = 'udt'\n"];

fn make_certificates(directory: &Path, names: &[&str]) -> Output {
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.args(["relay", "--make-certificates"]);
    command.arg(directory).args(names).output().unwrap()
}

/// Returns a directory with an authority and certificates for `near`, `far` and `other`.
fn authority() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let made = make_certificates(directory.path(), &["near", "far", "other"]);
    assert!(made.status.success(), "{made:?}");
    directory
}

fn tls(directory: &Path, owner: &str, more: &str) -> String {
    let directory = directory.display();
    format!(
        "tls = {{ ca = '{directory}/ca.pem', certificate = '{directory}/{owner}.pem', \
         key = '{directory}/{owner}-key.pem'{more} }}\n"
    )
}

fn listener(kind: &str, more: &str) -> String {
    format!("[[listener]]\nkind = '{kind}'\naddress = '{ANY}'\n{more}")
}

fn forward_to(to: SocketAddr) -> String {
    listener("forward", &format!("destination = '{to}'\n"))
}

fn far(directory: &Path, more: &str) -> Relay {
    far_over(TRANSPORTS[0], directory, more)
}

fn far_over(transport: &str, directory: &Path, more: &str) -> Relay {
    let more = transport.to_owned() + &tls(directory, "far", more);
    Relay::start_with_config(&listener("convert", &more), 1)
}

/// Starts a relay with three listeners, whose connections go to `peer`.
fn near(directory: &Path, owner: &str, peer: SocketAddr, more: &str, to: SocketAddr) -> Relay {
    let forward = forward_to(to);
    let others = listener("socks5", "") + &listener("http", "");
    let peer = format!("[[route]]\nvia = ['far']\n[peer.far]\naddress = '{peer}'\n{more}");
    let text = [forward, others, peer].concat();
    // Additions with a name have their own files.
    let tls = if more.contains("tls") {
        String::new()
    } else {
        tls(directory, owner, "")
    };
    Relay::start_with_config(&(text + &tls), 3)
}

/// A client and its server, with two relays between them.
struct Pipeline {
    client: TcpStream,
    server: TcpStream,
    _rest: (tempfile::TempDir, [Relay; 2]),
}

fn path(transport: &str) -> Pipeline {
    let directory = authority();
    let (listener, address) = listen_as_origin();
    let far = far_over(transport, directory.path(), ", allow = ['near']");
    let near = near(
        directory.path(),
        "near",
        far.address("convert"),
        transport,
        address,
    );
    let client = connect(near.address("forward"));
    let server = accept(&listener);
    Pipeline {
        client,
        server,
        _rest: (directory, [near, far]),
    }
}

#[test]
fn every_listener_kind_carries_both_directions() {
    let directory = authority();
    let (listener, address) = listen_as_origin();
    for transport in TRANSPORTS {
        let far = far_over(transport, directory.path(), "");
        for more in ["", "pool = 2\n", "streams = 3\n"] {
            let more = transport.to_owned() + more;
            let peer = far.address("convert");
            let near = near(directory.path(), "near", peer, &more, address);
            for kind in ["forward", "socks5", "http"] {
                eprintln!("{kind} {more}");
                let to = Destination::Address(address);
                let client = dial(kind, near.address(kind), &to).unwrap();
                transfer_both_ways(&client, &accept(&listener), 8);
            }
        }
    }
}

#[test]
fn relays_http_request_over_tls() {
    let directory = authority();
    let (listener, address) = listen_as_origin();
    let far = far(directory.path(), "");
    let near = near(
        directory.path(),
        "near",
        far.address("convert"),
        "",
        address,
    );
    let mut client = connect(near.address("http"));
    write!(
        client,
        "GET http://{address}/ HTTP/1.1\r\nHost: {address}\r\n\r\n"
    )
    .unwrap();
    let mut server = accept(&listener);
    let head = longhaul_testnet::relay_process::read_http_head(&mut server);
    assert!(head.starts_with("GET / HTTP/1.1\r\n"), "{head}");
    let body = "x".repeat(100_000);
    let mut response = String::new();
    write!(
        response,
        "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{body}"
    )
    .unwrap();
    server.write_all(response.as_bytes()).unwrap();
    assert_eq!(
        longhaul_testnet::relay_process::parse_http_status(
            &longhaul_testnet::relay_process::read_http_head(&mut client)
        ),
        200
    );
    let mut got = vec![0; 100_000];
    client.read_exact(&mut got).unwrap();
    assert!(got == body.as_bytes());
}

#[test]
fn passes_on_half_close() {
    for transport in TRANSPORTS {
        let by_client = path(transport);
        half_close(&by_client.client, &by_client.server);
        let by_server = path(transport);
        half_close(&by_server.server, &by_server.client);
    }
}

#[test]
fn fin_does_not_overtake_data() {
    for transport in TRANSPORTS {
        let Pipeline {
            mut client,
            mut server,
            _rest,
        } = path(transport);
        client.write_all(&[7; 64 << 10]).unwrap();
        drop(client);
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert!(got == [7; 64 << 10], "{} bytes", got.len());
    }
}

#[test]
fn passes_on_reset() {
    for transport in TRANSPORTS {
        for client_resets in [true, false] {
            let Pipeline {
                client,
                server,
                _rest,
            } = path(transport);
            let (mut one, mut other) = if client_resets {
                (client, server)
            } else {
                (server, client)
            };
            one.write_all(b"x").unwrap();
            assert_eq!(read_array(&mut other), *b"x");
            reset_on_close(&one).unwrap();
            drop(one);
            assert_reset(&mut other);
        }
    }
}

#[test]
fn does_not_delay_single_bytes() {
    for transport in TRANSPORTS {
        bounce(path(transport));
    }
}

fn bounce(through: Pipeline) {
    let Pipeline {
        mut client,
        mut server,
        _rest,
    } = through;
    for n in 0..1000u32 {
        client.write_all(&[n as u8]).unwrap();
        assert_eq!(read_array(&mut server), [n as u8]);
        server.write_all(&[!n as u8]).unwrap();
        assert_eq!(read_array(&mut client), [!n as u8]);
    }
}

/// Man in the middle: forwards a connection's bytes, so that its FIN can be forged.
fn middle(listener: &TcpListener, onward: SocketAddr) -> [TcpStream; 2] {
    let near = accept(listener);
    let far = connect(onward);
    for (from, to) in [(&near, &far), (&far, &near)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    }
    [near, far]
}

/// Invariant 3: a FIN without close_notify may be forged.
#[test]
fn fin_without_close_notify_is_abnormal_end() {
    let directory = authority();
    let (listener, address) = listen_as_origin();
    let far = far(directory.path(), "");
    let (between, peer) = listen_as_origin();
    let near = near(directory.path(), "near", peer, "", address);
    let mut client = connect(near.address("forward"));
    let [to_near, to_far] = middle(&between, far.address("convert"));
    let mut server = accept(&listener);
    server.write_all(b"half of").unwrap();
    assert_eq!(read_array(&mut client), *b"half of");
    to_near.shutdown(Shutdown::Write).unwrap();
    assert_reset(&mut client);
    to_far.shutdown(Shutdown::Write).unwrap();
    assert_reset(&mut server);
}

#[test]
fn refuses_clients_without_valid_certificate() {
    let directory = authority();
    let other_authority = authority();
    let (listener, address) = listen_as_origin();
    let far = far(directory.path(), ", allow = ['near']");
    let peer = far.address("convert");
    // Without TLS at all.
    let mut plain = connect(peer);
    let request = longhaul_protocol::convert::Request::new(Destination::Address(address), vec![]);
    plain.write_all(&request.encode()).unwrap();
    let mut answer = Vec::new();
    // At most an alert (RFC 8446 §6: content type 21), and then the end.
    let _ = plain.read_to_end(&mut answer);
    assert!(answer.first().is_none_or(|kind| *kind == 21), "{answer:?}");
    // A certificate of another authority, and one of this authority with another name.
    for (authority, owner) in [(&other_authority, "near"), (&directory, "other")] {
        let near = near(authority.path(), owner, peer, "", address);
        let to = Destination::Address(address);
        let refused = dial("socks5", near.address("socks5"), &to);
        assert!(refused.is_err(), "{owner}");
    }
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn verifies_name_of_peer() {
    let directory = authority();
    let (_listener, address) = listen_as_origin();
    for transport in TRANSPORTS {
        let far = far_over(transport, directory.path(), "");
        let peer = far.address("convert");
        let wrong = transport.to_owned() + &tls(directory.path(), "near", ", name = 'other'");
        let near = near(directory.path(), "near", peer, &wrong, address);
        let to = Destination::Address(address);
        assert_eq!(dial("socks5", near.address("socks5"), &to).err(), Some(1));
    }
}

#[test]
fn falls_back_if_name_of_peer_is_wrong() {
    let directory = authority();
    let (listener, address) = listen_as_origin();
    let far = far(directory.path(), "");
    let text = [
        forward_to(address),
        "[[route]]\nvia = ['far']\nfallback = [[]]\n".to_owned(),
        format!("[peer.far]\naddress = '{}'\n", far.address("convert")),
        tls(directory.path(), "near", ", name = 'other'"),
    ];
    let near = Relay::start_with_config(&text.concat(), 1);
    transfer_both_ways(&connect(near.address("forward")), &accept(&listener), 1);
}

fn refusal(text: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relay.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.args(["relay", "--check-config", "--socks5", ANY, "--config"]);
    let output = command.arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn names_invalid_tls_files() {
    let directory = authority();
    let good = directory.path().display();
    let tls = |ca: &str, key: &str, more: &str| {
        format!("tls = {{ ca = '{ca}', certificate = '{good}/near.pem', key = '{key}'{more} }}\n")
    };
    let (ca, key) = (format!("{good}/ca.pem"), format!("{good}/near-key.pem"));
    let peer = "[peer.far]\naddress = '127.0.0.1'\n";
    let http = format!("[[listener]]\nkind = 'http'\naddress = '{ANY}'\n");
    for (owner, tls, word) in [
        (peer, tls("/no/such/ca.pem", &key, ""), "/no/such/ca.pem"),
        (peer, tls(&ca, &ca, ""), "ca.pem"),
        (
            peer,
            tls(&ca, &format!("{good}/far-key.pem"), ""),
            "peer far",
        ),
        (peer, tls(&ca, &key, ", name = 'no name'"), "no name"),
        (peer, tls(&ca, &key, ", allow = ['near']"), "tls.allow"),
        (&http, tls(&ca, &key, ""), "convert listeners"),
        (peer, TRANSPORTS[1].to_owned(), "needs tls"),
        (&http, TRANSPORTS[1].to_owned(), "convert listeners"),
        (
            peer,
            format!(
                "{}profile = 'p'\n{}[profile.p]\ndscp = 1\n",
                TRANSPORTS[1],
                tls(&ca, &key, "")
            ),
            "profile p: dscp",
        ),
    ] {
        let log = refusal(&format!("{owner}{tls}"));
        assert!(log.contains(word), "{word}: {log}");
        assert_eq!(log.lines().count(), 1, "{log}");
    }
}

#[test]
fn refuses_a_key_that_others_may_read() {
    let directory = authority();
    let at = |name: &str| directory.path().join(name);
    let tls = format!(
        "tls = {{ ca = '{0}/ca.pem', certificate = '{0}/near.pem', key = '{0}/near-key.pem' }}\n",
        directory.path().display()
    );
    let readable = |name: &str| {
        let mode = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(at(name), mode).unwrap();
    };
    readable("near-key.pem");
    for owner in [
        "[peer.far]\naddress = '127.0.0.1'\n".to_owned(),
        format!("[[listener]]\nkind = 'convert'\naddress = '{ANY}'\n"),
    ] {
        let log = refusal(&format!("{owner}{tls}"));
        assert!(
            log.contains("near-key.pem") && log.contains("chmod 600"),
            "{log}"
        );
    }
    readable("ca-key.pem");
    let made = make_certificates(directory.path(), &["third"]);
    let log = String::from_utf8_lossy(&made.stderr).into_owned();
    assert_eq!(made.status.code(), Some(2), "{log}");
    assert!(
        log.contains("ca-key.pem") && log.contains("chmod 600"),
        "{log}"
    );
}

#[test]
fn keeps_existing_authority_when_adding_certificates() {
    let directory = authority();
    let path = directory.path();
    let mode = |name: &str| path.join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("ca-key.pem"), mode("far-key.pem")), (0o600, 0o600));
    assert_eq!(make_certificates(path, &["far"]).status.code(), Some(2));
    assert_eq!(make_certificates(path, &["../x"]).status.code(), Some(2));
    let ca = std::fs::read(path.join("ca.pem")).unwrap();
    assert!(make_certificates(path, &["192.0.2.9"]).status.success());
    assert_eq!(std::fs::read(path.join("ca.pem")).unwrap(), ca);
    // Owners of the earlier certificates accept the later one.
    let (listener, address) = listen_as_origin();
    let far = far(path, ", allow = ['192.0.2.9']");
    let near = near(path, "192.0.2.9", far.address("convert"), "", address);
    transfer_both_ways(&connect(near.address("forward")), &accept(&listener), 1);
}
