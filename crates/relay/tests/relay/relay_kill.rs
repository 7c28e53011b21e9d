// SPDX-License-Identifier: MIT OR Apache-2.0
//! A killed relay, as by the kernel's OOM killer: an incomplete stream ends by a reset, never
//! cleanly. Data behind a FIN that was relayed before still arrives.

use longhaul_protocol::destination::Destination;
use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, assert_reset, connect, dial, listen_as_origin, may_use_namespaces,
    read_array, read_http_head,
};
use longhaul_testnet::relay_testbed::{BOTH, Testbed};
use rustix::process::Signal;
use socket2::SockRef;
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

const ANY: &str = "127.0.0.1:0";
const LISTENERS: [&str; 4] = ["socks5", "http", "forward", "convert"];

/// Starts a relay with every listener, and `peers` relays behind it.
fn chain(peers: usize, more: &[&str], streams: &str, origin: SocketAddr) -> Vec<Relay> {
    let convert = [&["--convert", ANY], more].concat();
    let mut relays: Vec<_> = (0..peers).map(|_| Relay::start(&convert)).collect();
    let forward = format!("{ANY}={origin}");
    let listeners = ["--socks5", ANY, "--http", ANY, "--forward", &forward];
    let mut args: Vec<String> = [&listeners[..], &convert]
        .concat()
        .iter()
        .map(|s| (*s).into())
        .collect();
    for relay in &relays {
        args.extend(["--peer".to_owned(), relay.address("convert").to_string()]);
    }
    if peers > 0 {
        args.extend(["--streams".to_owned(), streams.to_owned()]);
    }
    relays.insert(0, Relay::start(&args));
    relays
}

/// Transfers some bytes each way.
fn transfer_both_ways(client: &mut TcpStream, server: &mut TcpStream) {
    server.write_all(&[b'd'; 320_000]).unwrap();
    client.read_exact(&mut [0; 320_000]).unwrap();
    client.write_all(&[b'u'; 100_000]).unwrap();
    server.read_exact(&mut [0; 100_000]).unwrap();
}

/// Writes until every buffer on the path is full.
fn fill(mut stream: &TcpStream) {
    stream
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let block = vec![b'f'; 1 << 20];
    while stream.write(&block).is_ok() {}
}

/// Reads to the end, which must be a reset.
fn assert_ends_by_reset(mut stream: &TcpStream, what: &str) {
    let mut bytes = vec![0; 1 << 20];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => panic!("{what}: a clean end"),
            Ok(_) => {}
            Err(error) => return assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{what}"),
        }
    }
}

#[test]
fn resets_connections_of_every_listener_and_route() {
    let (listener, address) = listen_as_origin();
    let to = Destination::Address(address);
    for (peers, streams) in [(0, "1"), (1, "1"), (1, "3"), (2, "1"), (2, "3")] {
        for mode in ["splice", "copy"] {
            for killed in 0..=peers {
                let relays = chain(peers, &["--mode", mode], streams, address);
                let open = |kind: &&str| {
                    let client = dial(kind, relays[0].address(kind), &to).unwrap();
                    (
                        format!("{kind}, {peers} peers, {streams} streams, {mode}, relay {killed}"),
                        client,
                        accept(&listener),
                    )
                };
                let mut idle: Vec<_> = LISTENERS.iter().map(open).collect();
                let full: Vec<_> = LISTENERS.iter().map(open).collect();
                for (_, client, server) in &mut idle {
                    transfer_both_ways(client, server);
                }
                thread::scope(|scope| {
                    for (_, client, server) in &full {
                        scope.spawn(|| fill(client));
                        scope.spawn(|| fill(server));
                    }
                });
                relays[killed].signal(Signal::KILL);
                for (what, client, server) in idle.iter().chain(&full) {
                    assert_ends_by_reset(client, &format!("{what}: the client"));
                    assert_ends_by_reset(server, &format!("{what}: the server"));
                }
            }
        }
    }
}

#[test]
fn resets_unused_connection() {
    let (listener, address) = listen_as_origin();
    for killed in 0..=1 {
        let relays = chain(1, &[], "1", address);
        let client = connect(relays[0].address("forward"));
        let server = accept(&listener);
        relays[killed].signal(Signal::KILL);
        assert_ends_by_reset(&client, "the client");
        assert_ends_by_reset(&server, "the server");
    }
}

