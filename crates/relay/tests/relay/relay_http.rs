// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP proxy: framing in both directions, upgrades, users, retries, and time-outs.

use longhaul_protocol::convert::{Answer, ErrorCode, Request};
use longhaul_testnet::relay_process::{
    Relay, accept, assert_reset, connect, listen_as_origin, parse_http_status, read_array,
    read_http_head, transfer_both_ways,
};
use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

const ANY: &str = "127.0.0.1:0";

/// A relay, its client, and an origin.
struct Fixture {
    relay: Relay,
    client: TcpStream,
    listener: TcpListener,
    at: String,
}

fn fixture(more: &[&str]) -> Fixture {
    let relay = Relay::start(&[&["--http", ANY], more].concat());
    let (listener, at) = listen_as_origin();
    Fixture {
        client: connect(relay.address("http")),
        relay,
        listener,
        at: at.to_string(),
    }
}

impl Fixture {
    /// Sends `head` and the empty line; `AT` stands for the origin's address.
    fn ask(&mut self, head: &str) {
        let head = head.replace("AT", &self.at).replace('\n', "\r\n");
        // One write: a relay that rejects the beginning may close before a second one.
        let bytes = [head.as_bytes(), b"\r\n\r\n"].concat();
        self.client.write_all(&bytes).unwrap();
    }

    fn status(&mut self) -> u16 {
        parse_http_status(&read_http_head(&mut self.client))
    }
}

fn send(stream: &mut TcpStream, text: &str) {
    stream
        .write_all(text.replace('\n', "\r\n").as_bytes())
        .unwrap();
}

fn expect(stream: &mut TcpStream, text: &str) {
    let want = text.replace('\n', "\r\n");
    let mut got = vec![0; want.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), want);
}

#[test]
fn rejects_ambiguous_lengths() {
    for head in [
        "POST http://AT/ HTTP/1.1\nHost: x\nContent-Length: 3\nContent-Length: 4",
        "POST http://AT/ HTTP/1.1\nHost: x\nContent-Length: 3, 4",
        "POST http://AT/ HTTP/1.1\nHost: x\nContent-Length: +3",
        "POST http://AT/ HTTP/1.1\nHost: x\nContent-Length : 3",
        "POST http://AT/ HTTP/1.1\nHost: x\nTransfer-Encoding: chunked, gzip",
        "POST http://AT/ HTTP/1.1\nHost: x\nTransfer-Encoding: xchunked",
        "POST http://AT/ HTTP/1.0\nHost: x\nTransfer-Encoding: chunked",
        "POST http://AT/ HTTP/1.1\nHost: x\nX: 1\n Transfer-Encoding: chunked",
    ] {
        let mut fixture = fixture(&[]);
        fixture.ask(head);
        assert_eq!(fixture.status(), 400, "{head}");
        fixture.listener.set_nonblocking(true).unwrap();
        let nobody = fixture.listener.accept().unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::WouldBlock, "{head}");
    }
}

