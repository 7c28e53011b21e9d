// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP ports as they are asked for.

use longhaul_udt::{
    Config, Seq,
    congestion::{self, Bbr, Native},
    socket::Socket,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Binds a UDP port for UDT with this congestion control.
///
/// # Errors
/// A port that is taken, an address that this host lacks.
pub fn bind(at: SocketAddr, config: Config, control: Control) -> std::io::Result<Socket> {
    let control = move |first, window| control.make(first, window);
    Socket::bind(at, config, Box::new(control))
}

/// Any port of this host from which `to` can be reached.
pub fn any_towards(to: SocketAddr) -> SocketAddr {
    let any = match to.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    (any, 0).into()
}

/// Who decides how fast an end sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// UDT's own.
    Native,
    /// After BBR: for every path, and those most that lose packets without a queue.
    #[default]
    Bbr,
}

impl Control {
    /// One for a connection, whose first number is its seed.
    fn make(self, first: Seq, window: u32) -> Box<dyn congestion::Control> {
        let seed = first.get().into();
        match self {
            Self::Native => Box::new(Native::new(first, window, seed)),
            Self::Bbr => Box::new(Bbr::new(first, window, seed)),
        }
    }
}
