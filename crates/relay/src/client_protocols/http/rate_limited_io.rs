// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rate limits for a client's HTTP messages, as [`crate::transfer`] applies them to relayed bytes.

use crate::{leg::stream::LegStream, session::http_memory::HttpMemory};
use longhaul_admission::rate_limits::{Direction, RateLimits};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep_until},
};

/// Async stream with rate limits. Reads count as up, writes as down.
pub(crate) struct RateLimitedIo {
    stream: LegStream,
    limits: RateLimits,
    memory: Arc<HttpMemory>,
    up: Pause,
    down: Pause,
}

impl RateLimitedIo {
    pub(crate) fn new(stream: LegStream, limits: RateLimits, memory: Arc<HttpMemory>) -> Self {
        Self {
            stream,
            limits,
            memory,
            up: Pause::default(),
            down: Pause::default(),
        }
    }
}

/// Pause of one direction; allocated only while it lasts.
#[derive(Default)]
struct Pause(Option<Pin<Box<Sleep>>>);

impl Pause {
    /// Starts the pause that `bytes` bytes cause.
    fn start(&mut self, limits: &RateLimits, direction: Direction, bytes: usize) {
        let until = limits.spend(direction, bytes, Instant::now);
        self.0 = until.map(|until| Box::pin(sleep_until(until.into())));
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(sleep) = &mut self.0 {
            ready!(sleep.as_mut().poll(cx));
            self.0 = None;
        }
        Poll::Ready(())
    }
}

impl AsyncRead for RateLimitedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.up.poll_end(cx));
        let len = buffer.remaining().min(self.limits.chunk(Direction::Up));
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(len));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        buffer.advance(read);
        let Self { up, limits, .. } = &mut *self;
        up.start(limits, Direction::Up, read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RateLimitedIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.down.poll_end(cx));
        let most = self.limits.chunk(Direction::Down);
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let stream = Pin::new(&mut self.stream);
        let written = match slices.iter().find(|slice| !slice.is_empty()) {
            Some(first) if total > most => stream.poll_write(cx, &first[..first.len().min(most)]),
            _ => stream.poll_write_vectored(cx, slices),
        };
        self.memory
            .set_queued(if written.is_pending() { total } else { 0 });
        let written = ready!(written)?;
        let Self { down, limits, .. } = &mut *self;
        down.start(limits, Direction::Down, written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
