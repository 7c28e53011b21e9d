// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP ports as they are asked for.

use super::args::Port;
use anyhow::{Context as _, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use udt::{Config, Mode, congestion::Native, socket::Socket};

impl Port {
    /// Takes a port for streams.
    pub(super) fn bind(&self, at: SocketAddr) -> Result<Socket> {
        let config = Config {
            mode: Mode::Stream,
            mss: self.mss,
            send_packets: self.window,
            receive_packets: self.window,
            silence: self.silence,
        };
        bind(at, config).with_context(|| {
            format!("cannot take {at} (--at says where: 0.0.0.0:9000 where there is no IPv6)")
        })
    }

    /// Any port, from which `to` can be reached.
    pub(super) fn towards(&self, to: SocketAddr) -> Result<Socket> {
        self.bind(any_towards(to))
    }
}

/// Takes a UDP port.
pub(crate) fn bind(at: SocketAddr, config: Config) -> std::io::Result<Socket> {
    let control = |first: udt::Seq, window| {
        let native = Native::new(first, window, first.get().into());
        Box::new(native) as Box<dyn udt::congestion::Control>
    };
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
