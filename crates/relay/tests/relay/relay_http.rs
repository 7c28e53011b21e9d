// SPDX-License-Identifier: MIT OR Apache-2.0
//! The HTTP proxy message by message: framing both ways, upgrades, users, and no lost round trip.

use longhaul_protocol::convert::{Answer, ErrorCode, Request};
use longhaul_testnet::relay_process::{
    Relay, accept, assert_reset, connect, exchange, http_head, http_status, origin, read_array,
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

/// A relay, a client of it, and an origin.
struct Stage {
    relay: Relay,
    client: TcpStream,
    listener: TcpListener,
    at: String,
}

fn stage(more: &[&str]) -> Stage {
    let relay = Relay::start(&[&["--http", ANY], more].concat());
    let (listener, at) = origin();
    Stage {
        client: connect(relay.address("http")),
        relay,
        listener,
        at: at.to_string(),
    }
}

impl Stage {
    /// `head` without its last line end; `AT` is the origin.
    fn ask(&mut self, head: &str) {
        let head = head.replace("AT", &self.at).replace('\n', "\r\n");
        // In one write: a relay that dislikes the beginning may have closed before a second.
        let bytes = [head.as_bytes(), b"\r\n\r\n"].concat();
        self.client.write_all(&bytes).unwrap();
    }

    fn status(&mut self) -> u16 {
        http_status(&http_head(&mut self.client))
    }
}

fn say(stream: &mut TcpStream, text: &str) {
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
fn ambiguous_lengths_never_reach_an_origin() {
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
        let mut stage = stage(&[]);
        stage.ask(head);
        assert_eq!(stage.status(), 400, "{head}");
        stage.listener.set_nonblocking(true).unwrap();
        let nobody = stage.listener.accept().unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::WouldBlock, "{head}");
    }
}