/// Transfer-Encoding overrides Content-Length, which must not be forwarded, and the connection must
/// be closed after the response (RFC 9112 §6.1).
#[test]
fn chunked_overrides_content_length_and_closes() {
    for (first, second) in [
        ("Content-Length: 6", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 6"),
    ] {
        let mut fixture = fixture(&[]);
        fixture.ask(&format!(
            "POST http://AT/ HTTP/1.1\nHost: x\n{first}\n{second}"
        ));
        send(
            &mut fixture.client,
            "0\n\nGET http://smuggled.invalid/ HTTP/1.1\nHost: x\n\n",
        );
        let mut server = accept(&fixture.listener);
        let seen = read_http_head(&mut server).to_ascii_lowercase();
        assert!(seen.contains("transfer-encoding: chunked"), "{seen}");
        assert!(!seen.contains("content-length"), "{seen}");
        expect(&mut server, "0\n\n");
        send(&mut server, "HTTP/1.1 200 OK\nContent-Length: 0\n\n");
        assert_eq!(fixture.status(), 200);
        let mut rest = Vec::new();
        let _ = fixture.client.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    }
}

#[test]
fn rejects_oversized_heads() {
    for head in [
        format!(
            "GET http://AT/ HTTP/1.1\nHost: x\nX: {}",
            "x".repeat(70_000)
        ),
        format!("GET http://AT/ HTTP/1.1\nHost: x{}", "\nX: x".repeat(600)),
    ] {
        let mut fixture = fixture(&[]);
        fixture.ask(&head);
        assert_eq!(fixture.status(), 431);
    }
}

#[test]
fn relays_chunks_and_trailers_both_ways() {
    let mut fixture = fixture(&[]);
    let chunked = "Transfer-Encoding: chunked\nTrailer: X-Sum";
    fixture.ask(&format!(
        "PUT http://AT/ HTTP/1.1\nHost: x\nTE: trailers\n{chunked}"
    ));
    send(&mut fixture.client, "3\nabc\n");
    let mut server = accept(&fixture.listener);
    let seen = read_http_head(&mut server).to_ascii_lowercase();
    assert!(seen.contains("te: trailers"), "{seen}");
    // The body is streamed: this chunk arrives before the next one is sent.
    expect(&mut server, "3\nabc\n");
    send(&mut fixture.client, "2\nde\n0\nX-Sum: 5\n\n");
    expect(&mut server, "2\nde\n");
    let trailers = read_http_head(&mut server).to_ascii_lowercase();
    assert_eq!(trailers, "0\r\nx-sum: 5\r\n\r\n");
    send(
        &mut server,
        &format!("HTTP/1.1 200 OK\n{chunked}\n\n1\nz\n0\nX-Sum: 1\n\n"),
    );
    assert_eq!(fixture.status(), 200);
    expect(&mut fixture.client, "1\nz\n");
    let trailers = read_http_head(&mut fixture.client).to_ascii_lowercase();
    assert_eq!(trailers, "0\r\nx-sum: 1\r\n\r\n");
}

#[test]
fn forwards_100_continue() {
    let mut fixture = fixture(&[]);
    fixture.ask("POST http://AT/ HTTP/1.1\nHost: x\nContent-Length: 2\nExpect: 100-continue");
    let mut server = accept(&fixture.listener);
    read_http_head(&mut server);
    send(&mut server, "HTTP/1.1 100 Continue\n\n");
    assert_eq!(fixture.status(), 100);
    send(&mut fixture.client, "ab");
    expect(&mut server, "ab");
    send(&mut server, "HTTP/1.1 201 Created\nContent-Length: 0\n\n");
    assert_eq!(fixture.status(), 201);
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    let mut fixture = fixture(&[]);
    let mut server = None;
    for (method, response) in [
        ("HEAD", "200 OK\nContent-Length: 1000"),
        ("HEAD", "200 OK\nTransfer-Encoding: chunked"),
        ("GET", "204 No Content"),
        ("GET", "304 Not Modified"),
    ] {
        fixture.ask(&format!("{method} http://AT/ HTTP/1.1\nHost: x"));
        let server = server.get_or_insert_with(|| accept(&fixture.listener));
        read_http_head(server);
        send(server, &format!("HTTP/1.1 {response}\n\n"));
        let head = read_http_head(&mut fixture.client);
        assert!(
            head.starts_with(&format!("HTTP/1.1 {}", &response[..3])),
            "{head}"
        );
        // The length that a GET would have (RFC 9110 §8.6).
        let length = head.to_ascii_lowercase().contains("content-length: 1000");
        assert_eq!(
            length,
            method == "HEAD" && response.contains("1000"),
            "{head}"
        );
    }
    // If one of the responses had a body, it would be read here.
    fixture.ask("GET http://AT/ HTTP/1.1\nHost: x");
    let mut server = server.unwrap();
    read_http_head(&mut server);
    send(&mut server, "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi");
    assert_eq!(fixture.status(), 200);
    expect(&mut fixture.client, "hi");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let mut fixture = fixture(&[]);
    let get = |path: &str| format!("GET http://AT/{path} HTTP/1.1\nHost: x");
    fixture.ask(&[get("a"), get("b"), get("c")].join("\n\n"));
    let mut server = accept(&fixture.listener);
    for path in ["a", "b", "c"] {
        let seen = read_http_head(&mut server);
        assert!(seen.starts_with(&format!("GET /{path} ")), "{seen}");
        send(
            &mut server,
            &format!("HTTP/1.1 200 OK\nContent-Length: 1\n\n{path}"),
        );
    }
    for path in ["a", "b", "c"] {
        assert_eq!(fixture.status(), 200);
        expect(&mut fixture.client, path);
    }
}

#[test]
fn upgrades_become_tunnels() {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    for peers in [vec![], vec!["--peer", &peer]] {
        let mut fixture = fixture(&peers);
        fixture
            .ask("GET http://AT/chat HTTP/1.1\nHost: x\nConnection: Upgrade\nUpgrade: websocket");
        let mut server = accept(&fixture.listener);
        let seen = read_http_head(&mut server).to_ascii_lowercase();
        assert!(seen.contains("upgrade: websocket"), "{seen}");
        let switch =
            "HTTP/1.1 101 Switching Protocols\nConnection: upgrade\nUpgrade: websocket\n\n";
        send(&mut server, &format!("{switch}welcome"));
        let head = read_http_head(&mut fixture.client).to_ascii_lowercase();
        assert_eq!(parse_http_status(&head), 101);
        assert!(head.contains("upgrade: websocket"), "{head}");
        expect(&mut fixture.client, "welcome");
        transfer_both_ways(&fixture.client, &server, 3);
    }
}

#[test]
fn declined_upgrade_is_ordinary_response() {
    let mut fixture = fixture(&[]);
    fixture.ask("GET http://AT/ HTTP/1.1\nHost: x\nConnection: Upgrade\nUpgrade: h2c");
    let mut server = accept(&fixture.listener);
    for _ in 0..2 {
        read_http_head(&mut server);
        send(&mut server, "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi");
        assert_eq!(fixture.status(), 200);
        expect(&mut fixture.client, "hi");
        fixture.ask("GET http://AT/ HTTP/1.1\nHost: x");
    }
}

fn users() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, "me:secret\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

#[test]
fn requires_password_of_users() {
    let file = users();
    let mut fixture = fixture(&["--users", file.path().to_str().unwrap()]);
    // "me:wrong" and "me:secret".
    for field in ["", "\nProxy-Authorization: Basic bWU6d3Jvbmc="] {
        for head in ["CONNECT AT HTTP/1.1", "GET http://AT/ HTTP/1.1"] {
            fixture.ask(&format!("{head}\nHost: x{field}"));
            let head = read_http_head(&mut fixture.client);
            assert_eq!(parse_http_status(&head), 407, "{head}");
            assert!(head.contains("Basic realm="), "{head}");
            let body = "longhaul relay: this proxy requires a user and a password\n";
            fixture.client.read_exact(&mut vec![0; body.len()]).unwrap();
        }
    }
    fixture.ask("GET http://AT/ HTTP/1.1\nHost: x\nProxy-Authorization: Basic bWU6c2VjcmV0");
    let mut server = accept(&fixture.listener);
    let seen = read_http_head(&mut server).to_ascii_lowercase();
    assert!(!seen.contains("proxy-authorization"), "{seen}");
    send(&mut server, "HTTP/1.1 200 OK\nContent-Length: 0\n\n");
    assert_eq!(fixture.status(), 200);
}

/// Delays wrong passwords, and logs them once.
#[test]
fn delays_and_logs_wrong_passwords() {
    let file = users();
    let mut fixture = fixture(&["--users", file.path().to_str().unwrap()]);
    let wrong = "GET http://AT/ HTTP/1.1\nHost: x\nProxy-Authorization: Basic bWU6d3Jvbmc=";
    let began = Instant::now();
    for _ in 0..6 {
        fixture.ask(wrong);
        assert_eq!(parse_http_status(&read_http_head(&mut fixture.client)), 407);
        let body = "longhaul relay: this proxy requires a user and a password\n";
        fixture.client.read_exact(&mut vec![0; body.len()]).unwrap();
    }
    // Delays of 100, 200, 400, 800 and 1600 ms.
    assert!(began.elapsed() >= Duration::from_millis(3100));
    let (_, log) = fixture.relay.stop();
    let lines = log
        .lines()
        .filter(|line| line.contains("password is wrong"));
    assert_eq!(lines.count(), 1, "{log}");
}

#[test]
fn answers_max_forwards_zero() {
    let mut fixture = fixture(&[]);
    let end = "HTTP/1.1\nHost: x\nMax-Forwards: 0\nCookie: private";
    fixture.ask(&format!("TRACE http://AT/a {end}"));
    let head = read_http_head(&mut fixture.client).to_ascii_lowercase();
    assert!(head.contains("content-type: message/http"), "{head}");
    let echo = read_http_head(&mut fixture.client);
    assert!(echo.starts_with("TRACE http://"), "{echo}");
    assert!(!echo.contains("private"), "{echo}");
    fixture.ask(&format!("OPTIONS http://AT/ {end}"));
    assert_eq!(fixture.status(), 200);
    fixture.listener.set_nonblocking(true).unwrap();
    assert!(fixture.listener.accept().is_err());
}

#[test]
fn sends_request_before_peer_answers() {
    let (peer, at) = listen_as_origin();
    let mut fixture = fixture(&["--peer", &at.to_string()]);
    fixture.ask("GET http://host.test/a HTTP/1.1\nHost: x");
    let mut far = accept(&peer);
    let mut bytes = Vec::new();
    let request = loop {
        bytes.extend(read_array::<1>(&mut far));
        if let Some((request, _)) = Request::parse(&bytes).unwrap() {
            break request;
        }
    };
    assert_eq!(request.destination.to_string(), "host.test:80");
    // The request arrives before the peer has answered.
    assert!(read_http_head(&mut far).starts_with("GET /a "));
    far.write_all(&Answer::Accepted.encode()).unwrap();
    send(&mut far, "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi");
    assert_eq!(fixture.status(), 200);
    expect(&mut fixture.client, "hi");
}

#[test]
fn maps_peer_refusal_to_http() {
    let refusals = [
        (ErrorCode::ConnectionReset, 502),
        (ErrorCode::NotAuthorized, 403),
        (ErrorCode::ResourceExceeded, 503),
    ];
    for (code, status) in refusals {
        let (peer, at) = listen_as_origin();
        let mut fixture = fixture(&["--peer", &at.to_string()]);
        fixture.ask("GET http://host.test/a HTTP/1.1\nHost: x");
        let mut far = accept(&peer);
        far.write_all(&Answer::Refused { code, detail: 0 }.encode())
            .unwrap();
        assert_eq!(fixture.status(), status);
    }
}

#[test]
fn times_out_silent_and_slow_clients() {
    for sent in ["", "GET http://h.test/ HTTP/1.1\r\nHost: "] {
        let relay = Relay::start(&[
            "--http",
            ANY,
            "--handshake-timeout",
            "300ms",
            "--http-idle-timeout",
            "300ms",
        ]);
        let mut client = connect(relay.address("http"));
        client.write_all(sent.as_bytes()).unwrap();
        // The connection ends by FIN, RST or after a 408; PATIENCE is much longer.
        let mut received = Vec::new();
        let ended = client.read_to_end(&mut received);
        let waited_too_long = ended.err().map(|error| error.kind()) == Some(ErrorKind::WouldBlock);
        assert!(!waited_too_long, "{sent:?}");
    }
}

fn curl(relay: &Relay, args: &[&str]) -> String {
    let proxy = format!("http://{}", relay.address("http"));
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "20", "-x", &proxy])
        .args(args);
    let output = curl.output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Echo server: answers each request with its body, until the connection ends.
