// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access log: one record for each HTTP request or connection, further ones while a tunnel is open, and what each says.

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

    fn all_records(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.directory.path().join("log")).unwrap();
        let lines = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
        lines.map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    /// Waits for so many records, and asserts that there are no more.
    fn records(&self, count: usize) -> Vec<Value> {
        let start = Instant::now();
        loop {
            let records = self.all_records();
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

/// Greets a SOCKS5 proxy as `me` with a password, and returns its answer to the password.
fn log_in_by_socks5(client: &mut TcpStream, password: &str) -> u8 {
    client.write_all(b"\x05\x01\x02").unwrap();
    assert_eq!(read_array(client), *b"\x05\x02");
    let len = u8::try_from(password.len()).unwrap();
    let credentials = [b"\x01\x02me", &[len][..], password.as_bytes()].concat();
    client.write_all(&credentials).unwrap();
    read_array::<2>(client)[1]
}

fn connect_by_socks5(client: &mut TcpStream, to: SocketAddr) {
    let SocketAddr::V4(to) = to else {
        panic!("{to} is not IPv4")
    };
    let (address, port) = (to.ip().octets(), to.port().to_be_bytes());
    let request = [b"\x05\x01\x00\x01", &address[..], &port].concat();
    client.write_all(&request).unwrap();
    assert_eq!(read_array::<10>(client)[1], 0);
}

#[test]
fn user_of_socks5_is_in_the_record_once_proved() {
    let fixture = fixture(&["--socks5", ANY, "--users", "USERS"], "");
    let (listener, at) = listen_as_origin();
    let mut client = connect(fixture.relay.address("socks5"));
    assert_eq!(log_in_by_socks5(&mut client, "wrong"), 1);
    drop(client);
    let record = &fixture.records(1)[0];
    assert_eq!(record["user"], Value::Null, "{record}");
    let mut client = connect(fixture.relay.address("socks5"));
    assert_eq!(log_in_by_socks5(&mut client, "secret"), 0);
    connect_by_socks5(&mut client, at);
    drop((accept(&listener), client));
    let record = &fixture.records(2)[1];
    let got = fields(record, &["kind", "user", "destination"]);
    assert_eq!(got, json!(["socks5", "me", at.to_string()]));
}

/// Waits for a tunnel's record that says `ended` and has all bytes from the client. Earlier ones say `open`.
fn wait_for_record(fixture: &Fixture, kind: &str, ended: &str, bytes_up: u64) -> Value {
    let start = Instant::now();
    loop {
        let records = fixture.all_records();
        let mut of_kind = records.iter().filter(|record| {
            let is_http = record["method"] == "CONNECT" && kind == "http";
            is_http || record["kind"] == kind
        });
        let is_wanted = |record: &&Value| {
            assert!([ended, "open"].contains(&record["ended"].as_str().unwrap()));
            record["ended"] == ended && record["bytes_up"].as_u64() >= Some(bytes_up)
        };
        if let Some(record) = of_kind.find(is_wanted) {
            assert!(of_kind.next().is_none() || ended == "open", "{records:?}");
            return record.clone();
        }
        assert!(start.elapsed() < TEST_TIMEOUT, "{kind}: {records:?}");
        sleep(Duration::from_millis(10));
    }
}

/// A relay that is the peer of another one records its tunnels as `convert`.
#[test]
fn open_tunnels_have_records_at_intervals_and_one_at_their_end() {
    let (listener, at) = listen_as_origin();
    let destination = format!("{ANY}={at}");
    let interval = "[counters]\naccess_log_interval = '1s'\n";
    let kinds = ["--socks5", ANY, "--forward", &destination, "--convert", ANY];
    let fixture = fixture(&kinds, interval);
    let peer = fixture.relay.address("convert").to_string();
    let nearer = Relay::start(&["--forward", &destination, "--peer", &peer]);
    let begin = |kind: &str| {
        let address = match kind {
            "convert" => nearer.address("forward"),
            kind => fixture.relay.address(kind),
        };
        let mut client = connect(address);
        match kind {
            "http" => {
                let head = format!("CONNECT {at} HTTP/1.1\nHost: x\n\n");
                assert_eq!(ask(&mut client, &head), 200);
            }
            "socks5" => {
                client.write_all(b"\x05\x01\x00").unwrap();
                assert_eq!(read_array(&mut client), *b"\x05\x00");
                connect_by_socks5(&mut client, at);
            }
            _ => client.write_all(b"x").unwrap(),
        }
        (client, accept(&listener))
    };
    let kinds = ["http", "socks5", "forward", "convert"];
    let mut tunnels = kinds.map(|kind| (kind, begin(kind)));
    for bytes in [1000, 2000] {
        for (_, (client, _)) in &mut tunnels {
            client.write_all(&[b'u'; 1000]).unwrap();
        }
        for kind in kinds {
            let record = wait_for_record(&fixture, kind, "open", bytes);
            assert_eq!(record["cause"], Value::Null);
            assert!(record["duration_s"].as_f64() >= Some(1.0), "{record}");
            assert!(record["next_hop"].is_string(), "{record}");
        }
    }
    for (kind, (client, mut server)) in tunnels {
        client.shutdown(Shutdown::Write).unwrap();
        server.read_to_end(&mut Vec::new()).unwrap();
        drop((server, client));
        wait_for_record(&fixture, kind, "finished", 2000);
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
    let got = fields(
        record,
        &["method", "status", "bytes_up", "ended", "next_hop"],
    );
    assert_eq!(
        got,
        json!(["PUT", 400, 3, "client_aborted", at.to_string()])
    );
    assert!(
        record["cause"].as_str().unwrap().contains("cut short"),
        "{record}"
    );
}
