// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors that a client receives when a connection through a chain of relays fails: the cause, the
//! hop, and the relay that reports it.

use longhaul_protocol::{
    convert::{Answer, Cause, ErrorCode, Request},
    destination::Destination,
};
use longhaul_testnet::relay_process::{
    Relay, accept, connect, dial, listen_as_origin, parse_http_status, read_convert_answer,
    read_http_head, refusing_address, transfer_both_ways,
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

const ANY: &str = "127.0.0.1:0";

/// Response of a proxy.
struct ProxyResponse {
    status: u16,
    /// Value of Proxy-Status.
    field: String,
    body: String,
}

/// Requests a tunnel and a page, which must fail alike.
fn ask(near: &Relay, to: &str) -> ProxyResponse {
    let tunnel = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    let page = format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
    let [tunnel, page] = [tunnel, page].map(|request| send(near.address("http"), &request));
    assert_eq!((tunnel.status, &tunnel.field), (page.status, &page.field));
    assert_eq!(tunnel.body, page.body);
    page
}

fn send(proxy: SocketAddr, request: &str) -> ProxyResponse {
    let mut stream = connect(proxy);
    stream.write_all(request.as_bytes()).unwrap();
    let head = read_http_head(&mut stream);
    let field = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.to_owned())
    };
    let len = field("content-length").unwrap().parse().unwrap();
    let mut body = vec![0; len];
    stream.read_exact(&mut body).unwrap();
    ProxyResponse {
        status: parse_http_status(&head),
        field: field("proxy-status").unwrap_or_default(),
        body: String::from_utf8(body).unwrap(),
    }
}

/// Starts a relay for clients with a chain of these peers, called b, c, d.
fn near(peers: &[SocketAddr]) -> Relay {
    let names = ["b", "c", "d"];
    let mut text = String::new();
    for kind in ["http", "socks5"] {
        text += &format!("[[listener]]\nkind = '{kind}'\naddress = '{ANY}'\n");
    }
    let via = &names[..peers.len()];
    text += &format!("[limits]\nconnect_timeout = '3s'\n[[route]]\nvia = {via:?}\n");
    for (name, peer) in names.into_iter().zip(peers) {
        text += &format!("[peer.{name}]\naddress = '{peer}'\n");
    }
    Relay::start_with_config(&text, 2)
}

fn far() -> (Relay, SocketAddr) {
    let relay = Relay::start(&["--convert", ANY]);
    let address = relay.address("convert");
    (relay, address)
}

/// Checks the response. `own` stands for the relay's pseudonym, which differs each time.
fn assert_response(response: &ProxyResponse, status: u16, field: &str, body: &str) {
    assert_eq!(response.status, status, "{}", response.body);
    let own = response.field.find("longhaul-").expect("its own name");
    let own = &response.field[own..own + "longhaul-".len() + 16];
    assert_eq!(response.field, field.replace("own", own));
    assert_eq!(response.body, format!("longhaul relay: {body}\n"));
}

fn socks5(near: &Relay, to: &str) -> Option<u16> {
    dial("socks5", near.address("socks5"), &to.parse().unwrap()).err()
}

#[test]
fn reports_refusing_destination() {
    let ((_b, b), (_c, c), (_d, d)) = (far(), far(), far());
    let (_socket, dead) = refusing_address();
    let dead = dead.to_string();
    for (peers, last) in [(&[b][..], "b"), (&[b, c], "c"), (&[b, c, d], "d")] {
        let near = near(peers);
        assert_response(
            &ask(&near, &dead),
            502,
            &format!("\"{last}\"; error=connection_refused; next-hop=\"{dead}\", own"),
            &format!("{dead}: connection refused, says relay {last}"),
        );
        assert_eq!(socks5(&near, &dead), Some(5));
    }
    let straight = near(&[]);
    assert_response(
        &ask(&straight, &dead),
        502,
        &format!("own; error=connection_refused; next-hop=\"{dead}\""),
        &format!("{dead}: connection refused"),
    );
}

