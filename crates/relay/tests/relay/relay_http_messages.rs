// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP messages of real programs: trailers, interim responses, many header fields, and invalid
//! URLs.

use longhaul_testnet::relay_process::{
    Relay, accept, connect, listen_as_origin, parse_http_status, read_http_head,
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    thread,
};

const ANY: &str = "127.0.0.1:0";

struct Fixture {
    relay: Relay,
    client: TcpStream,
    listener: TcpListener,
    at: SocketAddr,
}

fn fixture() -> Fixture {
    let relay = Relay::start(&["--http", ANY]);
    let (listener, at) = listen_as_origin();
    let client = connect(relay.address("http"));
    Fixture {
        relay,
        client,
        listener,
        at,
    }
}

impl Fixture {
    /// Sends `text`, in which `AT` stands for the origin's address.
    fn ask(&mut self, text: &str) {
        let text = text.replace("AT", &self.at.to_string());
        send(&mut self.client, &text);
    }

    fn read_to_end_of_connection(&mut self) -> String {
        let mut answer = String::new();
        self.client.read_to_string(&mut answer).unwrap();
        answer
    }
}

fn send(stream: &mut TcpStream, text: &str) {
    let text = text.replace('\n', "\r\n");
    stream.write_all(text.as_bytes()).unwrap();
}

fn expect(stream: &mut TcpStream, text: &str) {
    let want = text.replace('\n', "\r\n");
    let mut got = vec![0; want.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), want);
}

const EMPTY: &str = "HTTP/1.1 200 OK\nContent-Length: 0\n\n";

/// Relays trailer sections (RFC 9112 §7.1.2). One of the chunks looks like the last chunk.
#[test]
fn relays_trailers_announced_or_not() {
    let mut fixture = fixture();
    let mut server = None;
    for announced in [
        "",
        "Trailer: X-Sum\nTE: trailers\nConnection: TE\n",
        "Trailer: X-Other\n",
    ] {
        fixture.ask(&format!(
            "PUT http://AT/ HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n{announced}\n"
        ));
        let body = "5\n0\n\n\n3\nabc\n0\nx-sum: 5\nx-more: 6\nx-more: 7\n\n";
        fixture.ask(body);
        let server = server.get_or_insert_with(|| accept(&fixture.listener));
        read_http_head(server);
        expect(server, body);
        send(
            server,
            &format!("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n{announced}\n{body}"),
        );
        assert_eq!(parse_http_status(&read_http_head(&mut fixture.client)), 200);
        expect(&mut fixture.client, body);
    }
    // Both sides have found the ends of the messages.
    fixture.ask("GET http://AT/ HTTP/1.1\nHost: x\n\n");
    let server = server.as_mut().unwrap();
    assert!(read_http_head(server).starts_with("GET / "));
    send(server, EMPTY);
    assert_eq!(parse_http_status(&read_http_head(&mut fixture.client)), 200);
}

#[test]
fn filters_trailers() {
    let mut fixture = fixture();
    let answer = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n1\nz\n0\ncontent-length: 9\nx-sum: 1\nset-cookie: a\n\n";
    fixture.ask("GET http://AT/ HTTP/1.1\nHost: x\n\n");
    let mut server = accept(&fixture.listener);
    read_http_head(&mut server);
    send(&mut server, answer);
    read_http_head(&mut fixture.client);
    expect(&mut fixture.client, "1\nz\n0\nx-sum: 1\n\n");
    fixture.ask("GET http://AT/ HTTP/1.0\nHost: x\n\n");
    read_http_head(&mut server);
    send(&mut server, answer);
    assert!(fixture.read_to_end_of_connection().ends_with("\r\n\r\nz"));
}

