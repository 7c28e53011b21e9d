// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections to a site, byte by byte. Unauthenticated clients can't keep them for long, and no bytes are parsed as
//! a different request.

use crate::site_process::{
    Client, Home, WAIT_LIMIT,
    web::{Web, curl, names},
};
use socket2::{Domain, Socket, Type};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    thread::sleep,
    time::{Duration, Instant},
};

/// Connection to `--http`, and the responses on it.
struct Connection(BufReader<TcpStream>);

#[derive(Debug)]
struct Response {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Connection {
    fn open(web: &Web) -> Self {
        let url = web.url("");
        let stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        Self(BufReader::new(stream))
    }

    fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// Reads a response; `None` if the connection has ended.
    fn receive(&mut self) -> Option<Response> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            match self.0.read_line(&mut head) {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        let len = field("content-length: ").map_or(0, |len| len.parse().unwrap());
        let mut body = vec![0; len];
        self.0.read_exact(&mut body).unwrap();
        let status = head[9..12].parse().unwrap();
        Some(Response { status, head, body })
    }

    fn exchange(&mut self, text: &str) -> Option<u16> {
        self.send(text);
        self.receive().map(|response| response.status)
    }

    /// Sends a request on a connection that may have ended.
    fn try_exchange(&mut self, text: &str) -> Option<u16> {
        self.0.get_mut().write_all(text.as_bytes()).ok()?;
        self.receive().map(|response| response.status)
    }

    /// Reads the head of a response without a body.
    fn receive_head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(self.0.read_line(&mut head).unwrap(), 0);
        }
        head
    }
}

/// Returns a request with the site's token.
fn request(web: &Web, line: &str, fields: &str) -> String {
    let token = &web.token;
    format!("{line} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{fields}\r\n")
}

/// Clients send a first request without a token, and a second with one on the same connection.
#[test]
fn closes_connections_without_a_token_in_time() {
    let web = Web::new();
    fs::write(web.data("file"), "x").unwrap();
    let nobody = "GET /data/file HTTP/1.1\r\nHost: x\r\n\r\n";
    let known = request(&web, "GET /data/file", "");
    let [mut stranger, mut client] = [Connection::open(&web), Connection::open(&web)];
    assert_eq!(client.exchange(nobody), Some(401));
    assert_eq!(client.exchange(&known), Some(200));
    let begin = Instant::now();
    let mut responses = 0;
    while stranger.try_exchange(nobody) == Some(401) {
        responses += 1;
        assert!(begin.elapsed() < Duration::from_secs(60), "it stays");
        assert_eq!(client.exchange(nobody), Some(401));
        sleep(Duration::from_secs(1));
    }
    assert!(responses > 10, "{responses}");
    assert!(begin.elapsed() > Duration::from_secs(15));
    sleep(Duration::from_secs(3));
    assert_eq!(client.exchange(&known), Some(200));
}

