// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests for `http://` URIs, where no half-close ends a body but its framing does: every framing
//! arrives whole and at once in both directions, and a body that was cut short never looks whole.

use crate::{
    relay_conformance::ends::{assert_reset, assert_reset_noticed, reset},
    relay_conformance::flow::{at_rest, fill},
    relay_conformance::payload::{Seen, receive_after, send},
    relay_conformance::way::{BUFFER_MAX, Chain, Goal, accept},
};
use longhaul_testnet::{
    relay_process::{connect, http_head},
    relay_testbed::Family,
};
use sha2::{Digest, Sha256};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::scope,
};

/// How a body says where it ends (RFC 9112 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length,
    Chunked,
    /// Responses only: by the end of the connection.
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

/// A client that has asked and a server that has heard the question's head.
struct Asked {
    client: TcpStream,
    server: TcpStream,
}

fn ask(chain: &Chain, family: &Family, asked: [&str; 3]) -> Asked {
    let [method, version, fields] = asked;
    let door = (family.near, 3128).into();
    let mut client = chain.testbed.client.run(|| Ok(connect(door))).unwrap();
    let at = Goal::Origin.address(family);
    let head = format!("{method} http://{at}/ {version}\r\nHost: {at}\r\n{fields}\r\n");
    client.write_all(head.as_bytes()).unwrap();
    let mut server = accept(chain.origin(family));
    let head = http_head(&mut server);
    assert!(head.starts_with(method), "{head}");
    Asked { client, server }
}

fn answer(mut server: &TcpStream, fields: &str) {
    let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
    server.write_all(head.as_bytes()).unwrap();
}

pub(crate) fn bodies_of_every_framing_arrive_whole(chain: &Chain, family: &Family) {
    const BYTES: u64 = (6 << 20) + 1;
    for asked in [Framing::Length, Framing::Chunked] {
        for answered in [Framing::Length, Framing::Chunked, Framing::Close] {
            eprintln!("asked with {asked:?}, answered with {answered:?}");
            let ends = ask(chain, family, ["POST", "HTTP/1.1", &asked.field(BYTES)]);
            both_bodies(&ends, asked, answered, BYTES);
        }
    }
}

fn both_bodies(ends: &Asked, asked: Framing, answered: Framing, bytes: u64) {
    let both_done = Barrier::new(2);
    scope(|scope| {
        let up = scope.spawn(|| send_body(&ends.client, asked, 1, bytes));
        let down = scope.spawn(|| {
            answer(&ends.server, &answered.field(bytes));
            let sent = send_body(&ends.server, answered, 2, bytes);
            // Who ends a connection has no use for the rest of a request (RFC 9112 §9.5).
            both_done.wait();
            if answered == Framing::Close {
                ends.server.shutdown(Shutdown::Write).unwrap();
            }
            sent
        });
        let heard = scope.spawn(|| {
            let heard = receive_body(&ends.server, asked, bytes);
            both_done.wait();
            heard
        });
        let framed = framing(&http_head(&mut &ends.client));
        let answer = receive_body(&ends.client, framed, bytes);
        assert!(heard.join().unwrap() == up.join().unwrap(), "the request's");
        assert!(answer == down.join().unwrap(), "the response's");
    });
}

/// As the relay has framed it anew.
fn framing(head: &str) -> Framing {
    let head = head.to_lowercase();
    match () {
        () if head.contains("transfer-encoding: chunked") => Framing::Chunked,
        () if head.contains("content-length: ") => Framing::Length,
        () => Framing::Close,
    }
}

fn send_body(to: &TcpStream, framing: Framing, seed: u64, bytes: u64) -> Seen {
    if framing != Framing::Chunked {
        return send(to, seed, bytes, |_| ()).unwrap();
    }
    // What `send` writes, in chunks that fit no buffer.
    const CHUNK: usize = 40_001;
    let (content, mut hash) = (vec![seed as u8; CHUNK], Sha256::new());
    let (mut to, mut left) = (to, bytes as usize);
    while left > 0 {
        let chunk = &content[..CHUNK.min(left)];
        let framed = [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
        to.write_all(&framed).unwrap();
        hash.update(chunk);
        left -= chunk.len();
    }
    to.write_all(b"0\r\n\r\n").unwrap();
    let sha256 = hash.finalize().to_vec();
    Seen { bytes, sha256 }
}

fn receive_body(from: &TcpStream, framing: Framing, bytes: u64) -> Seen {
    match framing {
        Framing::Close => receive_after(&[], from).unwrap(),
        Framing::Length => seen(&mut from.take(bytes)),
        Framing::Chunked => dechunk(&mut BufReader::new(from)),
    }
}

fn seen(from: &mut impl Read) -> Seen {
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut block = vec![0; 1 << 16];
    while let read @ 1.. = from.read(&mut block).unwrap() {
        hash.update(&block[..read]);
        bytes += read as u64;
    }
    let sha256 = hash.finalize().to_vec();
    Seen { bytes, sha256 }
}

fn dechunk(from: &mut impl BufRead) -> Seen {
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    loop {
        let mut size = String::new();
        from.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim_end(), 16).expect(&size);
        let mut chunk = vec![0; size + 2];
        from.read_exact(&mut chunk).unwrap();
        assert_eq!(&chunk[size..], b"\r\n");
        if size == 0 {
            let sha256 = hash.finalize().to_vec();
            return Seen { bytes, sha256 };
        }
        hash.update(&chunk[..size]);
        bytes += size as u64;
    }
}

