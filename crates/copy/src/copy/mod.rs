// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy`: copies files between hosts over many connections. Copies are durable, verified and resumable.
//!
//! A copy has three processes. The coordinator, which the user calls, starts a source endpoint and a target endpoint,
//! locally, by ssh or at a site, and passes each the address and the certificate of the other (`session`). The endpoints
//! (`endpoint`) connect to each other. They exchange control messages ([`message`](crate::protocol::message)) and
//! streams of blocks ([`block`](crate::protocol::block)). The crate `store` reads and writes files, and
//! `longhaul_scheduling` chooses the next block of each stream.

mod args;
mod config;
mod distributed;
mod endpoint;
#[cfg(test)]
mod fixtures;
mod location;
mod progress;
mod run;
mod session;
mod verify;
#[cfg_attr(not(feature = "leases"), path = "no_workers.rs")]
mod workers;

pub use args::{command::Args, parse_trash};
pub use location::{Host, Location};
pub use run::run;
pub use session::keyring::Keyring;
