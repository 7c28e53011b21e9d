// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of the HTTP listeners, and of the locks of their clients.

use anyhow::Result;
use longhaul_command::exit::Refusal;
use std::{fmt, net::SocketAddr, path::PathBuf};

/// Options of the HTTP listeners.
#[derive(Debug, Default, clap::Args)]
pub(super) struct HttpArgs {
    /// Also serve the exports over HTTP and WebDAV on this loopback address
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) http: Option<SocketAddr>,

    /// Also serve the exports over HTTPS on this address, with the site's own key or --certificate
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) https: Option<SocketAddr>,

    /// For --https: PEM file of a certificate, its chain and its key, not readable by other users
    #[arg(long, value_name = "FILE", requires = "https")]
    pub(super) certificate: Option<PathBuf>,

    /// Serve the listener on standard input, for the site that started this process
    #[arg(long, hide = true)]
    pub(super) serve: Option<Scheme>,
}

impl HttpArgs {
    /// Rejects an unencrypted listener that other machines can reach.
    pub(super) fn check(&self) -> Result<()> {
        match self.http.filter(|http| !http.ip().is_loopback()) {
            Some(http) => Err(Refusal::usage(format!(
                "--http {http}: tokens would be sent unencrypted; want a loopback address, or --https"
            ))),
            None => Ok(()),
        }
    }
}

/// Protocol of an HTTP listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Scheme {
    Http,
    Https,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum LockCommand {
    /// List locks with their token, path, holder and expiry
    List,
    /// Break a lock, so that its holder has no more rights than others
    Remove {
        /// Token of the lock, from longhaul site lock list
        lock: String,
    },
}
