// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admin endpoint of a real relay with real connections: its reports match the traffic, and access
//! is restricted.

pub(crate) mod endpoint;
mod guarded;
mod health;
mod legs;
mod metrics;
mod openmetrics;
mod page;

use longhaul_testnet::relay_process::Relay;
use std::net::SocketAddr;

pub(crate) const ANY: &str = "127.0.0.1:0";

/// Starts a relay with an admin endpoint that forwards to `to`.
pub(crate) fn forwarding(to: SocketAddr, more: &[&str]) -> Relay {
    let forward = format!("{ANY}={to}");
    Relay::start(&[&["--forward", &forward, "--admin", ANY], more].concat())
}
