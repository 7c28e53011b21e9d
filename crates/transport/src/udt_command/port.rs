// SPDX-License-Identifier: MIT OR Apache-2.0
//! The port that `longhaul udt` binds.

use super::config::Port;
use crate::port::{any_address_for, bind};
use anyhow::Result;
use longhaul_command::exit::port_not_opened;
use longhaul_udt::socket::Socket;
use std::net::SocketAddr;

impl Port {
    /// Takes a port for streams.
    pub(super) fn bind(&self, at: SocketAddr) -> Result<Socket> {
        bind(at, self.udt, self.control).map_err(|error| {
            let which =
                format!("cannot take {at} (--at says where: 0.0.0.0:9000 where there is no IPv6)");
            port_not_opened(which, error)
        })
    }

    /// Any port, from which `to` can be reached.
    pub(super) fn bind_for(&self, to: SocketAddr) -> Result<Socket> {
        self.bind(any_address_for(to))
    }
}

/// An error that says whose it is.
pub(super) fn connection_error(to: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    let why = match error.kind() {
        std::io::ErrorKind::TimedOut => {
            "nobody answers (UDP: does a firewall let it pass?)".to_owned()
        }
        _ => error.to_string(),
    };
    anyhow::anyhow!("{to}: {why}")
}
