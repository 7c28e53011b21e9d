// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy`: files from here to there over many connections, durable and verified, good to go on with after
//! whatever befell it.
//!
//! Three processes: the one that was called starts a source and a target, here, by ssh or at a site, and makes them known to each
//! other ([`order`](crate::protocol::order)). Those two connect: orders one way, answers the other, and streams of blocks ([`message`](crate::protocol::message),
//! [`crate::protocol::block`]). Files are the matter of the crate `store`; what goes next on which stream, of `longhaul_scheduling`.

mod apart;
mod args;
mod client;
mod display;
mod driver;
pub(crate) mod end;
mod far;
mod hearing;
mod interruption;
mod job;
pub(crate) mod keyring;
mod movers;
mod opened;
mod patience;
mod patterns;
pub(crate) mod place;
mod plan;
mod preserved;
mod run;
#[cfg(test)]
mod samples;
mod sharing;
mod standing;
mod threads;
mod verify;

pub use args::Args;
pub use run::run;
