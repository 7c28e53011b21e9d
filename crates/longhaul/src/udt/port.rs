// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP ports as they are asked for.

use super::args::Port;
use anyhow::{Context as _, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use udt::{
    Config, Mode, Seq,
    congestion::{self, Bbr, Native},
    socket::Socket,
};

impl Port {
    /// Takes a port for streams.
    pub(super) fn bind(&self, at: SocketAddr) -> Result<Socket> {
        let config = Config {
            mode: Mode::Stream,
            mss: self.mss,
            send_packets: self.window,
            receive_packets: self.window,
            patience: self.patience,
            silence: self.silence,
        };
        bind(at, config, self.control).with_context(|| {
            format!("cannot take {at} (--at says where: 0.0.0.0:9000 where there is no IPv6)")
        })
    }

    /// Any port, from which `to` can be reached.
    pub(super) fn towards(&self, to: SocketAddr) -> Result<Socket> {
        self.bind(any_towards(to))
    }
}

/// Takes a UDP port.
pub(crate) fn bind(at: SocketAddr, config: Config, control: Control) -> std::io::Result<Socket> {
    let control = move |first, window| control.make(first, window);
    Socket::bind(at, config, Box::new(control))
}

/// Any port of this host from which `to` can be reached.
pub(crate) fn any_towards(to: SocketAddr) -> SocketAddr {
    let any = match to.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    (any, 0).into()
}

/// Who decides how fast an end sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Control {
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

/// An error that says whose it is.
pub(super) fn not_reached(to: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    let why = match error.kind() {
        std::io::ErrorKind::TimedOut => {
            "nobody answers (UDP: does a firewall let it pass?)".to_owned()
        }
        _ => error.to_string(),
    };
    anyhow::anyhow!("{to}: {why}")
}
