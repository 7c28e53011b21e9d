// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test support: links, relays and name servers as processes, in network namespaces if a test needs them.
//!
//! ```no_run
//! use longhaul_testnet::relay_process::Relay;
//!
//! let relay = Relay::start(&["--socks5", "127.0.0.1:0"]);
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod link_process;
pub mod name_server;
pub mod relay_process;
pub mod relay_testbed;
mod timeouts;
