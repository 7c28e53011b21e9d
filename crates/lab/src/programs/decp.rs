// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul decp` on a host that sends.

use super::{daemon::Daemon, longhaul};
use crate::scenario::{Decp, value::flags};
use anyhow::Result;
use longhaul_linux::netns::Netns;
use std::path::Path;

/// Checks the options by what the command would make of them.
pub(crate) fn check(decp: &Decp) -> Result<(), String> {
    longhaul_tuning::decp::check(&flags(&decp.options)?).map_err(|error| error.to_string())
}

/// Starts it; it looks at connections on return.
pub(crate) async fn start(
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
    // Any line: its first is of its first look.
    daemon.printed("").await?;
    Ok(daemon)
}
