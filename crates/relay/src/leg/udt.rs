// SPDX-License-Identifier: MIT OR Apache-2.0
//! Legs over UDT: what a profile means for them, and the ports that they come and go by.

use crate::config::profile::Profile;
use longhaul_protocol::failure::Failure;
use longhaul_transport::port::{self, Departure};
use longhaul_udt::{
    Config,
    socket::{Socket, Stream},
};
use std::{io, net::SocketAddr};

/// Bytes that a buffer has if the profile does not say: 1 Gbit/s over 380 ms. A ring of the system's memory, which gives it
/// when it is first used.
const BUFFER: usize = 48 << 20;

/// Bytes of a packet with all headers, if the profile does not say: Ethernet's.
const MSS: u32 = 1500;

/// Takes a UDP port that other relays may connect to.
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
        let packets = bytes.unwrap_or(BUFFER) / mss as usize;
        u32::try_from(packets).unwrap_or(u32::MAX).max(32)
    };
    let usual = Config::default();
    let silence = options.user_timeout.map(longhaul_units::Time::from);
    Config {
        mss,
        send_packets: packets(options.send_buffer),
        receive_packets: packets(options.receive_buffer),
        silence: silence.unwrap_or(usual.silence),
        ..usual
    }
}

/// A leg to `to`, which leaves by the ports of `departure`.
pub(crate) async fn connect(
    departure: &Departure,
    to: SocketAddr,
    profile: &Profile,
) -> Result<Stream, Failure> {
    let control = profile.udt_control.unwrap_or_default();
    let connected = departure.connect(to, config(profile), control).await;
    connected.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => Failure::TimedOut,
        io::ErrorKind::ConnectionRefused => Failure::Refused,
        _ => Failure::from_connect(&error),
    })
}
