// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends of connections: each FIN is relayed alone and after all bytes, each abnormal end stays
//! abnormal.

use longhaul_linux::socket::reset_on_close;
use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, assert_reset, connect, half_close, listen_as_origin, read_array,
};
use socket2::SockRef;
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    time::Instant,
};

/// Connects a client to its server through two relays.
fn path(mode: &str) -> (TcpStream, TcpStream, [Relay; 2]) {
    let (listener, address) = listen_as_origin();
    let far = Relay::start(&["--convert", "127.0.0.1:0", "--mode", mode]);
    let peer = far.address("convert").to_string();
    let forward = format!("127.0.0.1:0={address}");
    let near = Relay::start(&["--forward", &forward, "--peer", &peer, "--mode", mode]);
    let client = connect(near.address("forward"));
    let server = accept(&listener);
    (client, server, [near, far])
}

const MODES: [&str; 3] = ["auto", "splice", "copy"];

#[test]
fn client_fin_leaves_other_direction_open() {
    for mode in MODES {
        let (client, server, _relays) = path(mode);
        half_close(&client, &server);
    }
}

#[test]
fn server_fin_leaves_other_direction_open() {
    for mode in MODES {
        let (client, server, _relays) = path(mode);
        half_close(&server, &client);
    }
}

#[test]
fn fin_does_not_overtake_data() {
    for mode in MODES {
        let (mut client, mut server, _relays) = path(mode);
        // The data fits into the buffers on the path: the FIN is sent before the receiver has read.
        client.write_all(&[7; 64 << 10]).unwrap();
        drop(client);
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert!(got == [7; 64 << 10], "{} bytes", got.len());
    }
}

fn reset(stream: TcpStream) {
    reset_on_close(&stream).unwrap();
    drop(stream);
}

#[test]
fn relays_client_rst_to_server() {
    for mode in MODES {
        let (mut client, mut server, _relays) = path(mode);
        client.write_all(b"x").unwrap();
        assert_eq!(read_array(&mut server), *b"x");
        reset(client);
        assert_reset(&mut server);
    }
}

#[test]
fn relays_server_rst_to_client() {
    for mode in MODES {
        let (mut client, mut server, _relays) = path(mode);
        server.write_all(b"x").unwrap();
        assert_eq!(read_array(&mut client), *b"x");
        reset(server);
        assert_reset(&mut client);
    }
}

/// Waits until a write fails, at most for [`PATIENCE`].
fn assert_becomes_unwritable(stream: &mut TcpStream) {
    let start = Instant::now();
    while stream.write(b"x").is_ok() {
        assert!(start.elapsed() < TEST_TIMEOUT, "the reset never arrived");
        std::thread::yield_now();
    }
}

#[test]
fn relays_rst_after_fin() {
    let (client, mut server, _relays) = path("splice");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    reset(client);
    assert_becomes_unwritable(&mut server);
}

#[test]
fn rst_after_fin_ends_idle_connection() {
    let (client, mut server, relays) = path("splice");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    reset(client);
    // Nothing is written, so only the watch on the half-closed leg can end the connection. With the
    // default grace, the relays would wait for an open connection and then reset it.
    let start = Instant::now();
    while longhaul_linux::socket::pending_error(&server)
        .unwrap()
        .is_none()
    {
        assert!(start.elapsed() < TEST_TIMEOUT, "the reset never arrived");
        std::thread::yield_now();
    }
    for relay in relays {
        let (status, log) = relay.stop();
        assert!(status.success());
        assert!(log.contains("no connection reset"), "{log}");
    }
}

#[test]
fn relays_single_bytes() {
    for mode in MODES {
        let (mut client, mut server, _relays) = path(mode);
        for n in 0..1000u32 {
            client.write_all(&[n as u8]).unwrap();
            assert_eq!(read_array(&mut server), [n as u8]);
            server.write_all(&[!n as u8]).unwrap();
            assert_eq!(read_array(&mut client), [!n as u8]);
        }
    }
}

#[test]
fn slow_reader_stops_sender() {
    for mode in MODES {
        let (mut client, server, _relays) = path(mode);
        client
            .set_write_timeout(Some(std::time::Duration::from_millis(500)))
            .unwrap();
        let block = vec![0; 1 << 20];
        let mut written = 0u64;
        // Buffers on the path: six sockets of at most tcp_rmem/tcp_wmem maxima, and two pipes.
        while written < 1 << 30 {
            match client.write(&block) {
                Ok(n) => written += n as u64,
                Err(_) => break,
            }
        }
        assert!(written < 1 << 30, "the relay reads without limit");
        drop(server);
    }
}

/// splice(2) returns no data at the urgent mark, and recv(2) skips the urgent byte; the relay must
/// handle both.
#[test]
fn relays_urgent_byte_in_order() {
    for mode in MODES {
        let (mut client, mut server, _relays) = path(mode);
        server.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        SockRef::from(&server).set_out_of_band_inline(true).unwrap();
        let large = vec![b'l'; 100_000];
        for ahead in [&b"ahead"[..], &large] {
            client.write_all(ahead).unwrap();
            SockRef::from(&client).send_out_of_band(b"!").unwrap();
            client.write_all(b"behind").unwrap();
            let mut got = vec![0; ahead.len() + 7];
            server.read_exact(&mut got).unwrap();
            assert!(
                got.starts_with(ahead) && got.ends_with(b"!behind"),
                "{mode}"
            );
        }
        SockRef::from(&client).send_out_of_band(b"!").unwrap();
        assert_eq!(read_array(&mut server), *b"!", "{mode}: the last byte");
    }
}
