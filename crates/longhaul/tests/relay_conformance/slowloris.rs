// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that never come to the point: they lose their place after the handshake time-out
//! however busily they go on, and nobody else waits for them.

use crate::{
    relay_process::{Relay, connect, dial, exchange, origin},
    way::{accept, wait_until},
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
};
use wire::destination::Destination;

const SLOW: usize = 200;

/// The beginning of a message, and a byte that any number of may follow.
const MESSAGES: [(&str, &[u8], u8); 3] = [
    ("socks5", &[5, 255], 2),
    (
        "http",
        b"GET http://192.0.2.1/ HTTP/1.1\r\nHost: x\r\nX: ",
        b'x',
    ),
    ("convert", &[1, 255, 0x22, 0x63], 0),
];

#[test]
fn slow_handshakes_end_and_hinder_nobody() {
    let (listener, address) = origin();
    let any = "127.0.0.1:0";
    let relay = Relay::start(&[
        "--socks5",
        any,
        "--http",
        any,
        "--convert",
        any,
        "--handshake-timeout",
        "1s",
    ]);
    for (kind, beginning, more) in MESSAGES {
        let mut slow: Vec<_> = (0..SLOW)
            .map(|_| begin(relay.address(kind), beginning))
            .collect();
        let client = dial(kind, relay.address(kind), &Destination::Address(address)).unwrap();
        exchange(&client, &accept(&listener), 1);
        wait_until(kind, || {
            slow.retain_mut(|client| goes_on(client, more));
            slow.is_empty()
        });
    }
    let (_, said) = relay.stop();
    assert!(said.contains("no connection cut"), "{said}");
}

fn begin(relay: SocketAddr, beginning: &[u8]) -> TcpStream {
    let mut client = connect(relay);
    client.write_all(beginning).unwrap();
    client.set_nonblocking(true).unwrap();
    client
}

/// Sends one byte more; whether the relay still listens to it.
fn goes_on(client: &mut TcpStream, more: u8) -> bool {
    let waits = |error: std::io::Error| error.kind() == ErrorKind::WouldBlock;
    let heard = match client.read(&mut [0; 512]) {
        Ok(read) => read > 0,
        Err(error) => waits(error),
    };
    std::thread::sleep(std::time::Duration::from_micros(200));
    heard && client.write(&[more]).map_or_else(waits, |_| true)
}