#[test]
fn reports_refusing_relay_at_each_position() {
    let ((_b, b), (_c, c)) = (far(), far());
    let (_socket, dead) = refusing_address();
    let to = "192.0.2.7:7";
    let first = near(&[dead, b]);
    let field = "own; error=connection_refused; next-hop=\"b\"";
    assert_response(&ask(&first, to), 502, field, "relay b: connection refused");
    let second = near(&[b, dead]);
    assert_response(
        &ask(&second, to),
        502,
        "\"b\"; error=connection_refused; next-hop=\"c\", own",
        "relay c: connection refused, says relay b",
    );
    let third = near(&[b, c, dead]);
    assert_response(
        &ask(&third, to),
        502,
        "\"c\"; error=connection_refused; next-hop=\"d\", own",
        "relay d: connection refused, says relay c",
    );
    // The failed hop is not the requested host.
    for near in [first, second, third] {
        assert_eq!(socks5(&near, to), Some(3));
    }
}

/// The server-side relay reports its own peers by their names in its configuration.
#[test]
fn reports_refusing_peer_of_far_relay() {
    let (_socket, dead) = refusing_address();
    let text = format!(
        "[[listener]]\nkind = 'convert'\naddress = '{ANY}'\n[peer.osaka]\naddress = '{dead}'\n\
         [[route]]\nvia = ['osaka']\n"
    );
    let far = Relay::start_with_config(&text, 1);
    let near = near(&[far.address("convert")]);
    let response = ask(&near, "192.0.2.7:7");
    let words = "relay osaka: connection refused, says relay b";
    assert_response(
        &response,
        502,
        "\"b\"; error=connection_refused; next-hop=\"osaka\", own",
        words,
    );
}

#[test]
fn reports_relay_loop() {
    // Each relay has the other as its peer, so the port is chosen before the relay starts.
    let (socket, later) = refusing_address();
    let first = Relay::start(&["--convert", ANY, "--peer", &later.to_string()]);
    drop(socket);
    let peer = first.address("convert").to_string();
    let _second = Relay::start(&["--convert", &later.to_string(), "--peer", &peer]);
    let near = near(&[first.address("convert")]);
    let response = ask(&near, "192.0.2.7:7");
    assert_eq!(response.status, 508, "{}", response.body);
    assert!(
        response.field.contains("error=proxy_loop_detected"),
        "{}",
        response.field
    );
    assert!(
        response.body.contains("relay loop, says relay"),
        "{}",
        response.body
    );
    assert_eq!(socks5(&near, "192.0.2.7:7"), Some(6));
}

#[test]
fn reports_denial_by_far_relay() {
    let text = format!(
        "[[listener]]\nkind = 'convert'\naddress = '{ANY}'\n[[route]]\nto = ['192.0.2.0/24']\n\
         deny = true\n"
    );
    let far = Relay::start_with_config(&text, 1);
    let (_b, b) = crate::relay_error_reports::far();
    let near = near(&[b, far.address("convert")]);
    let response = ask(&near, "192.0.2.7:7");
    assert_response(
        &response,
        403,
        "\"c\"; error=http_request_denied; next-hop=\"192.0.2.7:7\", own",
        "192.0.2.7:7: not allowed, says relay c",
    );
    assert_eq!(socks5(&near, "192.0.2.7:7"), Some(2));
}

/// Address whose accept queue is full, so the kernel drops SYNs; and the sockets that fill it.
fn full_queue() -> (SocketAddr, Vec<TcpStream>) {
    let (socket, address) = refusing_address();
    rustix::net::listen(&socket, 0).unwrap();
    let limit = Duration::from_millis(300);
    let queue = (0..4).filter_map(|_| TcpStream::connect_timeout(&address, limit).ok());
    let mut held: Vec<_> = queue.collect();
    held.push(socket);
    (address, held)
}

/// All relays have the same time limit; the far one gives up first and reports its destination.
#[test]
fn reports_silent_destination() {
    let (address, _held) = full_queue();
    let to = address.to_string();
    let ((_b, b), (_c, c)) = (far(), far());
    let near = near(&[b, c]);
    let response = send(
        near.address("http"),
        &format!("CONNECT {to} HTTP/1.1\r\nHost: x\r\n\r\n"),
    );
    assert_response(
        &response,
        504,
        &format!("\"c\"; error=connection_timeout; next-hop=\"{to}\", own"),
        &format!("{to}: timed out, says relay c"),
    );
}