/// A truncated request must not end cleanly at the origin.
#[test]
fn resets_truncated_request_at_origin() {
    let (listener, address) = listen_as_origin();
    for killed in 0..=1 {
        let relays = chain(1, &[], "1", address);
        let mut client = connect(relays[0].address("http"));
        write!(
            client,
            "POST http://{address}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhal"
        )
        .unwrap();
        let mut server = accept(&listener);
        read_http_head(&mut server);
        assert_eq!(read_array(&mut server), *b"hal");
        relays[killed].signal(Signal::KILL);
        assert_ends_by_reset(&server, "the origin");
    }
}

/// A body without a length ends with its connection, so the end must be a reset.
#[test]
fn resets_body_without_length() {
    let (listener, address) = listen_as_origin();
    for (peers, killed) in [(0, 0), (1, 0), (1, 1)] {
        for version in ["1.0", "1.1"] {
            let relays = chain(peers, &[], "1", address);
            let mut client = connect(relays[0].address("http"));
            write!(
                client,
                "GET http://{address}/ HTTP/{version}\r\nHost: x\r\n\r\n"
            )
            .unwrap();
            let mut server = accept(&listener);
            read_http_head(&mut server);
            server.write_all(b"HTTP/1.0 200 OK\r\n\r\n").unwrap();
            server.write_all(&[b'b'; 320_000]).unwrap();
            read_http_head(&mut client);
            client.read_exact(&mut [0; 320_000]).unwrap();
            relays[killed].signal(Signal::KILL);
            assert_ends_by_reset(
                &client,
                &format!("HTTP/{version}, {peers} peers, relay {killed}"),
            );
        }
    }
}

/// FTP server that starts to send a file.
fn serve_ftp(control: &mut TcpStream) -> TcpStream {
    let data = std::net::TcpListener::bind(ANY).unwrap();
    let port = data.local_addr().unwrap().port();
    control.write_all(b"220 here\r\n").unwrap();
    let mut line = String::new();
    loop {
        line.push(read_array::<1>(control)[0].into());
        if !line.ends_with('\n') {
            continue;
        }
        let answer = match line.split_whitespace().next() {
            Some("USER") => "230 in".to_owned(),
            Some("TYPE") => "200 so be it".to_owned(),
            Some("EPSV") => format!("229 there (|||{port}|)"),
            Some("RETR") => {
                control.write_all(b"150 it comes\r\n").unwrap();
                return accept(&data);
            }
            _ => "502 what?".to_owned(),
        };
        control
            .write_all(format!("{answer}\r\n").as_bytes())
            .unwrap();
        line.clear();
    }
}

#[test]
fn resets_ftp_download() {
    let (listener, address) = listen_as_origin();
    for (peers, killed) in [(0, 0), (1, 0), (1, 1)] {
        let relays = chain(peers, &[], "1", address);
        let mut client = connect(relays[0].address("http"));
        write!(client, "GET ftp://{address}/f HTTP/1.0\r\n\r\n").unwrap();
        let mut control = accept(&listener);
        let mut data = serve_ftp(&mut control);
        data.write_all(&[b'f'; 320_000]).unwrap();
        read_http_head(&mut client);
        client.read_exact(&mut [0; 320_000]).unwrap();
        relays[killed].signal(Signal::KILL);
        assert_ends_by_reset(&client, &format!("{peers} peers, relay {killed}"));
    }
}

/// Tests BIND, where the server connects to the relay.
#[test]
fn resets_bind_connection() {
    let relay = Relay::start(&["--socks5", ANY]);
    let mut client = connect(relay.address("socks5"));
    client.write_all(&[5, 1, 0]).unwrap();
    assert_eq!(read_array(&mut client), [5, 0]);
    client.write_all(&[5, 2, 0, 1, 127, 0, 0, 1, 0, 9]).unwrap();
    let [5, 0, 0, 1, a, b, c, d, high, low] = read_array(&mut client) else {
        panic!("no reply");
    };
    let mut server = connect(([a, b, c, d], u16::from_be_bytes([high, low])).into());
    assert_eq!(read_array::<10>(&mut client)[1], 0);
    transfer_both_ways(&mut client, &mut server);
    relay.signal(Signal::KILL);
    assert_ends_by_reset(&client, "the client");
    assert_ends_by_reset(&server, "the server");
}

fn tls(directory: &Path, owner: &str) -> String {
    let directory = directory.display();
    format!(
        "tls = {{ ca = '{directory}/ca.pem', certificate = '{directory}/{owner}.pem', \
         key = '{directory}/{owner}-key.pem' }}\n"
    )
}

