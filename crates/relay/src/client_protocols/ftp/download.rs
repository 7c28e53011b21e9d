// SPDX-License-Identifier: MIT OR Apache-2.0
//! FTP download, streamed into an HTTP response.

use crate::client_protocols::ftp::{
    control::Control,
    data_connection::DataConnection,
    error::{FtpError, Step},
};
use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame};
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{
    io::AsyncReadExt as _,
    select,
    sync::{OwnedSemaphorePermit, mpsc},
};
use tracing::Instrument as _;

/// Bytes of one read, and reads that may wait for the client: 256 KiB a download.
const CHUNK_LEN: usize = 64 * 1024;
const CHUNKS_MAX: usize = 4;

type Chunks = mpsc::Sender<io::Result<Bytes>>;

/// Response body. It fails unless the server confirms that the file is complete.
#[derive(Debug)]
pub(crate) struct Download(mpsc::Receiver<io::Result<Bytes>>);

impl Download {
    /// Reads in a task, which ends with the file, after the bytes of a range, or when the client is gone; then it
    /// releases the permits of its descriptors. Time spent on a slow client is no time-out of the server.
    pub(super) fn start(
        mut control: Control,
        data: DataConnection,
        extent: Extent,
        permits: OwnedSemaphorePermit,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
        let download = async move {
            if let Err(error) = copy_chunks(&mut control, data, extent, &sender).await {
                let _ = sender.send(Err(error)).await;
            }
            drop(permits);
        };
        tokio::spawn(download.in_current_span());
        Self(receiver)
    }
}

/// Bytes of a download.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// Bytes that the client expects, if that is known.
    pub(super) expected: Option<u64>,
    /// Whether the server would send more.
    pub(super) is_cut: bool,
}

async fn copy_chunks(
    control: &mut Control,
    data: DataConnection,
    extent: Extent,
    chunks: &Chunks,
) -> io::Result<()> {
    let failed = |error: FtpError| io::Error::other(error);
    let client_gone = || io::Error::from(io::ErrorKind::BrokenPipe);
    let expected = extent.expected.unwrap_or(u64::MAX);
    let mut part = data.take(if extent.is_cut { expected } else { u64::MAX });
    let mut sent = 0;
    loop {
        let mut chunk = BytesMut::with_capacity(CHUNK_LEN);
        let read = select! {
            biased;
            read = control.during(Step::Read, part.read_buf(&mut chunk)) => read.map_err(failed)?,
            // A client that has everything may leave before the server ends the connection.
            () = chunks.closed(), if sent < expected => return Err(client_gone()),
        };
        if read == 0 {
            break;
        }
        sent += read as u64;
        chunks
            .send(Ok(chunk.freeze()))
            .await
            .map_err(|_| client_gone())?;
    }
    // The rest was not requested; closing the connection makes the server abort.
    if extent.is_cut && part.limit() == 0 {
        return Ok(());
    }
    control.confirm(Step::Read).await.map_err(failed)?;
    // The file is complete, however the connection ends.
    let _ = part.get_mut().finish().await;
    Ok(())
}

impl Body for Download {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let chunk = self.0.poll_recv(cx);
        chunk.map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}
