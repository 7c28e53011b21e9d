// SPDX-License-Identifier: MIT OR Apache-2.0
//! The port that `longhaul udt` binds.

use super::args::Port;
use crate::port::{any_towards, bind};
use anyhow::{Context as _, Result};
use longhaul_udt::{Config, Mode, socket::Socket};
use std::net::SocketAddr;

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
