// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Expect: 100-continue` (RFC 9110 §10.1.1): the origin decides whether the client sends its body.

use longhaul_testnet::relay_process::{
    Relay, accept, connect, listen_as_origin, parse_http_status, read_http_head,
};
use std::{
    fs,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, ChildStdout, Command, Stdio},
    thread::sleep,
    time::Duration,
};

const ANY: &str = "127.0.0.1:0";
const PUT: &str =
    "PUT http://AT/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
/// Time in which nothing must arrive.
const QUIET_TIME: Duration = Duration::from_millis(300);

/// Runs `test` with a relay, a client and an origin, without and with a second relay between them.
fn for_each_topology(more: &[&str], test: impl Fn(Relay, TcpStream, TcpListener, SocketAddr)) {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    for peers in [vec![], vec!["--peer", &peer]] {
        let relay = Relay::start(&[&["--http", ANY], more, &peers[..]].concat());
        let (listener, at) = listen_as_origin();
        let client = connect(relay.address("http"));
        test(relay, client, listener, at);
    }
}

fn ask(client: &mut TcpStream, head: &str, at: SocketAddr) {
    let head = head.replace("AT", &at.to_string());
    client.write_all(head.as_bytes()).unwrap();
}

fn assert_nothing_arrives(stream: &TcpStream) {
    stream.set_nonblocking(true).unwrap();
    sleep(QUIET_TIME);
    let error = stream.peek(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
}

#[test]
fn never_requests_body_that_origin_refuses() {
    for_each_topology(&[], |_relay, mut client, listener, at| {
        ask(&mut client, PUT, at);
        let mut server = accept(&listener);
        let seen = read_http_head(&mut server).to_ascii_lowercase();
        assert!(seen.contains("expect: 100-continue\r\n"), "{seen}");
        assert_nothing_arrives(&client);
        assert_nothing_arrives(&server);
        let no = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno";
        server.write_all(no.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        let end = answer.to_ascii_lowercase();
        assert!(
            end.contains("connection: close\r\n") && end.ends_with("\r\n\r\nno"),
            "{answer}"
        );
        // A body that the client sends anyway is not relayed.
        let _ = client.write_all(b"12345");
        let mut body = Vec::new();
        let _ = server.read_to_end(&mut body);
        assert!(body.is_empty(), "{body:?}");
    });
}

#[test]
fn forwards_100_of_origin() {
    for_each_topology(&[], |_relay, mut client, listener, at| {
        let mut server = None;
        for status in ["201 Created", "413 Content Too Large"] {
            ask(&mut client, PUT, at);
            let server = server.get_or_insert_with(|| accept(&listener));
            read_http_head(server);
            assert_nothing_arrives(&client);
            server
                .write_all(b"HTTP/1.1 100 Go On\r\nX-Mine: 1\r\n\r\n")
                .unwrap();
            let head = read_http_head(&mut client);
            assert!(
                head.starts_with("HTTP/1.1 100 ") && head.contains("x-mine: 1"),
                "{head}"
            );
            client.write_all(b"12345").unwrap();
            server.read_exact(&mut [0; 5]).unwrap();
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            server.write_all(answer.as_bytes()).unwrap();
            let head = read_http_head(&mut client);
            assert!(head.contains(status) && !head.contains("close"), "{head}");
        }
    });
}

/// A client may send without waiting, and must not wait forever (RFC 9110 §10.1.1).
#[test]
fn serves_client_that_does_not_wait() {
    for_each_topology(&[], |_relay, mut client, listener, at| {
        let mut server = None;
        // Sends head and body at once, and the body after a delay.
        for at_once in [true, false] {
            let body = if at_once { "12345" } else { "" };
            ask(&mut client, &[PUT, body].concat(), at);
            let server = server.get_or_insert_with(|| accept(&listener));
            read_http_head(server);
            if !at_once {
                assert_nothing_arrives(server);
                client.write_all(b"12345").unwrap();
            }
            server.read_exact(&mut [0; 5]).unwrap();
            server
                .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
                .unwrap();
            assert_eq!(parse_http_status(&read_http_head(&mut client)), 204);
        }
    });
}

#[test]
fn sends_no_100_to_http_1_0_client() {
    for_each_topology(&[], |_relay, mut client, listener, at| {
        ask(&mut client, &PUT.replace("HTTP/1.1", "HTTP/1.0"), at);
        client.write_all(b"12345").unwrap();
        let mut server = accept(&listener);
        let seen = read_http_head(&mut server).to_ascii_lowercase();
        assert!(!seen.contains("expect:"), "{seen}");
        server.read_exact(&mut [0; 5]).unwrap();
        server
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 204 No Content\r\n\r\n")
            .unwrap();
        assert_eq!(parse_http_status(&read_http_head(&mut client)), 204);
    });
}

#[test]
fn times_out_silent_origin() {
    for_each_topology(
        &["--response-timeout", "400ms"],
        |_relay, mut client, listener, at| {
            ask(&mut client, PUT, at);
            let mut server = accept(&listener);
            read_http_head(&mut server);
            let head = read_http_head(&mut client).to_ascii_lowercase();
            assert!(
                head.starts_with("http/1.1 504") && head.contains("connection: close"),
                "{head}"
            );
        },
    );
}

/// The relay's own refusals also precede the body, and are not lost.
#[test]
fn never_requests_body_that_relay_refuses() {
    let relay = Relay::start(&["--http", ANY]);
    let mut client = connect(relay.address("http"));
    ask(
        &mut client,
        &PUT.replace("AT", "127.0.0.1:0"),
        ([0; 4], 0).into(),
    );
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 400") && answer.contains("port 0"),
        "{answer}"
    );
}

/// A client that sends everything before it reads still receives the response (RFC 9112 §9.6).
#[test]
fn early_response_survives_body() {
    let relay = Relay::start(&["--http", ANY]);
    for framing in ["Content-Length: 300000", "Transfer-Encoding: chunked"] {
        let mut client = connect(relay.address("http"));
        let head = format!("PUT http://127.0.0.1:0/ HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        // The response has arrived, and the connection is half closed.
        sleep(QUIET_TIME);
        client
            .write_all(&[b"493e0\r\n", &[b'x'; 299_993][..]].concat())
            .unwrap();
        sleep(QUIET_TIME);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
}

/// Python HTTP server that refuses, continues or ignores the expectation, and prints the number of
/// bytes received.
const SERVER: &str = r#"
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def handle_expect_100(self):
        if self.path == "/refused":
            self.send_response_only(401)
            self.send_header("Content-Length", "0")
            self.end_headers()
            self.connection.settimeout(2)
            try: came = len(self.rfile.read())
            except OSError: came = -1
            print(came, flush=True)
            self.close_connection = True
            return False
        return self.path == "/silent" or super().handle_expect_100()
    def do_PUT(self):
        print(len(self.rfile.read(int(self.headers["Content-Length"]))), flush=True)
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"#;

struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", SERVER]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3");
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    fn number(&mut self) -> i64 {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn curl_sends_only_accepted_bodies() {
    const LEN: usize = 5_000_000;
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, vec![b'x'; LEN]).unwrap();
    for_each_topology(&[], |relay, _client, _listener, _at| {
        let mut server = Server::start();
        let port = server.number();
        let mut curl = |path: &str, wait: &str| {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "--max-time", "30", "--expect100-timeout", wait, "-T"]);
            curl.arg(file.path()).args([
                "-H",
                "Expect: 100-continue",
                "-w",
                "%{http_code} %{size_upload}",
            ]);
            curl.args(["-x", &format!("http://{}", relay.address("http"))]);
            let output = curl
                .arg(format!("http://127.0.0.1:{port}/{path}"))
                .output()
                .unwrap();
            let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
            (stdout, server.number())
        };
        assert_eq!(curl("refused", "20"), ("401 0".into(), 0));
        let whole = (format!("201 {LEN}"), LEN as i64);
        assert_eq!(curl("taken", "20"), whole);
        assert_eq!(curl("silent", "0.3"), whole);
    });
}
