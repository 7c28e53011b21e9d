// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reply delay between relays: an answer that no client waits for arrives in one segment with the
//! destination's first bytes. If there are no such bytes, the answer is neither lost nor late.

use longhaul_linux::socket::reset_on_close;
use longhaul_protocol::{
    convert::{Answer, ErrorCode, REPLY_DELAY_MAX, Request},
    destination::Destination,
};
use longhaul_testnet::relay_process::{
    Relay, accept, assert_reset, connect, listen_as_origin, read_array, read_convert_answer,
    refusing_address, transfer_both_ways,
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

/// Connects as a relay and sends a request.
fn send_request(
    relay: &Relay,
    to: SocketAddr,
    hops: Vec<SocketAddr>,
    reply_delay: Duration,
) -> TcpStream {
    let request = Request {
        reply_delay,
        ..Request::new(Destination::Address(to), hops)
    };
    let mut client = connect(relay.address("convert"));
    client.write_all(&request.encode()).unwrap();
    client
}

/// Long enough to see an answer that is not delayed, and far less than the reply delay.
const SHORT_TIME: Duration = Duration::from_millis(100);

fn assert_silent(stream: &TcpStream) {
    stream.set_read_timeout(Some(SHORT_TIME)).unwrap();
    let error = stream.peek(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    longhaul_testnet::relay_process::set_timeouts(stream);
}

fn assert_answer_and_bytes_together(client: &mut TcpStream, server: &mut TcpStream) {
    assert_silent(client);
    server.write_all(b"hello").unwrap();
    let mut bytes = [0; 64];
    let read = client.read(&mut bytes).unwrap();
    let together = [&Answer::Accepted.encode()[..], b"hello"].concat();
    assert_eq!(bytes[..read], together);
    transfer_both_ways(client, server, 1);
}

#[test]
fn answer_arrives_with_first_bytes() {
    let (listener, address) = listen_as_origin();
    let far = convert();
    let mut client = send_request(&far, address, vec![], REPLY_DELAY_MAX);
    assert_answer_and_bytes_together(&mut client, &mut accept(&listener));
}

#[test]
fn intermediate_relay_keeps_answer_and_bytes_together() {
    let (listener, address) = listen_as_origin();
    let (middle, far) = (convert(), convert());
    let hops = vec![far.address("convert")];
    let mut client = send_request(&middle, address, hops, REPLY_DELAY_MAX);
    assert_answer_and_bytes_together(&mut client, &mut accept(&listener));
}

#[test]
fn reply_delay_ends_if_destination_is_silent() {
    let (listener, address) = listen_as_origin();
    let (middle, far) = (convert(), convert());
    for hops in [vec![], vec![far.address("convert")]] {
        let mut client = send_request(&middle, address, hops, Duration::from_millis(10));
        let server = accept(&listener);
        assert_eq!(read_convert_answer(&mut client), Answer::Accepted);
        transfer_both_ways(&client, &server, 1);
    }
}

/// The destination gets the client's bytes during the reply delay.
#[test]
fn client_bytes_do_not_wait_for_answer() {
    let (listener, address) = listen_as_origin();
    let far = convert();
    let mut client = send_request(&far, address, vec![], REPLY_DELAY_MAX);
    client.write_all(b"ask").unwrap();
    let mut server = accept(&listener);
    assert_eq!(read_array(&mut server), *b"ask");
    server.write_all(b"say").unwrap();
    assert_eq!(read_convert_answer(&mut client), Answer::Accepted);
    assert_eq!(read_array(&mut client), *b"say");
}

#[test]
fn passes_on_fin_and_rst_after_answer() {
    let (listener, address) = listen_as_origin();
    let far = convert();
    let mut client = send_request(&far, address, vec![], REPLY_DELAY_MAX);
    drop(accept(&listener));
    assert_eq!(read_convert_answer(&mut client), Answer::Accepted);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);

    let mut client = send_request(&far, address, vec![], REPLY_DELAY_MAX);
    client.write_all(b"ask").unwrap();
    let mut server = accept(&listener);
    // Earlier, a reset may be a failure to connect.
    assert_eq!(read_array(&mut server), *b"ask");
    reset_on_close(&server).unwrap();
    drop(server);
    assert_eq!(read_convert_answer(&mut client), Answer::Accepted);
    assert_reset(&mut client);
}

#[test]
fn refusal_is_not_delayed() {
    let (_socket, closed) = refusing_address();
    let far = convert();
    let mut client = send_request(&far, closed, vec![], REPLY_DELAY_MAX);
    let refused = Answer::refused(ErrorCode::ConnectionReset);
    assert_eq!(read_convert_answer(&mut client), refused);
}

/// Reads the next request of a client. Checks are skipped: a relay that gets no answer checks the
/// peer.
fn read_request(listener: &TcpListener) -> Request {
    loop {
        let request = read_any_request(listener);
        if !request.is_health_check() {
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

/// The reply delay is a tenth of the client-side relay's timeout.
#[test]
fn requests_reply_delay_only_for_protocols_without_reply() {
    let (listener, address) = listen_as_origin();
    let forward = format!("{ANY}=192.0.2.7:7");
    let listeners = ["--forward", &forward, "--socks5", ANY, "--http", ANY];
    let peer = address.to_string();
    let peer_args = ["--peer", &peer, "--connect-timeout", "1s"];
    let near = Relay::start(&[&listeners[..], &peer_args].concat());
    let reply_delay = |kind, sent: &[u8]| {
        let mut client = connect(near.address(kind));
        client.write_all(sent).unwrap();
        read_request(&listener).reply_delay
    };
    let share = Duration::from_millis(100);
    let socks = b"\x05\x01\x00\x05\x01\x00\x01\xc0\x00\x02\x07\x00\x07";
    let get = b"GET http://192.0.2.7:7/ HTTP/1.1\r\nHost: x\r\n\r\n";
    let tunnel = b"CONNECT 192.0.2.7:7 HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(reply_delay("forward", b""), share);
    assert_eq!(reply_delay("http", get), share);
    assert_eq!(reply_delay("http", tunnel), Duration::ZERO);
    assert_eq!(reply_delay("socks5", socks), Duration::ZERO);
}
