// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP messages at the edges of framing: lengths given twice, transfer codings, CONNECT with a length, bodies that
//! their client cuts short, SHOUTcast and HTTP/0.9, and clients that leave before the response.

use longhaul_testnet::relay_process::{
    Relay, accept, assert_reset, connect, listen_as_origin, parse_http_status, read_array,
    read_http_head, transfer_both_ways,
};
use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

const ANY: &str = "127.0.0.1:0";

struct Fixture {
    _relay: Relay,
    client: TcpStream,
    listener: TcpListener,
    at: SocketAddr,
}

fn fixture(flags: &[&str]) -> Fixture {
    let relay = Relay::start(&[&["--http", ANY], flags].concat());
    let (listener, at) = listen_as_origin();
    Fixture {
        client: connect(relay.address("http")),
        _relay: relay,
        listener,
        at,
    }
}

impl Fixture {
    /// Sends `text`, in which `AT` stands for the origin's address.
    fn ask(&mut self, text: &str) {
        send(&mut self.client, &text.replace("AT", &self.at.to_string()));
    }

    /// Sends a GET. Returns the origin's connection, from which its head is read.
    fn request(&mut self) -> TcpStream {
        self.ask("GET http://AT/ HTTP/1.1\nHost: x\n\n");
        let mut server = accept(&self.listener);
        read_http_head(&mut server);
        server
    }

    /// Sends a GET, and `answer` back. Returns the head that the client gets.
    fn exchange(&mut self, answer: &str) -> String {
        let mut server = self.request();
        send(&mut server, answer);
        read_http_head(&mut self.client)
    }

    fn read_rest(&mut self) -> String {
        let mut rest = String::new();
        self.client.read_to_string(&mut rest).unwrap();
        rest
    }
}

fn send(stream: &mut TcpStream, text: &str) {
    let text = text.replace('\n', "\r\n");
    stream.write_all(text.as_bytes()).unwrap();
}

const EMPTY: &str = "HTTP/1.1 200 OK\nContent-Length: 0\n\n";

#[test]
fn identical_lengths_are_one() {
    for fields in [
        "Content-Length: 3, 3",
        "Content-Length: 3\nContent-Length: 3",
    ] {
        let mut responding = fixture(&[]);
        let head = responding.exchange(&format!("HTTP/1.1 200 OK\n{fields}\n\nabc"));
        let lengths = head.to_lowercase().matches("content-length: 3\r\n").count();
        assert_eq!((parse_http_status(&head), lengths), (200, 1), "{head}");
        assert!(!head.contains("3, 3"), "{head}");
        assert_eq!(read_array(&mut responding.client), *b"abc");
        let mut fixture = fixture(&[]);
        fixture.ask(&format!(
            "POST http://AT/ HTTP/1.1\nHost: x\n{fields}\n\nabc"
        ));
        let mut server = accept(&fixture.listener);
        let head = read_http_head(&mut server);
        assert!(head.contains("Content-Length: 3\r\n"), "{head}");
        assert!(!head.contains("3, 3"), "{head}");
        assert_eq!(read_array(&mut server), *b"abc");
        send(&mut server, EMPTY);
        assert_eq!(parse_http_status(&read_http_head(&mut fixture.client)), 200);
    }
}

#[test]
fn different_lengths_of_a_response_are_an_error() {
    for fields in [
        "Content-Length: 3, 4",
        "Content-Length: 3\nContent-Length: 4",
    ] {
        let head = fixture(&[]).exchange(&format!("HTTP/1.1 200 OK\n{fields}\n\nabcd"));
        assert_eq!(parse_http_status(&head), 502, "{head}");
    }
}

