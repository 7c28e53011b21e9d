// SPDX-License-Identifier: MIT OR Apache-2.0
//! FTP data connection. Between relays it goes over several streams, as a tunnel does.

use crate::{
    faults::fault::Fault, leg::stream::LegStream, route::request::Request, session::Session,
    stripe::stream::GroupStream,
};
use bytes::{Buf as _, BytesMut};
use longhaul_protocol::destination::Destination;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};

/// Bytes of the first read.
const FIRST_LEN: usize = 16 * 1024;

/// A data connection. Unless [`Self::finish`] ends it, it is reset: an interrupted upload must not look complete.
pub(super) struct DataConnection {
    stream: GroupStream,
    /// Bytes that [`Self::wait_for_bytes`] has read.
    first: BytesMut,
}

impl DataConnection {
    /// Opens it on the client's route. The session keeps the leg, for the record and for RST.
    pub(super) async fn open(session: &Arc<Session>, to: &Destination) -> Result<Self, Fault> {
        let request = Request {
            may_stripe: true,
            ..Request::to(to.clone(), Vec::new())
        };
        let upstream = session.open_and_await_answer(&request).await?;
        let group = session.joinable_group(&upstream);
        let first =
            LegStream::new(upstream.leg, group.is_none()).reporting(session.limited_leg_reporter());
        Ok(Self {
            stream: GroupStream::new(first, group),
            first: BytesMut::new(),
        })
    }

    /// Waits for the first bytes, or for the end.
    pub(super) async fn wait_for_bytes(&mut self) -> io::Result<()> {
        self.first.reserve(FIRST_LEN);
        self.stream.read_buf(&mut self.first).await.map(drop)
    }

    /// Sends some of `bytes`.
    pub(super) async fn send(&mut self, bytes: &mut impl bytes::Buf) -> io::Result<()> {
        self.stream.write_buf(bytes).await.map(drop)
    }

    /// Sends the end of the data.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }
}

impl AsyncRead for DataConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let len = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first[..len]);
        self.first.advance(len);
        Poll::Ready(Ok(()))
    }
}