fn echo(listener: &TcpListener, connections: usize) {
    for _ in 0..connections {
        let mut server = accept(listener);
        let mut first = [0];
        while matches!(server.read(&mut first), Ok(1)) {
            let head = format!("{}{}", first[0] as char, read_http_head(&mut server));
            let head = head.to_ascii_lowercase();
            let body = if head.contains("transfer-encoding: chunked") {
                chunks(&mut server)
            } else {
                Vec::new()
            };
            let len = body.len();
            send(
                &mut server,
                &format!("HTTP/1.1 200 OK\nContent-Length: {len}\n\n"),
            );
            if !head.starts_with("head") {
                server.write_all(&body).unwrap();
            }
        }
    }
}

fn chunks(server: &mut TcpStream) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.extend(read_array::<1>(server));
        }
        let len = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
        let mut chunk = vec![0; len + 2];
        server.read_exact(&mut chunk).unwrap();
        if len == 0 {
            return body;
        }
        body.extend(&chunk[..len]);
    }
}

#[test]
fn curl_works() {
    let relay = Relay::start(&["--http", ANY]);
    let (listener, at) = listen_as_origin();
    let url = format!("http://{at}/");
    let server = std::thread::spawn(move || echo(&listener, 4));
    let connects = curl(
        &relay,
        &[
            "-o/dev/null",
            &url,
            "-o/dev/null",
            &url,
            "-w%{num_connects} ",
        ],
    );
    assert_eq!(connects, "1 0 ");
    curl(&relay, &["-0", &url]);
    assert!(curl(&relay, &["-I", &url]).starts_with("HTTP/1.1 200"));
    let file = tempfile::NamedTempFile::new().unwrap();
    let body = "0123456789".repeat(100_000);
    fs::write(&file, &body).unwrap();
    let path = file.path().to_str().unwrap();
    let chunked = ["-T", path, "-H", "Transfer-Encoding: chunked", &url];
    assert!(
        curl(&relay, &chunked) == body,
        "the upload came back different"
    );
    drop(relay);
    server.join().unwrap();
}

