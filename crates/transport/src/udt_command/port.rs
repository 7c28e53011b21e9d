// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP socket of `longhaul udt`.

use super::config::Port;
use crate::port::{any_address_for, bind};
use anyhow::Result;
use longhaul_command::exit::bind_error;
use longhaul_udt::socket::Socket;
use std::net::SocketAddr;

impl Port {
    /// Binds a UDP socket.
    pub(super) fn bind(&self, at: SocketAddr) -> Result<Socket> {
        bind(at, self.udt, self.control).map_err(|error| {
            let message =
                format!("cannot bind {at} (use --listen 0.0.0.0:9000 on a host without IPv6)");
            bind_error(message, error)
        })
    }

    /// Binds a free port of an address from which `to` can be reached.
    pub(super) fn bind_for(&self, to: SocketAddr) -> Result<Socket> {
        self.bind(any_address_for(to))
    }
}

/// Returns an error that names the peer.
pub(super) fn connection_error(to: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    let cause = match error.kind() {
        std::io::ErrorKind::TimedOut => "no answer (does a firewall block UDP?)".to_owned(),
        _ => error.to_string(),
    };
    anyhow::anyhow!("{to}: {cause}")
}
