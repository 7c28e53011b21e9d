// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real sockets at both ends of a link.

use super::Testbed;
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    time::Duration,
};

/// Bytes that no two places of which are alike by accident.
fn payload(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Sends `len` bytes from right to left over TCP and checks each of them.
pub fn transfer(bed: &Testbed, len: usize) {
    let (left, right) = (bed.left_address(), bed.right_address());
    let sent = payload(len);
    let listener = bed.right.run(|| TcpListener::bind((right, 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, peer) = listener.accept().unwrap();
            assert_eq!(peer.ip(), left);
            stream.write_all(&sent).unwrap();
        });
        let mut stream = bed.left.run(|| TcpStream::connect((right, port))).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert!(
            received == sent,
            "{} of {} bytes arrived as sent",
            received.len(),
            sent.len()
        );
    });
}

/// Sends `count` numbered datagrams from left to right; the numbers that arrive, in order.
pub fn datagrams(bed: &Testbed, count: u32) -> Vec<u32> {
    let right = bed.right_address();
    let receiver = bed.right.run(|| UdpSocket::bind((right, 0))).unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_millis(700)))
        .unwrap();
    let to = receiver.local_addr().unwrap();
    let sender = bed
        .left
        .run(|| UdpSocket::bind((bed.left_address(), 0)))
        .unwrap();
    for number in 1..=count {
        sender.send_to(&number.to_be_bytes(), to).unwrap();
    }
    let mut arrived = Vec::new();
    let mut buffer = [0; 4];
    while receiver.recv_from(&mut buffer).is_ok() {
        arrived.push(u32::from_be_bytes(buffer));
    }
    arrived
}
