// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul link` as one link of the testbed, and `longhaul decp` on a sending host.

use super::daemon::Daemon;
use crate::{
    command_check::longhaul,
    network::{
        AddressedLink,
        link::{arguments, capture_file, counters_file},
    },
    scenario::{Decp, Link, value::flags},
};
use anyhow::Result;
use longhaul_linux::netns::Netns;
use std::path::Path;

/// Starts the emulator, which creates both interfaces; ready on return. `seed` applies to a link
/// without a seed of its own.
pub(crate) async fn start_link(
    link: &Link,
    addressed_link: &AddressedLink,
    seed: u64,
    directory: &Path,
) -> Result<Daemon> {
    let mut command = longhaul()?;
    command
        .arg("link")
        .args(arguments(link, addressed_link).map_err(anyhow::Error::msg)?)
        .arg("--counters")
        .arg(counters_file(link, directory));
    if !link.options.contains_key("seed") {
        command.args(["--seed", &seed.to_string()]);
    }
    let name = format!("link-{}", link.name);
    if link.capture {
        command.arg("--capture").arg(capture_file(link, directory));
    }
    let mut daemon = Daemon::start(&name, command, &Netns::current()?, directory)?;
    daemon.wait_until_printed("ready").await?;
    Ok(daemon)
}

/// Starts `longhaul decp`; it samples connections on return.
pub(crate) async fn start_decp(
    host: &str,
    decp: &Decp,
    netns: &Netns,
    directory: &Path,
) -> Result<Daemon> {
    let mut command = longhaul()?;
    command
        .arg("decp")
        .args(flags(&decp.options).map_err(anyhow::Error::msg)?);
    let mut daemon = Daemon::start(&format!("decp-{host}"), command, netns, directory)?;
    // Any line: the first one follows the first sample.
    daemon.wait_until_printed("").await?;
    Ok(daemon)
}
