// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payload for tests of relays. The receiver checks each byte.

use crate::payload::bytes;
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
};

/// Transfers `mib` MiB in each direction at the same time. Both ends check every byte, and that FIN follows.
pub fn transfer_both_ways(client: &TcpStream, server: &TcpStream, mib: u64) {
    std::thread::scope(|scope| {
        scope.spawn(|| send(client, 1, mib));
        scope.spawn(|| send(server, 2, mib));
        scope.spawn(|| receive(client, 2, mib));
        scope.spawn(|| receive(server, 1, mib));
    });
}

/// Sends `mib` MiB that are computed from the seed, then FIN.
pub fn send(stream: &TcpStream, seed: u64, mib: u64) {
    send_bytes(stream, seed, mib);
    stream.shutdown(Shutdown::Write).unwrap();
}

/// Sends `mib` MiB that are computed from the seed.
pub fn send_bytes(mut stream: &TcpStream, seed: u64, mib: u64) {
    let mut block = bytes(seed, 1 << 20);
    for number in 0..mib {
        block[..8].copy_from_slice(&number.to_be_bytes());
        stream.write_all(&block).unwrap();
    }
}

/// Half-closes a connection: `first` sends FIN, and `second` receives it. Then `second` sends data, which `first` still
/// receives.
pub fn half_close(first: &TcpStream, mut second: &TcpStream) {
    first.shutdown(Shutdown::Write).unwrap();
    assert_eq!(second.read(&mut [0]).unwrap(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| send(second, 3, 16));
        receive(first, 3, 16);
    });
}

/// Receives and checks what [`send`] sends.
pub fn receive(mut stream: &TcpStream, seed: u64, mib: u64) {
    receive_bytes(stream, seed, mib);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "bytes after the end");
}

/// Receives and checks the bytes that [`send_bytes`] sends.
pub fn receive_bytes(mut stream: &TcpStream, seed: u64, mib: u64) {
    let (mut want, mut got) = (bytes(seed, 1 << 20), vec![0; 1 << 20]);
    for number in 0..mib {
        want[..8].copy_from_slice(&number.to_be_bytes());
        stream.read_exact(&mut got).unwrap();
        assert!(got == want, "MiB {number} differs");
    }
}
