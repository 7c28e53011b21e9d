// SPDX-License-Identifier: MIT OR Apache-2.0
//! Striping: one client's connection over several legs between two relays. Tests the bytes, every
//! kind of end, refusals, and peers without support for it.

use longhaul_linux::{socket::reset_on_close, tcp_info::TcpInfo};
use longhaul_protocol::{
    convert::{Answer, ErrorCode, FirstMessage, GroupId, Join, Request, Stripes},
    destination::Destination,
    stripe::Frame,
};
use longhaul_testnet::link_process::Testbed;
use longhaul_testnet::relay_process::{
    Relay, accept, connect, dial, listen_as_origin, read_array, read_convert_answer, receive, send,
    transfer_both_ways,
};
use std::{
    fmt::Write as _,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::mpsc::{Receiver, channel},
};

const ANY: &str = "127.0.0.1:0";
const STREAMS: usize = 4;

/// Two relays with several legs between them, and the directory of the near one's records.
struct Pipeline {
    near: Relay,
    far: Relay,
    listener: TcpListener,
    directory: tempfile::TempDir,
}

impl Pipeline {
    fn new(more_near: &[&str], more_far: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let far = Relay::start(&[&["--convert", ANY][..], more_far].concat());
        let (listener, address) = listen_as_origin();
        let counters = directory.path().join("near").display().to_string();
        let near = near_relay(far.address("convert"), address, more_near, &counters);
        Self {
            near,
            far,
            listener,
            directory,
        }
    }

    fn pair(&self) -> (TcpStream, TcpStream) {
        let client = connect(self.near.address("forward"));
        (client, accept(&self.listener))
    }

    /// Stops both relays and returns the near one's record of its only connection.
    fn record(self) -> serde_json::Value {
        let (status, log) = self.near.stop();
        assert!(status.success(), "{log}");
        assert!(self.far.stop().0.success());
        let text = std::fs::read_to_string(self.directory.path().join("near")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut records: Vec<serde_json::Value> = lines.collect();
        records.retain(|record| record["record"] == "connection");
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0)
    }
}

fn near_relay(peer: SocketAddr, to: SocketAddr, more: &[&str], counters: &str) -> Relay {
    let forward = format!("{ANY}={to}");
    let (peer, streams) = (peer.to_string(), STREAMS.to_string());
    let args = [
        "--forward",
        &forward,
        "--peer",
        &peer,
        "--streams",
        &streams,
    ];
    Relay::start(&[&args[..], &["--counters", counters], more].concat())
}

/// Minimum of bytes on a leg that has carried data: more than its handshake, even with TLS.
const DATA_BYTES_MIN: u64 = 64 << 10;

/// Returns the number of legs that carried data. The shares are up to the scheduler here, where no
/// leg is slower than another: one leg had a fourteenth of an even share once.
fn legs_with_data(record: &serde_json::Value) -> usize {
    let legs = record["upstream_streams"].as_array();
    let legs = legs.map_or(&[][..], Vec::as_slice);
    let carried = |leg: &&serde_json::Value| {
        let both = leg["acked_bytes"].as_u64().unwrap() + leg["received_bytes"].as_u64().unwrap();
        both > DATA_BYTES_MIN
    };
    legs.iter().filter(carried).count()
}

/// Repeats a transfer until every leg has carried data: a fast one may be over before the last leg has joined.
fn repeat_until_striped(transfer: impl Fn() -> serde_json::Value) -> serde_json::Value {
    let mut records = (0..20).map(|_| transfer());
    let striped = records.find(|record| legs_with_data(record) == STREAMS);
    striped.expect("every leg carries data in one of the transfers")
}

#[test]
fn every_leg_carries_data() {
    for mode in ["splice", "copy"] {
        let record = repeat_until_striped(|| {
            let through = Pipeline::new(&["--mode", mode], &["--mode", mode]);
            let (client, server) = through.pair();
            transfer_both_ways(&client, &server, 64);
            drop((client, server));
            through.record()
        });
        let bytes = 64 << 20;
        assert_eq!(record["ended"], "finished", "{mode}: {record}");
        assert_eq!(record["bytes_up"], bytes, "{mode}");
        assert_eq!(record["bytes_down"], bytes, "{mode}");
    }
}

