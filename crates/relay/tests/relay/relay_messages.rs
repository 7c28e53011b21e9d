// SPDX-License-Identifier: MIT OR Apache-2.0
//! What people's programs put into messages of HTTP: trailers, interim responses, many fields, URLs that are none.

use longhaul_testnet::relay_process::{Relay, accept, connect, http_head, http_status, origin};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    thread,
};

const ANY: &str = "127.0.0.1:0";

struct Stage {
    relay: Relay,
    client: TcpStream,
    listener: TcpListener,
    at: SocketAddr,
}

fn stage() -> Stage {
    let relay = Relay::start(&["--http", ANY]);
    let (listener, at) = origin();
    let client = connect(relay.address("http"));
    Stage {
        relay,
        client,
        listener,
        at,
    }
}

impl Stage {
    /// `AT` is the origin.
    fn ask(&mut self, text: &str) {
        let text = text.replace("AT", &self.at.to_string());
        say(&mut self.client, &text);
    }

    fn refused(&mut self) -> String {
        let mut answer = String::new();
        self.client.read_to_string(&mut answer).unwrap();
        answer
    }
}

fn say(stream: &mut TcpStream, text: &str) {
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

/// RFC 9112 §7.1.2. One of the chunks looks like the end.
#[test]
fn trailers_go_both_ways_announced_or_not() {
    let mut stage = stage();
    let mut server = None;
    for announced in [
        "",
        "Trailer: X-Sum\nTE: trailers\nConnection: TE\n",
        "Trailer: X-Other\n",
    ] {
        stage.ask(&format!(
            "PUT http://AT/ HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n{announced}\n"
        ));
        let body = "5\n0\n\n\n3\nabc\n0\nx-sum: 5\nx-more: 6\nx-more: 7\n\n";
        stage.ask(body);
        let server = server.get_or_insert_with(|| accept(&stage.listener));
        http_head(server);
        expect(server, body);
        say(
            server,
            &format!("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n{announced}\n{body}"),
        );
        assert_eq!(http_status(&http_head(&mut stage.client)), 200);
        expect(&mut stage.client, body);
    }
    // Both sides know where the messages have ended.
    stage.ask("GET http://AT/ HTTP/1.1\nHost: x\n\n");
    let server = server.as_mut().unwrap();
    assert!(http_head(server).starts_with("GET / "));
    say(server, EMPTY);
    assert_eq!(http_status(&http_head(&mut stage.client)), 200);
}

#[test]
fn trailers_say_nothing_of_framing_and_reach_no_old_client() {
    let mut stage = stage();
    let answer = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n1\nz\n0\ncontent-length: 9\nx-sum: 1\nset-cookie: a\n\n";
    stage.ask("GET http://AT/ HTTP/1.1\nHost: x\n\n");
    let mut server = accept(&stage.listener);
    http_head(&mut server);
    say(&mut server, answer);
    http_head(&mut stage.client);
    expect(&mut stage.client, "1\nz\n0\nx-sum: 1\n\n");
    stage.ask("GET http://AT/ HTTP/1.0\nHost: x\n\n");
    http_head(&mut server);
    say(&mut server, answer);
    assert!(stage.refused().ends_with("\r\n\r\nz"));
}

/// More than one write takes: the end is not among what the first one has.
#[test]
fn trailers_follow_bodies_that_the_client_takes_slowly() {
    const CHUNKS: usize = 400;
    let mut stage = stage();
    stage.ask("GET http://AT/ HTTP/1.1\nHost: x\n\n");
    let mut server = accept(&stage.listener);
    http_head(&mut server);
    let writer = thread::spawn(move || {
        say(
            &mut server,
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n",
        );
        let chunk = [b"10000\r\n", &[b'z'; 1 << 16][..], b"\r\n"].concat();
        (0..CHUNKS).for_each(|_| server.write_all(&chunk).unwrap());
        say(&mut server, "0\nx-sum: 1\n\n");
        server
    });
    http_head(&mut stage.client);
    thread::sleep(std::time::Duration::from_millis(500));
    let mut body = Vec::new();
    while !body.ends_with(b"\r\n0\r\nx-sum: 1\r\n\r\n") {
        let mut part = vec![0; 1 << 20];
        let read = stage.client.read(&mut part).unwrap();
        assert!(read > 0, "{} bytes", body.len());
        body.extend(&part[..read]);
    }
    let data = body.iter().filter(|byte| **byte == b'z').count();
    assert_eq!(data, CHUNKS << 16);
    drop(writer.join().unwrap());
}

#[test]
fn curl_sees_trailers() {
    let stage = stage();
    let server = thread::spawn(move || {
        let mut server = accept(&stage.listener);
        http_head(&mut server);
        say(
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
        &format!("http://{}", stage.relay.address("http")),
    ]);
    let output = curl.arg(format!("http://{}/", stage.at)).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).to_ascii_lowercase();
    assert!(
        said.contains("x-sum: 7") && said.contains("hi"),
        "{output:?}"
    );
    drop(server.join().unwrap());
}

#[test]
fn interim_responses_reach_clients_that_know_them() {
    let mut stage = stage();
    let get = "GET http://AT/ HTTP/1.1\nHost: x\n\n";
    // Two at once: those of the second come behind the first one's answer.
    stage.ask(&[get, get].concat());
    let mut server = accept(&stage.listener);
    for _ in 0..2 {
        http_head(&mut server);
        for interim in [
            "102 Processing\n",
            "103 Early Hints\nLink: </a.css>\nConnection: X-Hop\nX-Hop: 1\n",
        ] {
            say(&mut server, &format!("HTTP/1.1 {interim}\n"));
            let head = http_head(&mut stage.client);
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
        say(
            &mut server,
            "HTTP/1.1 103 Early Hints\n\nHTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
        );
        assert_eq!(http_status(&http_head(&mut stage.client)), 103);
        assert_eq!(http_status(&http_head(&mut stage.client)), 200);
        expect(&mut stage.client, "hi");
    }
    stage.ask("GET http://AT/ HTTP/1.0\nHost: x\n\n");
    http_head(&mut server);
    say(&mut server, &format!("HTTP/1.1 103 Early Hints\n\n{EMPTY}"));
    assert_eq!(http_status(&http_head(&mut stage.client)), 200);
}

#[test]
fn five_hundred_fields_pass() {
    let mut stage = stage();
    let fields: String = (0..500).map(|n| format!("X-{n}: {n}\n")).collect();
    stage.ask(&format!("GET http://AT/ HTTP/1.1\nHost: x\n{fields}\n"));
    let mut server = accept(&stage.listener);
    assert!(http_head(&mut server).contains("X-499: 499\r\n"));
    say(&mut server, &format!("HTTP/1.1 204 No Content\n{fields}\n"));
    let head = http_head(&mut stage.client);
    assert!(
        head.starts_with("HTTP/1.1 204") && head.contains("X-499: 499\r\n"),
        "{head}"
    );
}

/// RFC 9112 §5.1 and §5.2: of responses a proxy removes both.
#[test]
fn spaces_before_colons_and_folded_lines_are_put_right_in_responses() {
    let mut stage = stage();
    stage.ask("GET http://AT/ HTTP/1.1\nHost: x\n\n");
    let mut server = accept(&stage.listener);
    http_head(&mut server);
    say(
        &mut server,
        "HTTP/1.1 200 OK\nX-Sp : a\nX-Fold: b\n  c\nContent-Length : 2\n\nhi",
    );
    let head = http_head(&mut stage.client);
    assert!(
        head.contains("X-Sp: a\r\n") && head.contains("X-Fold: b"),
        "{head}"
    );
    assert!(
        head.contains("c\r\n") && head.contains("Content-Length: 2\r\n"),
        "{head}"
    );
    expect(&mut stage.client, "hi");
}

#[test]
fn h2c_goes_no_further_and_the_request_does() {
    let mut stage = stage();
    stage.ask(
        "GET http://AT/ HTTP/1.1\nHost: x\nConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c\n\
         HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\n\n",
    );
    let mut server = accept(&stage.listener);
    let seen = http_head(&mut server).to_ascii_lowercase();
    for word in ["upgrade", "h2c", "http2-settings"] {
        assert!(!seen.contains(word), "{seen}");
    }
    say(&mut server, EMPTY);
    assert_eq!(http_status(&http_head(&mut stage.client)), 200);
}

/// On a connection that has had a body with a length, and one in chunks.
#[test]
fn urls_that_are_none_pass_where_they_mean_one_thing() {
    let mut stage = stage();
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
        stage.ask(&format!("POST http://AT/{sent} HTTP/1.1\nHost: x\n{body}"));
        let server = server.get_or_insert_with(|| accept(&stage.listener));
        let head = http_head(server);
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
        say(server, EMPTY);
        assert_eq!(http_status(&http_head(&mut stage.client)), 200);
    }
}

#[test]
fn bytes_above_ascii_pass() {
    let mut stage = stage();
    stage.ask("GET http://AT/\u{e4}?\u{20ac} HTTP/1.1\nHost: x\n\n");
    let mut server = accept(&stage.listener);
    let mut head = vec![0; "GET /\u{e4}?\u{20ac} HTTP/1.1\r\n".len()];
    server.read_exact(&mut head).unwrap();
    assert_eq!(
        String::from_utf8(head).unwrap(),
        "GET /\u{e4}?\u{20ac} HTTP/1.1\r\n"
    );
    http_head(&mut server);
    say(&mut server, EMPTY);
    assert_eq!(http_status(&http_head(&mut stage.client)), 200);
    // Latin-1, which no URI of hyper's may hold.
    let line = [
        format!("GET http://{}/", stage.at).as_bytes(),
        b"\xe4 HTTP/1.1\r\nHost: x\r\n\r\n",
    ]
    .concat();
    stage.client.write_all(&line).unwrap();
    assert!(http_head(&mut server).starts_with("GET /%E4 HTTP/1.1\r\n"));
}

#[test]
fn curl_s_urls_arrive() {
    let stage = stage();
    let at = stage.at;
    let server = thread::spawn(move || {
        let mut server = accept(&stage.listener);
        let heads = [(); 2].map(|()| {
            let head = http_head(&mut server);
            say(&mut server, EMPTY);
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
        &format!("http://{}", stage.relay.address("http")),
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
fn every_400_says_what_is_wrong() {
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
            let mut stage = stage();
            // Both at once: the first one is answered.
            stage.ask(&[earlier, request].concat());
            if !earlier.is_empty() {
                let mut server = accept(&stage.listener);
                http_head(&mut server);
                say(&mut server, EMPTY);
                assert_eq!(http_status(&http_head(&mut stage.client)), 200);
            }
            stage.client.shutdown(std::net::Shutdown::Write).unwrap();
            let answer = stage.refused();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 400 "), "{request}: {answer}");
            assert!(
                body.starts_with("longhaul relay: ") && body.contains(why),
                "{request}: {answer}"
            );
        }
    }
    let mut stage = stage();
    stage.ask(&format!(
        "GET http://AT/ HTTP/1.1\nHost: x{}\n\n",
        "\nX: x".repeat(600)
    ));
    let answer = stage.refused();
    assert!(
        answer.starts_with("HTTP/1.1 431 ") && answer.contains("message head is too large"),
        "{answer}"
    );
}

/// RFC 9112 §6.3: the chunks count, and nothing that follows them is believed.
#[test]
fn a_response_with_two_lengths_comes_whole_and_is_its_connection_s_last() {
    for fields in [
        "Content-Length: 3\nTransfer-Encoding: chunked",
        "Transfer-Encoding : chunked\nContent-Length: 3",
    ] {
        let mut stage = stage();
        for (version, want) in [("1.1", "5\nhello\n0\nx-sum: 1\n\n"), ("1.0", "hello")] {
            stage.ask(&format!("GET http://AT/ HTTP/{version}\nHost: x\n\n"));
            let mut server = accept(&stage.listener);
            http_head(&mut server);
            let body = "5\nhello\n0\nx-sum: 1\n\n";
            say(&mut server, &format!("HTTP/1.1 200 OK\n{fields}\n\n{body}"));
            let head = http_head(&mut stage.client).to_lowercase();
            assert!(!head.contains("content-length"), "{head}");
            expect(&mut stage.client, want);
            assert_eq!(server.read(&mut [0]).unwrap_or(0), 0);
        }
        assert_eq!(stage.refused(), "");
    }
}

/// The origin has no part in it.
#[test]
fn a_body_that_can_t_be_read_is_the_client_s_fault() {
    for body in [
        "0x3\r\nabc\r\n0\r\n\r\n",
        "3\nabc\n0\n\n",
        "3\r\nabcX\r\n0\r\n\r\n",
        "10000000000000003\r\nabc\r\n0\r\n\r\n",
        "3;a\nb\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\nX Y: 1\r\n\r\n",
    ] {
        let mut stage = stage();
        stage.ask("POST http://AT/ HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n");
        stage.client.write_all(body.as_bytes()).unwrap();
        let said = stage.refused();
        assert!(said.starts_with("HTTP/1.1 400 "), "{body:?}: {said}");
        assert!(
            said.contains("the request's body can't be read: "),
            "{said}"
        );
        let words = ["origin", "stream", "502", "Proxy-Status"];
        assert!(!words.iter().any(|word| said.contains(word)), "{said}");
    }
}

#[test]
fn a_head_that_may_be_read_in_two_ways_is_refused() {
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
        let mut stage = stage();
        stage.ask(&format!("{head}\nConnection: close\n\n0\n\n"));
        let said = stage.refused();
        assert!(said.starts_with("HTTP/1.1 400 "), "{head:?}: {said}");
        let reason = said.rsplit("relay: ").next().unwrap();
        assert!(reason.contains(word), "{head:?}: {said}");
    }
    let mut stage = stage();
    stage.ask("GET http://AT/ HTTP/1.0\n\n");
    http_head(&mut accept(&stage.listener));
}

/// Trailers may be left out (RFC 9110 §6.5.1), the body may not.
#[test]
fn trailers_that_can_t_be_read_do_not_cut_a_response() {
    let mut stage = stage();
    for trailer in ["X-T : 1", "X Y: 1"] {
        stage.ask("GET http://AT/ HTTP/1.1\nHost: x\n\n");
        let mut server = accept(&stage.listener);
        http_head(&mut server);
        let head = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n";
        say(&mut server, &format!("{head}5\nhello\n0\n{trailer}\n\n"));
        http_head(&mut stage.client);
        expect(&mut stage.client, "5\nhello\n0\n\n");
    }
}

/// It may have done something each time (RFC 9110 §9.2.2).
#[test]
fn a_request_without_an_answer_is_made_once_more_at_most_through_a_peer() {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    let relay = Relay::start(&["--http", ANY, "--peer", &peer]);
    let (listener, at) = origin();
    let server = thread::spawn(move || {
        (0..5)
            .map(|_| http_head(&mut accept(&listener)))
            .filter(|head| head.starts_with("PUT "))
            .count()
    });
    let mut client = connect(relay.address("http"));
    let ask = |client: &mut TcpStream, method: &str| {
        say(
            client,
            &format!("{method} http://{at}/ HTTP/1.1\nHost: x\nContent-Length: 0\n\n"),
        );
        http_status(&http_head(client))
    };
    assert_eq!(ask(&mut client, "PUT"), 502);
    // The rest of the five.
    for _ in 0..4 {
        let mut client = connect(relay.address("http"));
        say(
            &mut client,
            &format!("POST http://{at}/ HTTP/1.1\nHost: x\nContent-Length: 0\n\n"),
        );
        http_head(&mut client);
        if server.is_finished() {
            break;
        }
    }
    assert!((1..=2).contains(&server.join().unwrap()));
}
