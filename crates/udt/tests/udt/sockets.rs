// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections over real sockets on the loopback interface.

use crate::testbed::{bbr, byte, config, native};
use longhaul_udt::{
    Config, Endpoint,
    packet::{
        Body, Packet,
        handshake::{Handshake, Step},
    },
    socket::{Socket, Stream},
};
use longhaul_units::Time;
use std::{io::ErrorKind, net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UdpSocket,
    time::timeout,
};

/// Time after which a test counts as hung.
const TIMEOUT: Duration = Duration::from_secs(60);

fn bind(at: &str, config: Config) -> Socket {
    Socket::bind(at.parse().unwrap(), config, Box::new(native)).unwrap()
}

async fn pair(at: &str, config: Config) -> (Stream, Stream) {
    let (listener, other) = (bind(at, config), bind(at, config));
    listener.listen();
    let to = listener.local_addr();
    let (accepted, connected) = tokio::join!(listener.accept(), other.connect(to));
    (accepted.unwrap(), connected.unwrap())
}

async fn send_all(mut stream: Stream, bytes: u64) {
    let mut buffer = vec![0; 100_000];
    let mut sent = 0;
    while sent < bytes {
        let length = buffer.len().min((bytes - sent) as usize);
        for (offset, to) in buffer[..length].iter_mut().enumerate() {
            *to = byte(sent + offset as u64);
        }
        stream.write_all(&buffer[..length]).await.unwrap();
        sent += length as u64;
    }
    stream.shutdown().await.unwrap();
}

/// Receives until the end and checks the bytes. Returns how many there were.
async fn receive_all(mut stream: Stream) -> u64 {
    let mut buffer = vec![0; 100_000];
    let mut received = 0;
    loop {
        let length = stream.read(&mut buffer).await.unwrap();
        if length == 0 {
            return received;
        }
        crate::testbed::assert_bytes(received, &buffer[..length]);
        received += length as u64;
    }
}

#[tokio::test]
async fn transfers_a_stream_over_ipv4_and_ipv6() {
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let transfer = async {
            let (accepted, connected) = pair(at, config()).await;
            let bytes = 30_000_000;
            let ((), received) = tokio::join!(send_all(connected, bytes), receive_all(accepted));
            assert_eq!(received, bytes);
        };
        timeout(TIMEOUT, transfer).await.unwrap();
    }
}

#[tokio::test]
async fn transfers_a_stream_with_bbr() {
    let transfer = async {
        let bind = || {
            let at = "127.0.0.1:0".parse().unwrap();
            Socket::bind(at, config(), Box::new(bbr)).unwrap()
        };
        let (listener, other) = (bind(), bind());
        listener.listen();
        let to = listener.local_addr();
        let (accepted, connected) = tokio::join!(listener.accept(), other.connect(to));
        let bytes = 30_000_000;
        let sending = send_all(connected.unwrap(), bytes);
        let ((), received) = tokio::join!(sending, receive_all(accepted.unwrap()));
        assert_eq!(received, bytes);
    };
    timeout(TIMEOUT, transfer).await.unwrap();
}

#[tokio::test]
async fn sends_written_data_after_all_handles_are_dropped() {
    let transfer = async {
        let (accepted, mut connected) = pair("127.0.0.1:0", config()).await;
        let bytes: Vec<u8> = (0..2_000_000).map(byte).collect();
        connected.write_all(&bytes).await.unwrap();
        drop(connected);
        assert_eq!(receive_all(accepted).await, 2_000_000);
    };
    timeout(TIMEOUT, transfer).await.unwrap();
}

#[tokio::test]
async fn many_connections_share_a_port() {
    let transfer = async {
        let (listener, other) = (bind("127.0.0.1:0", config()), bind("127.0.0.1:0", config()));
        listener.listen();
        let to = listener.local_addr();
        let mut receiving = Vec::new();
        for _ in 0..30 {
            let connected = other.connect(to).await.unwrap();
            let accepted = listener.accept().await.unwrap();
            tokio::spawn(send_all(connected, 300_000));
            receiving.push(tokio::spawn(receive_all(accepted)));
        }
        for transfer in receiving {
            assert_eq!(transfer.await.unwrap(), 300_000);
        }
    };
    timeout(TIMEOUT, transfer).await.unwrap();
}

