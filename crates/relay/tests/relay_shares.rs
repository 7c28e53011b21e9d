// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares of one client in common resources: memory, connections and time.

use longhaul_protocol::destination::Destination;
use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, assert_reset, connect, dial, listen_as_origin, may_use_namespaces,
    read_http_head, set_timeouts, transfer_both_ways,
};
use longhaul_testnet::relay_testbed::{IPV4, IPV6, Testbed, run_ip};
use socket2::{Domain, SockRef, Socket, Type};
use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::mpsc::RecvTimeoutError,
    thread::{sleep, spawn},
    time::{Duration, Instant},
};

const ANY: &str = "127.0.0.1:0";
const GREEDY: &str = "127.0.0.7";

/// Connects from the address `source`.
fn connect_from(source: &str, to: SocketAddr) -> io::Result<TcpStream> {
    let source: SocketAddr = (source.parse::<IpAddr>().unwrap(), 0).into();
    let socket = Socket::new(Domain::for_address(source), Type::STREAM, None)?;
    socket.bind(&source.into())?;
    socket.connect(&to.into())?;
    let stream = TcpStream::from(socket);
    set_timeouts(&stream);
    Ok(stream)
}

/// Starts a server that sends as fast as it can and reads nothing.
fn fast_source() -> SocketAddr {
    let (listener, at) = listen_as_origin();
    spawn(move || {
        for server in listener.incoming() {
            let mut server = server.unwrap();
            spawn(move || {
                let head = b"HTTP/1.1 200 OK\r\n\r\n";
                let mut next: &[u8] = head;
                while server.write_all(next).is_ok() {
                    next = &[b'x'; 1 << 16];
                }
            });
        }
    });
    at
}

/// Waits until the connection is reset, without reading from it.
fn await_reset(client: &TcpStream) {
    let begun = Instant::now();
    loop {
        if let Some(error) = SockRef::from(client).take_error().unwrap() {
            assert!(
                matches!(
                    error.kind(),
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                ),
                "{error}"
            );
            return;
        }
        assert!(begun.elapsed() < 10 * TEST_TIMEOUT, "it is still open");
        sleep(Duration::from_millis(20));
    }
}

/// Returns a client that requests the data of a fast source and never reads it.
fn never_reading(kind: &str, relay: &Relay, source: SocketAddr) -> TcpStream {
    let to = Destination::Address(source);
    match kind {
        "GET" => {
            let mut client = connect(relay.address("http"));
            write!(client, "GET http://{source}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            client
        }
        kind => dial(kind, relay.address(kind), &to).unwrap(),
    }
}

#[test]
fn non_reading_client_does_not_block_others() {
    let source = fast_source();
    let relay = Relay::start(&["--http", ANY, "--memory", "16MiB", "--stall-timeout", "10m"]);
    let at = relay.address("http");
    let greedy: Vec<_> = (0..64)
        .map_while(|_| {
            let mut client = connect_from(GREEDY, at).ok()?;
            write!(client, "CONNECT {source} HTTP/1.1\r\n\r\n").ok()?;
            Some(client)
        })
        .collect();
    let log = relay.wait_for_stderr("memory is short");
    assert!(log.contains(GREEDY), "{log}");
    let (listener, _) = listen_as_origin();
    let to = Destination::Address(listener.local_addr().unwrap());
    for _ in 0..20 {
        let client = dial("http", at, &to).unwrap();
        transfer_both_ways(&client, &accept(&listener), 1);
    }
    drop(greedy);
    let (_, log) = relay.stop();
    let lines = log.matches("memory is short").count();
    assert!(lines <= 1, "a line for each of them: {log}");
}

/// No client exceeds its share, and no client is stalled.
#[test]
fn many_slow_readers_do_not_block_others() {
    let source = fast_source();
    let budget = ["--memory", "16MiB", "--memory-per-client", "16MiB"];
    let relay = Relay::start(&[&["--http", ANY], &budget[..]].concat());
    let at = relay.address("http");
    let greedy: Vec<_> = (1..=32)
        .map_while(|n| {
            let mut client = connect_from(&format!("127.0.1.{n}"), at).ok()?;
            write!(client, "CONNECT {source} HTTP/1.1\r\n\r\n").ok()?;
            client.set_nonblocking(true).ok()?;
            Some(client)
        })
        .collect();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let slow_readers = spawn(move || {
        while is_done.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
            for mut client in &greedy {
                let _ = client.read(&mut [0; 4096]);
            }
        }
    });
    relay.wait_for_stderr("new connections wait");
    let (listener, _) = listen_as_origin();
    let to = Destination::Address(listener.local_addr().unwrap());
    for _ in 0..3 {
        let client = dial("http", at, &to).unwrap();
        transfer_both_ways(&client, &accept(&listener), 1);
    }
    drop(done);
    slow_readers.join().unwrap();
}

