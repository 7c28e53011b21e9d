// SPDX-License-Identifier: MIT OR Apache-2.0
//! FTP download, streamed into an HTTP response.

use crate::{
    client_protocols::ftp::{
        control::Control,
        error::{FtpError, Step, with_limit},
    },
    leg::stream::LegStream,
};
use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame};
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::AsyncReadExt as _,
    select,
    sync::{OwnedSemaphorePermit, mpsc},
};

/// Bytes of one read, and reads that may wait for the client: 256 KiB a download.
const CHUNK_LEN: usize = 64 * 1024;
const CHUNKS_MAX: usize = 4;

type Chunks = mpsc::Sender<io::Result<Bytes>>;

/// Response body. It fails unless the server confirms that the file is complete.
#[derive(Debug)]
pub(crate) struct Download(mpsc::Receiver<io::Result<Bytes>>);

impl Download {
    /// Reads in a task, which ends with the file, after `len` bytes, or when the client is gone;
    /// then it releases the permits of its descriptors. The server must answer each read within
    /// `limit`; time spent on a slow client does not count.
    pub(super) fn start(
        mut control: Control,
        (data, len): (LegStream, Option<u64>),
        (limit, permits): (Duration, OwnedSemaphorePermit),
    ) -> Self {
        let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
        tokio::spawn(async move {
            let left = sender.clone();
            select! {
                outcome = copy_chunks(&mut control, (data, len), &sender, limit) => if let Err(error) = outcome {
                    let _ = sender.send(Err(error)).await;
                },
                () = left.closed() => {}
            }
            drop(permits);
        });
        Self(receiver)
    }
}

async fn copy_chunks(
    control: &mut Control,
    (data, len): (LegStream, Option<u64>),
    chunks: &Chunks,
    limit: Duration,
) -> io::Result<()> {
    let failed = |error: FtpError| io::Error::other(error);
    let mut part = data.take(len.unwrap_or(u64::MAX));
    loop {
        let mut chunk = BytesMut::with_capacity(CHUNK_LEN);
        let read = with_limit(limit, part.read_buf(&mut chunk)).await;
        if read.map_err(failed)? == 0 {
            // The rest was not requested; closing the connection makes the server abort.
            if part.limit() == 0 {
                return Ok(());
            }
            return control.confirm(Step::Read).await.map_err(failed);
        }
        let client_gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        chunks.send(Ok(chunk.freeze())).await.map_err(client_gone)?;
    }
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