/// The body is longer than one write, so the first write does not contain its end.
#[test]
fn relays_trailers_after_slowly_read_body() {
    const CHUNKS: usize = 400;
    let mut fixture = fixture();
    fixture.ask("GET http://AT/ HTTP/1.1\nHost: x\n\n");
    let mut server = accept(&fixture.listener);
    read_http_head(&mut server);
    let writer = thread::spawn(move || {
        send(
            &mut server,
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n",
        );
        let chunk = [b"10000\r\n", &[b'z'; 1 << 16][..], b"\r\n"].concat();
        (0..CHUNKS).for_each(|_| server.write_all(&chunk).unwrap());
        send(&mut server, "0\nx-sum: 1\n\n");
        server
    });
    read_http_head(&mut fixture.client);
    thread::sleep(std::time::Duration::from_millis(500));
    let mut body = Vec::new();
    while !body.ends_with(b"\r\n0\r\nx-sum: 1\r\n\r\n") {
        let mut part = vec![0; 1 << 20];
        let read = fixture.client.read(&mut part).unwrap();
        assert!(read > 0, "{} bytes", body.len());
        body.extend(&part[..read]);
    }
    let data = body.iter().filter(|byte| **byte == b'z').count();
    assert_eq!(data, CHUNKS << 16);
    drop(writer.join().unwrap());
}

#[test]
fn curl_sees_trailers() {
    let fixture = fixture();
    let server = thread::spawn(move || {
        let mut server = accept(&fixture.listener);
        read_http_head(&mut server);
        send(
            &mut server,
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nhi\n0\nX-Sum: 7\n\n",
        );
        server
    });
    let mut curl = Command::new("curl");
    curl.args([
        "-sS",
        "-i",
        "--max-time",
        "20",
        "-x",
        &format!("http://{}", fixture.relay.address("http")),
    ]);
    let output = curl
        .arg(format!("http://{}/", fixture.at))
        .output()
        .unwrap();
    let response = String::from_utf8_lossy(&output.stdout).to_ascii_lowercase();
    assert!(
        response.contains("x-sum: 7") && response.contains("hi"),
        "{output:?}"
    );
    drop(server.join().unwrap());
}

#[test]
fn relays_interim_responses_to_http_1_1_clients() {
    let mut fixture = fixture();
    let get = "GET http://AT/ HTTP/1.1\nHost: x\n\n";
    // Pipelines two requests: the interim responses of the second follow the first response.
    fixture.ask(&[get, get].concat());
    let mut server = accept(&fixture.listener);
    for _ in 0..2 {
        read_http_head(&mut server);
        for interim in [
            "102 Processing\n",
            "103 Early Hints\nLink: </a.css>\nConnection: X-Hop\nX-Hop: 1\n",
        ] {
            send(&mut server, &format!("HTTP/1.1 {interim}\n"));
            let head = read_http_head(&mut fixture.client);
            assert!(
                head.starts_with(&format!("HTTP/1.1 {}", &interim[..3])),
                "{head}"
            );
            assert_eq!(
                head.contains("link: </a.css>\r\n"),
                interim.starts_with("103"),
                "{head}"
            );
            assert!(!head.to_ascii_lowercase().contains("x-hop"), "{head}");
        }
        send(
            &mut server,
            "HTTP/1.1 103 Early Hints\n\nHTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
        );
        assert_eq!(parse_http_status(&read_http_head(&mut fixture.client)), 103);
        assert_eq!(parse_http_status(&read_http_head(&mut fixture.client)), 200);
        expect(&mut fixture.client, "hi");
    }
    fixture.ask("GET http://AT/ HTTP/1.0\nHost: x\n\n");
    read_http_head(&mut server);
    send(&mut server, &format!("HTTP/1.1 103 Early Hints\n\n{EMPTY}"));
    assert_eq!(parse_http_status(&read_http_head(&mut fixture.client)), 200);
}

#[test]
fn relays_five_hundred_fields() {
    let mut fixture = fixture();
    let fields: String = (0..500).map(|n| format!("X-{n}: {n}\n")).collect();
    fixture.ask(&format!("GET http://AT/ HTTP/1.1\nHost: x\n{fields}\n"));
    let mut server = accept(&fixture.listener);
    assert!(read_http_head(&mut server).contains("X-499: 499\r\n"));
    send(&mut server, &format!("HTTP/1.1 204 No Content\n{fields}\n"));
    let head = read_http_head(&mut fixture.client);
    assert!(
        head.starts_with("HTTP/1.1 204") && head.contains("X-499: 499\r\n"),
        "{head}"
    );
}

