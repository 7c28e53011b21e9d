// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traffic over a link, between sockets at its two ends.

use super::Testbed;
use crate::{
    payload,
    relay_process::{TEST_TIMEOUT, accept},
};
use longhaul_linux::{netns::Netns, process::inside};
use longhaul_testprograms::{process::Running, wait::wait_for_line};
use std::{
    io::{Read, Write},
    net::{IpAddr, TcpListener, TcpStream, UdpSocket},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Starts an iperf3 server for one client. It listens on return.
pub fn serve_iperf3(netns: &Netns) -> Running {
    let mut command = Command::new("iperf3");
    command.args(["--server", "--one-off", "--forceflush"]);
    let child = inside(command.stdout(Stdio::piped()), netns).spawn();
    let mut server = Running(child.unwrap());
    wait_for_line(server.stdout.take().unwrap(), "listening");
    server
}

/// Sends `len` bytes from right to left over TCP, and checks each of them.
pub fn transfer(bed: &Testbed, len: usize) {
    let (left, right) = (bed.left_address(), bed.right_address());
    let sent = payload::bytes(1, len as u64);
    let listener = bed.right.run(|| TcpListener::bind((right, 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = || TcpStream::connect_timeout(&(right, port).into(), TEST_TIMEOUT);
    let mut stream = bed.left.run(connect).unwrap();
    let server = accept(&listener);
    assert_eq!(server.peer_addr().unwrap().ip(), left);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The socket is dropped here, so that FIN follows the data.
            let mut server = server;
            server.write_all(&sent).unwrap();
        });
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

/// Time without a datagram after which no more are expected.
const IDLE_TIMEOUT: Duration = Duration::from_millis(700);

/// Sends `count` numbered datagrams from left to right. Returns the numbers that arrive, in order of arrival. It waits
/// for `min_count` of them, and then only `IDLE_TIMEOUT` for each further one.
pub fn send_datagrams(bed: &Testbed, count: u32, min_count: usize) -> Vec<u32> {
    let (sender, receiver) = sockets(bed);
    for number in 1..=count {
        sender.send(&number.to_be_bytes()).unwrap();
    }
    let mut arrived = Vec::new();
    let mut buffer = [0; 4];
    loop {
        let wait = if arrived.len() < min_count {
            TEST_TIMEOUT
        } else {
            IDLE_TIMEOUT
        };
        receiver.set_read_timeout(Some(wait)).unwrap();
        match receiver.recv(&mut buffer) {
            Ok(_) => arrived.push(u32::from_be_bytes(buffer)),
            Err(_) => return arrived,
        }
    }
}

/// Measures the delay of one datagram from left to right, from before it is sent until it is received.
pub fn measure_one_way_delay(bed: &Testbed) -> Duration {
    let (sender, receiver) = sockets(bed);
    receiver.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let sent_at = Instant::now();
    sender.send(&[0]).unwrap();
    receiver.recv(&mut [0]).unwrap();
    sent_at.elapsed()
}

/// Opens a socket at the left end that is connected to one at the right end. Returns sender and receiver.
fn sockets(bed: &Testbed) -> (UdpSocket, UdpSocket) {
    let bind =
        |netns: &Netns, address: IpAddr| netns.run(|| UdpSocket::bind((address, 0))).unwrap();
    let sender = bind(&bed.left, bed.left_address());
    let receiver = bind(&bed.right, bed.right_address());
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    (sender, receiver)
}
