// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests for http:// URLs that go to a peer over several legs: bodies in both directions, persistent connections,
//! upgrades, and every kind of end.

use longhaul_linux::socket::reset_on_close;
use longhaul_testnet::relay_process::{
    Relay, accept, connect, listen_as_origin, read_http_head, receive_bytes, send_bytes,
};
use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
};

const ANY: &str = "127.0.0.1:0";
const STREAMS: usize = 4;
const MIB: u64 = 1 << 20;

/// An HTTP proxy with several legs to another relay, and an origin.
struct Chain {
    near: Relay,
    far: Relay,
    listener: TcpListener,
    origin: SocketAddr,
    records: tempfile::TempDir,
}

impl Chain {
    fn new() -> Self {
        let records = tempfile::tempdir().unwrap();
        let file = |name: &str| records.path().join(name).display().to_string();
        let far = Relay::start(&["--convert", ANY, "--counters", &file("far")]);
        let (peer, streams) = (far.address("convert").to_string(), STREAMS.to_string());
        let out = ["--peer", &peer, "--streams", &streams, "--counters"];
        let near = Relay::start(&[&["--http", ANY][..], &out, &[&file("near")]].concat());
        let (listener, origin) = listen_as_origin();
        Self {
            near,
            far,
            listener,
            origin,
            records,
        }
    }

    fn connect(&self) -> TcpStream {
        connect(self.near.address("http"))
    }

    fn get(&self, client: &TcpStream, more: &str) {
        self.get_by("1.1", client, more);
    }

    fn get_by(&self, version: &str, mut client: &TcpStream, more: &str) {
        let at = self.origin;
        let head = format!("GET http://{at}/ HTTP/{version}\r\nHost: x\r\n{more}\r\n");
        client.write_all(head.as_bytes()).unwrap();
    }

    /// Stops both relays and returns the only record of each.
    fn records(self) -> [serde_json::Value; 2] {
        for relay in [self.near, self.far] {
            let (status, log) = relay.stop();
            assert!(status.success(), "{log}");
        }
        ["near", "far"].map(|name| {
            let text = std::fs::read_to_string(self.records.path().join(name)).unwrap();
            let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
            let mut records: Vec<serde_json::Value> = lines.collect();
            records.retain(|record| record["record"] == "connection");
            assert_eq!(records.len(), 1, "{name}: {records:?}");
            records.remove(0)
        })
    }
}

/// Answers a request with a body of `mib` MiB.
fn respond(mut server: &TcpStream, seed: u64, mib: u64) {
    read_http_head(&mut server);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", mib * MIB);
    server.write_all(head.as_bytes()).unwrap();
    send_bytes(server, seed, mib);
}

/// Downloads and uploads over one persistent connection.
fn exchange(chain: &Chain) {
    let client = chain.connect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let server = accept(&chain.listener);
            respond(&server, 1, 32);
            let mut reader = &server;
            read_http_head(&mut reader);
            receive_bytes(&server, 2, 32);
            (&server)
                .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
                .unwrap();
            respond(&server, 3, 16);
            assert_eq!(
                (&server).read(&mut [0]).unwrap(),
                0,
                "the proxy closes cleanly"
            );
        });
        chain.get(&client, "");
        read_http_head(&mut &client);
        receive_bytes(&client, 1, 32);
        let head = format!(
            "PUT http://{}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
            chain.origin,
            32 * MIB
        );
        (&client).write_all(head.as_bytes()).unwrap();
        send_bytes(&client, 2, 32);
        assert!(read_http_head(&mut &client).contains("204"));
        chain.get(&client, "");
        read_http_head(&mut &client);
        receive_bytes(&client, 3, 16);
        drop(client);
    });
}

/// Returns the number of legs that carried more than `least` bytes in a direction.
fn legs_with(record: &serde_json::Value, side: &str, counter: &str, least: u64) -> usize {
    let legs = record[side].as_array();
    let legs = legs.map_or(&[][..], Vec::as_slice);
    legs.iter()
        .filter(|leg| leg[counter].as_u64().unwrap() > least)
        .count()
}

#[test]
fn bodies_of_both_directions_use_every_leg() {
    let mut last = String::new();
    for _ in 0..20 {
        let chain = Chain::new();
        exchange(&chain);
        let [near, far] = chain.records();
        assert_eq!(
            (&near["ended"], &far["ended"]),
            (&"finished".into(), &"finished".into()),
            "{near} {far}"
        );
        let used = ["received_bytes", "acked_bytes"]
            .map(|counter| legs_with(&near, "upstream_streams", counter, 64 << 10));
        if used == [STREAMS; 2] {
            return;
        }
        last = near.to_string();
    }
    panic!("every leg carries data in one of the transfers: {last}");
}

#[test]
fn an_origin_that_resets_is_never_a_clean_end() {
    for (version, framing) in [
        ("1.1", "Content-Length: 99999999\r\n"),
        ("1.0", "Connection: close\r\n"),
    ] {
        let chain = Chain::new();
        let client = chain.connect();
        chain.get_by(version, &client, "");
        let server = accept(&chain.listener);
        read_http_head(&mut &server);
        write!(&server, "HTTP/1.1 200 OK\r\n{framing}\r\n").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                read_http_head(&mut &client);
                receive_bytes(&client, 4, 16);
            });
            send_bytes(&server, 4, 16);
        });
        reset_on_close(&server).unwrap();
        drop(server);
        let error = (&client).read(&mut [0; 64]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{framing}");
    }
}

#[test]
fn a_client_that_resets_resets_the_origin() {
    let chain = Chain::new();
    let client = chain.connect();
    chain.get(&client, "");
    let server = accept(&chain.listener);
    read_http_head(&mut &server);
    write!(
        &server,
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"
    )
    .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| send_bytes(&server, 5, 16));
        read_http_head(&mut &client);
        receive_bytes(&client, 5, 16);
    });
    reset_on_close(&client).unwrap();
    drop(client);
    let error = (&server).read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn an_upgrade_leaves_a_connection_with_several_legs() {
    let chain = Chain::new();
    let client = chain.connect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let first = accept(&chain.listener);
            respond(&first, 6, 16);
            let server = accept(&chain.listener);
            read_http_head(&mut &server);
            let switched =
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
            (&server).write_all(switched.as_bytes()).unwrap();
            receive_bytes(&server, 7, 4);
            send_bytes(&server, 8, 4);
        });
        chain.get(&client, "");
        read_http_head(&mut &client);
        receive_bytes(&client, 6, 16);
        chain.get(&client, "Connection: upgrade\r\nUpgrade: echo\r\n");
        assert!(read_http_head(&mut &client).contains("101"));
        send_bytes(&client, 7, 4);
        receive_bytes(&client, 8, 4);
    });
}