#[test]
fn tls_protects_every_leg() {
    let record = repeat_until_striped(transfer_with_tls);
    assert_eq!(record["ended"], "finished", "{record}");
}

/// Transfers over legs with TLS, and returns the record.
fn transfer_with_tls() -> serde_json::Value {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display();
    let made = Command::new(longhaul_testprograms::longhaul())
        .args(["relay", "--make-certificates"])
        .arg(directory.path())
        .args(["near", "far"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let tls = |owner: &str| {
        format!(
            "tls = {{ ca = '{path}/ca.pem', certificate = '{path}/{owner}.pem', \
             key = '{path}/{owner}-key.pem' }}\n"
        )
    };
    let (listener, address) = listen_as_origin();
    let mut text = format!(
        "[[listener]]\nkind = 'convert'\naddress = '{ANY}'\n{}",
        tls("far")
    );
    let far = Relay::start_with_config(&text, 1);
    text.clear();
    write!(
        text,
        "[[listener]]\nkind = 'forward'\naddress = '{ANY}'\ndestination = '{address}'\n\
         [[route]]\nvia = ['far']\n[counters]\nfile = '{path}/near'\n\
         [peer.far]\nstreams = {STREAMS}\naddress = '{}'\n{}",
        far.address("convert"),
        tls("near")
    )
    .unwrap();
    let near = Relay::start_with_config(&text, 1);
    let through = Pipeline {
        near,
        far,
        listener,
        directory,
    };
    let (client, server) = through.pair();
    transfer_both_ways(&client, &server, 16);
    drop((client, server));
    through.record()
}

#[test]
fn stripes_two_hops_independently() {
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    let middle = Relay::start(&["--convert", ANY, "--peer", &peer, "--streams", "3"]);
    let (listener, address) = listen_as_origin();
    let near = near_relay(middle.address("convert"), address, &[], "/dev/null");
    let client = connect(near.address("forward"));
    transfer_both_ways(&client, &accept(&listener), 32);
}

#[test]
fn pooled_connections_join_group() {
    let record = repeat_until_striped(|| {
        let through = Pipeline::new(&["--peer-pool", "8", "--workers", "1"], &[]);
        let (client, server) = through.pair();
        transfer_both_ways(&client, &server, 16);
        drop((client, server));
        through.record()
    });
    assert_eq!(record["ended"], "finished", "{record}");
}

#[test]
fn directions_end_independently() {
    let through = Pipeline::new(&[], &[]);
    // The client ends first and the server sends much afterwards, and the other way round.
    for client_first in [true, false] {
        let (client, server) = through.pair();
        let (first, second) = if client_first {
            (&client, &server)
        } else {
            (&server, &client)
        };
        send(first, 1, 1);
        receive(second, 1, 1);
        send(second, 2, 8);
        receive(first, 2, 8);
    }
    // No data before the end.
    let (client, mut server) = through.pair();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    server.write_all(b"late").unwrap();
    let mut client = client;
    assert_eq!(read_array(&mut client), *b"late");
}

/// Reads to the end, and returns the error that ends the connection.
fn end_of(mut stream: &TcpStream) -> ErrorKind {
    let mut bytes = vec![0; 1 << 16];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => panic!("a clean end"),
            Ok(_) => {}
            Err(error) => return error.kind(),
        }
    }
}

/// Transfers enough in both directions for every leg to be used.
fn warm_up(client: &TcpStream, server: &TcpStream) {
    for (mut from, mut to) in [(client, server), (server, client)] {
        std::thread::scope(|scope| {
            scope.spawn(move || from.write_all(&vec![1; 4 << 20]).unwrap());
            to.read_exact(&mut vec![0; 4 << 20]).unwrap();
        });
    }
}

