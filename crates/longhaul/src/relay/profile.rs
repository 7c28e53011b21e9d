// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a leg behaves. One profile for the legs towards clients, one for those towards destinations
//! and peers.

use crate::exit::Refusal;
use anyhow::Context as _;
use host::socket::{self, Options};
use std::{io, net::SocketAddr};

/// A leg's transport settings. The default leaves everything to the system.
#[derive(Debug, Clone, Default)]
pub(crate) struct Profile {
    /// Congestion control by the kernel's name; `None` is net.ipv4.tcp_congestion_control.
    pub(crate) congestion_control: Option<String>,
}

impl Profile {
    /// The socket options of a leg with this profile.
    pub(crate) fn options(&self) -> Options {
        Options {
            congestion_control: self.congestion_control.clone(),
            transparent: false,
        }
    }

    /// Tries the profile on a socket that is thrown away. `flag` is what set it.
    pub(crate) fn check(&self, flag: &str) -> anyhow::Result<()> {
        let Some(name) = &self.congestion_control else {
            return Ok(());
        };
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 9));
        match socket::outgoing(anywhere, None, &self.options()) {
            Ok(_) => Ok(()),
            Err(error) => Err(explain(&error, flag, name)?),
        }
    }
}

fn explain(error: &io::Error, flag: &str, name: &str) -> anyhow::Result<anyhow::Error> {
    Ok(match error.kind() {
        io::ErrorKind::NotFound => Refusal::usage(format!(
            "{flag} {name}: no such congestion control here; there are: {}",
            socket::congestion_controls()?.join(", ")
        )),
        io::ErrorKind::PermissionDenied => Refusal::unsupported(format!(
            "{flag} {name}: needs CAP_NET_ADMIN, or {name} in \
             net.ipv4.tcp_allowed_congestion_control"
        )),
        _ => return Err(io::Error::from(error.kind())).context(format!("{flag} {name}")),
    })
}