/// At 8 Mbit/s (1 MB/s), a burst saves 50 ms.
#[test]
fn limits_rate_of_bodies_both_ways() {
    const BODY: usize = 500_000;
    let floor = std::time::Duration::from_millis(400);
    for key in ["rate", "rate_per_client"] {
        let text = format!("[[listener]]\nkind = 'http'\naddress = '{ANY}'\n{key} = '8mbit'\n");
        let relay = Relay::start_with_config(&text, 1);
        let (listener, at) = listen_as_origin();
        let mut client = connect(relay.address("http"));
        let start = std::time::Instant::now();
        write!(
            client,
            "PUT http://{at}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {BODY}\r\n\r\n"
        )
        .unwrap();
        let mut sender = client.try_clone().unwrap();
        let sending = std::thread::spawn(move || sender.write_all(&[b'u'; BODY]).unwrap());
        let mut server = accept(&listener);
        read_http_head(&mut server);
        server.read_exact(&mut vec![0; BODY]).unwrap();
        sending.join().unwrap();
        assert!(start.elapsed() > floor, "up, {key}: {:?}", start.elapsed());

        let start = std::time::Instant::now();
        send(
            &mut server,
            &format!("HTTP/1.1 200 OK\nContent-Length: {BODY}\n\n"),
        );
        let answering = std::thread::spawn(move || server.write_all(&[b'd'; BODY]).unwrap());
        assert_eq!(parse_http_status(&read_http_head(&mut client)), 200);
        client.read_exact(&mut vec![0; BODY]).unwrap();
        answering.join().unwrap();
        assert!(
            start.elapsed() > floor,
            "down, {key}: {:?}",
            start.elapsed()
        );
    }
}