/// A proxy must remove both from responses (RFC 9112 §5.1 and §5.2).
#[test]
fn normalizes_spaces_and_folded_lines_in_responses() {
    let mut fixture = fixture();
    fixture.ask("GET http://AT/ HTTP/1.1\nHost: x\n\n");
    let mut server = accept(&fixture.listener);
    read_http_head(&mut server);
    send(
        &mut server,
        "HTTP/1.1 200 OK\nX-Sp : a\nX-Fold: b\n  c\nContent-Length : 2\n\nhi",
    );
    let head = read_http_head(&mut fixture.client);
    assert!(
        head.contains("X-Sp: a\r\n") && head.contains("X-Fold: b"),
        "{head}"
    );
    assert!(
        head.contains("c\r\n") && head.contains("Content-Length: 2\r\n"),
        "{head}"
    );
    expect(&mut fixture.client, "hi");
}

#[test]
fn removes_h2c_upgrade() {
    let mut fixture = fixture();
    fixture.ask(
        "GET http://AT/ HTTP/1.1\nHost: x\nConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c\n\
         HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\n\n",
    );
    let mut server = accept(&fixture.listener);
    let seen = read_http_head(&mut server).to_ascii_lowercase();
    for word in ["upgrade", "h2c", "http2-settings"] {
        assert!(!seen.contains(word), "{seen}");
    }
    send(&mut server, EMPTY);
    assert_eq!(parse_http_status(&read_http_head(&mut fixture.client)), 200);
}

/// Sends invalid URLs, also on a connection after a body with a length, and after a chunked one.
#[test]
fn encodes_unambiguous_invalid_urls() {
    let mut fixture = fixture();
    let mut server = None;
    let sent = "a<b>c\"d{e}|f^g\\h`i?j<k>l\"m{n}|o^p\\q`r";
    let want = "a%3Cb%3Ec%22d{e}|f^g\\h%60i?j%3Ck%3El%22m{n}|o^p\\q%60r";
    for body in [
        "\n",
        "Content-Length: 4\n\n\n\n",
        "Transfer-Encoding: chunked\n\n5\na\n\n\n0\n\n",
        "Transfer-Encoding: chunked\n\n1\nx\n0\nX-Sum: 1\n\n",
        "\n",
    ] {
        fixture.ask(&format!("POST http://AT/{sent} HTTP/1.1\nHost: x\n{body}"));
        let server = server.get_or_insert_with(|| accept(&fixture.listener));
        let head = read_http_head(server);
        assert!(
            head.starts_with(&format!("POST /{want} HTTP/1.1\r\n")),
            "{head}"
        );
        let (_, body) = body.split_once("\n").unwrap();
        expect(
            server,
            &body
                .to_ascii_lowercase()
                .replacen("\n", "", usize::from(!body.is_empty())),
        );
        send(server, EMPTY);
        assert_eq!(parse_http_status(&read_http_head(&mut fixture.client)), 200);
    }
}

#[test]
fn relays_non_ascii_urls() {
    let mut fixture = fixture();
    fixture.ask("GET http://AT/\u{e4}?\u{20ac} HTTP/1.1\nHost: x\n\n");
    let mut server = accept(&fixture.listener);
    let mut head = vec![0; "GET /\u{e4}?\u{20ac} HTTP/1.1\r\n".len()];
    server.read_exact(&mut head).unwrap();
    assert_eq!(
        String::from_utf8(head).unwrap(),
        "GET /\u{e4}?\u{20ac} HTTP/1.1\r\n"
    );
    read_http_head(&mut server);
    send(&mut server, EMPTY);
    assert_eq!(parse_http_status(&read_http_head(&mut fixture.client)), 200);
    // Latin-1, which hyper's URIs can't contain.
    let line = [
        format!("GET http://{}/", fixture.at).as_bytes(),
        b"\xe4 HTTP/1.1\r\nHost: x\r\n\r\n",
    ]
    .concat();
    fixture.client.write_all(&line).unwrap();
    assert!(read_http_head(&mut server).starts_with("GET /%E4 HTTP/1.1\r\n"));
}

