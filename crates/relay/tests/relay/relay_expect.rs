// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Expect: 100-continue` (RFC 9110 §10.1.1): the origin decides whether a body crosses the line.

use longhaul_testnet::relay_process::{Relay, accept, connect, http_head, http_status, origin};
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
/// For what must not come.
const A_WHILE: Duration = Duration::from_millis(300);

/// A client of a relay that reaches an origin, with and without a second relay between them.
fn stages(more: &[&str], test: impl Fn(Relay, TcpStream, TcpListener, SocketAddr)) {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    for peers in [vec![], vec!["--peer", &peer]] {
        let relay = Relay::start(&[&["--http", ANY], more, &peers[..]].concat());
        let (listener, at) = origin();
        let client = connect(relay.address("http"));
        test(relay, client, listener, at);
    }
}

fn ask(client: &mut TcpStream, head: &str, at: SocketAddr) {
    let head = head.replace("AT", &at.to_string());
    client.write_all(head.as_bytes()).unwrap();
}

fn assert_nothing_comes(stream: &TcpStream) {
    stream.set_nonblocking(true).unwrap();
    sleep(A_WHILE);
    let error = stream.peek(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
}

#[test]
fn a_body_that_the_origin_refuses_is_never_asked_for() {
    stages(&[], |_relay, mut client, listener, at| {
        ask(&mut client, PUT, at);
        let mut server = accept(&listener);
        let seen = http_head(&mut server).to_ascii_lowercase();
        assert!(seen.contains("expect: 100-continue\r\n"), "{seen}");
        assert_nothing_comes(&client);
        assert_nothing_comes(&server);
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
        // What the client sends after all stays here.
        let _ = client.write_all(b"12345");
        let mut body = Vec::new();
        let _ = server.read_to_end(&mut body);
        assert!(body.is_empty(), "{body:?}");
    });
}

#[test]
fn the_origin_s_100_is_the_one_that_the_client_gets() {
    stages(&[], |_relay, mut client, listener, at| {
        let mut server = None;
        for status in ["201 Created", "413 Content Too Large"] {
            ask(&mut client, PUT, at);
            let server = server.get_or_insert_with(|| accept(&listener));
            http_head(server);
            assert_nothing_comes(&client);
            server
                .write_all(b"HTTP/1.1 100 Go On\r\nX-Mine: 1\r\n\r\n")
                .unwrap();
            let head = http_head(&mut client);
            assert!(
                head.starts_with("HTTP/1.1 100 ") && head.contains("x-mine: 1"),
                "{head}"
            );
            client.write_all(b"12345").unwrap();
            server.read_exact(&mut [0; 5]).unwrap();
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            server.write_all(answer.as_bytes()).unwrap();
            let head = http_head(&mut client);
            assert!(head.contains(status) && !head.contains("close"), "{head}");
        }
    });
}

/// RFC 9110 §10.1.1: it may, and must not wait for ever.
#[test]
fn a_client_that_does_not_wait_is_served() {
    stages(&[], |_relay, mut client, listener, at| {
        let mut server = None;
        // All at once, and after a while.
        for at_once in [true, false] {
            let body = if at_once { "12345" } else { "" };
            ask(&mut client, &[PUT, body].concat(), at);
            let server = server.get_or_insert_with(|| accept(&listener));
            http_head(server);
            if !at_once {
                assert_nothing_comes(server);
                client.write_all(b"12345").unwrap();
            }
            server.read_exact(&mut [0; 5]).unwrap();
            server
                .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
                .unwrap();
            assert_eq!(http_status(&http_head(&mut client)), 204);
        }
    });
}

#[test]
fn a_client_of_http_1_0_neither_waits_nor_is_told() {
    stages(&[], |_relay, mut client, listener, at| {
        ask(&mut client, &PUT.replace("HTTP/1.1", "HTTP/1.0"), at);
        client.write_all(b"12345").unwrap();
        let mut server = accept(&listener);
        let seen = http_head(&mut server).to_ascii_lowercase();
        assert!(!seen.contains("expect:"), "{seen}");
        server.read_exact(&mut [0; 5]).unwrap();
        server
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 204 No Content\r\n\r\n")
            .unwrap();
        assert_eq!(http_status(&http_head(&mut client)), 204);
    });
}

#[test]
fn an_origin_that_says_neither_yes_nor_no_is_given_up() {
    stages(
        &["--response-timeout", "400ms"],
        |_relay, mut client, listener, at| {
            ask(&mut client, PUT, at);
            let mut server = accept(&listener);
            http_head(&mut server);
            let head = http_head(&mut client).to_ascii_lowercase();
            assert!(
                head.starts_with("http/1.1 504") && head.contains("connection: close"),
                "{head}"
            );
        },
    );
}

/// The relay's own refusals come before the body, too, and so that it is not lost.
#[test]
fn what_the_relay_refuses_it_does_not_ask_for() {
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

/// RFC 9112 §9.6: nor is the answer lost on a client that sends and only then listens.
#[test]
fn an_answer_that_comes_first_is_not_destroyed_by_the_body() {
    let relay = Relay::start(&["--http", ANY]);
    for framing in ["Content-Length: 300000", "Transfer-Encoding: chunked"] {
        let mut client = connect(relay.address("http"));
        let head = format!("PUT http://127.0.0.1:0/ HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        // The answer is there, and the connection half closed.
        sleep(A_WHILE);
        client
            .write_all(&[b"493e0\r\n", &[b'x'; 299_993][..]].concat())
            .unwrap();
        sleep(A_WHILE);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
}

/// Python's server, which refuses, goes on or says nothing of it, and then tells how many bytes came.
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
    said: BufReader<ChildStdout>,
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", SERVER]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3");
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    fn number(&mut self) -> i64 {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
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
fn curl_sends_what_python_takes_and_nothing_else() {
    const LEN: usize = 5_000_000;
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, vec![b'x'; LEN]).unwrap();
    stages(&[], |relay, _client, _listener, _at| {
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
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            (said, server.number())
        };
        assert_eq!(curl("refused", "20"), ("401 0".into(), 0));
        let whole = (format!("201 {LEN}"), LEN as i64);
        assert_eq!(curl("taken", "20"), whole);
        assert_eq!(curl("silent", "0.3"), whole);
    });
}