#[tokio::test]
async fn dropping_a_socket_closes_connections_that_were_not_accepted() {
    let config = config();
    let (listener, other) = (bind("127.0.0.1:0", config), bind("127.0.0.1:0", config));
    listener.listen();
    let mut stream = other.connect(listener.local_addr()).await.unwrap();
    drop(listener);
    let read = timeout(TIMEOUT, stream.read(&mut [0])).await.unwrap();
    assert_eq!(read.unwrap(), 0);
}

/// Accepts a connection, and sends nothing more.
async fn accept_and_stop(at: tokio::net::UdpSocket) {
    let mut endpoint = Endpoint::new(config(), native, || 7);
    endpoint.listen();
    let mut datagram = [0; 2000];
    while endpoint.poll_event().is_none() {
        let (length, from) = at.recv_from(&mut datagram).await.unwrap();
        endpoint.handle(&datagram[..length], from, Time::ZERO);
        let mut reply = Vec::new();
        while let Some(to) = endpoint.transmit(Time::ZERO, &mut reply) {
            at.send_to(&std::mem::take(&mut reply), to).await.unwrap();
        }
    }
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn sending_frees_space_when_unsent_packets_are_limited() {
    let at = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let to = at.local_addr().unwrap();
    let writing = async {
        let socket = bind("127.0.0.1:0", config());
        let mut stream = socket.connect(to).await.unwrap();
        stream.limit_unsent(4);
        // The initial window is 16 packets.
        stream.write_all(&[0; 12 * 1000]).await.unwrap();
    };
    let writing = timeout(TIMEOUT, writing);
    tokio::select! {
        written = writing => written.unwrap(),
        () = accept_and_stop(at) => {}
    }
}

#[tokio::test]
async fn rendezvous_connects_two_sockets() {
    let meeting = async {
        let (one, other) = (bind("127.0.0.1:0", config()), bind("127.0.0.1:0", config()));
        let addresses: [SocketAddr; 2] = [one.local_addr(), other.local_addr()];
        let (one, other) =
            tokio::join!(one.rendezvous(addresses[1]), other.rendezvous(addresses[0]));
        let ((), received) = tokio::join!(
            send_all(one.unwrap(), 1_000_000),
            receive_all(other.unwrap())
        );
        assert_eq!(received, 1_000_000);
    };
    timeout(TIMEOUT, meeting).await.unwrap();
}

/// Refuses the first request for a connection.
async fn refuse(socket: &UdpSocket) {
    let mut datagram = [0; 2000];
    let (length, from) = socket.recv_from(&mut datagram).await.unwrap();
    let request = Packet::read(&datagram[..length]).unwrap();
    let Body::Handshake(handshake) = request.body else {
        panic!("{request:?}");
    };
    let refusal = Handshake {
        step: Step::Refusal(1002),
        ..handshake
    };
    let reply = Packet {
        destination: handshake.socket,
        body: Body::Handshake(refusal),
        ..request
    };
    let mut datagram = Vec::new();
    reply.write(&mut datagram);
    socket.send_to(&datagram, from).await.unwrap();
}

#[tokio::test]
async fn reports_refused_and_unanswered_connections_and_closed_ports() {
    let asking = async {
        let refusing = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let other = bind("127.0.0.1:0", config());
        let connecting = other.connect(refusing.local_addr().unwrap());
        let (refused, ()) = tokio::join!(connecting, refuse(&refusing));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let closed = std::net::UdpSocket::bind(address).unwrap().local_addr();
            let connected = bind(address, config()).connect(closed.unwrap()).await;
            let error = connected.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            assert!(error.to_string().contains("port unreachable"), "{error}");
        }
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let short_timeout = Config {
            connect_timeout: Time::from_millis(600),
            ..config()
        };
        let unanswered = bind("127.0.0.1:0", short_timeout)
            .connect(silent.local_addr().unwrap())
            .await
            .unwrap_err();
        assert_eq!(unanswered.kind(), ErrorKind::TimedOut);
    };
    timeout(TIMEOUT, asking).await.unwrap();
}