#[test]
fn relays_curl_urls() {
    let fixture = fixture();
    let at = fixture.at;
    let server = thread::spawn(move || {
        let mut server = accept(&fixture.listener);
        let heads = [(); 2].map(|()| {
            let head = read_http_head(&mut server);
            send(&mut server, EMPTY);
            head
        });
        heads.map(|head| head.split(' ').nth(1).unwrap().to_owned())
    });
    let mut curl = Command::new("curl");
    curl.args([
        "-sS",
        "-g",
        "--max-time",
        "20",
        "-x",
        &format!("http://{}", fixture.relay.address("http")),
    ]);
    curl.args([
        format!("http://{at}/<a>`?\"<b>"),
        format!("http://{at}/{{x}}|^<"),
    ]);
    let output = curl.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        server.join().unwrap(),
        ["/%3Ca%3E%60?%22%3Cb%3E", "/{x}|^%3C"]
    );
}

#[test]
fn every_400_has_a_reason() {
    let get = "GET http://AT/ HTTP/1.1\nHost: x\n\n";
    for (request, why) in [
        (
            "GET http://AT/a b HTTP/1.1\nHost: x\n\n",
            "a space in a URL is %20",
        ),
        (
            "GET http://AT/a#b HTTP/1.1\nHost: x\n\n",
            "in a path it is %23",
        ),
        (
            "GET http://AT/a\x01b HTTP/1.1\nHost: x\n\n",
            "control character 0x01",
        ),
        ("GET http://AT/ HTTP/3.0\nHost: x\n\n", "\"HTTP/3.0\""),
        ("GET http://AT/\n\n", "METHOD URL HTTP/1.1"),
        ("GET http://a<b/ HTTP/1.1\nHost: x\n\n", "invalid URI"),
        (
            "GET http://AT/ HTTP/1.1\nHost : x\n\n",
            "invalid HTTP header",
        ),
        ("\x16\x03\x01 no HTTP", "invalid HTTP method"),
        ("GET /a HTTP/1.1\nHost: x\n\n", "absolute http:// URI"),
    ] {
        for earlier in [
            "",
            get,
            "POST http://AT/ HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n0\n\n",
        ] {
            let mut fixture = fixture();
            // Pipelines both: the first request is answered.
            fixture.ask(&[earlier, request].concat());
            if !earlier.is_empty() {
                let mut server = accept(&fixture.listener);
                read_http_head(&mut server);
                send(&mut server, EMPTY);
                assert_eq!(parse_http_status(&read_http_head(&mut fixture.client)), 200);
            }
            fixture.client.shutdown(std::net::Shutdown::Write).unwrap();
            let answer = fixture.read_to_end_of_connection();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 400 "), "{request}: {answer}");
            assert!(
                body.starts_with("longhaul relay: ") && body.contains(why),
                "{request}: {answer}"
            );
        }
    }
    let mut fixture = fixture();
    fixture.ask(&format!(
        "GET http://AT/ HTTP/1.1\nHost: x{}\n\n",
        "\nX: x".repeat(600)
    ));
    let answer = fixture.read_to_end_of_connection();
    assert!(
        answer.starts_with("HTTP/1.1 431 ") && answer.contains("message head is too large"),
        "{answer}"
    );
}

/// The chunked framing counts, and bytes behind the message are discarded (RFC 9112 §6.3).
#[test]
fn relays_response_with_two_lengths_and_closes() {
    for fields in [
        "Content-Length: 3\nTransfer-Encoding: chunked",
        "Transfer-Encoding : chunked\nContent-Length: 3",
    ] {
        let mut fixture = fixture();
        for (version, want) in [("1.1", "5\nhello\n0\nx-sum: 1\n\n"), ("1.0", "hello")] {
            fixture.ask(&format!("GET http://AT/ HTTP/{version}\nHost: x\n\n"));
            let mut server = accept(&fixture.listener);
            read_http_head(&mut server);
            let body = "5\nhello\n0\nx-sum: 1\n\n";
            send(&mut server, &format!("HTTP/1.1 200 OK\n{fields}\n\n{body}"));
            let head = read_http_head(&mut fixture.client).to_lowercase();
            assert!(!head.contains("content-length"), "{head}");
            expect(&mut fixture.client, want);
            assert_eq!(server.read(&mut [0]).unwrap_or(0), 0);
        }
        assert_eq!(fixture.read_to_end_of_connection(), "");
    }
}