/// If a persistent connection ends during a request, the request is repeated only if it is
/// idempotent (RFC 9110 §9.2.2).
#[test]
fn repeats_idempotent_request_after_stale_connection() {
    for (method, is_repeated) in [("GET", true), ("POST", false)] {
        let mut fixture = fixture(&[]);
        fixture.ask("GET http://AT/1 HTTP/1.1\nHost: x");
        let mut server = accept(&fixture.listener);
        read_http_head(&mut server);
        send(&mut server, "HTTP/1.1 204 No Content\n\n");
        assert_eq!(fixture.status(), 204);
        fixture.ask(&format!(
            "{method} http://AT/2 HTTP/1.1\nHost: x\nContent-Length: 0"
        ));
        let first = read_http_head(&mut server);
        drop(server);
        if is_repeated {
            let mut server = accept(&fixture.listener);
            assert_eq!(read_http_head(&mut server), first);
            send(&mut server, "HTTP/1.1 200 OK\nContent-Length: 0\n\n");
            assert_eq!(fixture.status(), 200);
        } else {
            assert_eq!(fixture.status(), 502);
        }
    }
}

/// A new connection that ends without a response is an error, not a stale connection.
#[test]
fn new_connection_closed_by_origin_is_502() {
    let mut fixture = fixture(&[]);
    fixture.ask("GET http://AT/ HTTP/1.1\nHost: x");
    read_http_head(&mut accept(&fixture.listener));
    assert_eq!(fixture.status(), 502);
    fixture.listener.set_nonblocking(true).unwrap();
    assert!(
        fixture.listener.accept().is_err(),
        "the request was repeated"
    );
}