/// Connects from one of several addresses.
fn connect_from(address: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let here = SocketAddr::from(([127, 0, 1, address], 0));
    socket.bind(&here.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

/// 128 silent connections from four addresses leave room for a client with a token.
#[test]
fn evicts_unauthenticated_connections() {
    let web = Web::new();
    fs::write(web.data("file"), "x").unwrap();
    let url = web.site.https.clone().unwrap();
    let at: SocketAddr = url.trim_start_matches("https://").parse().unwrap();
    let mut idle: Vec<_> = (0..128)
        .map(|number| connect_from(number / 32, at))
        .collect();
    let user = format!("me:{}", web.token);
    let begin = Instant::now();
    let client = ["--insecure", "-u", &user, "--interface", "127.0.0.2"];
    assert_eq!(curl(&client, &format!("{url}/data/file")).0, 200);
    assert!(
        begin.elapsed() < Duration::from_secs(15),
        "it waited for one to end"
    );
    let refused = web.site.wait_for("refused");
    let from = refused["client"].as_str().unwrap();
    assert!(from.starts_with("127.0.1.0:"), "{from}");
    // The oldest connection is closed.
    idle[0].set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    assert_eq!(idle[0].read(&mut [0]).unwrap_or(0), 0);
}

/// The limits also apply to copies.
#[test]
fn unauthenticated_connections_block_no_copy() {
    let home = Home::new();
    let token = home.token(&["new", "me"]);
    let site = home.site(&[]);
    fs::write(home.data().join("file"), "x").unwrap();
    let idle: Vec<_> = (0..64)
        .map(|number| connect_from(number / 32, site.address))
        .collect();
    let client = Client::with_tokens(&[(&site, &token)]);
    let to = home.data().parent().unwrap().join("to");
    let begin = Instant::now();
    client.copy(&[&site.at("/file"), to.to_str().unwrap()]);
    assert!(begin.elapsed() < Duration::from_secs(15));
    drop(idle);
}

#[test]
fn refuses_pipelined_changes() {
    let web = Web::new();
    for (first, before) in [
        ("GET /data/a", ""),
        ("PUT /data/b", "Content-Length: 4\r\n"),
    ] {
        let body = if before.is_empty() { "" } else { "body" };
        let first = request(&web, first, before) + body;
        let empty = "Content-Length: 0\r\n";
        for (second, wanted) in [
            (request(&web, "DELETE /data/a#b", ""), 400),
            (request(&web, "PUT /data/a#b", empty), 400),
            (request(&web, "LOCK /data/a#b", empty), 400),
            (request(&web, "GET /data/a", ""), 200),
            (request(&web, "PROPFIND /data/a", empty), 207),
        ] {
            fs::write(web.data("a"), "a").unwrap();
            let mut connection = Connection::open(&web);
            connection.send(&format!("{first}{second}"));
            assert!(connection.receive().unwrap().status < 300);
            assert_eq!(connection.receive().unwrap().status, wanted, "{second}");
            assert_eq!(fs::read(web.data("a")).unwrap(), b"a");
        }
    }
    // After the response the next request is accepted.
    let mut connection = Connection::open(&web);
    connection.send(&(request(&web, "GET /data/a", "") + &request(&web, "DELETE /data/a", "")));
    let responses =
        [connection.receive(), connection.receive()].map(|response| response.unwrap().status);
    assert_eq!(responses, [200, 400]);
    assert_eq!(
        connection.exchange(&request(&web, "DELETE /data/a#b", "")),
        Some(400)
    );
    assert_eq!(
        connection.exchange(&request(&web, "DELETE /data/a", "")),
        Some(204)
    );
}

/// A body that nobody reads must not be parsed as a request.
#[test]
fn late_body_is_not_parsed_as_a_request() {
    let web = Web::new();
    fs::write(web.data("a"), "a").unwrap();
    let refused = |fields: &str| request(&web, "PUT /data/new/", fields);
    let delete = request(&web, "DELETE /data/a#b", "");
    // A short remainder is read, and the connection is reused.
    let mut connection = Connection::open(&web);
    let body = "x".repeat(1000);
    let put = refused("Content-Length: 1000\r\n");
    assert_eq!(connection.exchange(&format!("{put}{body}")), Some(409));
    assert_eq!(
        connection.exchange(&request(&web, "GET /data/a", "")),
        Some(200)
    );
    assert_eq!(connection.exchange(&delete), Some(400));
    for fields in [
        "Content-Length: 1000\r\n",
        "Content-Length: 1000000\r\n",
        "Content-Length: 1000\r\nExpect: 100-continue\r\n",
        "Transfer-Encoding: chunked\r\n",
    ] {
        let mut connection = Connection::open(&web);
        connection.send(&refused(fields));
        let response = connection.receive().unwrap();
        assert_eq!(response.status, 409, "{fields}");
        assert!(response.head.contains("connection: close"), "{fields}");
        let late = format!("3e8\r\n{body}\r\n0\r\n\r\n{delete}");
        let after = connection.try_exchange(&late);
        assert_eq!(after, None, "{fields}");
        assert_eq!(names(&web.home.data()), ["a"]);
    }
}

/// RFC 9112 §9.6: a client that is still sending would lose the response to a reset.
#[test]
fn refused_client_receives_the_response_while_sending() {
    let web = Web::new();
    let mut connection = Connection::open(&web);
    let head = request(&web, "PUT /data/new/", "Content-Length: 1000000\r\n");
    assert_eq!(connection.exchange(&head), Some(409));
    for _ in 0..3 {
        connection.send(&"x".repeat(1000));
        sleep(Duration::from_millis(50));
    }
    let mut rest = Vec::new();
    assert_eq!(connection.0.read_to_end(&mut rest).unwrap(), 0);
}

/// See RFC 9110 §14.6 and RFC 2046 §5.1.
#[test]
fn formats_multipart_byteranges() {
    let web = Web::new();
    let contents: Vec<u8> = (0..500_000_u32).map(|at| (at ^ (at >> 8)) as u8).collect();
    fs::write(web.data("file.png"), &contents).unwrap();
    let mut boundaries = Vec::new();
    for _ in 0..2 {
        let mut connection = Connection::open(&web);
        let range = "Range: bytes=7-10,100000-399999,-5\r\n";
        connection.send(&request(&web, "GET /data/file.png", range));
        let Response { status, head, body } = connection.receive().unwrap();
        assert_eq!(status, 206);
        assert!(
            head.contains("etag: ") && head.contains("last-modified: "),
            "{head}"
        );
        let (_, boundary) = head.split_once("multipart/byteranges; boundary=").unwrap();
        let boundary = boundary.lines().next().unwrap();
        let mut wanted = Vec::new();
        for (first, last) in [(7, 10), (100_000, 399_999), (499_995, 499_999)] {
            let part = format!(
                "\r\n--{boundary}\r\nContent-Type: image/png\r\nContent-Range: bytes {first}-{last}/500000\r\n\r\n"
            );
            wanted.extend(part.into_bytes());
            wanted.extend(&contents[first..=last]);
        }
        wanted.extend(format!("\r\n--{boundary}--\r\n").into_bytes());
        assert!(body == wanted);
        boundaries.push(boundary.to_owned());
        // The ranges are complete, without other bytes.
        assert_eq!(
            connection.exchange(&request(&web, "GET /data/file.png", "")),
            Some(200)
        );
    }
    assert_ne!(boundaries[0], boundaries[1]);
}

#[test]
fn ranges_need_get_and_a_matching_validator() {
    let web = Web::new();
    fs::write(web.data("file"), "x".repeat(1000)).unwrap();
    let mut connection = Connection::open(&web);
    let mut send_request = |method: &str, fields: &str| {
        connection.send(&request(&web, &format!("{method} /data/file"), fields));
        let head = connection.receive_head();
        (head[9..12].parse::<u16>().unwrap(), head)
    };
    let (_, head) = send_request("HEAD", "");
    let tag = head
        .lines()
        .find_map(|line| line.strip_prefix("etag: "))
        .unwrap();
    let many = format!("Range: bytes={}\r\n", vec!["0-0"; 40].join(","));
    assert_eq!(send_request("HEAD", "Range: bytes=0-9\r\n").0, 200);
    assert_eq!(send_request("HEAD", &many).0, 200);
    for other in [
        "\"x\"",
        &format!("W/{tag}"),
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "x",
    ] {
        let fields = format!("If-Range: {other}\r\n{many}");
        assert_eq!(send_request("HEAD", &fields).0, 200);
        let (status, bytes) = web.curl(
            &["-H", &format!("If-Range: {other}"), "-H", many.trim()],
            "/data/file",
        );
        assert_eq!((status, bytes.len()), (200, 1000), "{other}");
    }
    let modified = head
        .lines()
        .find_map(|line| line.strip_prefix("last-modified: "))
        .unwrap();
    for same in [tag, modified] {
        let part = ["-H", &format!("If-Range: {same}"), "-r", "1-2"];
        assert_eq!(web.curl(&part, "/data/file"), (206, b"xx".to_vec()));
        let part = ["-H", &format!("If-Range: {same}"), "-H", many.trim()];
        assert_eq!(web.status(&part, "/data/file"), 416);
    }
    // A client with the current version needs no range.
    let known = format!("If-None-Match: W/{tag}");
    assert_eq!(
        web.status(&["-H", &known, "-H", many.trim()], "/data/file"),
        304
    );
}