#[test]
fn passes_on_reset() {
    let through = Pipeline::new(&[], &[]);
    for client_resets in [true, false] {
        for warm in [true, false] {
            let (client, server) = through.pair();
            if warm {
                warm_up(&client, &server);
            }
            let (who, other) = if client_resets {
                (client, server)
            } else {
                (server, client)
            };
            reset_on_close(&who).unwrap();
            drop(who);
            assert_eq!(end_of(&other), ErrorKind::ConnectionReset);
        }
    }
}

/// Forwarder between two relays that can cut single connections.
struct Forwarder {
    address: SocketAddr,
    cut: std::sync::Arc<std::sync::Mutex<Vec<[TcpStream; 2]>>>,
}

impl Forwarder {
    /// Forwards `most` connections; further ones are closed at once.
    fn to(peer: SocketAddr, most: usize) -> Self {
        let (listener, address) = listen_as_origin();
        let cut = std::sync::Arc::<std::sync::Mutex<Vec<[TcpStream; 2]>>>::default();
        let all = cut.clone();
        // The thread ends with the test process.
        std::thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                if all.lock().unwrap().len() == most {
                    continue;
                }
                let far = TcpStream::connect(peer).unwrap();
                copy_both(&near, &far);
                all.lock().unwrap().push([near, far]);
            }
        });
        Self { address, cut }
    }

    /// Returns how many connections have carried data in both directions.
    fn used(&self) -> usize {
        let connections = self.cut.lock().unwrap();
        let is_used = |[near, _]: &&[TcpStream; 2]| {
            let info = TcpInfo::of(near).unwrap();
            info.acked_bytes.min(info.received_bytes) > DATA_BYTES_MIN
        };
        connections.iter().filter(is_used).count()
    }

    /// Ends one connection on both sides, by FIN as far as TCP can tell.
    fn cut(&self, n: usize) {
        for end in &self.cut.lock().unwrap()[n] {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

/// Copies bytes in both directions until both have ended.
fn copy_both(near: &TcpStream, far: &TcpStream) {
    for (from, to) in [(near, far), (far, near)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        std::thread::spawn(move || {
            // An error is an end as well, which other tests check.
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}

/// Forwards one connection, and closes the listener before the first byte.
fn forward_once(peer: SocketAddr) -> SocketAddr {
    let (listener, address) = listen_as_origin();
    std::thread::spawn(move || {
        let near = accept(&listener);
        // Closing is not enough: a child of another test may still have the socket, until it executes its program.
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        drop(listener);
        copy_both(&near, &TcpStream::connect(peer).unwrap());
    });
    address
}

fn with_forwarder(most: usize) -> (Pipeline, Forwarder) {
    let directory = tempfile::tempdir().unwrap();
    let far = Relay::start(&["--convert", ANY]);
    let forwarder = Forwarder::to(far.address("convert"), most);
    let (listener, address) = listen_as_origin();
    let counters = directory.path().join("near").display().to_string();
    let near = near_relay(forwarder.address, address, &[], &counters);
    let through = Pipeline {
        near,
        far,
        listener,
        directory,
    };
    (through, forwarder)
}

#[test]
fn cut_leg_resets_both_ends() {
    for n in 0..STREAMS {
        let (through, forwarder) = with_forwarder(STREAMS);
        let (client, server) = through.pair();
        while forwarder.used() < STREAMS {
            warm_up(&client, &server);
        }
        forwarder.cut(n);
        assert_eq!(end_of(&client), ErrorKind::ConnectionReset, "leg {n}");
        assert_eq!(end_of(&server), ErrorKind::ConnectionReset, "leg {n}");
    }
}

#[test]
fn works_without_legs_that_cannot_join() {
    for most in [1, 2] {
        let (through, _forwarder) = with_forwarder(most);
        let (client, server) = through.pair();
        transfer_both_ways(&client, &server, 8);
        drop((client, server));
        let record = through.record();
        assert_eq!(record["ended"], "finished", "{record}");
        let joined = record["upstream_streams"].as_array().map_or(1, Vec::len);
        assert!(joined <= most, "{record}");
    }
}

/// Returns the last counters record.
fn counters(text: &str) -> serde_json::Value {
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let of_all = |record: &serde_json::Value| record["record"] == "relay";
    lines.rfind(of_all).unwrap()
}

/// HTTP CONNECT waits for the peer's answer before further legs are opened. So the first leg is
/// connected when the others are refused.
#[test]
fn failed_joins_do_not_mark_peer_down() {
    let directory = tempfile::tempdir().unwrap();
    let (listener, address) = listen_as_origin();
    let far = Relay::start(&["--convert", ANY]);
    let path = directory.path().join("near").display().to_string();
    let peer = forward_once(far.address("convert")).to_string();
    let args = ["--http", ANY, "--peer", &peer, "--streams", "4"];
    let near = Relay::start(&[&args[..], &["--counters", &path]].concat());
    let to = Destination::Address(address);
    let client = dial("http", near.address("http"), &to).unwrap();
    near.wait_for_stderr("could not join");
    transfer_both_ways(&client, &accept(&listener), 8);
    drop(client);
    let (status, log) = near.stop();
    assert!(status.success() && !log.contains("is down"), "{log}");
    let message = "3 streams could not join: connection refused";
    assert_eq!(log.matches(message).count(), 1, "{log}");
    let counter_args = counters(&std::fs::read_to_string(&path).unwrap());
    let peer = &counter_args["peers"][0];
    assert!(peer["down_s"].is_null(), "{peer}");
    assert_eq!(
        (&peer["failures"], &peer["streams_missing"]),
        (&0.into(), &3.into())
    );
}

/// Reads the first message of every connection to a peer.
fn openings(peer: TcpListener) -> Receiver<(FirstMessage, TcpStream)> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for mut stream in peer.incoming().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                // A connection without a request ends with the relay.
                if stream.peek(&mut [0]).is_ok_and(|len| len > 0) {
                    let opening = read_opening(&mut stream);
                    let _ = sender.send((opening, stream));
                }
            });
        }
    });
    receiver
}