/// A great body of which only the beginning will come.
const GREAT: u64 = 1 << 40;

pub(crate) fn a_body_that_is_cut_short_never_looks_whole(chain: &Chain, family: &Family) {
    for framing in [Framing::Length, Framing::Chunked, Framing::Close] {
        eprintln!("RST in a response with {framing:?}");
        let mut ends = halfway(chain, family, framing);
        reset(ends.server);
        assert_reset(&ends.client);
        if framing == Framing::Close {
            continue;
        }
        eprintln!("FIN in a response with {framing:?}");
        ends = halfway(chain, family, framing);
        drop(ends.server);
        assert_reset(&ends.client);
    }
    for framing in [Framing::Length, Framing::Chunked] {
        eprintln!("RST, then FIN, in a request with {framing:?}");
        let ends = halfway_up(chain, family, framing);
        reset(ends.client);
        assert_reset(&ends.server);
        let ends = halfway_up(chain, family, framing);
        drop(ends.client);
        assert_reset(&ends.server);
    }
}

/// A response's head and the beginning of its body have arrived.
fn halfway(chain: &Chain, family: &Family, framing: Framing) -> Asked {
    // Who speaks 1.0 gets no chunks.
    let version = if framing == Framing::Close {
        "HTTP/1.0"
    } else {
        "HTTP/1.1"
    };
    let mut ends = ask(chain, family, ["GET", version, ""]);
    answer(&ends.server, &framing.field(GREAT));
    begin(&mut ends.server, framing);
    assert_eq!(self::framing(&http_head(&mut ends.client)), framing);
    hear_beginning(&mut ends.client, framing);
    ends
}

/// The same of a request.
fn halfway_up(chain: &Chain, family: &Family, framing: Framing) -> Asked {
    let mut ends = ask(chain, family, ["POST", "HTTP/1.1", &framing.field(GREAT)]);
    begin(&mut ends.client, framing);
    hear_beginning(&mut ends.server, framing);
    ends
}

fn begin(to: &mut TcpStream, framing: Framing) {
    let frame = if framing == Framing::Chunked {
        "3\r\nabc\r\n"
    } else {
        "abc"
    };
    to.write_all(frame.as_bytes()).unwrap();
}

fn hear_beginning(from: &mut TcpStream, framing: Framing) {
    let mut heard = vec![0; if framing == Framing::Chunked { 8 } else { 3 }];
    from.read_exact(&mut heard).unwrap();
    assert!(heard.windows(3).any(|window| window == b"abc"));
}

/// The client stops to read: the server's writes stop, too, and go on with it.
pub(crate) fn a_slow_reader_stops_the_server(chain: &Chain, family: &Family) {
    const BYTES: u64 = 64 << 20;
    let ends = ask(chain, family, ["GET", "HTTP/1.0", ""]);
    answer(&ends.server, &Framing::Close.field(BYTES));
    let taken = AtomicU64::new(0);
    let relays = chain.relays.len() as u64;
    let room = (relays + 1) * 2 * BUFFER_MAX + relays * (1 << 20);
    scope(|scope| {
        let sent = scope.spawn(|| {
            let on_write = |bytes| {
                taken.fetch_add(bytes, Relaxed);
            };
            let sent = send(&ends.server, 1, BYTES, on_write).unwrap();
            ends.server.shutdown(Shutdown::Write).unwrap();
            sent
        });
        let stalled_at = at_rest(&taken);
        assert!(
            stalled_at < 3 * room && 3 * room < BYTES,
            "{stalled_at} bytes taken"
        );
        http_head(&mut &ends.client);
        let received = receive_after(&[], &ends.client).unwrap();
        assert!(received == sent.join().unwrap(), "{} bytes", received.bytes);
    });
}

/// A client that reads nothing and resets: the server hears of it although all is full.
pub(crate) fn a_reset_passes_a_full_response(chain: &Chain, family: &Family) {
    let ends = ask(chain, family, ["GET", "HTTP/1.1", ""]);
    answer(&ends.server, &Framing::Length.field(GREAT));
    fill(&ends.server);
    reset(ends.client);
    assert_reset_noticed(&ends.server);
}