/// Starts a peer that sends `answer` to every request.
fn answer_with(answer: Vec<u8>) -> SocketAddr {
    let (listener, address) = listen_as_origin();
    std::thread::spawn(move || {
        loop {
            let mut stream = accept(&listener);
            if matches!(stream.read(&mut [0; 1024]), Ok(1..)) {
                let _ = stream.write_all(&answer);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = stream.read_to_end(&mut Vec::new());
            }
        }
    });
    address
}

/// Refusal followed by this TLV.
fn refusal_with(tlv: &[u8]) -> Vec<u8> {
    let mut answer = Answer::refused(ErrorCode::ConnectionReset).encode();
    let words = (2 + tlv.len()).div_ceil(4);
    answer.extend([0xC5, words as u8]);
    answer.extend(tlv);
    answer.resize(8 + words * 4, 0);
    answer[1] = (answer.len() / 4) as u8;
    answer
}

#[test]
fn limits_and_escapes_names_from_other_relays() {
    let evil = b"\x1b[2J\r\nSet-Cookie: a=b\r\n\r\n<\"\\>";
    let name = |name: &[u8]| [&[name.len() as u8], name].concat();
    let hostile = refusal_with(&[&[1][..], &name(evil), &name(&[b'x'; 250])].concat());
    let near = near(&[answer_with(hostile)]);
    let response = ask(&near, "192.0.2.7:7");
    assert_eq!(response.status, 502);
    let printable = |c: char| matches!(c, ' '..='~');
    assert!(
        response.field.chars().all(printable),
        "{:?}",
        response.field
    );
    assert!(
        response.body.trim_end().chars().all(printable),
        "{:?}",
        response.body
    );
    assert!(
        response.field.len() < 300 && response.body.len() < 300,
        "{}",
        response.field
    );
    assert!(
        response
            .field
            .starts_with("\"?[2J??Set-Cookie:?a=b????<\\\"\\\\>\"; "),
        "{}",
        response.field
    );
    // A malformed TLV or an unknown number is ignored.
    for tlv in [&[1, 200][..], &[250, 0, 0], &[0]] {
        let near = crate::relay_error_reports::near(&[answer_with(refusal_with(tlv))]);
        let response = ask(&near, "192.0.2.7:7");
        assert_eq!(
            response.body,
            "longhaul relay: 192.0.2.7:7: connection refused, says relay b\n"
        );
    }
}

#[test]
fn reports_error_code_without_cause() {
    let near = near(&[answer_with(
        Answer::refused(ErrorCode::NetworkFailure).encode(),
    )]);
    let response = ask(&near, "192.0.2.7:7");
    assert_response(
        &response,
        504,
        "\"b\"; error=connection_timeout; next-hop=\"192.0.2.7:7\", own",
        "192.0.2.7:7: timed out, says relay b",
    );
}

/// Older relays receive unchanged answers, and accept requests with additional TLVs.
#[test]
fn answers_request_without_time_limit() {
    let (_far, address) = far();
    let (_socket, dead) = refusing_address();
    let mut stream = connect(address);
    stream
        .write_all(&Request::new(Destination::Address(dead), vec![]).encode())
        .unwrap();
    let refused = Answer::refused(ErrorCode::ConnectionReset);
    assert_eq!(read_convert_answer(&mut stream), refused);
    let mut stream = connect(address);
    let (listener, good) = listen_as_origin();
    let request = Request {
        timeout: Duration::from_secs(5),
        ..Request::new(Destination::Address(good), vec![])
    };
    stream.write_all(&request.encode()).unwrap();
    assert_eq!(read_convert_answer(&mut stream), Answer::Accepted);
    transfer_both_ways(&stream, &accept(&listener), 1);
    assert_eq!(Cause::find(&Answer::Accepted.encode()), None);
}
