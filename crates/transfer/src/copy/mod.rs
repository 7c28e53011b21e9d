// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy`: files from here to there over many connections, durable and verified, good to go on with after
//! whatever befell it.
//!
//! Three processes: the one that was called starts a source and a target, here, by ssh or at a site, and makes them known to each
//! other (`order`). Those two connect: orders one way, answers the other, and streams of blocks ([`message`],
//! [`crate::block`]). Files are the matter of the crate `store`; what goes next on which stream, of `longhaul_scheduling`.

mod account;
mod apart;
mod args;
mod carrier;
mod connection;
mod display;
mod driver;
mod end;
mod far;
mod hearing;
mod identity;
mod interruption;
mod job;
mod location;
pub mod message;
mod movers;
mod opened;
mod order;
mod outbox;
mod patience;
mod patterns;
mod place;
mod plan;
mod preserved;
#[cfg(test)]
mod samples;
mod sharing;
mod standing;
mod threads;
mod verify;

use crate::site::Address;
use std::ffi::OsStr;

pub(crate) use account::Account;
pub use args::{Args, Ports};
pub(crate) use connection::{SILENCE, end_when_silent};
pub(crate) use end::Confinement;
pub(crate) use identity::{provider, to_key};
pub(crate) use location::real;

/// The site that a place is at, if it is at one.
pub(crate) fn site_of(place: &OsStr) -> anyhow::Result<Option<Address>> {
    Ok(place::Place::parse(place)?.site().cloned())
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.attended {
        threads::begin(end::end_with_standard_input)?;
    }
    match &args.command {
        Some(args::Command::Verify(args)) => verify::run(args),
        Some(args::Command::Jobs(args)) => movers::jobs::run(args),
        None if args.end => end::run(args.confined),
        None => driver::run(args),
    }
}