/// Waits until a relay that writes its counters often has this number of pooled connections.
fn until_ready(counters_file: &std::path::Path, count: u64) {
    let begun = std::time::Instant::now();
    loop {
        let text = std::fs::read_to_string(counters_file).unwrap_or_default();
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        if !whole.is_empty() && counters(whole)["peers"][0]["pool_idle"] == count {
            return;
        }
        assert!(
            begun.elapsed() < longhaul_testnet::relay_process::TEST_TIMEOUT,
            "{text}"
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// The pooled connection died unnoticed.
#[test]
fn replaces_dead_pooled_connection_that_joins() {
    let (listener, peer) = listen_as_origin();
    let openings = openings(listener);
    let peer = peer.to_string();
    let args = ["--http", ANY, "--peer", &peer, "--streams", "2"];
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("near");
    let counter_args = ["--counters", file.to_str().unwrap(), "--interval", "20ms"];
    let pool = ["--peer-pool", "2", "--workers", "1"];
    let near = Relay::start(&[&args[..], &pool, &counter_args].concat());
    until_ready(&file, 2);
    let client = std::thread::spawn({
        let (to, relay) = ("192.0.2.7:7".parse().unwrap(), near.address("http"));
        move || dial("http", relay, &to).unwrap()
    });
    let next = || {
        openings
            .recv_timeout(longhaul_testnet::relay_process::TEST_TIMEOUT)
            .unwrap()
    };
    let (FirstMessage::Request(_), mut first) = next() else {
        panic!("no request");
    };
    first.write_all(&Answer::Accepted.encode()).unwrap();
    let (FirstMessage::Join(once), stale) = next() else {
        panic!("no join");
    };
    drop(stale);
    let (FirstMessage::Join(again), mut second) = next() else {
        panic!("no other join");
    };
    assert_eq!(once, again);
    second.write_all(&Answer::Accepted.encode()).unwrap();
    drop((client.join().unwrap(), first, second));
    let (_, log) = near.stop();
    assert!(!log.contains("could not join"), "{log}");
}

#[test]
fn slow_reader_limits_buffered_bytes() {
    let through = Pipeline::new(&["--interval", "20ms"], &[]);
    let (client, server) = through.pair();
    client.set_nonblocking(true).unwrap();
    let chunk: Vec<u8> = (0..1 << 16).map(|i| (i * 7 + i / 256) as u8).collect();
    let (mut sent, mut idle) = (0usize, 0);
    // Until no progress is made for a while; a client without back-pressure ends here too.
    while idle < 50 {
        let at = sent % chunk.len();
        match (&client).write(&chunk[at..]) {
            Ok(bytes) => (sent, idle) = (sent + bytes, 0),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                std::thread::sleep(std::time::Duration::from_millis(10));
                idle += 1;
            }
        }
        assert!(sent < 1 << 30, "nothing holds the client up");
    }
    let text = std::fs::read_to_string(through.directory.path().join("near")).unwrap();
    let last = text.lines().rfind(|line| line.ends_with('}')).unwrap();
    let record: serde_json::Value = serde_json::from_str(last).unwrap();
    let held = record["total"]["bytes_buffered"].as_u64().unwrap();
    // A piece for each leg, and the last one of the first leg before the others joined.
    assert!(held <= ((STREAMS << 16) + (1 << 20)) as u64, "{held}");
    client.shutdown(Shutdown::Write).unwrap();
    let mut got = vec![0; 1 << 16];
    let mut received = 0;
    while let len @ 1.. = (&server).read(&mut got).unwrap() {
        for (i, byte) in got[..len].iter().enumerate() {
            assert_eq!(*byte, chunk[(received + i) % chunk.len()]);
        }
        received += len;
    }
    assert_eq!(received, sent);
}

fn read_opening(stream: &mut TcpStream) -> FirstMessage {
    let mut bytes = Vec::new();
    loop {
        bytes.extend(read_array::<1>(stream));
        if let Some((opening, _)) = FirstMessage::parse(&bytes).unwrap() {
            return opening;
        }
    }
}

/// A relay that does not know groups ignores the offer, and refuses legs that join.
#[test]
fn peer_without_striping_gets_one_leg() {
    let (listener, peer) = listen_as_origin();
    let openings = openings(listener);
    let near = near_relay(
        peer,
        "192.0.2.7:7".parse().unwrap(),
        &["--workers", "1"],
        "/dev/null",
    );
    let next = || openings.recv_timeout(longhaul_testnet::relay_process::TEST_TIMEOUT);
    let mut client = connect(near.address("forward"));
    client.write_all(b"before").unwrap();
    let (FirstMessage::Request(request), mut first) = next().unwrap() else {
        panic!("no request");
    };
    assert_eq!(request.stripes.map(|s| s.count), Some(STREAMS as u8));
    assert_eq!(read_array(&mut first), *b"before", "without a header");
    first.write_all(&Answer::Accepted.encode()).unwrap();
    for _ in 1..STREAMS {
        let (FirstMessage::Join(_), mut leg) = next().unwrap() else {
            panic!("no join");
        };
        let refused = Answer::refused(ErrorCode::NotAuthorized);
        leg.write_all(&refused.encode()).unwrap();
    }
    near.wait_for_stderr("supports one stream only");
    client.write_all(b"after").unwrap();
    assert_eq!(read_array(&mut first), *b"after");
    first.write_all(b"answer").unwrap();
    assert_eq!(read_array(&mut client), *b"answer");
    // The next request offers no group.
    let _client = connect(near.address("forward"));
    let (FirstMessage::Request(request), _third) = next().unwrap() else {
        panic!("no request");
    };
    assert_eq!(request.stripes, None);
}

/// Sends a request for several legs, as a relay does.
fn ask(relay: SocketAddr, to: SocketAddr, group: GroupId, count: u8) -> (TcpStream, Answer) {
    let request = Request {
        stripes: Some(Stripes {
            group,
            count,
            automatic: false,
        }),
        ..Request::new(Destination::Address(to), vec![])
    };
    let mut stream = connect(relay);
    stream.write_all(&request.encode()).unwrap();
    let answer = read_convert_answer(&mut stream);
    (stream, answer)
}

fn join(mut stream: TcpStream, group: GroupId) -> (TcpStream, Answer) {
    stream
        .write_all(&Join { group, index: 1 }.encode())
        .unwrap();
    let answer = read_convert_answer(&mut stream);
    (stream, answer)
}

const GROUP: GroupId = GroupId(*b"sixteen letters!");

#[test]
fn refuses_unauthorized_joins() {
    let far = Relay::start(&["--convert", ANY, "--convert", "127.0.0.1:0"]);
    let relay = far.address("convert");
    let (listener, address) = listen_as_origin();
    let refused = Answer::refused(ErrorCode::NotAuthorized);
    assert_eq!(join(connect(relay), GROUP).1, refused, "no group yet");
    let (first, accepted) = ask(relay, address, GROUP, 2);
    assert_eq!(accepted, Answer::Accepted);
    let server = accept(&listener);
    let wrong = GroupId(*b"sixteen lettersX");
    assert_eq!(join(connect(relay), wrong).1, refused, "another id");
    let elsewhere = SocketAddr::from(([127, 0, 0, 2], 0));
    let other =
        longhaul_linux::socket::outgoing(relay, Some(elsewhere), &Default::default()).unwrap();
    let other = socket2::Socket::from(other);
    other.set_nonblocking(false).unwrap();
    other.connect(&relay.into()).unwrap();
    let other = TcpStream::from(other);
    longhaul_testnet::relay_process::set_timeouts(&other);
    assert_eq!(join(other, GROUP).1, refused, "another host");
    let (second, answer) = join(connect(relay), GROUP);
    assert_eq!(answer, Answer::Accepted);
    assert_eq!(join(connect(relay), GROUP).1, refused, "the group is full");
    let again = ask(relay, address, GROUP, 2).1;
    assert_eq!(
        again,
        Answer::refused(ErrorCode::MalformedMessage),
        "its identifier is in use"
    );
    drop((first, second, server));
}

/// Legs that were on their way when the connection ended are no failures in anybody's statistics.
#[test]
fn late_join_is_no_failure() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("far");
    let far = Relay::start(&["--convert", ANY, "--counters", file.to_str().unwrap()]);
    let relay = far.address("convert");
    let (listener, address) = listen_as_origin();
    let (mut first, _) = ask(relay, address, GROUP, 2);
    let server = accept(&listener);
    first.shutdown(Shutdown::Write).unwrap();
    drop(server);
    assert_eq!(first.read(&mut [0]).unwrap(), 0);
    // The group ends with the session, right after the last byte.
    let mut late = loop {
        let mut late = connect(relay);
        late.write_all(
            &Join {
                group: GROUP,
                index: 1,
            }
            .encode(),
        )
        .unwrap();
        let mut answer = [0];
        match late.peek(&mut answer) {
            Ok(0) => break late,
            _ => drop(late),
        }
    };
    assert_eq!(late.read(&mut [0]).unwrap(), 0, "closed without an answer");
    assert!(far.stop().0.success());
    let records = std::fs::read_to_string(file).unwrap();
    let ends = records
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|record| record["record"] == "connection")
        .map(|record| record["ended"].as_str().unwrap().to_owned())
        .collect::<Vec<_>>();
    assert_eq!(ends, ["finished"]);
}

