// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul link` as one wire of the testbed.

use super::{daemon::Daemon, longhaul};
use crate::{
    scenario::{Link, value::flags},
    topology::Wire,
};
use anyhow::Result;
use longhaul_linux::netns::Netns;
use longhaul_netem::{Schedule, Shape};
use std::path::{Path, PathBuf};

/// Checks a link's options by what the emulator would make of them, in both directions.
pub(crate) fn shapes(link: &Link, wire: &Wire) -> Result<[Shape; 2], String> {
    let shapes = arguments(link, wire).and_then(|mut arguments| {
        // Where it will be written is not known yet; how is in the other options.
        arguments.extend(link.tap.then(|| "--tap=-".to_owned()));
        longhaul_emulator::shapes(&arguments)
    });
    shapes.map_err(|error| error.to_string())
}

/// Likewise, with what changes later.
pub(crate) fn ways(link: &Link, wire: &Wire) -> Result<[(Shape, Schedule); 2], String> {
    let ways = arguments(link, wire).and_then(|arguments| longhaul_emulator::ways(&arguments));
    ways.map_err(|error| error.to_string())
}

/// Starts the emulator, which makes both interfaces; ready on return. `seed` is for a link that
/// has none of its own.
pub(crate) async fn start(link: &Link, wire: &Wire, seed: u64, directory: &Path) -> Result<Daemon> {
    let mut command = longhaul()?;
    command
        .arg("link")
        .args(arguments(link, wire)?)
        .arg("--counters")
        .arg(counters(link, directory));
    if !link.options.contains_key("seed") {
        command.args(["--seed", &seed.to_string()]);
    }
    let name = format!("link-{}", link.name);
    if link.tap {
        command.arg("--tap").arg(tap(link, directory));
    }
    let mut daemon = Daemon::start(&name, command, &Netns::current()?, directory)?;
    daemon.printed("ready").await?;
    Ok(daemon)
}

fn arguments(link: &Link, wire: &Wire) -> Result<Vec<String>> {
    let mut arguments = ends(wire);
    arguments.extend(["--name".to_owned(), link.name.clone()]);
    arguments.extend(["--mtu".to_owned(), link.mtu.to_string()]);
    arguments.extend(flags(&link.options).map_err(anyhow::Error::msg)?);
    Ok(arguments)
}

/// Where the emulator writes its records.
pub(crate) fn counters(link: &Link, directory: &Path) -> PathBuf {
    directory.join(format!("link-{}.jsonl", link.name))
}

/// Where the emulator records every segment, if it does.
pub(crate) fn tap(link: &Link, directory: &Path) -> PathBuf {
    directory.join(format!("link-{}.pcapng", link.name))
}

fn ends(wire: &Wire) -> Vec<String> {
    let sides = ["--left", "--right"].into_iter().zip(&wire.ends);
    sides
        .flat_map(|(side, (host, address))| {
            [side.to_owned(), format!("{host}:{}:{address}", wire.name)]
        })
        .collect()
}
