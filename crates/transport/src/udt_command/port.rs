// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP socket of `longhaul udt`.

use super::config::Port;
use crate::port::{any_address_for, bind};
use anyhow::Result;
use longhaul_command::exit::bind_error;
use longhaul_udt::socket::Socket;
use std::{io::ErrorKind, net::SocketAddr};

impl Port {
    /// Binds a UDP socket.
    pub(super) fn bind(&self, at: SocketAddr) -> Result<Socket> {
        bind(at, self.udt, self.control).map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::AddrInUse => "",
                _ => " (on a host without IPv6, use --listen 0.0.0.0:9000)",
            };
            let message = format!("cannot bind {at}{hint}");
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
        ErrorKind::TimedOut => "no answer (does a firewall block UDP?)".to_owned(),
        _ => error.to_string(),
    };
    anyhow::anyhow!("{to}: {cause}")
}