/// Runs `check` directly, and through another relay.
fn for_each_topology(check: impl Fn(&[&str])) {
    check(&[]);
    let far = Relay::start(&["--convert", ANY]);
    check(&["--peer", &far.address("convert").to_string()]);
}

#[test]
fn silent_origin_is_504() {
    for_each_topology(|peers| {
        for partial in ["", "HTTP/1.1 200 OK\nX: ", "HTTP/1.1 100 Continue\n\n"] {
            let mut fixture = fixture(&[peers, &["--response-timeout", "300ms"]].concat());
            fixture.ask("GET http://AT/ HTTP/1.1\nHost: x");
            let mut server = accept(&fixture.listener);
            read_http_head(&mut server);
            send(&mut server, partial);
            if partial.contains("100") {
                assert_eq!(fixture.status(), 100);
            }
            assert_eq!(fixture.status(), 504, "{partial:?}");
            assert_reset(&mut server);
            // The client may send another request.
            let text = b"longhaul relay: no response from the origin for 300 ms\n";
            assert_eq!(&read_array(&mut fixture.client), text);
            fixture.ask("GET http://AT/ HTTP/1.1\nHost: x");
            let mut server = accept(&fixture.listener);
            read_http_head(&mut server);
            send(&mut server, "HTTP/1.1 204 No Content\n\n");
            assert_eq!(fixture.status(), 204);
        }
    });
}

#[test]
fn stalled_response_body_is_reset() {
    for_each_topology(|peers| {
        for (framing, part) in [
            ("Content-Length: 10", "half"),
            ("Transfer-Encoding: chunked", "4\nhalf\n"),
        ] {
            let mut fixture = fixture(&[peers, &["--response-timeout", "300ms"]].concat());
            fixture.ask("GET http://AT/ HTTP/1.1\nHost: x");
            let mut server = accept(&fixture.listener);
            read_http_head(&mut server);
            send(
                &mut server,
                &format!("HTTP/1.1 200 OK\n{framing}\n\n{part}"),
            );
            assert_eq!(fixture.status(), 200);
            expect(&mut fixture.client, part);
            assert_reset(&mut fixture.client);
            assert_reset(&mut server);
        }
    });
}

/// While the origin is silent, the relay neither reads from the client nor writes to it; the
/// client's reset must still reach the origin.
#[test]
fn relays_client_reset_while_origin_is_silent() {
    for_each_topology(|peers| {
        for partial in [
            "",
            "HTTP/1.1 200 OK\nContent-Length: 10\n\nhalf",
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n4\nhalf\n",
        ] {
            let mut fixture = fixture(peers);
            fixture.ask("GET http://AT/ HTTP/1.1\nHost: x");
            let mut server = accept(&fixture.listener);
            read_http_head(&mut server);
            send(&mut server, partial);
            if !partial.is_empty() {
                assert_eq!(fixture.status(), 200);
                expect(
                    &mut fixture.client,
                    if partial.contains("chunked") {
                        "4\nhalf"
                    } else {
                        "half"
                    },
                );
            }
            let at_once = Some(Duration::ZERO);
            socket2::SockRef::from(&fixture.client)
                .set_linger(at_once)
                .unwrap();
            drop(fixture.client);
            assert_reset(&mut server);
        }
    });
}

/// A transfer of `STEPS` steps is longer than the time-out, without a pause of that length.
const MOVING: [&str; 2] = ["--response-timeout", "1s"];
const STEPS: u64 = 25;
const STEP: Duration = Duration::from_millis(100);

