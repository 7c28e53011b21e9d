// SPDX-License-Identifier: MIT OR Apache-2.0
//! Socket options of profiles, on accepted and on upstream legs of a running relay.

use longhaul_linux::socket::pacing_rate;
use longhaul_testnet::relay_process::{
    Relay, accept, connect, listen_as_origin, read_array, transfer_both_ways,
};
use rustix::net::sockopt as read;
use std::{
    io::Write,
    net::{SocketAddr, TcpListener, TcpStream},
};

/// Expected options of one leg.
struct Wanted {
    congestion: &'static str,
    pacing_mbit: u64,
    notsent_lowat: u32,
    keepalive_s: u64,
    user_timeout_s: u32,
    mss: u32,
    dscp: u8,
    send_buffer: usize,
    receive_buffer: usize,
}

/// Options of accepted legs. No value is the kernel's default, nor that of [`FAR`].
const NEAR: Wanted = Wanted {
    congestion: "reno",
    pacing_mbit: 800,
    notsent_lowat: 16_384,
    keepalive_s: 40,
    user_timeout_s: 30,
    mss: 1000,
    dscp: 8,
    send_buffer: 100_000,
    receive_buffer: 110_000,
};
/// Options of upstream legs.
const FAR: Wanted = Wanted {
    congestion: "cubic",
    pacing_mbit: 400,
    notsent_lowat: 32_768,
    keepalive_s: 80,
    user_timeout_s: 50,
    mss: 1100,
    dscp: 46,
    send_buffer: 120_000,
    receive_buffer: 130_000,
};

fn profile(name: &str, of: &Wanted) -> String {
    format!(
        "[profile.{name}]\ncongestion_control = '{}'\npacing_rate = '{}mbit'\n\
         notsent_lowat = '{}B'\nkeepalive = '{}s'\nuser_timeout = '{}s'\nmss = {}\ndscp = {}\n\
         send_buffer = '{}B'\nreceive_buffer = '{}B'\n",
        of.congestion,
        of.pacing_mbit,
        of.notsent_lowat,
        of.keepalive_s,
        of.user_timeout_s,
        of.mss,
        of.dscp,
        of.send_buffer,
        of.receive_buffer
    )
}

fn assert_has(leg: &TcpStream, wanted: &Wanted, whose: &str) {
    let cc = read::tcp_congestion(leg).unwrap();
    assert_eq!(cc, wanted.congestion, "{whose}");
    let rate = wanted.pacing_mbit * 1_000_000 / 8;
    assert_eq!(pacing_rate(leg).unwrap(), rate, "{whose}");
    let socket = socket2::SockRef::from(leg);
    let lowat = socket.tcp_notsent_lowat().unwrap();
    assert_eq!(lowat, wanted.notsent_lowat, "{whose}");
    assert!(socket.keepalive().unwrap(), "{whose}");
    let idle = socket.tcp_keepalive_time().unwrap().as_secs();
    assert_eq!(idle, wanted.keepalive_s, "{whose}");
    let user_timeout = read::tcp_user_timeout(leg).unwrap();
    assert_eq!(user_timeout, wanted.user_timeout_s * 1000, "{whose}");
    // Timestamps take 12 bytes of each segment.
    let mss = socket.tcp_mss().unwrap();
    assert!(
        [wanted.mss, wanted.mss - 12].contains(&mss),
        "{whose}: {mss}"
    );
    let class = match leg.peer_addr().unwrap() {
        SocketAddr::V4(_) => socket.tos_v4().unwrap(),
        SocketAddr::V6(_) => socket.tclass_v6().unwrap(),
    };
    assert_eq!(class, u32::from(wanted.dscp) << 2, "{whose}");
    // The kernel doubles the given size (socket(7)).
    let buffers = [socket.send_buffer_size(), socket.recv_buffer_size()];
    let wanted = [wanted.send_buffer, wanted.receive_buffer].map(|bytes| 2 * bytes);
    assert_eq!(buffers.map(Result::unwrap), wanted, "{whose}");
}

/// Starts a relay that forwards from `at` to `to`.
fn forwarding(at: &str, to: SocketAddr, more: &str) -> Relay {
    let listener = "[[listener]]\nkind = 'forward'";
    Relay::start_with_config(
        &format!("{listener}\naddress = '{at}'\ndestination = '{to}'\n{more}"),
        1,
    )
}

/// Connects a client through the relay. Returns the client, its server, and the relay's legs to
/// both.
fn joined(relay: &Relay, origin: &TcpListener) -> ([TcpStream; 2], [TcpStream; 2]) {
    let mut client = connect(relay.address("forward"));
    client.write_all(b"x").unwrap();
    let mut server = accept(origin);
    assert_eq!(read_array(&mut server), *b"x");
    let near = relay.socket_to(client.local_addr().unwrap());
    let far = relay.socket_to(server.local_addr().unwrap());
    ([client, server], [near, far])
}

#[test]
fn sets_every_option_on_both_legs() {
    let profiles = profile("downstream", &NEAR) + &profile("upstream", &FAR);
    for (at, to) in [("127.0.0.1:0", "[::1]:0"), ("[::1]:0", "127.0.0.1:0")] {
        let origin = TcpListener::bind(to).unwrap();
        let relay = forwarding(at, origin.local_addr().unwrap(), &profiles);
        let ([client, server], [near, far]) = joined(&relay, &origin);
        assert_has(&near, &NEAR, "near");
        assert_has(&far, &FAR, "far");
        // The options must not change the bytes; the server has received one of them already.
        drop(near);
        drop(far);
        transfer_both_ways(&client, &server, 1);
    }
}

#[test]
fn buffers_are_autotuned_without_profile() {
    let (listener, address) = listen_as_origin();
    let relay = forwarding("127.0.0.1:0", address, "");
    let (_ends, legs) = joined(&relay, &listener);
    let plain = TcpStream::connect(address).unwrap();
    for leg in legs {
        let buffer = socket2::SockRef::from(&leg).send_buffer_size().unwrap();
        let kernel_s = socket2::SockRef::from(&plain).send_buffer_size().unwrap();
        assert_eq!(buffer, kernel_s);
        assert_eq!(pacing_rate(&leg).unwrap(), u64::MAX, "unlimited");
    }
}

/// Only splice needs pipes in a relay.
#[test]
fn mode_of_upstream_profile_selects_splice_or_copy() {
    for (mode, splices) in [("splice", true), ("copy", false)] {
        let (listener, address) = listen_as_origin();
        let profile = format!("[profile.upstream]\nmode = '{mode}'\n");
        let relay = forwarding("127.0.0.1:0", address, &profile);
        let before = relay.descriptors("pipe:").len();
        let ([client, server], _legs) = joined(&relay, &listener);
        transfer_both_ways(&client, &server, 8);
        let more = relay.descriptors("pipe:").len() - before;
        assert_eq!(more > 0, splices, "{mode}: {more} pipe ends");
    }
}
