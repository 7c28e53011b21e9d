// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul relay`: TCP connections in legs.
//!
//! A listener turns a client into a request (`route::request`); the route opens the outgoing leg; the
//! transfer moves bytes between the two legs and passes every kind of end on; the session sees to
//! records. Workers are threads that share nothing but counters. `process::run` starts and ends them.
//!
//! ```
//! use clap::Parser;
//!
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     relay: longhaul_relay::Args,
//! }
//!
//! let cli = Cli::parse_from(["relay", "--forward", "127.0.0.1:8080=192.0.2.1:80", "--check-config"]);
//! longhaul_relay::run(&cli.relay).unwrap();
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod args;
mod authority;
mod check;
mod config;
mod doors;
mod faults;
mod leg;
mod listener;
mod peers;
mod process;
mod records;
mod relay;
mod route;
mod session;
mod stripe;
mod transfer;
mod verify;

pub use args::Args;
pub use process::run::run;

use crate::config::settings::Transport;
use std::net::SocketAddr;

/// The names of all options, as typed behind `--`.
pub fn options() -> Vec<String> {
    Args::options()
}

/// An authority in `directory`, unless it is there, and a certificate for each name.
pub fn make_certificates(directory: &std::path::Path, names: &[String]) -> anyhow::Result<()> {
    authority::make(directory, names)
}

/// Whether this machine and this user have what the profiles of a relay of these flags ask of sockets.
///
/// # Errors
///
/// Names the profile, and what is lacking.
pub fn try_out(flags: &[String]) -> anyhow::Result<()> {
    process::run::configuration(&Args::read_flags(flags)?).map(drop)
}

/// Where a relay of these flags would listen for TCP, without making it: for those who write such flags for others,
/// as `lab` does. What this machine and this user lack for it is no matter of theirs.
pub fn check(flags: &[String]) -> anyhow::Result<Vec<SocketAddr>> {
    let (config, ..) = Args::read_flags(flags)?.read()?;
    let listeners = config.listeners.iter();
    let over_tcp = listeners.filter(|listener| listener.transport == Transport::Tcp);
    let places = over_tcp.map(|listener| listener.address);
    Ok(places.chain(config.admin).collect())
}
