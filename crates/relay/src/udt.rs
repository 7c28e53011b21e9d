// SPDX-License-Identifier: MIT OR Apache-2.0
//! Legs over UDT: what a profile means for them, and the ports that they come and go by.

use super::profile::{KEEPALIVE_DEFAULT, Profile};
use longhaul_protocol::failure::Failure;
use longhaul_transport::port;
use longhaul_udt::{Config, Mode};
use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub(crate) use longhaul_udt::socket::{Socket, Stream};

/// Bytes that a buffer has if the profile does not say: 1 Gbit/s over 380 ms. A ring of the system's memory, which gives it
/// when it is first used.
const BUFFER: usize = 48 << 20;

/// Bytes of a packet with all headers, if the profile does not say: Ethernet's.
const MSS: u32 = 1500;

/// What a profile asks for that UDT has not.
pub(crate) fn problem(profile: &Profile) -> Option<&'static str> {
    let options = &profile.options;
    let asked = [
        ("congestion_control", options.congestion_control.is_some()),
        ("pacing_rate", options.pacing_rate.is_some()),
        ("notsent_lowat", options.notsent_lowat.is_some()),
        ("keepalive", asks_for_keepalive(options.keepalive)),
        ("dscp", options.dscp.is_some()),
        ("initial_window", options.initial_window.is_some()),
    ];
    let lacked = asked.into_iter().find(|(_, asked)| *asked);
    lacked.map(|(name, _)| name)
}

/// The default is TCP's; UDT has keep-alives of its own.
fn asks_for_keepalive(keepalive: Option<Duration>) -> bool {
    keepalive.is_some_and(|time| time != KEEPALIVE_DEFAULT)
}

/// Takes a UDP port that other relays may connect to.
pub(crate) fn listen(at: SocketAddr, profile: &Profile) -> io::Result<Socket> {
    let socket = bind(at, profile)?;
    socket.listen();
    Ok(socket)
}

fn bind(at: SocketAddr, profile: &Profile) -> io::Result<Socket> {
    let control = profile.udt_control.unwrap_or_default();
    port::bind(at, config(profile), control)
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
        mode: Mode::Stream,
        mss,
        send_packets: packets(options.send_buffer),
        receive_packets: packets(options.receive_buffer),
        silence: silence.unwrap_or(usual.silence),
        ..usual
    }
}

/// The ports that legs to a peer leave by, each taken when the first one does: a socket of IPv6 reaches no address of
/// IPv4, and a peer's name may lead to both.
#[derive(Debug, Default)]
pub(crate) struct Departure {
    ipv4: Port,
    ipv6: Port,
}

/// The port of one family, once it is taken.
#[derive(Debug, Default)]
struct Port(Mutex<Option<Arc<Socket>>>);

impl Departure {
    pub(crate) async fn connect(
        &self,
        to: SocketAddr,
        profile: &Profile,
    ) -> Result<Stream, Failure> {
        let port = match to {
            SocketAddr::V4(_) => &self.ipv4,
            SocketAddr::V6(_) => &self.ipv6,
        };
        let connected = match port.socket(to, profile) {
            Ok(socket) => socket.connect(to).await,
            Err(error) => Err(error),
        };
        connected.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => Failure::TimedOut,
            io::ErrorKind::ConnectionRefused => Failure::Refused,
            _ => {
                // The next leg takes another: this one may be broken.
                port.lock().take();
                Failure::from_connect(&error)
            }
        })
    }
}

impl Port {
    fn socket(&self, to: SocketAddr, profile: &Profile) -> io::Result<Arc<Socket>> {
        let mut socket = self.lock();
        if let Some(socket) = &*socket {
            return Ok(socket.clone());
        }
        let taken = Arc::new(bind(port::any_towards(to), profile)?);
        Ok(socket.insert(taken).clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Socket>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