/// Over UDT, only a time-out reveals a killed process.
#[test]
fn resets_connections_over_tls_and_udt() {
    let directory = tempfile::tempdir().unwrap();
    let mut made = Command::new(longhaul_testprograms::longhaul());
    made.args(["relay", "--make-certificates"])
        .arg(directory.path());
    assert!(made.args(["near", "far"]).status().unwrap().success());
    let (listener, address) = listen_as_origin();
    let leg = |transport: &str, owner| {
        format!(
            "profile = 'long'\ntransport = '{transport}'\n{}",
            tls(directory.path(), owner)
        )
    };
    let profile = "[profile.long]\nuser_timeout = '2s'\n";
    for transport in ["tcp", "udt"] {
        for killed in 0..=1 {
            let text = format!(
                "[[listener]]\nkind = 'convert'\naddress = '{ANY}'\n{}{profile}",
                leg(transport, "far")
            );
            let far = Relay::start_with_config(&text, 1);
            let peer = far.address("convert");
            let text = format!(
                "[[listener]]\nkind = 'forward'\naddress = '{ANY}'\ndestination = '{address}'\n\
                 [[route]]\nvia = ['far']\n[peer.far]\naddress = '{peer}'\n{}{profile}",
                leg(transport, "near")
            );
            let near = Relay::start_with_config(&text, 1);
            let mut client = connect(near.address("forward"));
            let mut server = accept(&listener);
            transfer_both_ways(&mut client, &mut server);
            [&near, &far][killed].signal(Signal::KILL);
            assert_ends_by_reset(&client, &format!("{transport}, relay {killed}: the client"));
            assert_ends_by_reset(&server, &format!("{transport}, relay {killed}: the server"));
        }
    }
}

#[test]
fn resets_connections_of_draining_relay() {
    let (listener, address) = listen_as_origin();
    for killed in 0..=1 {
        let relays = chain(1, &["--grace", "1m"], "1", address);
        let mut client = connect(relays[0].address("forward"));
        let mut server = accept(&listener);
        transfer_both_ways(&mut client, &mut server);
        relays[killed].signal(Signal::TERM);
        transfer_both_ways(&mut client, &mut server);
        relays[killed].signal(Signal::KILL);
        assert_ends_by_reset(&client, "the client");
        assert_ends_by_reset(&server, "the server");
    }
}

#[test]
fn resets_diverted_connection() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("rk-divert");
    bed.install_divert_rules();
    for family in BOTH {
        let relay = bed.relay(&[
            "--transparent",
            "0.0.0.0:3129",
            "--transparent",
            "[::]:3129",
        ]);
        let listener = bed.listen(family.server_port(0));
        let mut client = bed.connect(listener.local_addr().unwrap()).unwrap();
        let mut server = accept(&listener);
        assert_eq!(
            server.peer_addr().unwrap().ip(),
            family.upstream,
            "it is relayed"
        );
        transfer_both_ways(&mut client, &mut server);
        relay.signal(Signal::KILL);
        assert_ends_by_reset(&client, "the client");
        assert_ends_by_reset(&server, "the server");
    }
}

/// Whether the relay has sent FIN on this leg and will not reset it.
fn has_finished(mut leg: &TcpStream) -> bool {
    let ended = leg
        .write(&[])
        .is_err_and(|error| error.kind() == ErrorKind::BrokenPipe);
    ended && SockRef::from(leg).linger().unwrap().is_none()
}

/// The server has closed its direction, and the relay has relayed the FIN. Data queued in the
/// relay's socket for a slow client arrives without the relay; the other direction, which is open,
/// ends by a reset.
#[test]
fn delivers_data_behind_relayed_fin() {
    let (listener, address) = listen_as_origin();
    let relays = chain(1, &[], "1", address);
    let client = TcpStream::from(slow_socket());
    client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    SockRef::from(&client)
        .connect(&relays[0].address("forward").into())
        .unwrap();
    let mut server = accept(&listener);
    server.write_all(&[b'e'; 200_000]).unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    let leg = relays[0].socket_to(client.local_addr().unwrap());
    let start = Instant::now();
    while !has_finished(&leg) {
        assert!(start.elapsed() < TEST_TIMEOUT, "the end was not passed on");
        thread::yield_now();
    }
    drop(leg);
    relays[0].signal(Signal::KILL);
    assert_reset(&mut server);
    let mut got = Vec::new();
    (&client).read_to_end(&mut got).unwrap();
    assert!(got == [b'e'; 200_000], "{} bytes", got.len());
}

/// Socket with a receive window of a few segments.
fn slow_socket() -> socket2::Socket {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(8192).unwrap();
    socket
}
