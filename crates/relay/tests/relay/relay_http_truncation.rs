// SPDX-License-Identifier: MIT OR Apache-2.0
//! Responses that the origin cuts short. All bytes that it sent reach the client, however slow that is, before an
//! abnormal end.

use longhaul_linux::{socket::reset_on_close, tcp_info::TcpInfo};
use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, connect, listen_as_origin, read_http_head, set_timeouts,
};
use socket2::{Domain, Socket, Type};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread::{sleep, spawn},
    time::{Duration, Instant},
};

const ANY: &str = "127.0.0.1:0";
/// Bytes of the body that are sent, of a body twice as long: more than the client's buffers hold.
const SENT: usize = 2 << 20;

/// Framing of a response.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Framing {
    Length,
    Chunked,
    /// The end of the connection is the end of the body, for a client of HTTP/1.0.
    Close,
}

const FRAMINGS: [Framing; 3] = [Framing::Length, Framing::Chunked, Framing::Close];

impl Framing {
    fn version(self) -> &'static str {
        match self {
            Self::Close => "HTTP/1.0",
            _ => "HTTP/1.1",
        }
    }

    fn field(self) -> String {
        match self {
            Self::Length => format!("Content-Length: {}\r\n", 2 * SENT),
            Self::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
            Self::Close => String::new(),
        }
    }

    /// Beginning of a body, with `SENT` bytes `z`.
    fn body(self) -> Vec<u8> {
        let data = vec![b'z'; SENT];
        match self {
            Self::Chunked => [format!("{SENT:x}\r\n").as_bytes(), &data, b"\r\n"].concat(),
            _ => data,
        }
    }
}

/// Connects a client that buffers little.
fn connect_small(relay: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket.connect(&relay.into()).unwrap();
    let client = TcpStream::from(socket);
    set_timeouts(&client);
    client
}

fn get(client: &mut TcpStream, framing: Framing, at: SocketAddr) {
    let version = framing.version();
    let head = format!("GET http://{at}/ {version}\r\nHost: x\r\n\r\n");
    client.write_all(head.as_bytes()).unwrap();
}

/// Answers one request with a truncated response.
fn serve(listener: &TcpListener, framing: Framing) -> TcpStream {
    let mut server = accept(listener);
    read_http_head(&mut server);
    let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", framing.field());
    server.write_all(head.as_bytes()).unwrap();
    server.write_all(&framing.body()).unwrap();
    server
}

/// Waits until the neighbour has acknowledged all bytes.
fn await_acknowledged(server: &TcpStream) {
    let start = Instant::now();
    loop {
        let info = TcpInfo::of(server).unwrap();
        if info.unacked_segments == 0 && info.notsent_bytes == 0 {
            return;
        }
        assert!(start.elapsed() < TEST_TIMEOUT, "{info:?}");
        sleep(Duration::from_millis(5));
    }
}

/// Reads a response slowly. Returns the number of its bytes `z`, and its abnormal end.
fn read_slowly(client: &mut TcpStream) -> (usize, Option<ErrorKind>) {
    read_http_head(client);
    let (mut count, mut block) = (0, vec![0; 8 << 10]);
    loop {
        match client.read(&mut block) {
            Ok(0) => return (count, None),
            Ok(read) => count += block[..read].iter().filter(|byte| **byte == b'z').count(),
            Err(error) => return (count, Some(error.kind())),
        }
        sleep(Duration::from_millis(1));
    }
}

/// Reads a response slowly until its abnormal end, and returns the number of its bytes `z`.
fn read_until_reset(client: &mut TcpStream) -> usize {
    let (count, end) = read_slowly(client);
    assert_eq!(end, Some(ErrorKind::ConnectionReset), "after {count} bytes");
    count
}

#[test]
fn delivers_all_bytes_before_an_early_fin() {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    let chain = Relay::start(&["--http", ANY, "--peer", &peer]);
    let single = Relay::start(&["--http", ANY]);
    for (relay, framing) in [&chain, &single]
        .iter()
        .flat_map(|relay| FRAMINGS.map(|framing| (relay, framing)))
        // A FIN is the proper end of a body without a length.
        .filter(|(_, framing)| *framing != Framing::Close)
    {
        let (listener, at) = listen_as_origin();
        let mut client = connect_small(relay.address("http"));
        get(&mut client, framing, at);
        let server = spawn(move || drop(serve(&listener, framing)));
        assert_eq!(read_until_reset(&mut client), SENT, "{framing:?}");
        server.join().unwrap();
    }
}