/// Returns a server-side relay with a group of two legs made by the test, and the server behind it. Both directions
/// have switched to pieces, and the first leg has carried nothing before.
fn raw_group() -> (Relay, [TcpStream; 2], TcpStream) {
    let far = Relay::start(&["--convert", ANY]);
    let (listener, address) = listen_as_origin();
    let (first, answer) = ask(far.address("convert"), address, GROUP, 2);
    assert_eq!(answer, Answer::Accepted);
    let server = accept(&listener);
    let (second, answer) = join(connect(far.address("convert")), GROUP);
    assert_eq!(answer, Answer::Accepted);
    let switch = Frame::Switch { offset: 0 };
    send_frame(&second, switch, b"");
    let mut frames = [(); 2].map(|()| Frame::parse(read_array(&mut &second)).unwrap());
    frames.sort_by_key(|frame| *frame == Frame::Confirm);
    assert_eq!(frames, [switch, Frame::Confirm]);
    send_frame(&second, Frame::Confirm, b"");
    (far, [first, second], server)
}

/// The client's first bytes come with the request. They count in its direction only.
#[test]
fn early_bytes_count_in_their_own_direction() {
    let far = Relay::start(&["--convert", ANY]);
    let (listener, address) = listen_as_origin();
    let request = Request {
        stripes: Some(Stripes {
            group: GROUP,
            count: 2,
            automatic: false,
        }),
        ..Request::new(Destination::Address(address), vec![])
    };
    let mut first = connect(far.address("convert"));
    first
        .write_all(&[&request.encode()[..], b"early"].concat())
        .unwrap();
    let mut server = accept(&listener);
    assert_eq!(read_array(&mut server), *b"early");
    assert_eq!(read_convert_answer(&mut first), Answer::Accepted);
    server.write_all(b"four").unwrap();
    assert_eq!(read_array(&mut first), *b"four", "unframed");
    let (second, answer) = join(connect(far.address("convert")), GROUP);
    assert_eq!(answer, Answer::Accepted);
    let frame = Frame::parse(read_array(&mut &second)).unwrap();
    assert_eq!(
        frame,
        Frame::Switch { offset: 4 },
        "not those of the client"
    );
    send_frame(&second, Frame::Switch { offset: 5 }, b"");
    send_frame(&second, data(5, 3), b"abc");
    assert_eq!(read_array(&mut server), *b"abc");
}

