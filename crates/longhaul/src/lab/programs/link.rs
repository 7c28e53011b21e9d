// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul link` as one wire of the testbed.

use super::{daemon::Daemon, flags, longhaul};
use crate::lab::{scenario::Link, topology::Wire};
use anyhow::Result;
use host::netns::Netns;
use std::path::{Path, PathBuf};

/// Checks a link's options.
pub(crate) fn check(link: &Link) -> Result<(), String> {
    flags(&link.options).map(|_| ())
}

/// Starts the emulator, which makes both interfaces; ready on return.
pub(crate) async fn start(link: &Link, wire: &Wire, directory: &Path) -> Result<Daemon> {
    let mut command = longhaul()?;
    command
        .arg("link")
        .args(ends(wire))
        .args(["--name", &link.name]);
    command
        .args(["--mtu", &link.mtu.to_string()])
        .arg("--counters")
        .arg(counters(link, directory));
    command.args(flags(&link.options).map_err(anyhow::Error::msg)?);
    let name = format!("link-{}", link.name);
    let mut daemon = Daemon::start(&name, command, &Netns::current()?, directory)?;
    daemon.printed("ready").await?;
    Ok(daemon)
}

/// Where the emulator writes its records.
pub(crate) fn counters(link: &Link, directory: &Path) -> PathBuf {
    directory.join(format!("link-{}.jsonl", link.name))
}

fn ends(wire: &Wire) -> Vec<String> {
    let sides = ["--left", "--right"].into_iter().zip(&wire.ends);
    sides
        .flat_map(|(side, (host, address))| {
            [side.to_owned(), format!("{host}:{}:{address}", wire.name)]
        })
        .collect()
}
