// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bridge between a client's connection and an endpoint of a copy. The endpoint is a confined process of this same
//! program, and the client's connection is its standard input and output. The process ends when the
//! connection ends.

use super::{config::own_program, listener::accept::ShutdownSignal, transcript::CopyTranscript};
use anyhow::{Context as _, Result};
use longhaul_copy::protocol::{auth::ExportScope, message};
use parking_lot::Mutex;
use std::{io, process::Stdio};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// Bytes read at once. Each direction has a buffer of this size.
const BUFFER_LEN: usize = 16 << 10;

/// TLS connection of a client.
pub(super) type TlsConnection = TlsStream<TcpStream>;

/// Forwards bytes until the client, the endpoint or the site ends, and records the messages in the transcript. The
/// transcript's lock is never held across an await.
pub(super) async fn bridge(
    tls: TlsConnection,
    scope: &ExportScope,
    transcript: &Mutex<CopyTranscript>,
    mut shutdown: ShutdownSignal,
) -> Result<()> {
    let mut command = own_program();
    command.args(["copy", "--end", "--confined"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command
        .kill_on_drop(true)
        .spawn()
        .context("cannot start an endpoint")?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    let (mut to_endpoint, mut from_endpoint) = pipes.context("no pipe")?;
    let mut bytes = Vec::new();
    message::write(&mut bytes, scope)?;
    to_endpoint.write_all(&bytes).await?;
    let (mut from_client, mut to_client) = split(tls);
    tokio::select! {
        _ = forward(&mut from_client, &mut to_endpoint, |bytes| transcript.lock().observe_coordinator(bytes)) => {}
        _ = forward(&mut from_endpoint, &mut to_client, |bytes| transcript.lock().observe_endpoint(bytes)) => {
            // The connection may be closed already.
            let _ = to_client.shutdown().await;
        }
        _ = shutdown.received() => {}
    }
    Ok(child.kill().await?)
}

async fn forward(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    mut observe: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_LEN];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        observe(&buffer[..length]);
        to.write_all(&buffer[..length]).await?;
        to.flush().await?;
    }
}