/// The origin resets once the relay has acknowledged everything.
#[test]
fn delivers_all_acknowledged_bytes_before_a_reset() {
    let relay = Relay::start(&["--http", ANY]);
    for framing in FRAMINGS {
        let (listener, at) = listen_as_origin();
        let mut client = connect_small(relay.address("http"));
        get(&mut client, framing, at);
        let server = spawn(move || {
            let server = serve(&listener, framing);
            await_acknowledged(&server);
            reset_on_close(&server).unwrap();
        });
        assert_eq!(read_until_reset(&mut client), SENT, "{framing:?}");
        server.join().unwrap();
    }
}

#[test]
fn delivers_all_bytes_before_a_response_timeout() {
    let relay = Relay::start(&["--http", ANY, "--response-timeout", "300ms"]);
    for framing in FRAMINGS {
        let (listener, at) = listen_as_origin();
        let mut client = connect_small(relay.address("http"));
        get(&mut client, framing, at);
        let server = spawn(move || serve(&listener, framing));
        assert_eq!(read_until_reset(&mut client), SENT, "{framing:?}");
        drop(server.join().unwrap());
    }
}

/// Bytes queued in the relay's socket behind a tunnel's reset.
#[test]
fn tunnel_delivers_queued_bytes_before_a_reset() {
    let relay = Relay::start(&["--http", ANY]);
    let (listener, at) = listen_as_origin();
    let mut client = connect_small(relay.address("http"));
    write!(client, "CONNECT {at} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut server = accept(&listener);
    read_http_head(&mut client);
    // More than the client's buffer, and less than that of the relay's socket with it.
    let sent = 48 << 10;
    server.write_all(&vec![b'z'; sent]).unwrap();
    await_acknowledged(&server);
    sleep(Duration::from_millis(200));
    reset_on_close(&server).unwrap();
    drop(server);
    let mut received: Vec<u8> = Vec::new();
    let mut block = vec![0; 4 << 10];
    let error = loop {
        match client.read(&mut block) {
            Ok(0) => panic!("a clean end"),
            Ok(read) => received.extend(&block[..read]),
            Err(error) => break error,
        }
        sleep(Duration::from_millis(1));
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(received.len(), sent);
}

/// Bytes that no socket had taken: in the relay's pipe, and in its receive buffer. Each relay of a chain holds some.
#[test]
fn tunnel_delivers_all_acknowledged_bytes_before_a_reset() {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    let single = Relay::start(&["--http", ANY]);
    let chains = ["1", "4", "auto"]
        .map(|streams| Relay::start(&["--http", ANY, "--peer", &peer, "--streams", streams]));
    for relay in chains.iter().chain([&single]) {
        let (listener, at) = listen_as_origin();
        let mut client = connect_small(relay.address("http"));
        write!(client, "CONNECT {at} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut server = accept(&listener);
        let server = spawn(move || {
            server.write_all(&vec![b'z'; SENT]).unwrap();
            await_acknowledged(&server);
            reset_on_close(&server).unwrap();
        });
        // Its own bytes must not end the connection sooner.
        let mut writer = client.try_clone().unwrap();
        let writer = spawn(move || {
            loop {
                if let Err(error) = writer.write_all(b"x") {
                    return error.kind();
                }
                sleep(Duration::from_millis(20));
            }
        });
        let (count, end) = read_slowly(&mut client);
        assert_eq!(count, SENT);
        server.join().unwrap();
        // The kernel reports a reset once, to the read or to the write. A write after a FIN gets another error.
        let ends = [end, Some(writer.join().unwrap())];
        assert!(ends.contains(&Some(ErrorKind::ConnectionReset)), "{ends:?}");
    }
}

/// The wait for a client that reads nothing is bounded.
#[test]
fn reset_does_not_wait_for_a_client_that_reads_nothing() {
    let relay = Relay::start(&["--http", ANY, "--stall-timeout", "2s", "--grace", "10m"]);
    let (listener, at) = listen_as_origin();
    let mut client = connect_small(relay.address("http"));
    get(&mut client, Framing::Length, at);
    let server = spawn(move || {
        let mut server = accept(&listener);
        read_http_head(&mut server);
        let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", Framing::Length.field());
        server.write_all(head.as_bytes()).unwrap();
        server.write_all(&vec![b'z'; 400 << 10]).unwrap();
    });
    server.join().unwrap();
    let start = Instant::now();
    while longhaul_linux::socket::pending_error(&client)
        .unwrap()
        .is_none()
    {
        assert!(start.elapsed() < TEST_TIMEOUT, "the reset never arrived");
        sleep(Duration::from_millis(10));
    }
    drop(connect(relay.address("http")));
}
