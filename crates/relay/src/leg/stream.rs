// SPDX-License-Identifier: MIT OR Apache-2.0
//! Adapter from a leg to tokio's `AsyncRead` and `AsyncWrite`, for hyper and others.

use crate::{faults::limited_leg::ReportLimited, leg::window::SendWindow};
use longhaul_transport::{channel::Channel, leg::Leg};
use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A leg as an async stream. Clones of the leg share the socket, so the relay can still use it for
/// splice, RST and TCP_INFO.
pub(crate) struct LegStream {
    pub(crate) stream: Leg,
    /// Called with the numbers of bytes read (first) and written (second).
    on_bytes: Box<OnBytes>,
    window: SendWindow,
    /// Whether the send buffer may be enlarged. Further legs make that unnecessary.
    may_enlarge: bool,
    report_limited: Option<Arc<ReportLimited<'static>>>,
}

type OnBytes = dyn Fn(usize, usize) + Send + Sync;

impl LegStream {
    /// Wraps a leg. Its send buffer is enlarged if that limits it, this process may do so, and `may_enlarge` is set.
    pub(crate) fn new(stream: Leg, may_enlarge: bool) -> Self {
        Self {
            stream,
            on_bytes: Box::new(|_, _| {}),
            window: SendWindow::default(),
            may_enlarge,
            report_limited: None,
        }
    }

    /// Calls this with the numbers of bytes read (first) and written (second).
    pub(crate) fn counting(self, on_bytes: Box<OnBytes>) -> Self {
        Self { on_bytes, ..self }
    }

    /// Reports, once, that a buffer limits the leg.
    pub(crate) fn reporting(self, report_limited: Arc<ReportLimited<'static>>) -> Self {
        Self {
            report_limited: Some(report_limited),
            ..self
        }
    }

    fn count_written(&mut self, bytes: usize) {
        (self.on_bytes)(0, bytes);
        let limited = self.window.count(bytes, &self.stream, self.may_enlarge);
        if let (Some(limited), Some(report)) = (limited, &self.report_limited) {
            report(&limited);
        }
    }
}

impl AsyncRead for LegStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Ok(read) => {
                    buffer.advance(read);
                    (self.on_bytes)(read, 0);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for LegStream {
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
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.transport().poll_write_ready(cx))?;
            match self.stream.try_write_vectored(slices) {
                Ok(written) => {
                    self.count_written(written);
                    return Poll::Ready(Ok(written));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_finish_sending(cx)
    }
}
