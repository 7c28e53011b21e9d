// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy`: files from here to there over many connections, durable and verified, good to go on with after
//! whatever befell it.
//!
//! Three processes: the one that was called starts a source and a target, here, by ssh or at a site, and makes them known to each
//! other (`session`). Those two (`end`) connect: orders one way, answers the other ([`message`](crate::protocol::message)),
//! and streams of blocks ([`block`](crate::protocol::block)). Files are the matter of the crate `store`; what goes next on which stream, of `longhaul_scheduling`.

mod args;
mod config;
mod distributed;
mod endpoint;
#[cfg(test)]
mod fixtures;
mod location;
mod movers;
mod open_file;
mod progress;
mod run;
mod session;
mod verify;

pub use args::command::Args;
pub use location::{Host, Location};
pub use run::run;
pub use session::keyring::Keyring;
