// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients of a relay with their handshakes, and origin servers.

use crate::timeouts::{await_readable, set_timeouts};
use longhaul_protocol::{
    convert::{Answer, Request},
    destination::Destination,
};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
};

/// Opens a listener on loopback, as an origin server. Returns it with its address.
pub fn listen_as_origin() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Returns an address that refuses connections while the socket exists: bound, but not listening.
pub fn refusing_address() -> (TcpStream, SocketAddr) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = longhaul_linux::socket::outgoing(
        any,
        Some(any),
        &longhaul_linux::socket::Options::default(),
    )
    .unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Connects to `address`, and sets timeouts.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    set_timeouts(&stream);
    stream
}

/// Accepts a connection, and sets timeouts.
pub fn accept(listener: &TcpListener) -> TcpStream {
    await_readable(listener, "a connection");
    let (stream, _) = listener.accept().unwrap();
    set_timeouts(&stream);
    stream
}

/// Connects to `to` through a relay's listener of this kind: `socks5`, `http`, `convert`, or a listener without
/// handshake. Returns the reply's code as the error if the relay refuses.
pub fn dial(kind: &str, relay: SocketAddr, to: &Destination) -> Result<TcpStream, u16> {
    let mut stream = connect(relay);
    match kind {
        "socks5" => socks5(&mut stream, to)?,
        "http" => http_connect(&mut stream, to)?,
        "convert" => convert(&mut stream, to)?,
        _ => {}
    }
    Ok(stream)
}

fn socks5(stream: &mut TcpStream, to: &Destination) -> Result<(), u16> {
    stream.write_all(&[5, 1, 0]).unwrap();
    assert_eq!(read_array(stream), [5, 0]);
    let mut request = vec![5, 1, 0];
    match to {
        Destination::Address(SocketAddr::V4(v4)) => {
            request.push(1);
            request.extend(v4.ip().octets());
        }
        Destination::Address(SocketAddr::V6(v6)) => {
            request.push(4);
            request.extend(v6.ip().octets());
        }
        Destination::Name(name, _) => {
            request.extend([3, name.as_str().len() as u8]);
            request.extend(name.as_str().as_bytes());
        }
    }
    request.extend(to.port().to_be_bytes());
    stream.write_all(&request).unwrap();
    let [5, code, 0, family] = read_array(stream) else {
        panic!("no SOCKS5 reply");
    };
    match family {
        1 => drop(read_array::<6>(stream)),
        4 => drop(read_array::<18>(stream)),
        _ => panic!("a bound address of type {family}"),
    }
    if code == 0 { Ok(()) } else { Err(code.into()) }
}

fn http_connect(stream: &mut TcpStream, to: &Destination) -> Result<(), u16> {
    write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    match parse_http_status(&read_http_head(stream)) {
        200 => Ok(()),
        status => Err(status),
    }
}

/// Reads an HTTP head up to the empty line, and no further.
pub fn read_http_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(read_array::<1>(stream));
    }
    String::from_utf8(head).unwrap()
}

/// Returns the status in the head of an HTTP response.
pub fn parse_http_status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

fn convert(stream: &mut TcpStream, to: &Destination) -> Result<(), u16> {
    stream
        .write_all(&Request::new(to.clone(), vec![]).encode())
        .unwrap();
    match read_convert_answer(stream) {
        Answer::Accepted => Ok(()),
        Answer::Refused { code, .. } => Err(code.code().into()),
    }
}

/// Reads the reply of a Convert server (RFC 8803).
pub fn read_convert_answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    while let missing @ 1.. = Answer::bytes_missing(&bytes).unwrap() {
        let mut more = vec![0; missing];
        stream.read_exact(&mut more).unwrap();
        bytes.extend(more);
    }
    Answer::parse(&bytes).unwrap().unwrap().0
}

/// Reads exactly `N` bytes.
pub fn read_array<const N: usize>(stream: &mut impl Read) -> [u8; N] {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// Asserts that the relay resets the connection at once. `client` is the outcome of the connect, which a reset may
/// already have failed.
pub fn assert_connect_reset(client: io::Result<TcpStream>) {
    let error = client.and_then(|mut client| {
        set_timeouts(&client);
        client.read(&mut [0])
    });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

/// Asserts that the next read returns a reset.
pub fn assert_reset(stream: &mut TcpStream) {
    let error = stream.read(&mut [0; 100]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
