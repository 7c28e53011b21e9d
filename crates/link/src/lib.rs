// SPDX-License-Identifier: MIT OR Apache-2.0
//! Implementation of `longhaul link`: emulates a long path between two interfaces, in user space.
//!
//! ```
//! let flags = ["--left", "near:wan0:10.9.0.1/30", "--right", "far:wan0:10.9.0.2/30", "--rate", "1gbit", "--delay", "50ms"].map(str::to_owned);
//! let [forward, backward] = longhaul_link::link_configs(&flags).unwrap();
//! assert_eq!(forward.delay + backward.delay, longhaul_units::Time::from_millis(100));
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod args;
mod arrival_clock;
mod capture;
mod config;
mod control;
mod counters;
mod display;
mod forwarding;
mod link;
mod packet_ring;
mod run;

pub use args::Args;
use args::{Command, DirectionArg};
use longhaul_netem::{LinkConfig, Schedule};
use std::collections::BTreeSet;

/// Runs `longhaul link`.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        None => run::run(&args.start.config()?),
        Some(Command::Set {
            name,
            key,
            value,
            direction,
        }) => control::set(&name, key, value, direction.map(DirectionArg::direction)),
        Some(Command::Show { name, json }) => control::show(&name, json),
    }
}

/// Returns the names of all options, as typed after `--`.
pub fn options() -> Vec<String> {
    Args::options()
}

/// Returns the configurations that these flags mean, from left to right and from right to left, without creating a
/// link. For programs that generate such flags, as `lab` does.
pub fn link_configs(flags: &[String]) -> anyhow::Result<[LinkConfig; 2]> {
    Ok(scheduled_configs(flags)?.map(|(config, _)| config))
}

/// Returns warnings of settings that are valid and seldom meant, as a link with these flags prints them.
pub fn warnings(flags: &[String]) -> anyhow::Result<BTreeSet<String>> {
    Ok(Args::parse(flags)?.start.config()?.warnings())
}

/// Returns the configurations as [`link_configs`] does, each with its schedule of changes.
pub fn scheduled_configs(flags: &[String]) -> anyhow::Result<[(LinkConfig, Schedule); 2]> {
    let link = Args::parse(flags)?.start.config()?.links.remove(0);
    let capture = link.capture.as_ref();
    capture.map_or(Ok(()), capture::CaptureOptions::check)?;
    Ok([link.forward, link.backward].map(|direction| (direction.initial, direction.schedule)))
}
