// SPDX-License-Identifier: MIT OR Apache-2.0
//! Adapter from an upstream connection to an async stream, which reads the peer's reply first.

use crate::{
    client_protocols::http::{
        response_timeout::RequestProgress,
        trailers::{LAST_CHUNK, PendingWrite, without_last_chunk},
    },
    faults::{fault::Fault, limited_leg::ReportLimited},
    leg::stream::LegStream,
    route::upstream_leg::UpstreamLeg,
    stripe::stream::{GroupStream, JoinableGroup},
};
use bytes::{Buf as _, Bytes};
use longhaul_protocol::icy::ResponseStart;
use parking_lot::Mutex;
use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

type ReplyFuture = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

/// Upstream connection as an async stream: the reply of the peer on the path, if there is one, is
/// read before the first byte of HTTP. Writes do not wait for it.
pub(crate) struct AwaitReply {
    stream: GroupStream,
    reply: Option<ReplyFuture>,
    /// Receives the fault if the peer refuses.
    fault: Arc<OnceLock<Fault>>,
    /// Progress of the current request.
    progress: Arc<Mutex<Arc<RequestProgress>>>,
    pending: PendingWrite,
    first_request: FirstRequest,
    /// Start of the first response, until its status line is known.
    start: Option<ResponseStart>,
    /// Bytes of the first response that are not read yet.
    unread: Bytes,
}

impl AwaitReply {
    pub(crate) fn new(
        upstream: Arc<UpstreamLeg>,
        group: Option<JoinableGroup>,
        report_limited: Arc<ReportLimited<'static>>,
        fault: Arc<OnceLock<Fault>>,
        progress: Arc<Mutex<Arc<RequestProgress>>>,
    ) -> Self {
        let first = LegStream::new(upstream.leg.clone(), group.is_none()).reporting(report_limited);
        Self {
            stream: GroupStream::new(first, group),
            reply: Some(Box::pin(async move { upstream.answer().await })),
            fault,
            progress,
            pending: PendingWrite::default(),
            first_request: FirstRequest::default(),
            start: Some(ResponseStart::default()),
            unread: Bytes::new(),
        }
    }
}

impl AwaitReply {
    /// Ready once the reply has arrived; a refusal is an error.
    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(reply) = &mut self.reply else {
            return Poll::Ready(Ok(()));
        };
        let outcome = ready!(reply.as_mut().poll(cx));
        self.reply = None;
        Poll::Ready(outcome.map_err(|fault| {
            let _ = self.fault.set(fault.clone());
            io::Error::other(fault)
        }))
    }
}

impl AwaitReply {
    /// Ready once the start of the first response was read.
    fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(start) = &mut self.start {
            let mut bytes = [0; START_LEN];
            let mut buffer = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
            if let Some(bytes) = start.advance(buffer.filled()) {
                self.unread = bytes.into();
                self.start = None;
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Whether the first request was sent. hyper fails if an origin speaks before it.
#[derive(Debug)]
enum FirstRequest {
    /// Nothing is read yet. Holds the waker of the reader.
    Awaited(Waker),
    Sent,
}

impl Default for FirstRequest {
    fn default() -> Self {
        Self::Awaited(Waker::noop().clone())
    }
}

impl FirstRequest {
    /// Ready once it was sent.
    fn poll_sent(&mut self, cx: &Context<'_>) -> Poll<()> {
        match self {
            Self::Awaited(reader) => {
                reader.clone_from(cx.waker());
                Poll::Pending
            }
            Self::Sent => Poll::Ready(()),
        }
    }

    fn on_write(&mut self) {
        if let Self::Awaited(reader) = std::mem::replace(self, Self::Sent) {
            reader.wake();
        }
    }
}

/// Bytes of the read in which a response starts: a usual head fits.
const START_LEN: usize = 1024;

impl AsyncRead for AwaitReply {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.first_request.poll_sent(cx));
        ready!(self.poll_reply(cx))?;
        ready!(self.poll_start(cx))?;
        if self.unread.has_remaining() {
            let len = self.unread.len().min(buffer.remaining());
            buffer.put_slice(&self.unread.split_to(len));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for AwaitReply {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self {
            pending, stream, ..
        } = &mut *self;
        ready!(pending.poll_write(cx, stream))?;
        self.first_request.on_write();
        let progress = self.progress.lock().clone();
        let mut trailers = progress.trailers.lock();
        let slices = match *trailers {
            Some(_) => without_last_chunk(slices),
            None => Some(slices),
        };
        let Some(slices) = slices else {
            self.pending = PendingWrite(trailers.take().unwrap_or_default().into());
            return Poll::Ready(Ok(LAST_CHUNK.len()));
        };
        match Pin::new(&mut self.stream).poll_write_vectored(cx, slices) {
            // A refusing peer closes the connection: its reply says more than the error.
            Poll::Ready(Err(error)) => {
                ready!(self.poll_reply(cx))?;
                Poll::Ready(Err(error))
            }
            polled => polled,
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self {
            pending, stream, ..
        } = &mut *self;
        ready!(pending.poll_write(cx, stream))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        task::Wake,
    };

    #[derive(Default)]
    struct CountingWaker(AtomicUsize);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn nothing_is_read_before_the_first_request() {
        let wakes = Arc::new(CountingWaker::default());
        let waker = wakes.clone().into();
        let cx = Context::from_waker(&waker);
        let mut first_request = FirstRequest::default();
        assert!(first_request.poll_sent(&cx).is_pending());
        first_request.on_write();
        first_request.on_write();
        assert_eq!(wakes.0.load(Relaxed), 1);
        assert!(first_request.poll_sent(&cx).is_ready());
    }
}
