// SPDX-License-Identifier: MIT OR Apache-2.0
//! Between relays, an answer that nobody waits for arrives with the destination's first bytes, in one
//! segment, and is neither lost nor late where there are none.

use longhaul_linux::socket::reset_on_close;
use longhaul_protocol::{
    convert::{Answer, ErrorCode, PATIENCE_MAX, Request},
    destination::Destination,
};
use longhaul_testnet::relay_process::{
    Relay, accept, assert_reset, connect, convert_answer, exchange, origin, read_array, refusing,
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

const ANY: &str = "127.0.0.1:0";

fn convert() -> Relay {
    Relay::start(&["--convert", ANY])
}

/// A client that is itself a relay, having asked.
fn asking(relay: &Relay, to: SocketAddr, hops: Vec<SocketAddr>, patience: Duration) -> TcpStream {
    let request = Request {
        patience,
        ..Request::new(Destination::Address(to), hops)
    };
    let mut client = connect(relay.address("convert"));
    client.write_all(&request.encode()).unwrap();
    client
}

/// Long enough for an answer that is not held back to be seen, far less than the patience.
const WHILE: Duration = Duration::from_millis(100);

fn assert_silent(stream: &TcpStream) {
    stream.set_read_timeout(Some(WHILE)).unwrap();
    let error = stream.peek(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    longhaul_testnet::relay_process::patient(stream);
}

fn assert_answer_and_bytes_together(client: &mut TcpStream, server: &mut TcpStream) {
    assert_silent(client);
    server.write_all(b"hello").unwrap();
    let mut bytes = [0; 64];
    let read = client.read(&mut bytes).unwrap();
    let together = [&Answer::Accepted.encode()[..], b"hello"].concat();
    assert_eq!(bytes[..read], together);
    exchange(client, server, 1);
}

#[test]
fn the_answer_arrives_with_the_first_bytes() {
    let (listener, address) = origin();
    let far = convert();
    let mut client = asking(&far, address, vec![], PATIENCE_MAX);
    assert_answer_and_bytes_together(&mut client, &mut accept(&listener));
}

#[test]
fn a_relay_on_the_way_keeps_them_together() {
    let (listener, address) = origin();
    let (middle, far) = (convert(), convert());
    let hops = vec![far.address("convert")];
    let mut client = asking(&middle, address, hops, PATIENCE_MAX);
    assert_answer_and_bytes_together(&mut client, &mut accept(&listener));
}

#[test]
fn patience_ends_where_the_destination_waits_for_the_client() {
    let (listener, address) = origin();
    let (middle, far) = (convert(), convert());
    for hops in [vec![], vec![far.address("convert")]] {
        let mut client = asking(&middle, address, hops, Duration::from_millis(10));
        let server = accept(&listener);
        assert_eq!(convert_answer(&mut client), Answer::Accepted);
        exchange(&client, &server, 1);
    }
}

/// The destination hears the client meanwhile.
#[test]
fn the_client_s_bytes_do_not_wait_for_the_answer() {
    let (listener, address) = origin();
    let far = convert();
    let mut client = asking(&far, address, vec![], PATIENCE_MAX);
    client.write_all(b"ask").unwrap();
    let mut server = accept(&listener);
    assert_eq!(read_array(&mut server), *b"ask");
    server.write_all(b"say").unwrap();
    assert_eq!(convert_answer(&mut client), Answer::Accepted);
    assert_eq!(read_array(&mut client), *b"say");
}

#[test]
fn ends_are_what_they_are_behind_the_answer() {
    let (listener, address) = origin();
    let far = convert();
    let mut client = asking(&far, address, vec![], PATIENCE_MAX);
    drop(accept(&listener));
    assert_eq!(convert_answer(&mut client), Answer::Accepted);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);

    let mut client = asking(&far, address, vec![], PATIENCE_MAX);
    client.write_all(b"ask").unwrap();
    let mut server = accept(&listener);
    // Earlier, a reset may be a failure to connect.
    assert_eq!(read_array(&mut server), *b"ask");
    reset_on_close(&server).unwrap();
    drop(server);
    assert_eq!(convert_answer(&mut client), Answer::Accepted);
    assert_reset(&mut client);
}

#[test]
fn a_refusal_is_not_held_back() {
    let (_socket, closed) = refusing();
    let far = convert();
    let mut client = asking(&far, closed, vec![], PATIENCE_MAX);
    let refused = Answer::refused(ErrorCode::ConnectionReset);
    assert_eq!(convert_answer(&mut client), refused);
}

/// The next request of a client. Whoever gets no answer has the peer checked.
fn read_request(listener: &TcpListener) -> Request {
    loop {
        let request = read_any_request(listener);
        if !request.is_check() {
            return request;
        }
    }
}

fn read_any_request(listener: &TcpListener) -> Request {
    let mut stream = accept(listener);
    let mut bytes = Vec::new();
    loop {
        bytes.extend(read_array::<1>(&mut stream));
        if let Some((request, _)) = Request::parse(&bytes).unwrap() {
            return request;
        }
    }
}

/// A tenth of the time that the near relay waits for the answer.
#[test]
fn patient_are_those_whose_clients_hear_no_answer() {
    let (listener, address) = origin();
    let forward = format!("{ANY}=192.0.2.7:7");
    let ways = ["--forward", &forward, "--socks5", ANY, "--http", ANY];
    let peer = address.to_string();
    let how = ["--peer", &peer, "--connect-timeout", "1s"];
    let near = Relay::start(&[&ways[..], &how].concat());
    let patience = |kind, said: &[u8]| {
        let mut client = connect(near.address(kind));
        client.write_all(said).unwrap();
        read_request(&listener).patience
    };
    let share = Duration::from_millis(100);
    let socks = b"\x05\x01\x00\x05\x01\x00\x01\xc0\x00\x02\x07\x00\x07";
    let get = b"GET http://192.0.2.7:7/ HTTP/1.1\r\nHost: x\r\n\r\n";
    let tunnel = b"CONNECT 192.0.2.7:7 HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(patience("forward", b""), share);
    assert_eq!(patience("http", get), share);
    assert_eq!(patience("http", tunnel), Duration::ZERO);
    assert_eq!(patience("socks5", socks), Duration::ZERO);
}
