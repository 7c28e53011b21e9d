// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access log of HTTP listeners: one record for each request, and what each says.

use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, connect, listen_as_origin, parse_http_status, read_array,
    read_http_head, refusing_address,
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    thread::{sleep, spawn},
    time::{Duration, Instant},
};
use tempfile::TempDir;

const ANY: &str = "127.0.0.1:0";

struct Fixture {
    relay: Relay,
    directory: TempDir,
}

fn fixture(flags: &[&str], config: &str) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let users = directory.path().join("users");
    fs::write(&users, "me:secret\n").unwrap();
    fs::set_permissions(&users, fs::Permissions::from_mode(0o600)).unwrap();
    let config_file = directory.path().join("config");
    fs::write(&config_file, config).unwrap();
    let paths = [&config_file, &log].map(|path: &PathBuf| path.to_str().unwrap().to_owned());
    let fixed = [
        "--http",
        ANY,
        "--config",
        &paths[0],
        "--access-log",
        &paths[1],
    ];
    let flags: Vec<_> = flags
        .iter()
        .map(|flag| flag.replace("USERS", users.to_str().unwrap()))
        .collect();
    let flags = flags.iter().map(String::as_str);
    let all: Vec<_> = fixed.into_iter().chain(flags).collect();
    Fixture {
        relay: Relay::start(&all),
        directory,
    }
}

impl Fixture {
    fn client(&self) -> TcpStream {
        connect(self.relay.address("http"))
    }

    /// Waits for so many records, and asserts that there are no more.
    fn records(&self, count: usize) -> Vec<Value> {
        let start = Instant::now();
        loop {
            let text = fs::read_to_string(self.directory.path().join("log")).unwrap();
            let lines = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
            let records: Vec<_> = lines.map(|l| serde_json::from_str(l).unwrap()).collect();
            if records.len() >= count {
                assert_eq!(records.len(), count, "{records:?}");
                return records;
            }
            assert!(start.elapsed() < TEST_TIMEOUT, "{records:?}");
            sleep(Duration::from_millis(10));
        }
    }
}

/// Serves one request with the body `hello` on a new connection, and keeps it.
fn serve() -> (SocketAddr, std::thread::JoinHandle<TcpStream>) {
    let (listener, at) = listen_as_origin();
    let server = spawn(move || {
        let mut server = accept(&listener);
        read_http_head(&mut server);
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello";
        server.write_all(answer).unwrap();
        server
    });
    (at, server)
}

fn ask(client: &mut TcpStream, text: &str) -> u16 {
    let text = text.replace('\n', "\r\n");
    client.write_all(text.as_bytes()).unwrap();
    parse_http_status(&read_http_head(client))
}

fn fields(record: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| record[*name].clone()).collect()
}

/// Requests of one connection to several destinations, one of which refuses.
#[test]
fn each_request_has_a_record_with_its_own_destination() {
    let fixture = fixture(&[], "");
    let mut client = fixture.client();
    let mut wanted = Vec::new();
    for path in ["/a", "/b?c"] {
        let (at, server) = serve();
        let url = format!("http://{at}{path}");
        let head = format!("PUT {url} HTTP/1.1\nHost: x\nContent-Length: 3\n\nabc");
        assert_eq!(ask(&mut client, &head), 201);
        assert_eq!(read_array(&mut client), *b"hello");
        wanted.push(json!([
            "PUT",
            url,
            201,
            3,
            5,
            at.to_string(),
            "finished",
            null
        ]));
        drop(server.join().unwrap());
    }
    let (_refusing, at) = refusing_address();
    let url = format!("http://{at}/d");
    let head = format!("GET {url} HTTP/1.1\nHost: x\nConnection: close\n\n");
    assert_eq!(ask(&mut client, &head), 502);
    client.read_to_string(&mut String::new()).unwrap();
    let records = fixture.records(3);
    let names = [
        "method",
        "target",
        "status",
        "bytes_up",
        "bytes_down",
        "next_hop",
    ];
    for (record, want) in records.iter().zip(&wanted) {
        assert_eq!(record["record"], "request");
        let got = fields(record, &[&names[..], &["ended", "cause"]].concat());
        assert_eq!(got, *want);
        assert!(record["duration_s"].as_f64() >= record["response_s"].as_f64());
    }
    let last = fields(
        &records[2],
        &["method", "target", "status", "next_hop", "ended"],
    );
    assert_eq!(last, json!(["GET", url, 502, null, "failed"]));
    let cause = records[2]["cause"].as_str().unwrap();
    assert!(cause.contains("connection refused"), "{cause}");
}

