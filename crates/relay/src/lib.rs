// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul relay`: splits TCP connections into legs.
//!
//! A leg is one transport connection: the downstream leg leads to the client, the upstream leg to the
//! destination or to the next relay. A listener turns a client into a request (`route::request`).
//! The route opens the upstream leg. The transfer moves bytes between the two legs and passes every kind
//! of end on. The session writes the record. Workers are threads that share nothing but counters.
//! `process::run` starts and stops them.
//!
//! # Tour
//!
//! A folder imports those before it in this list.
//!
//! | folder | subject |
//! |---|---|
//! | `config` | `options` and `settings` are flags and files, then checked values; `policy` decides on routes without I/O; `reference` is `--print-default-config` |
//! | `faults` | causes of failures, in words for clients, other relays and the operator |
//! | `records` | counters, histograms, samples of open connections, the journal of records |
//! | `leg` | resolves names, connects (Happy Eyeballs), sets profiles; TCP and UDT |
//! | `peers` | other relays: health, checks, pools of idle connections |
//! | `stripe` | one connection's bytes over several legs |
//! | `route` | a client's request, and the upstream leg that serves it; `attempt` decides whether a failed one is repeated |
//! | `transfer` | bytes in both directions, by splice or by copying; each direction ends separately |
//! | `listeners` | listening sockets, those of socket activation included |
//! | `session` | one client connection: access control, its upstream, its end and record |
//! | `client_protocols` | SOCKS, HTTP, FTP, Convert: how a client asks and what it gets |
//! | `verify` | `--verify-connect`: SYNs wait for the upstream leg |
//! | `process` | start, worker threads, supervisor, reload, systemd |
//!
//! `transfer` is written as polled states, because an idle connection is as large as what it awaits. `session` and
//! `client_protocols` put what is over by then into boxes for the same reason.
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
mod client_protocols;
mod config;
mod faults;
mod leg;
mod listeners;
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

/// Checks arguments without starting a relay, and returns the TCP addresses that it would listen on, each with its
/// option. Features that this machine or this user lacks are not reported.
pub fn check(args: &Args) -> anyhow::Result<Vec<(String, SocketAddr)>> {
    let (config, ..) = args.read()?;
    let listeners = config.listeners.iter();
    let over_tcp = listeners.filter(|listener| listener.transport == Transport::Tcp);
    let addresses = over_tcp.map(|listener| (listener.kind.to_string(), listener.address));
    let others = [("admin", config.admin), ("health", config.health)].into_iter();
    let others = others.filter_map(|(option, address)| Some((option.to_owned(), address?)));
    Ok(addresses.chain(others).collect())
}