#[test]
fn slow_response_does_not_time_out() {
    let mut fixture = fixture(&MOVING);
    fixture.ask("GET http://AT/ HTTP/1.1\nHost: x");
    let mut server = accept(&fixture.listener);
    read_http_head(&mut server);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {STEPS}\r\n\r\n");
    let drops = std::thread::spawn(move || {
        let body = "x".repeat(STEPS as usize);
        // The head takes as many steps as the body.
        for bytes in head.as_bytes().chunks(2).chain(body.as_bytes().chunks(1)) {
            sleep(STEP);
            server.write_all(bytes).unwrap();
        }
        server
    });
    assert_eq!(fixture.status(), 200);
    expect(&mut fixture.client, &"x".repeat(STEPS as usize));
    drops.join().unwrap();
}

/// An origin that waits for the client does not time out.
#[test]
fn pausing_client_does_not_time_out() {
    const BODY: usize = 64 << 20;
    let mut fixture = fixture(&["--response-timeout", "1s"]);
    fixture.ask("POST http://AT/ HTTP/1.1\nHost: x\nContent-Length: 2");
    send(&mut fixture.client, "a");
    let mut server = accept(&fixture.listener);
    read_http_head(&mut server);
    sleep(Duration::from_secs(2));
    send(&mut fixture.client, "b");
    expect(&mut server, "ab");
    send(
        &mut server,
        &format!("HTTP/1.1 200 OK\nContent-Length: {BODY}\n\n"),
    );
    let sending = std::thread::spawn(move || {
        server.write_all(&vec![b'd'; BODY]).unwrap();
        server
    });
    // All buffers are full, and the client does not read.
    sleep(Duration::from_secs(2));
    assert_eq!(fixture.status(), 200);
    fixture.client.read_exact(&mut vec![0; BODY]).unwrap();
    sending.join().unwrap();
}

/// A peer takes the whole upload at once, and forwards it while nothing moves here.
#[test]
fn slowly_read_upload_does_not_time_out() {
    const BODY: usize = 6 << 20;
    let small = "[profile.upstream]\nsend_buffer = '64KiB'\n";
    let text = format!("{small}[[listener]]\nkind = 'convert'\naddress = '{ANY}'\n");
    let far = Relay::start_with_config(&text, 1);
    let peer = far.address("convert").to_string();
    for peers in [vec![], vec!["--peer", &peer]] {
        let mut fixture = fixture(&[&peers[..], &["--response-timeout", "400ms"]].concat());
        rustix::net::sockopt::set_socket_recv_buffer_size(&fixture.listener, 64 << 10).unwrap();
        let head = format!("PUT http://AT/ HTTP/1.1\nHost: x\nContent-Length: {BODY}");
        fixture.ask(&head);
        let mut client = fixture.client.try_clone().unwrap();
        let sending = std::thread::spawn(move || client.write_all(&vec![b'u'; BODY]).unwrap());
        let mut server = accept(&fixture.listener);
        read_http_head(&mut server);
        for _ in 0..BODY >> 16 {
            sleep(Duration::from_millis(50));
            server.read_exact(&mut [0; 1 << 16]).unwrap();
        }
        sending.join().unwrap();
        send(&mut server, "HTTP/1.1 201 Created\nContent-Length: 0\n\n");
        assert_eq!(fixture.status(), 201, "{peers:?}");
    }
}

/// A server may answer before the request is complete, and close (RFC 9110 §15.5.14).
#[test]
fn relays_early_response_during_upload() {
    for_each_topology(|peers| {
        let mut fixture = fixture(peers);
        let body = vec![b'u'; 64 << 20];
        let len = body.len();
        fixture.ask(&format!(
            "POST http://AT/ HTTP/1.1\nHost: x\nContent-Length: {len}"
        ));
        let mut client = fixture.client.try_clone().unwrap();
        // The write fails once the body is no longer read.
        let sending = std::thread::spawn(move || client.write_all(&body));
        let mut server = accept(&fixture.listener);
        read_http_head(&mut server);
        let close = "Content-Length: 0\nConnection: close";
        send(&mut server, &format!("HTTP/1.1 413 Large\n{close}\n\n"));
        assert_eq!(fixture.status(), 413);
        drop(server);
        assert!(sending.join().unwrap().is_err());
    });
}