#[test]
fn cuts_stalled_tunnels() {
    let source = fast_source();
    let far = Relay::start(&["--convert", ANY, "--stall-timeout", "10m"]);
    let forward = format!("{ANY}={source}");
    let peer = far.address("convert").to_string();
    let stall = ["--stall-timeout", "1s", "--http", ANY, "--socks5", ANY];
    let direct = Relay::start(&[&stall[..], &["--forward", &forward]].concat());
    let chained = Relay::start(&[&stall[..], &["--peer", &peer]].concat());
    let striped = Relay::start(&[&stall[..], &["--peer", &peer, "--streams", "3"]].concat());
    // A connection without data for the client is not stalled.
    let (listener, at) = listen_as_origin();
    let silent = dial(
        "socks5",
        direct.address("socks5"),
        &Destination::Address(at),
    )
    .unwrap();
    let server = accept(&listener);
    for (relay, kinds) in [
        (&direct, &["http", "socks5", "forward", "GET"][..]),
        (&chained, &["http", "socks5", "GET"]),
        (&striped, &["http", "socks5"]),
    ] {
        let clients: Vec<_> = kinds
            .iter()
            .map(|kind| never_reading(kind, relay, source))
            .collect();
        clients.iter().for_each(await_reset);
    }
    transfer_both_ways(&silent, &server, 1);
}

#[test]
fn cuts_stalled_upload() {
    let (listener, at) = listen_as_origin();
    let relay = Relay::start(&["--stall-timeout", "1s", "--socks5", ANY]);
    let client = dial("socks5", relay.address("socks5"), &Destination::Address(at)).unwrap();
    let server = accept(&listener);
    let mut sending = client.try_clone().unwrap();
    let sender = spawn(move || while sending.write_all(&[0; 1 << 16]).is_ok() {});
    await_reset(&server);
    sender.join().unwrap();
}

#[test]
fn record_contains_reason_of_reset() {
    let source = fast_source();
    let counters = tempfile::NamedTempFile::new().unwrap();
    let path = counters.path().to_str().unwrap();
    let stall = ["--stall-timeout", "1s", "--socks5", ANY];
    let relay = Relay::start(&[&stall[..], &["--counters", path]].concat());
    await_reset(&never_reading("socks5", &relay, source));
    relay.stop();
    let records = std::fs::read_to_string(path).unwrap();
    let record = records.lines().find(|line| line.contains("\"connection\""));
    let record = record.expect("a connection record");
    assert!(record.contains("\"ended\":\"reset_by_relay\""), "{record}");
    assert!(record.contains("limits.stall_timeout"), "{record}");
}

#[test]
fn limits_connections_per_client() {
    let relay = Relay::start(&["--http", ANY, "--connections-per-client", "3"]);
    let at = relay.address("http");
    let (listener, origin) = listen_as_origin();
    let send_connect = |source| {
        let mut client = connect_from(source, at).unwrap();
        let request = format!("CONNECT {origin} HTTP/1.1\r\n\r\n");
        client.write_all(request.as_bytes()).map(|()| client)
    };
    let served = |client: io::Result<TcpStream>| {
        let mut client = client.unwrap();
        assert!(read_http_head(&mut client).starts_with("HTTP/1.1 200"));
        (client, accept(&listener))
    };
    let mut first: Vec<_> = (0..3).map(|_| served(send_connect(GREEDY))).collect();
    // The reset may arrive before the write.
    if let Ok(mut fourth) = send_connect(GREEDY) {
        assert_reset(&mut fourth);
    }
    served(send_connect("127.0.0.9"));
    first.pop();
    let begun = Instant::now();
    while send_connect(GREEDY)
        .and_then(|mut client| client.read(&mut [0]))
        .is_err()
    {
        assert!(begun.elapsed() < TEST_TIMEOUT, "its permit is not released");
    }
}