/// RFC 9112 §6.1: Transfer-Encoding overrides Content-Length, which must not be passed on, and the
/// connection must be closed after the response.
#[test]
fn of_both_lengths_the_chunks_count_and_nothing_follows() {
    for (first, second) in [
        ("Content-Length: 6", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 6"),
    ] {
        let mut stage = stage(&[]);
        stage.ask(&format!(
            "POST http://AT/ HTTP/1.1\nHost: x\n{first}\n{second}"
        ));
        say(
            &mut stage.client,
            "0\n\nGET http://smuggled.invalid/ HTTP/1.1\nHost: x\n\n",
        );
        let mut server = accept(&stage.listener);
        let seen = http_head(&mut server).to_ascii_lowercase();
        assert!(seen.contains("transfer-encoding: chunked"), "{seen}");
        assert!(!seen.contains("content-length"), "{seen}");
        expect(&mut server, "0\n\n");
        say(&mut server, "HTTP/1.1 200 OK\nContent-Length: 0\n\n");
        assert_eq!(stage.status(), 200);
        let mut rest = Vec::new();
        let _ = stage.client.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    }
}

#[test]
fn heads_are_bounded() {
    for head in [
        format!(
            "GET http://AT/ HTTP/1.1\nHost: x\nX: {}",
            "x".repeat(70_000)
        ),
        format!("GET http://AT/ HTTP/1.1\nHost: x{}", "\nX: x".repeat(600)),
    ] {
        let mut stage = stage(&[]);
        stage.ask(&head);
        assert_eq!(stage.status(), 431);
    }
}

#[test]
fn chunks_and_trailers_go_both_ways() {
    let mut stage = stage(&[]);
    let chunked = "Transfer-Encoding: chunked\nTrailer: X-Sum";
    stage.ask(&format!(
        "PUT http://AT/ HTTP/1.1\nHost: x\nTE: trailers\n{chunked}"
    ));
    say(&mut stage.client, "3\nabc\n");
    let mut server = accept(&stage.listener);
    let seen = http_head(&mut server).to_ascii_lowercase();
    assert!(seen.contains("te: trailers"), "{seen}");
    // The body streams: this chunk arrives before the next one is there.
    expect(&mut server, "3\nabc\n");
    say(&mut stage.client, "2\nde\n0\nX-Sum: 5\n\n");
    expect(&mut server, "2\nde\n");
    let trailers = http_head(&mut server).to_ascii_lowercase();
    assert_eq!(trailers, "0\r\nx-sum: 5\r\n\r\n");
    say(
        &mut server,
        &format!("HTTP/1.1 200 OK\n{chunked}\n\n1\nz\n0\nX-Sum: 1\n\n"),
    );
    assert_eq!(stage.status(), 200);
    expect(&mut stage.client, "1\nz\n");
    let trailers = http_head(&mut stage.client).to_ascii_lowercase();
    assert_eq!(trailers, "0\r\nx-sum: 1\r\n\r\n");
}

#[test]
fn a_client_that_waits_for_100_is_told_to_go_on() {
    let mut stage = stage(&[]);
    stage.ask("POST http://AT/ HTTP/1.1\nHost: x\nContent-Length: 2\nExpect: 100-continue");
    let mut server = accept(&stage.listener);
    http_head(&mut server);
    say(&mut server, "HTTP/1.1 100 Continue\n\n");
    assert_eq!(stage.status(), 100);
    say(&mut stage.client, "ab");
    expect(&mut server, "ab");
    say(&mut server, "HTTP/1.1 201 Created\nContent-Length: 0\n\n");
    assert_eq!(stage.status(), 201);
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    let mut stage = stage(&[]);
    let mut server = None;
    for (method, response) in [
        ("HEAD", "200 OK\nContent-Length: 1000"),
        ("HEAD", "200 OK\nTransfer-Encoding: chunked"),
        ("GET", "204 No Content"),
        ("GET", "304 Not Modified"),
    ] {
        stage.ask(&format!("{method} http://AT/ HTTP/1.1\nHost: x"));
        let server = server.get_or_insert_with(|| accept(&stage.listener));
        http_head(server);
        say(server, &format!("HTTP/1.1 {response}\n\n"));
        let head = http_head(&mut stage.client);
        assert!(
            head.starts_with(&format!("HTTP/1.1 {}", &response[..3])),
            "{head}"
        );
        // RFC 9110 §8.6: the length that a GET would have.
        let length = head.to_ascii_lowercase().contains("content-length: 1000");
        assert_eq!(
            length,
            method == "HEAD" && response.contains("1000"),
            "{head}"
        );
    }
    // Had one had a body, this would be it.
    stage.ask("GET http://AT/ HTTP/1.1\nHost: x");
    let mut server = server.unwrap();
    http_head(&mut server);
    say(&mut server, "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi");
    assert_eq!(stage.status(), 200);
    expect(&mut stage.client, "hi");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let mut stage = stage(&[]);
    let get = |path: &str| format!("GET http://AT/{path} HTTP/1.1\nHost: x");
    stage.ask(&[get("a"), get("b"), get("c")].join("\n\n"));
    let mut server = accept(&stage.listener);
    for path in ["a", "b", "c"] {
        let seen = http_head(&mut server);
        assert!(seen.starts_with(&format!("GET /{path} ")), "{seen}");
        say(
            &mut server,
            &format!("HTTP/1.1 200 OK\nContent-Length: 1\n\n{path}"),
        );
    }
    for path in ["a", "b", "c"] {
        assert_eq!(stage.status(), 200);
        expect(&mut stage.client, path);
    }
}

#[test]
fn upgrades_become_tunnels() {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    for peers in [vec![], vec!["--peer", &peer]] {
        let mut stage = stage(&peers);
        stage.ask("GET http://AT/chat HTTP/1.1\nHost: x\nConnection: Upgrade\nUpgrade: websocket");
        let mut server = accept(&stage.listener);
        let seen = http_head(&mut server).to_ascii_lowercase();
        assert!(seen.contains("upgrade: websocket"), "{seen}");
        let switch =
            "HTTP/1.1 101 Switching Protocols\nConnection: upgrade\nUpgrade: websocket\n\n";
        say(&mut server, &format!("{switch}welcome"));
        let head = http_head(&mut stage.client).to_ascii_lowercase();
        assert_eq!(http_status(&head), 101);
        assert!(head.contains("upgrade: websocket"), "{head}");
        expect(&mut stage.client, "welcome");
        exchange(&stage.client, &server, 3);
    }
}

#[test]
fn an_upgrade_that_is_declined_is_an_ordinary_response() {
    let mut stage = stage(&[]);
    stage.ask("GET http://AT/ HTTP/1.1\nHost: x\nConnection: Upgrade\nUpgrade: h2c");
    let mut server = accept(&stage.listener);
    for _ in 0..2 {
        http_head(&mut server);
        say(&mut server, "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi");
        assert_eq!(stage.status(), 200);
        expect(&mut stage.client, "hi");
        stage.ask("GET http://AT/ HTTP/1.1\nHost: x");
    }
}

fn users() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, "me:secret\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

#[test]
fn users_are_asked_for_their_password() {
    let file = users();
    let mut stage = stage(&["--users", file.path().to_str().unwrap()]);
    // "me:wrong" and "me:secret".
    for field in ["", "\nProxy-Authorization: Basic bWU6d3Jvbmc="] {
        for head in ["CONNECT AT HTTP/1.1", "GET http://AT/ HTTP/1.1"] {
            stage.ask(&format!("{head}\nHost: x{field}"));
            let head = http_head(&mut stage.client);
            assert_eq!(http_status(&head), 407, "{head}");
            assert!(head.contains("Basic realm="), "{head}");
            let body = "longhaul relay: this proxy wants a user and a password\n";
            stage.client.read_exact(&mut vec![0; body.len()]).unwrap();
        }
    }
    stage.ask("GET http://AT/ HTTP/1.1\nHost: x\nProxy-Authorization: Basic bWU6c2VjcmV0");
    let mut server = accept(&stage.listener);
    let seen = http_head(&mut server).to_ascii_lowercase();
    assert!(!seen.contains("proxy-authorization"), "{seen}");
    say(&mut server, "HTTP/1.1 200 OK\nContent-Length: 0\n\n");
    assert_eq!(stage.status(), 200);
}

/// On one connection, and on many at once.
#[test]
fn wrong_passwords_wait_and_are_said_once() {
    let file = users();
    let mut stage = stage(&["--users", file.path().to_str().unwrap()]);
    let wrong = "GET http://AT/ HTTP/1.1\nHost: x\nProxy-Authorization: Basic bWU6d3Jvbmc=";
    let began = Instant::now();
    for _ in 0..6 {
        stage.ask(wrong);
        assert_eq!(http_status(&http_head(&mut stage.client)), 407);
        let body = "longhaul relay: this proxy wants a user and a password\n";
        stage.client.read_exact(&mut vec![0; body.len()]).unwrap();
    }
    // 100, 200, 400, 800 and 1600 ms. Nothing makes them shorter.
    assert!(began.elapsed() >= Duration::from_millis(3100));
    let (_, said) = stage.relay.stop();
    let lines = said
        .lines()
        .filter(|line| line.contains("password is wrong"));
    assert_eq!(lines.count(), 1, "{said}");
}

#[test]
fn max_forwards_of_zero_ends_here() {
    let mut stage = stage(&[]);
    let end = "HTTP/1.1\nHost: x\nMax-Forwards: 0\nCookie: private";
    stage.ask(&format!("TRACE http://AT/a {end}"));
    let head = http_head(&mut stage.client).to_ascii_lowercase();
    assert!(head.contains("content-type: message/http"), "{head}");
    let echo = http_head(&mut stage.client);
    assert!(echo.starts_with("TRACE http://"), "{echo}");
    assert!(!echo.contains("private"), "{echo}");
    stage.ask(&format!("OPTIONS http://AT/ {end}"));
    assert_eq!(stage.status(), 200);
    stage.listener.set_nonblocking(true).unwrap();
    assert!(stage.listener.accept().is_err());
}

#[test]
fn a_request_through_a_peer_does_not_wait_for_its_answer() {
    let (peer, at) = origin();
    let mut stage = stage(&["--peer", &at.to_string()]);
    stage.ask("GET http://host.test/a HTTP/1.1\nHost: x");
    let mut far = accept(&peer);
    let mut bytes = Vec::new();
    let request = loop {
        bytes.extend(read_array::<1>(&mut far));
        if let Some((request, _)) = Request::parse(&bytes).unwrap() {
            break request;
        }
    };
    assert_eq!(request.destination.to_string(), "host.test:80");
    // Nothing has been answered yet, and the request is here.
    assert!(http_head(&mut far).starts_with("GET /a "));
    far.write_all(&Answer::Accepted.encode()).unwrap();
    say(&mut far, "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi");
    assert_eq!(stage.status(), 200);
    expect(&mut stage.client, "hi");
}

#[test]
fn a_peer_s_refusal_is_said_in_http() {
    let refusals = [
        (ErrorCode::ConnectionReset, 502),
        (ErrorCode::NotAuthorized, 403),
        (ErrorCode::ResourceExceeded, 503),
    ];
    for (code, status) in refusals {
        let (peer, at) = origin();
        let mut stage = stage(&["--peer", &at.to_string()]);
        stage.ask("GET http://host.test/a HTTP/1.1\nHost: x");
        let mut far = accept(&peer);
        far.write_all(&Answer::Refused { code, detail: 0 }.encode())
            .unwrap();
        assert_eq!(stage.status(), status);
    }
}

#[test]
fn silent_and_slow_clients_are_let_go() {
    for said in ["", "GET http://h.test/ HTTP/1.1\r\nHost: "] {
        let relay = Relay::start(&["--http", ANY, "--handshake-timeout", "300ms"]);
        let mut client = connect(relay.address("http"));
        client.write_all(said.as_bytes()).unwrap();
        // Ends, whether by FIN, RST or after a 408; PATIENCE is much longer.
        let mut heard = Vec::new();
        let ended = client.read_to_end(&mut heard);
        let waited_too_long = ended.err().map(|error| error.kind()) == Some(ErrorKind::WouldBlock);
        assert!(!waited_too_long, "{said:?}");
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

/// Answers requests on one connection with the body that each brought, until it ends.
fn echo(listener: &TcpListener, connections: usize) {
    for _ in 0..connections {
        let mut server = accept(listener);
        let mut first = [0];
        while matches!(server.read(&mut first), Ok(1)) {
            let head = format!("{}{}", first[0] as char, http_head(&mut server));
            let head = head.to_ascii_lowercase();
            let body = match head.contains("transfer-encoding: chunked") {
                true => chunks(&mut server),
                false => Vec::new(),
            };
            let len = body.len();
            say(
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
fn curl_in_many_ways() {
    let relay = Relay::start(&["--http", ANY]);
    let (listener, at) = origin();
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

/// 8 Mbit/s are 1 MB/s, of which 50 ms may come at once.
#[test]
fn rates_hold_for_bodies_both_ways() {
    const BODY: usize = 500_000;
    let floor = std::time::Duration::from_millis(400);
    for key in ["rate", "rate_per_client"] {
        let text = format!("[[listener]]\nkind = 'http'\naddress = '{ANY}'\n{key} = '8mbit'\n");
        let relay = Relay::configured(&text, 1);
        let (listener, at) = origin();
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
        http_head(&mut server);
        server.read_exact(&mut vec![0; BODY]).unwrap();
        sending.join().unwrap();
        assert!(start.elapsed() > floor, "up, {key}: {:?}", start.elapsed());

        let start = std::time::Instant::now();
        say(
            &mut server,
            &format!("HTTP/1.1 200 OK\nContent-Length: {BODY}\n\n"),
        );
        let answering = std::thread::spawn(move || server.write_all(&[b'd'; BODY]).unwrap());
        assert_eq!(http_status(&http_head(&mut client)), 200);
        client.read_exact(&mut vec![0; BODY]).unwrap();
        answering.join().unwrap();
        assert!(
            start.elapsed() > floor,
            "down, {key}: {:?}",
            start.elapsed()
        );
    }
}

/// RFC 9110 §9.2.2: what can be repeated without harm is, when the connection that was kept ended
/// under it; anything else is not.
#[test]
fn a_kept_connection_that_ends_under_a_request_costs_nothing_that_can_be_repeated() {
    for (method, again) in [("GET", true), ("POST", false)] {
        let mut stage = stage(&[]);
        stage.ask("GET http://AT/1 HTTP/1.1\nHost: x");
        let mut server = accept(&stage.listener);
        http_head(&mut server);
        say(&mut server, "HTTP/1.1 204 No Content\n\n");
        assert_eq!(stage.status(), 204);
        stage.ask(&format!(
            "{method} http://AT/2 HTTP/1.1\nHost: x\nContent-Length: 0"
        ));
        let first = http_head(&mut server);
        drop(server);
        if again {
            let mut server = accept(&stage.listener);
            assert_eq!(http_head(&mut server), first);
            say(&mut server, "HTTP/1.1 200 OK\nContent-Length: 0\n\n");
            assert_eq!(stage.status(), 200);
        } else {
            assert_eq!(stage.status(), 502);
        }
    }
}

/// A connection that was opened for a request and ended without an answer says something.
#[test]
fn a_new_connection_that_ends_under_a_request_is_502() {
    let mut stage = stage(&[]);
    stage.ask("GET http://AT/ HTTP/1.1\nHost: x");
    http_head(&mut accept(&stage.listener));
    assert_eq!(stage.status(), 502);
    stage.listener.set_nonblocking(true).unwrap();
    assert!(stage.listener.accept().is_err(), "it was asked again");
}

/// Straight, and through another relay.
fn both_ways(check: impl Fn(&[&str])) {
    check(&[]);
    let far = Relay::start(&["--convert", ANY]);
    check(&["--peer", &far.address("convert").to_string()]);
}

#[test]
fn an_origin_that_says_nothing_is_504() {
    both_ways(|peers| {
        for said in ["", "HTTP/1.1 200 OK\nX: ", "HTTP/1.1 100 Continue\n\n"] {
            let mut stage = stage(&[peers, &["--response-timeout", "300ms"]].concat());
            stage.ask("GET http://AT/ HTTP/1.1\nHost: x");
            let mut server = accept(&stage.listener);
            http_head(&mut server);
            say(&mut server, said);
            if said.contains("100") {
                assert_eq!(stage.status(), 100);
            }
            assert_eq!(stage.status(), 504, "{said:?}");
            assert_reset(&mut server);
            // The client may ask again.
            let text = b"longhaul relay: the origin has said nothing for 300 ms\n";
            assert_eq!(&read_array(&mut stage.client), text);
            stage.ask("GET http://AT/ HTTP/1.1\nHost: x");
            let mut server = accept(&stage.listener);
            http_head(&mut server);
            say(&mut server, "HTTP/1.1 204 No Content\n\n");
            assert_eq!(stage.status(), 204);
        }
    });
}

#[test]
fn an_origin_that_falls_silent_in_a_body_is_a_reset() {
    both_ways(|peers| {
        for (framing, part) in [
            ("Content-Length: 10", "half"),
            ("Transfer-Encoding: chunked", "4\nhalf\n"),
        ] {
            let mut stage = stage(&[peers, &["--response-timeout", "300ms"]].concat());
            stage.ask("GET http://AT/ HTTP/1.1\nHost: x");
            let mut server = accept(&stage.listener);
            http_head(&mut server);
            say(
                &mut server,
                &format!("HTTP/1.1 200 OK\n{framing}\n\n{part}"),
            );
            assert_eq!(stage.status(), 200);
            expect(&mut stage.client, part);
            assert_reset(&mut stage.client);
            assert_reset(&mut server);
        }
    });
}

/// Nobody reads from the client or writes to it then: the origin hears of its reset all the same.
#[test]
fn a_client_that_resets_while_the_origin_is_silent_is_a_reset() {
    both_ways(|peers| {
        for said in [
            "",
            "HTTP/1.1 200 OK\nContent-Length: 10\n\nhalf",
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n4\nhalf\n",
        ] {
            let mut stage = stage(peers);
            stage.ask("GET http://AT/ HTTP/1.1\nHost: x");
            let mut server = accept(&stage.listener);
            http_head(&mut server);
            say(&mut server, said);
            if !said.is_empty() {
                assert_eq!(stage.status(), 200);
                expect(
                    &mut stage.client,
                    if said.contains("chunked") {
                        "4\nhalf"
                    } else {
                        "half"
                    },
                );
            }
            let at_once = Some(Duration::ZERO);
            socket2::SockRef::from(&stage.client)
                .set_linger(at_once)
                .unwrap();
            drop(stage.client);
            assert_reset(&mut server);
        }
    });
}

/// Longer than the time-out altogether, and never as long in silence.
const MOVING: [&str; 2] = ["--response-timeout", "1s"];
const STEPS: u64 = 25;
const STEP: Duration = Duration::from_millis(100);

#[test]
fn a_response_that_comes_in_drops_is_never_cut() {
    let mut stage = stage(&MOVING);
    stage.ask("GET http://AT/ HTTP/1.1\nHost: x");
    let mut server = accept(&stage.listener);
    http_head(&mut server);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {STEPS}\r\n\r\n");
    let drops = std::thread::spawn(move || {
        let body = "x".repeat(STEPS as usize);
        // The head in as many steps as the body.
        for bytes in head.as_bytes().chunks(2).chain(body.as_bytes().chunks(1)) {
            sleep(STEP);
            server.write_all(bytes).unwrap();
        }
        server
    });
    assert_eq!(stage.status(), 200);
    expect(&mut stage.client, &"x".repeat(STEPS as usize));
    drops.join().unwrap();
}

/// The origin is not silent who waits for the client.
#[test]
fn a_client_that_pauses_is_never_cut() {
    const BODY: usize = 64 << 20;
    let mut stage = stage(&["--response-timeout", "1s"]);
    stage.ask("POST http://AT/ HTTP/1.1\nHost: x\nContent-Length: 2");
    say(&mut stage.client, "a");
    let mut server = accept(&stage.listener);
    http_head(&mut server);
    sleep(Duration::from_secs(2));
    say(&mut stage.client, "b");
    expect(&mut server, "ab");
    say(
        &mut server,
        &format!("HTTP/1.1 200 OK\nContent-Length: {BODY}\n\n"),
    );
    let sending = std::thread::spawn(move || {
        server.write_all(&vec![b'd'; BODY]).unwrap();
        server
    });
    // The way is full, and the client reads nothing.
    sleep(Duration::from_secs(2));
    assert_eq!(stage.status(), 200);
    stage.client.read_exact(&mut vec![0; BODY]).unwrap();
    sending.join().unwrap();
}

/// A peer takes all at once, and hands it on while nothing moves here.
#[test]
fn an_upload_that_is_read_slowly_is_never_cut() {
    const BODY: usize = 6 << 20;
    let small = "[profile.far]\nsend_buffer = '64KiB'\n";
    let text = format!("{small}[[listener]]\nkind = 'convert'\naddress = '{ANY}'\n");
    let far = Relay::configured(&text, 1);
    let peer = far.address("convert").to_string();
    for peers in [vec![], vec!["--peer", &peer]] {
        let mut stage = stage(&[&peers[..], &["--response-timeout", "400ms"]].concat());
        rustix::net::sockopt::set_socket_recv_buffer_size(&stage.listener, 64 << 10).unwrap();
        let head = format!("PUT http://AT/ HTTP/1.1\nHost: x\nContent-Length: {BODY}");
        stage.ask(&head);
        let mut client = stage.client.try_clone().unwrap();
        let sending = std::thread::spawn(move || client.write_all(&vec![b'u'; BODY]).unwrap());
        let mut server = accept(&stage.listener);
        http_head(&mut server);
        for _ in 0..BODY >> 16 {
            sleep(Duration::from_millis(50));
            server.read_exact(&mut [0; 1 << 16]).unwrap();
        }
        sending.join().unwrap();
        say(&mut server, "HTTP/1.1 201 Created\nContent-Length: 0\n\n");
        assert_eq!(stage.status(), 201, "{peers:?}");
    }
}

/// RFC 9110 §15.5.14: a server may answer before it has the whole request, and close.
#[test]
fn an_answer_in_the_middle_of_an_upload_reaches_the_client() {
    both_ways(|peers| {
        let mut stage = stage(peers);
        let body = vec![b'u'; 64 << 20];
        let len = body.len();
        stage.ask(&format!(
            "POST http://AT/ HTTP/1.1\nHost: x\nContent-Length: {len}"
        ));
        let mut client = stage.client.try_clone().unwrap();
        // It fails once nobody reads it any more.
        let sending = std::thread::spawn(move || client.write_all(&body));
        let mut server = accept(&stage.listener);
        http_head(&mut server);
        let close = "Content-Length: 0\nConnection: close";
        say(&mut server, &format!("HTTP/1.1 413 Large\n{close}\n\n"));
        assert_eq!(stage.status(), 413);
        drop(server);
        assert!(sending.join().unwrap().is_err());
    });
}
