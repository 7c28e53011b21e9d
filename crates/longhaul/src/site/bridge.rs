// SPDX-License-Identifier: MIT OR Apache-2.0
//! An end of a copy for a client: a process of this very program, confined, whose standard input and output are the
//! client's connection. It ends with it.

use super::{stop::Stopped, visit::Tls};
use crate::copy::{Confinement, message};
use anyhow::{Context as _, Result};
use std::process::Stdio;
use tokio::{
    io::{AsyncWriteExt, copy, split},
    process::Command,
};

/// This program, also when an update has put another in its place.
const SELF: &str = "/proc/self/exe";

/// Passes bytes on until the client, the end or the site is through.
pub(super) async fn bridge(
    tls: Tls,
    confinement: &Confinement,
    mut stopped: Stopped,
) -> Result<()> {
    let mut command = Command::new(SELF);
    command.args(["copy", "--end", "--confined"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command
        .kill_on_drop(true)
        .spawn()
        .context("no end starts")?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    let (mut to_end, mut from_end) = pipes.context("no pipe")?;
    let mut bytes = Vec::new();
    message::write(&mut bytes, confinement)?;
    to_end.write_all(&bytes).await?;
    let (mut from_client, mut to_client) = split(tls);
    tokio::select! {
        _ = copy(&mut from_client, &mut to_end) => {}
        _ = copy(&mut from_end, &mut to_client) => {
            // It may be gone already.
            let _ = to_client.shutdown().await;
        }
        _ = stopped.reached() => {}
    }
    Ok(child.kill().await?)
}