/// The error is not attributed to the origin.
#[test]
fn malformed_body_is_client_error() {
    for body in [
        "0x3\r\nabc\r\n0\r\n\r\n",
        "3\nabc\n0\n\n",
        "3\r\nabcX\r\n0\r\n\r\n",
        "10000000000000003\r\nabc\r\n0\r\n\r\n",
        "3;a\nb\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\nX Y: 1\r\n\r\n",
    ] {
        let mut fixture = fixture();
        fixture.ask("POST http://AT/ HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n");
        fixture.client.write_all(body.as_bytes()).unwrap();
        let response = fixture.read_to_end_of_connection();
        assert!(
            response.starts_with("HTTP/1.1 400 "),
            "{body:?}: {response}"
        );
        assert!(
            response.contains("the request's body can't be read: "),
            "{response}"
        );
        let words = ["origin", "stream", "502", "Proxy-Status"];
        assert!(
            !words.iter().any(|word| response.contains(word)),
            "{response}"
        );
    }
}

#[test]
fn rejects_ambiguous_heads() {
    for (head, word) in [
        (
            "POST http://AT/ HTTP/1.1\nHost: x\nTransfer-Encoding: chunked, chunked",
            "chunked",
        ),
        (
            "POST http://AT/ HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked",
            "chunked",
        ),
        ("GET http://AT/ HTTP/1.1\nHost: x\nHost: y", "Host"),
        ("GET http://AT/ HTTP/1.1\nX: y", "Host"),
        ("CONNECT http://AT HTTP/1.1\nHost: x", "CONNECT"),
        ("CONNECT me@AT HTTP/1.1\nHost: x", "CONNECT"),
    ] {
        let mut fixture = fixture();
        fixture.ask(&format!("{head}\nConnection: close\n\n0\n\n"));
        let response = fixture.read_to_end_of_connection();
        assert!(
            response.starts_with("HTTP/1.1 400 "),
            "{head:?}: {response}"
        );
        let reason = response.rsplit("relay: ").next().unwrap();
        assert!(reason.contains(word), "{head:?}: {response}");
    }
    let mut fixture = fixture();
    fixture.ask("GET http://AT/ HTTP/1.0\n\n");
    read_http_head(&mut accept(&fixture.listener));
}

/// Trailers may be dropped (RFC 9110 §6.5.1), the body may not.
#[test]
fn malformed_trailers_do_not_truncate_response() {
    let mut fixture = fixture();
    for trailer in ["X-T : 1", "X Y: 1"] {
        fixture.ask("GET http://AT/ HTTP/1.1\nHost: x\n\n");
        let mut server = accept(&fixture.listener);
        read_http_head(&mut server);
        let head = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n";
        send(&mut server, &format!("{head}5\nhello\n0\n{trailer}\n\n"));
        read_http_head(&mut fixture.client);
        expect(&mut fixture.client, "5\nhello\n0\n\n");
    }
}

/// The request may have had an effect each time (RFC 9110 §9.2.2).
#[test]
fn repeats_unanswered_request_at_most_once() {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    let relay = Relay::start(&["--http", ANY, "--peer", &peer]);
    let (listener, at) = listen_as_origin();
    let server = thread::spawn(move || {
        (0..5)
            .map(|_| read_http_head(&mut accept(&listener)))
            .filter(|head| head.starts_with("PUT "))
            .count()
    });
    let mut client = connect(relay.address("http"));
    let ask = |client: &mut TcpStream, method: &str| {
        send(
            client,
            &format!("{method} http://{at}/ HTTP/1.1\nHost: x\nContent-Length: 0\n\n"),
        );
        parse_http_status(&read_http_head(client))
    };
    assert_eq!(ask(&mut client, "PUT"), 502);
    // Sends the rest of the five requests.
    for _ in 0..4 {
        let mut client = connect(relay.address("http"));
        send(
            &mut client,
            &format!("POST http://{at}/ HTTP/1.1\nHost: x\nContent-Length: 0\n\n"),
        );
        read_http_head(&mut client);
        if server.is_finished() {
            break;
        }
    }
    assert!((1..=2).contains(&server.join().unwrap()));
}
