// SPDX-License-Identifier: MIT OR Apache-2.0
//! Legs over UDT: translation of profiles, listening and connecting.

use crate::config::profile::Profile;
use longhaul_protocol::failure::Failure;
use longhaul_transport::port::{self, OutboundSockets};
use longhaul_udt::{
    Config,
    socket::{Socket, Stream},
};
use std::{io, net::SocketAddr};

/// Default size of a buffer in bytes: 1 Gbit/s over 380 ms. The memory is allocated when it is
/// first used.
const BUFFER_BYTES: usize = 48 << 20;

/// Default packet size in bytes, headers included: the MTU of Ethernet.
const MSS: u32 = 1500;

/// Binds a UDP port that accepts other relays.
pub(crate) fn listen(at: SocketAddr, profile: &Profile) -> io::Result<Socket> {
    let control = profile.udt_control.unwrap_or_default();
    let socket = port::bind(at, config(profile), control)?;
    socket.listen();
    Ok(socket)
}

fn config(profile: &Profile) -> Config {
    let options = &profile.options;
    let mss = options.mss.unwrap_or(MSS);
    let packets = |bytes: Option<usize>| {
        let packets = bytes.unwrap_or(BUFFER_BYTES) / mss as usize;
        u32::try_from(packets).unwrap_or(u32::MAX).max(32)
    };
    let defaults = Config::default();
    let idle_timeout = options.user_timeout.map(longhaul_units::Time::from);
    Config {
        mss,
        send_packets: packets(options.send_buffer),
        receive_packets: packets(options.receive_buffer),
        idle_timeout: idle_timeout.unwrap_or(defaults.idle_timeout),
        ..defaults
    }
}

/// Connects to `to` from one of the local UDP ports in `sockets`.
pub(crate) async fn connect(
    sockets: &OutboundSockets,
    to: SocketAddr,
    profile: &Profile,
) -> Result<Stream, Failure> {
    let control = profile.udt_control.unwrap_or_default();
    let connected = sockets.connect(to, config(profile), control).await;
    connected.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => Failure::TimedOut,
        io::ErrorKind::ConnectionRefused => Failure::Refused,
        _ => Failure::from_connect(&error),
    })
}
