// SPDX-License-Identifier: MIT OR Apache-2.0
//! `http://` requests, whose bodies end by their framing. Bodies of every framing are transferred
//! completely and without delay in both directions, and a truncated body never looks complete.

use crate::{
    relay_conformance::chain::{BUFFER_MAX, Chain, DestinationKind, accept},
    relay_conformance::ends::{assert_reset, assert_reset_noticed, reset},
    relay_conformance::flow::{fill, settled_value},
    relay_conformance::payload::{PayloadDigest, receive_after, send},
};
use longhaul_testnet::{
    relay_process::{connect, read_http_head},
    relay_testbed::Addresses,
};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::scope,
};

/// Framing of a body (RFC 9112 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length,
    Chunked,
    /// Responses only: the end of the connection.
    Close,
}

impl Framing {
    fn field(self, bytes: u64) -> String {
        match self {
            Self::Length => format!("Content-Length: {bytes}\r\n"),
            Self::Chunked => "Transfer-Encoding: chunked\r\n".into(),
            Self::Close => "Connection: close\r\n".into(),
        }
    }
}

/// Client and server of an exchange whose request head has arrived.
struct Exchange {
    client: TcpStream,
    server: TcpStream,
}

fn start_exchange(chain: &Chain, family: &Addresses, request_line: [&str; 3]) -> Exchange {
    let [method, version, fields] = request_line;
    let proxy = (family.downstream, 3128).into();
    let mut client = chain.testbed.client.run(|| Ok(connect(proxy))).unwrap();
    let at = DestinationKind::Origin.address(family);
    let head = format!("{method} http://{at}/ {version}\r\nHost: {at}\r\n{fields}\r\n");
    client.write_all(head.as_bytes()).unwrap();
    let mut server = accept(chain.origin(family));
    let head = read_http_head(&mut server);
    assert!(head.starts_with(method), "{head}");
    Exchange { client, server }
}

fn response(mut server: &TcpStream, fields: &str) {
    let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
    server.write_all(head.as_bytes()).unwrap();
}

pub(crate) fn transfers_bodies_of_every_framing(chain: &Chain, family: &Addresses) {
    const BYTES: u64 = (6 << 20) + 1;
    for request_framing in [Framing::Length, Framing::Chunked] {
        for response_framing in [Framing::Length, Framing::Chunked, Framing::Close] {
            eprintln!("request {request_framing:?}, response {response_framing:?}");
            let exchange = start_exchange(
                chain,
                family,
                ["POST", "HTTP/1.1", &request_framing.field(BYTES)],
            );
            both_bodies(&exchange, request_framing, response_framing, BYTES);
        }
    }
}

fn both_bodies(
    exchange: &Exchange,
    request_framing: Framing,
    response_framing: Framing,
    bytes: u64,
) {
    let both_done = Barrier::new(2);
    scope(|scope| {
        let up = scope.spawn(|| send_body(&exchange.client, request_framing, 1, bytes));
        let down = scope.spawn(|| {
            response(&exchange.server, &response_framing.field(bytes));
            let sent = send_body(&exchange.server, response_framing, 2, bytes);
            // The server closes only after the whole request: closing earlier would end the upload
            // (RFC 9112 §9.5).
            both_done.wait();
            if response_framing == Framing::Close {
                exchange.server.shutdown(Shutdown::Write).unwrap();
            }
            sent
        });
        let received = scope.spawn(|| {
            let received = receive_body(&exchange.server, request_framing, bytes);
            both_done.wait();
            received
        });
        let framed = framing(&read_http_head(&mut &exchange.client));
        let response = receive_body(&exchange.client, framed, bytes);
        assert!(received.join().unwrap() == up.join().unwrap(), "request");
        assert!(response == down.join().unwrap(), "response");
    });
}

/// Framing that the relay chose.
fn framing(head: &str) -> Framing {
    let head = head.to_lowercase();
    match () {
        () if head.contains("transfer-encoding: chunked") => Framing::Chunked,
        () if head.contains("content-length: ") => Framing::Length,
        () => Framing::Close,
    }
}

fn send_body(to: &TcpStream, framing: Framing, seed: u64, bytes: u64) -> PayloadDigest {
    if framing != Framing::Chunked {
        return send(to, seed, bytes, |_| ()).unwrap();
    }
    // The same bytes in chunks that match no buffer size.
    const CHUNK: usize = 40_001;
    let (content, mut hash) = (vec![seed as u8; CHUNK], blake3::Hasher::new());
    let (mut to, mut left) = (to, bytes as usize);
    while left > 0 {
        let chunk = &content[..CHUNK.min(left)];
        let framed = [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
        to.write_all(&framed).unwrap();
        hash.update(chunk);
        left -= chunk.len();
    }
    to.write_all(b"0\r\n\r\n").unwrap();
    let hash = hash.finalize();
    PayloadDigest { bytes, hash }
}

fn receive_body(from: &TcpStream, framing: Framing, bytes: u64) -> PayloadDigest {
    match framing {
        Framing::Close => receive_after(&[], from).unwrap(),
        Framing::Length => digest_of(&mut from.take(bytes)),
        Framing::Chunked => dechunk(&mut BufReader::new(from)),
    }
}

fn digest_of(from: &mut impl Read) -> PayloadDigest {
    let (mut hash, mut bytes) = (blake3::Hasher::new(), 0);
    let mut block = vec![0; 1 << 16];
    while let read @ 1.. = from.read(&mut block).unwrap() {
        hash.update(&block[..read]);
        bytes += read as u64;
    }
    let hash = hash.finalize();
    PayloadDigest { bytes, hash }
}

fn dechunk(from: &mut impl BufRead) -> PayloadDigest {
    let (mut hash, mut bytes) = (blake3::Hasher::new(), 0);
    loop {
        let mut size = String::new();
        from.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim_end(), 16).expect(&size);
        let mut chunk = vec![0; size + 2];
        from.read_exact(&mut chunk).unwrap();
        assert_eq!(&chunk[size..], b"\r\n");
        if size == 0 {
            let hash = hash.finalize();
            return PayloadDigest { bytes, hash };
        }
        hash.update(&chunk[..size]);
        bytes += size as u64;
    }
}