fn send_frame(mut leg: &TcpStream, frame: Frame, bytes: &[u8]) {
    leg.write_all(&[&frame.encode(), bytes].concat()).unwrap();
}

fn data(offset: u64, len: u32) -> Frame {
    Frame::Data { offset, len }
}

fn end(total: u64, connections: u32) -> Frame {
    Frame::End { total, connections }
}

#[test]
fn reorders_pieces_and_waits_for_all_ends() {
    let (_far, [first, second], mut server) = raw_group();
    send_frame(&second, data(2, 2), b"cd");
    send_frame(&second, end(6, 2), b"");
    send_frame(&first, data(0, 2), b"ab");
    assert_eq!(read_array(&mut server), *b"abcd");
    send_frame(&first, data(4, 2), b"ef");
    assert_eq!(read_array(&mut server), *b"ef");
    send_frame(&first, end(6, 2), b"");
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
}

/// A leg closed at its END would answer what comes later, a confirmation or TLS's close_notify, with RST.
#[test]
fn leg_stays_open_until_peer_closes_it() {
    let (_far, [first, second], mut server) = raw_group();
    send_frame(&first, data(0, 2), b"ab");
    send_frame(&second, end(2, 2), b"");
    send_frame(&first, end(2, 2), b"");
    assert_eq!(read_array(&mut server), *b"ab");
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    drop(server);
    // Reads the rest from the server-side relay: its end marker and FIN.
    (&first).read_to_end(&mut Vec::new()).unwrap();
    for _ in 0..50 {
        send_frame(&first, Frame::Confirm, b"");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// After any protocol violation, the server gets a reset, and no byte at a wrong offset.
#[test]
fn resets_after_protocol_violation() {
    type Violation = fn(&TcpStream, &TcpStream);
    let violations: [(&str, Violation); 10] = [
        ("no header", |first, _| {
            (&mut &*first).write_all(&[0xff; 16]).unwrap();
        }),
        ("a second switch", |_, second| {
            send_frame(second, Frame::Switch { offset: 0 }, b"");
        }),
        ("a switch of its own", |first, _| {
            send_frame(first, Frame::Switch { offset: 0 }, b"");
        }),
        ("twice", |first, second| {
            send_frame(first, data(0, 2), b"ab");
            send_frame(second, data(1, 2), b"bc");
        }),
        ("beyond the end", |first, second| {
            send_frame(second, end(1, 2), b"");
            send_frame(first, data(0, 2), b"ab");
        }),
        ("two ends", |first, second| {
            send_frame(second, end(5, 2), b"");
            send_frame(first, end(6, 2), b"");
        }),
        ("a gap", |first, second| {
            send_frame(first, data(5, 1), b"f");
            send_frame(second, data(9, 1), b"j");
        }),
        ("an end of a missing leg", |first, _| {
            send_frame(first, end(0, 3), b"");
        }),
        ("cut off in a piece", |first, second| {
            send_frame(second, data(0, 5), b"ab");
            second.shutdown(Shutdown::Write).unwrap();
            let _ = first;
        }),
        ("closed without an end", |first, _| {
            send_frame(first, data(0, 2), b"ab");
            first.shutdown(Shutdown::Write).unwrap();
        }),
    ];
    for (what, violate) in violations {
        let (_far, [first, second], server) = raw_group();
        violate(&first, &second);
        assert_eq!(end_of(&server), ErrorKind::ConnectionReset, "{what}");
        assert_eq!(end_of(&first), ErrorKind::ConnectionReset, "{what}");
        assert_eq!(end_of(&second), ErrorKind::ConnectionReset, "{what}");
    }
}

#[test]
fn stripes_connections_of_every_listener_kind() {
    let (listener, address) = listen_as_origin();
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    let args = ["--socks5", ANY, "--http", ANY, "--convert", ANY];
    let out = ["--peer", &peer, "--streams", "4"];
    let near = Relay::start(&[&args[..], &out].concat());
    for kind in ["socks5", "http", "convert"] {
        let client = dial(kind, near.address(kind), &Destination::Address(address)).unwrap();
        transfer_both_ways(&client, &accept(&listener), 8);
    }
    let (_held, refusing) = longhaul_testnet::relay_process::refusing_address();
    for (kind, code) in [("socks5", 5), ("http", 502), ("convert", 96)] {
        let refused = dial(kind, near.address(kind), &Destination::Address(refusing));
        assert_eq!(refused.unwrap_err(), code, "{kind}");
    }
}

/// Starts both relays at the ends of a link that loses packets. Returns the time that `mib` MiB
/// take up and down.
fn lossy(bed: &Testbed, streams: &str, mib: u64) -> std::time::Duration {
    let (left, right) = (bed.left_address(), bed.right_address());
    let up = || {
        Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status()
    };
    bed.left.run(up).unwrap();
    bed.right.run(up).unwrap();
    let [near_any, far_any] = [left, right].map(|ip| SocketAddr::from((ip, 0)).to_string());
    let reno = [
        "--cc-downstream",
        "reno",
        "--cc-upstream",
        "reno",
        "--allow-from",
        "10.0.0.0/8",
    ];
    let far = [&["--convert", &far_any][..], &reno].concat();
    let far = bed.right.run(|| Ok(Relay::start(&far))).unwrap();
    let listener = bed.right.run(|| TcpListener::bind((right, 0))).unwrap();
    let forward = format!("{near_any}={}", listener.local_addr().unwrap());
    let peer = far.address("convert").to_string();
    let args = ["--forward", &forward, "--peer", &peer, "--streams", streams];
    let near = [&args[..], &reno].concat();
    let near = bed.left.run(|| Ok(Relay::start(&near))).unwrap();
    let begun = std::time::Instant::now();
    let to = near.address("forward");
    let client = bed.left.run(|| Ok(connect(to))).unwrap();
    transfer_both_ways(&client, &accept(&listener), mib);
    begun.elapsed()
}

/// The times are only printed; the test is that every byte arrives.
#[test]
fn delivers_all_bytes_over_lossy_link() {
    if !longhaul_testnet::link_process::may_use_namespaces() {
        return;
    }
    let shape = [
        "--delay", "25ms", "--rate", "400mbit", "--queue", "1bdp", "--loss", "0.1%",
    ];
    let bed = Testbed::start("stripe", ["10.88.0.1/30", "10.88.0.2/30"], &shape);
    let times = ["1", "4"].map(|streams| lossy(&bed, streams, 8));
    println!(
        "8 MiB both ways, 50 ms, 0.1 % loss: {:?} by 1 leg, {:?} by 4",
        times[0], times[1]
    );
}
