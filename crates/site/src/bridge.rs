// SPDX-License-Identifier: MIT OR Apache-2.0
//! An end of a copy for a client: a process of this very program, confined, whose standard input and output are the
//! client's connection. It ends with it.

use super::{account::Account, config::SELF, listener::accept::Stopped};
use anyhow::{Context as _, Result};
use longhaul_transfer::protocol::{auth::ExportScope, message};
use parking_lot::Mutex;
use std::{io, process::Stdio};
use tokio::net::TcpStream;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    process::Command,
};
use tokio_rustls::server::TlsStream;

/// Read at once; each direction costs as much.
const PIECE_LEN: usize = 16 << 10;

/// The client's connection.
pub(super) type Tls = TlsStream<TcpStream>;

/// Passes bytes on until the client, the end or the site is through, and keeps account of what they say. Nobody holds that
/// while it waits.
pub(super) async fn bridge(
    tls: Tls,
    confinement: &ExportScope,
    account: &Mutex<Account>,
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
        _ = pass(&mut from_client, &mut to_end, |bytes| account.lock().take_from_driver(bytes)) => {}
        _ = pass(&mut from_end, &mut to_client, |bytes| account.lock().take_from_end(bytes)) => {
            // It may be gone already.
            let _ = to_client.shutdown().await;
        }
        _ = stopped.reached() => {}
    }
    Ok(child.kill().await?)
}

async fn pass(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    mut take: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_LEN];
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return Ok(());
        }
        take(&piece[..length]);
        to.write_all(&piece[..length]).await?;
        to.flush().await?;
    }
}
