// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test support: network namespaces, and links, relays, name servers and SSH servers as processes in them.
//!
//! ```no_run
//! use longhaul_testnet::relay_process::Relay;
//!
//! let relay = Relay::start(&["--socks5", "127.0.0.1:0"]);
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod link_process;
pub mod name_server;
pub mod namespace;
pub mod payload;
pub mod relay_process;
pub mod relay_testbed;
pub mod ssh_server;
mod timeouts;