/// Reads once without blocking, and returns whether the connection was reset.
fn is_reset(client: &mut io::Result<TcpStream>) -> bool {
    let seen = client.as_mut().map(|client| {
        client.set_nonblocking(true).unwrap();
        client.read(&mut [0]).unwrap_err().kind()
    });
    seen.unwrap_or_else(|error| error.kind()) == ErrorKind::ConnectionReset
}

/// One client may have most permits, but never all.
#[test]
fn leaves_permits_for_other_clients() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("places");
    let listener = bed.listen(IPV4.server_port(8080));
    let forward = format!("0.0.0.0:3128={}", IPV4.server_port(8080));
    let args = ["--forward", &forward, "--allow-from", "10.77.0.0/16"];
    let _relay = bed.relay(&[&args[..], &["--max-connections", "16"]].concat());
    let listen_address = SocketAddr::from((IPV4.downstream, 3128));
    // A reset may arrive before the connect returns.
    let mut greedy: Vec<_> = (0..64).map(|_| bed.connect(listen_address)).collect();
    let other = || TcpStream::connect_timeout(&(IPV4.upstream, 3128).into(), TEST_TIMEOUT);
    let mut other = bed.server.run(other).unwrap();
    set_timeouts(&other);
    let served = accepted_from(&listener);
    other.write_all(b"hello").unwrap();
    assert_eq!(served.join().unwrap(), *b"hello");
    // A different worker may have served the other client, and the last resets may still be in
    // flight.
    let begun = Instant::now();
    while greedy.len() > 12 && begun.elapsed() < TEST_TIMEOUT {
        sleep(Duration::from_millis(10));
        greedy.retain_mut(|client| !is_reset(client));
    }
    assert_eq!(greedy.len(), 12, "three quarters of 16");
}

/// A host may use all addresses of its /64.
#[test]
fn counts_ipv6_network_as_one_client() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("network");
    let listen_address = SocketAddr::from((IPV6.downstream, 3128));
    let forward = format!("{listen_address}={}", IPV6.server_port(8080));
    let args = ["--forward", &forward, "--allow-from", "fd77::/16"];
    let _relay = bed.relay(&[&args[..], &["--connections-per-client", "2"]].concat());
    let listener = bed.listen(IPV6.server_port(8080));
    spawn(move || {
        let mut servers = Vec::new();
        for server in listener.incoming() {
            let mut server = server.unwrap();
            server.write_all(b"!").unwrap();
            servers.push(server);
        }
    });
    let mut clients: Vec<_> = (0x11..0x16)
        .filter_map(|host| {
            let source = format!("fd77:1::{host:x}");
            let address = format!("-6 address add {source}/64 dev eth0 nodad");
            run_ip(&bed.client, &address);
            // A reset may arrive before the connect returns.
            bed.client
                .run(|| connect_from(&source, listen_address))
                .ok()
        })
        .collect();
    let served = |client: &mut TcpStream| {
        let _ = client.write_all(b"?");
        client.read_exact(&mut [0]).is_ok()
    };
    let served = clients
        .iter_mut()
        .filter_map(|client| served(client).then_some(()));
    assert_eq!(served.count(), 2);
}

/// Returns the first five bytes that arrive over any connection.
fn accepted_from(listener: &TcpListener) -> std::thread::JoinHandle<[u8; 5]> {
    let listener = listener.try_clone().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    spawn(move || {
        for server in listener.incoming() {
            let (mut server, sender) = (server.unwrap(), sender.clone());
            spawn(move || {
                let mut bytes = [0; 5];
                if server.read_exact(&mut bytes).is_ok() {
                    let _ = sender.send(bytes);
                }
            });
        }
    });
    spawn(move || receiver.recv_timeout(TEST_TIMEOUT).unwrap())
}