/// Length of a body of which only the beginning is sent.
const HUGE: u64 = 1 << 40;

pub(crate) fn truncated_body_never_looks_complete(chain: &Chain, family: &Addresses) {
    for framing in [Framing::Length, Framing::Chunked, Framing::Close] {
        eprintln!("RST in a response with {framing:?}");
        let mut exchange = partial_response(chain, family, framing);
        reset(exchange.server);
        assert_reset(&exchange.client);
        if framing == Framing::Close {
            continue;
        }
        eprintln!("FIN in a response with {framing:?}");
        exchange = partial_response(chain, family, framing);
        drop(exchange.server);
        assert_reset(&exchange.client);
    }
    for framing in [Framing::Length, Framing::Chunked] {
        eprintln!("RST, then FIN, in a request with {framing:?}");
        let exchange = partial_request(chain, family, framing);
        reset(exchange.client);
        assert_reset(&exchange.server);
        let exchange = partial_request(chain, family, framing);
        drop(exchange.client);
        assert_reset(&exchange.server);
    }
}

/// Exchange in which the response's head and the beginning of its body have arrived.
fn partial_response(chain: &Chain, family: &Addresses, framing: Framing) -> Exchange {
    // HTTP/1.0 clients receive no chunks.
    let version = if framing == Framing::Close {
        "HTTP/1.0"
    } else {
        "HTTP/1.1"
    };
    let mut exchange = start_exchange(chain, family, ["GET", version, ""]);
    response(&exchange.server, &framing.field(HUGE));
    send_beginning(&mut exchange.server, framing);
    assert_eq!(
        self::framing(&read_http_head(&mut exchange.client)),
        framing
    );
    read_beginning(&mut exchange.client, framing);
    exchange
}

/// Exchange in which the request's head and the beginning of its body have arrived.
fn partial_request(chain: &Chain, family: &Addresses, framing: Framing) -> Exchange {
    let mut exchange = start_exchange(chain, family, ["POST", "HTTP/1.1", &framing.field(HUGE)]);
    send_beginning(&mut exchange.client, framing);
    read_beginning(&mut exchange.server, framing);
    exchange
}

fn send_beginning(to: &mut TcpStream, framing: Framing) {
    let frame = if framing == Framing::Chunked {
        "3\r\nabc\r\n"
    } else {
        "abc"
    };
    to.write_all(frame.as_bytes()).unwrap();
}

fn read_beginning(from: &mut TcpStream, framing: Framing) {
    let mut received = vec![0; if framing == Framing::Chunked { 8 } else { 3 }];
    from.read_exact(&mut received).unwrap();
    assert!(received.windows(3).any(|window| window == b"abc"));
}

/// The client stalls: the server's writes stop, and continue when the client reads.
pub(crate) fn slow_reader_stops_server(chain: &Chain, family: &Addresses) {
    let relays = chain.relays.len() as u64;
    // Three times, as the kernel may allocate more than it reports.
    let room = 3 * ((relays + 1) * 2 * BUFFER_MAX + relays * (1 << 20));
    let bytes = room + (1 << 20);
    let exchange = start_exchange(chain, family, ["GET", "HTTP/1.0", ""]);
    response(&exchange.server, &Framing::Close.field(bytes));
    let written = AtomicU64::new(0);
    scope(|scope| {
        let sent = scope.spawn(|| {
            let on_write = |bytes| {
                written.fetch_add(bytes, Relaxed);
            };
            let sent = send(&exchange.server, 1, bytes, on_write).unwrap();
            exchange.server.shutdown(Shutdown::Write).unwrap();
            sent
        });
        let stalled_at = settled_value(&written);
        assert!(stalled_at < room, "{stalled_at} bytes written");
        read_http_head(&mut &exchange.client);
        let received = receive_after(&[], &exchange.client).unwrap();
        assert!(received == sent.join().unwrap(), "{} bytes", received.bytes);
    });
}

/// The client reads nothing and resets: the reset reaches the server although all buffers are full.
pub(crate) fn reset_overtakes_full_response(chain: &Chain, family: &Addresses) {
    let exchange = start_exchange(chain, family, ["GET", "HTTP/1.1", ""]);
    response(&exchange.server, &Framing::Length.field(HUGE));
    fill(&exchange.server);
    reset(exchange.client);
    assert_reset_noticed(&exchange.server);
}