/// The coding would be lost, because each hop frames the body anew.
#[test]
fn refuses_transfer_codings_in_both_directions() {
    for fields in [
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: GZIP\nTransfer-Encoding: chunked",
        "Transfer-Encoding: x-own, chunked",
    ] {
        let mut fixture = fixture(&[]);
        let head = fixture.exchange(&format!("HTTP/1.1 200 OK\n{fields}\n\n1\nz\n0\n\n"));
        assert_eq!(parse_http_status(&head), 502, "{head}");
        assert!(head.contains("http_response_transfer_coding"), "{head}");
    }
    for fields in [
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: deflate\nTransfer-Encoding: chunked",
    ] {
        let mut fixture = fixture(&[]);
        fixture.ask(&format!(
            "POST http://AT/ HTTP/1.1\nHost: x\n{fields}\n\n1\nz\n0\n\n"
        ));
        let answer = fixture.read_rest();
        assert!(answer.starts_with("HTTP/1.1 501 "), "{answer}");
        assert!(answer.contains("chunked is"), "{answer}");
    }
}

/// `identity` is no coding, and a response without a body has none.
#[test]
fn relays_messages_that_no_coding_changes() {
    let mut identity = fixture(&[]);
    let head = identity.exchange("HTTP/1.1 200 OK\nTransfer-Encoding: identity\n\nabc");
    assert_eq!(parse_http_status(&head), 200);
    assert!(identity.read_rest_of_chunks().contains("abc"));
    let mut empty = fixture(&[]);
    let head = empty.exchange("HTTP/1.1 304 Not Modified\nTransfer-Encoding: gzip, chunked\n\n");
    assert_eq!(parse_http_status(&head), 304, "{head}");
}

impl Fixture {
    fn read_rest_of_chunks(&mut self) -> String {
        let mut rest = Vec::new();
        while !rest.ends_with(b"0\r\n\r\n") {
            rest.extend(read_array::<1>(&mut self.client));
        }
        String::from_utf8(rest).unwrap()
    }
}

