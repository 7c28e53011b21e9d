// SPDX-License-Identifier: MIT OR Apache-2.0
//! How connections end: each FIN is passed on alone and after all bytes, each abnormal end stays
//! abnormal.

use longhaul_linux::socket::reset_on_close;
use longhaul_testnet::relay_process::{
    PATIENCE, Relay, accept, assert_reset, connect, half_close, origin, read_array,
};
use socket2::SockRef;
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    time::Instant,
};

/// A client and its server, and the two relays between them.
fn path(mode: &str) -> (TcpStream, TcpStream, [Relay; 2]) {
    let (listener, address) = origin();
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
fn a_client_s_fin_leaves_the_other_direction_open() {
    for mode in MODES {
        let (client, server, _relays) = path(mode);
        half_close(&client, &server);
    }
}

#[test]
fn a_server_s_fin_leaves_the_other_direction_open() {
    for mode in MODES {
        let (client, server, _relays) = path(mode);
        half_close(&server, &client);
    }
}

#[test]
fn a_fin_right_behind_the_data_overtakes_nothing() {
    for mode in MODES {
        let (mut client, mut server, _relays) = path(mode);
        // It fits into the buffers on the way: the FIN is sent before anyone has read.
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
fn a_client_s_rst_is_a_rst_at_the_server() {
    for mode in MODES {
        let (mut client, mut server, _relays) = path(mode);
        client.write_all(b"x").unwrap();
        assert_eq!(read_array(&mut server), *b"x");
        reset(client);
        assert_reset(&mut server);
    }
}

#[test]
fn a_server_s_rst_is_a_rst_at_the_client() {
    for mode in MODES {
        let (mut client, mut server, _relays) = path(mode);
        server.write_all(b"x").unwrap();
        assert_eq!(read_array(&mut client), *b"x");
        reset(server);
        assert_reset(&mut client);
    }
}

/// Waits until a write fails, without looking at the clock but to give up.
fn assert_becomes_unwritable(stream: &mut TcpStream) {
    let start = Instant::now();
    while stream.write(b"x").is_ok() {
        assert!(start.elapsed() < PATIENCE, "the reset never arrived");
        std::thread::yield_now();
    }
}

#[test]
fn a_rst_after_a_fin_still_reaches_the_other_side() {
    let (client, mut server, _relays) = path("splice");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    reset(client);
    assert_becomes_unwritable(&mut server);
}

#[test]
fn a_rst_after_a_fin_ends_an_idle_connection() {
    let (client, mut server, relays) = path("splice");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    reset(client);
    // Nothing is written: only the watch on the half-closed leg can end it. With the default grace
    // the relays would wait for an open connection and then cut it.
    let start = Instant::now();
    while longhaul_linux::socket::pending_error(&server)
        .unwrap()
        .is_none()
    {
        assert!(start.elapsed() < PATIENCE, "the reset never arrived");
        std::thread::yield_now();
    }
    for relay in relays {
        let (status, said) = relay.stop();
        assert!(status.success());
        assert!(said.contains("no connection cut"), "{said}");
    }
}

#[test]
fn single_bytes_pass_at_once() {
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
fn a_slow_reader_stops_the_sender() {
    for mode in MODES {
        let (mut client, server, _relays) = path(mode);
        client
            .set_write_timeout(Some(std::time::Duration::from_millis(500)))
            .unwrap();
        let block = vec![0; 1 << 20];
        let mut taken = 0u64;
        // Buffers on the way: six sockets of at most tcp_rmem/tcp_wmem maxima and two pipes.
        while taken < 1 << 30 {
            match client.write(&block) {
                Ok(n) => taken += n as u64,
                Err(_) => break,
            }
        }
        assert!(taken < 1 << 30, "the relay takes without end");
        drop(server);
    }
}

/// splice(2) finds a socket empty at the urgent mark, and recv(2) leaves the byte behind it out, if
/// nobody sees to it.
#[test]
fn an_urgent_byte_holds_up_nothing_and_is_not_lost() {
    for mode in MODES {
        let (mut client, mut server, _relays) = path(mode);
        server.set_read_timeout(Some(PATIENCE)).unwrap();
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