#[test]
fn denied_requests_appear_with_status_and_user() {
    let config = "[[route]]\nports = ['1']\ndeny = true\n";
    let fixture = fixture(&["--users", "USERS"], config);
    let mut client = fixture.client();
    let wrong = "Proxy-Authorization: Basic bWU6d3Jvbmc=";
    let right = "Proxy-Authorization: Basic bWU6c2VjcmV0";
    let url = "http://me:secret@127.0.0.1:1/x";
    for (field, status) in [("X: y", 407), (wrong, 407), (right, 403)] {
        let mut client = fixture.client();
        let head = format!("GET {url} HTTP/1.1\nHost: x\nConnection: close\n{field}\n\n");
        assert_eq!(ask(&mut client, &head), status);
        client.read_to_string(&mut String::new()).unwrap();
    }
    // Not HTTP.
    assert_eq!(ask(&mut client, "x y\n\n"), 400);
    client.shutdown(Shutdown::Write).unwrap();
    client.read_to_string(&mut String::new()).unwrap();
    let names = ["user", "method", "target", "status", "ended"];
    let target = "http://127.0.0.1:1/x";
    let got: Vec<_> = fixture
        .records(4)
        .iter()
        .map(|r| fields(r, &names))
        .collect();
    assert_eq!(got[0], json!([null, "GET", target, 407, "failed"]));
    assert_eq!(got[1], json!([null, "GET", target, 407, "failed"]));
    assert_eq!(got[2], json!(["me", "GET", target, 403, "failed"]));
    assert_eq!(got[3], json!([null, null, null, 400, "failed"]));
}

#[test]
fn tunnel_has_one_record_with_all_its_bytes() {
    let fixture = fixture(&[], "");
    let (listener, at) = listen_as_origin();
    let mut client = fixture.client();
    let head = format!("CONNECT {at} HTTP/1.1\nHost: x\n\n");
    assert_eq!(ask(&mut client, &head), 200);
    let mut server = accept(&listener);
    client.write_all(&[b'u'; 1000]).unwrap();
    assert_eq!(read_array(&mut server), [b'u'; 1000]);
    server.write_all(&[b'd'; 3000]).unwrap();
    assert_eq!(read_array(&mut client), [b'd'; 3000]);
    drop((client, server));
    let record = &fixture.records(1)[0];
    let got = fields(record, &["record", "method", "target", "status", "ended"]);
    let target = at.to_string();
    assert_eq!(got, json!(["request", "CONNECT", target, 200, "finished"]));
    for (name, bytes) in [("bytes_up", 1000), ("bytes_down", 3000)] {
        let head = record[name].as_u64().unwrap() - bytes;
        assert!((1..200).contains(&head), "{record}");
    }
}

#[test]
fn common_log_format_has_a_line_for_each_request() {
    let fixture = fixture(&[], "[counters]\naccess_log_format = 'common'\n");
    let (at, server) = serve();
    let mut client = fixture.client();
    let head = format!("GET http://{at}/a HTTP/1.1\nHost: x\n\n");
    assert_eq!(ask(&mut client, &head), 201);
    assert_eq!(read_array(&mut client), *b"hello");
    drop(server.join().unwrap());
    let (_, _) = fixture.relay.stop();
    let text = fs::read_to_string(fixture.directory.path().join("log")).unwrap();
    let want = format!("] \"GET http://{at}/a HTTP/1.1\" 201 5\n");
    assert!(
        text.starts_with("127.0.0.1 - - [") && text.ends_with(&want),
        "{text}"
    );
}

/// The health check of a load balancer connects and leaves, or sends a request.
#[test]
fn clients_that_are_left_out_have_no_records() {
    let fixture = fixture(
        &["--accept-proxy"],
        "[counters]\naccess_log_except = ['192.0.2.0/28']\n",
    );
    let request = |source: &str| {
        let mut client = fixture.client();
        let header = format!("PROXY TCP4 {source} 127.0.0.1 1 2\r\n");
        client.write_all(header.as_bytes()).unwrap();
        let request =
            "TRACE http://x.test/ HTTP/1.1\nHost: x\nMax-Forwards: 0\nConnection: close\n\n";
        assert_eq!(ask(&mut client, request), 200);
        client.read_to_string(&mut String::new()).unwrap();
    };
    request("192.0.2.1");
    request("192.0.2.99");
    let records = fixture.records(1);
    assert_eq!(records[0]["client"], "192.0.2.99:1");
}

/// A response that the origin cuts short, one that the client does not wait for, and a request without an end.
#[test]
fn record_says_who_ended_an_exchange() {
    let fixture = fixture(&[], "");
    let (listener, at) = listen_as_origin();
    let begin = || {
        let mut client = fixture.client();
        let head = format!("GET http://{at}/ HTTP/1.1\r\nHost: x\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        let mut server = accept(&listener);
        read_http_head(&mut server);
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello";
        server.write_all(answer).unwrap();
        read_http_head(&mut client);
        assert_eq!(read_array(&mut client), *b"hello");
        (client, server)
    };
    let (client, server) = begin();
    drop(server);
    assert_eq!(fixture.records(1)[0]["ended"], "destination_aborted");
    drop(client);
    let (client, server) = begin();
    longhaul_linux::socket::reset_on_close(&client).unwrap();
    drop(client);
    assert_eq!(fixture.records(2)[1]["ended"], "client_aborted");
    drop(server);
    let mut client = fixture.client();
    let head = format!("PUT http://{at}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc");
    client.write_all(head.as_bytes()).unwrap();
    let mut server = accept(&listener);
    read_http_head(&mut server);
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(parse_http_status(&read_http_head(&mut client)), 400);
    let record = &fixture.records(3)[2];
    let got = fields(record, &["method", "status", "bytes_up", "ended"]);
    assert_eq!(got, json!(["PUT", 400, 3, "failed"]));
    assert!(
        record["cause"].as_str().unwrap().contains("cut short"),
        "{record}"
    );
}