/// The bytes behind the head belong to the tunnel (RFC 9110 §9.3.6).
#[test]
fn connect_with_a_length_swallows_no_byte() {
    for fields in [
        "Content-Length: 5",
        "Content-Length: 0",
        "Transfer-Encoding: chunked",
        "Content-Length: 5\nTransfer-Encoding: chunked",
    ] {
        let mut fixture = fixture(&[]);
        fixture.ask(&format!(
            "CONNECT AT HTTP/1.1\nHost: a\n{fields}\n\nGET /x HTTP/1.1\nHost: a\n\n"
        ));
        let mut server = accept(&fixture.listener);
        let head = read_http_head(&mut server);
        assert_eq!(head, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n", "{fields}");
        assert_eq!(parse_http_status(&read_http_head(&mut fixture.client)), 200);
        transfer_both_ways(&fixture.client, &server, 1);
    }
}

/// Bytes behind a refused CONNECT with a length may be its body, and are no request.
#[test]
fn refused_connect_with_a_length_closes() {
    let users = tempfile::NamedTempFile::new().unwrap();
    fs::write(&users, "me:secret\n").unwrap();
    fs::set_permissions(&users, fs::Permissions::from_mode(0o600)).unwrap();
    let mut fixture = fixture(&["--users", users.path().to_str().unwrap()]);
    fixture.ask("CONNECT AT HTTP/1.1\nHost: a\nContent-Length: 5\n\nabcde");
    let answer = fixture.read_rest();
    assert!(answer.starts_with("HTTP/1.1 407 "), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
}

#[test]
fn truncated_request_is_client_error() {
    for (field, body) in [
        ("Transfer-Encoding: chunked", "3\nabc\n"),
        ("Transfer-Encoding: chunked", "5\nabc"),
        ("Content-Length: 9", "abc"),
    ] {
        let mut fixture = fixture(&[]);
        fixture.ask(&format!(
            "POST http://AT/ HTTP/1.1\nHost: x\n{field}\n\n{body}"
        ));
        let mut server = accept(&fixture.listener);
        read_http_head(&mut server);
        fixture.client.shutdown(Shutdown::Write).unwrap();
        let answer = fixture.read_rest();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.contains("cut short"), "{answer}");
        assert!(!answer.contains("origin"), "{answer}");
        let mut rest = Vec::new();
        assert!(server.read_to_end(&mut rest).is_err(), "a clean end");
    }
}

/// The status line may come in pieces. Nothing limits the stream but the end of the connection.
#[test]
fn relays_shoutcast() {
    for pieces in [
        &["ICY 200 OK\nicy-name: x\n\nabc"][..],
        &["IC", "Y 200 OK\n", "\nabc"],
    ] {
        let mut fixture = fixture(&[]);
        fixture.ask("GET http://AT/ HTTP/1.0\nHost: x\n\n");
        let mut server = accept(&fixture.listener);
        read_http_head(&mut server);
        server.set_nodelay(true).unwrap();
        for piece in pieces {
            send(&mut server, piece);
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(server);
        let answer = fixture.read_rest();
        assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nabc"), "{answer}");
    }
}

#[test]
fn response_without_a_status_line_is_named() {
    for answer in ["<html>hello</html>\n", "SSH-2.0-x\n"] {
        let mut fixture = fixture(&[]);
        let head = fixture.exchange(answer);
        assert_eq!(parse_http_status(&head), 502, "{answer}");
        let len: usize = head
            .split("\r\n")
            .find_map(|line| {
                line.to_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            })
            .unwrap();
        let mut body = vec![0; len];
        fixture.client.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        assert!(body.contains("must be HTTP/1.1, HTTP/1.0 or ICY"), "{body}");
    }
}

/// The client's connection goes on, so the origin must not wait for its end.
#[test]
fn origin_that_sends_no_http_is_reset() {
    let mut fixture = fixture(&[]);
    let mut server = fixture.request();
    let error = loop {
        if let Err(error) = server.write_all(&[b'x'; 1 << 16]) {
            break error.kind();
        }
    };
    let is_reset = matches!(error, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    assert!(is_reset, "{error}");
    assert_eq!(parse_http_status(&read_http_head(&mut fixture.client)), 502);
}

/// An origin that does not wait for the request is served like any other.
#[test]
fn response_before_the_request_is_forwarded() {
    let mut fixture = fixture(&[]);
    fixture.ask("GET http://AT/ HTTP/1.1\nHost: x\n\n");
    let mut server = accept(&fixture.listener);
    send(&mut server, "HTTP/1.1 200 OK\nContent-Length: 2\n\n");
    server.write_all(b"ab").unwrap();
    assert_eq!(parse_http_status(&read_http_head(&mut fixture.client)), 200);
}

/// A long poll: the origin learns that the client has gone, directly and over a peer.
#[test]
fn origin_learns_that_a_waiting_client_has_gone() {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    for flags in [&[][..], &["--peer", &peer]] {
        let mut fixture = fixture(flags);
        let mut server = fixture.request();
        let start = Instant::now();
        drop(fixture.client);
        assert_reset(&mut server);
        // TCP itself finds it after a minute at the earliest.
        assert!(start.elapsed() < Duration::from_secs(50));
    }
}

/// A client that has only finished sending waits for its response, after an interim one.
#[test]
fn half_closed_client_gets_its_response() {
    for version in ["HTTP/1.1", "HTTP/1.0"] {
        let mut fixture = fixture(&[]);
        fixture.ask(&format!("GET http://AT/ {version}\nHost: x\n\n"));
        fixture.client.shutdown(Shutdown::Write).unwrap();
        let mut server = accept(&fixture.listener);
        read_http_head(&mut server);
        std::thread::sleep(Duration::from_secs(2));
        send(&mut server, "HTTP/1.1 200 OK\nContent-Length: 3\n\nabc");
        let answer = fixture.read_rest();
        let interim = answer.starts_with("HTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(interim, version == "HTTP/1.1", "{answer}");
        assert!(
            answer.contains(&format!("{version} 200 OK\r\n")),
            "{answer}"
        );
        assert!(answer.ends_with("\r\n\r\nabc"), "{answer}");
    }
}
