// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stream between a client's leg and hyper's server that finds the limits of messages. hyper
//! receives a head only when it is complete, in a buffer of the head's size. By itself, hyper would
//! use some 25 KiB for a silent client, and several times the head for a slow one.

use crate::{
    client_protocols::http::{
        exchange::{CONTINUE, Exchange, Framing, Turn},
        pacing::Paced,
        trailers::{END, First, before_end},
    },
    session::http_memory::{HEAD_LEN_MAX, HttpMemory},
};
use bytes::{Buf as _, Bytes, BytesMut};
use hyper::StatusCode;
use longhaul_protocol::{
    chunks::Chunks,
    request_line::{empty_lines, encode_request_line, end_of_head, is_hopeless},
};
use std::{
    io::{self, IoSlice},
    mem::take,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// Initial length of the buffer, which doubles when it is full.
const BUFFER_LEN: usize = 512;

/// Most bytes of one read of a body that may still be a head. hyper grows its buffer beyond 64 KiB
/// if a read fills its 8 KiB.
const READ_MAX: usize = 8191;

/// Stream of a client's HTTP messages, for hyper's server.
pub(crate) struct Messages {
    stream: Paced,
    exchange: Arc<Exchange>,
    memory: Arc<HttpMemory>,
    /// Bytes that were read ahead of hyper.
    ahead: BytesMut,
    /// Bytes of `ahead` that were searched for the end of a head.
    seen: usize,
    reading: Reading,
    first: First,
}

/// Part of a message that hyper reads next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Head,
    /// Bytes left of a complete head.
    Given(usize),
    Body(u64),
    Chunks(Chunks),
    /// Anything: the bytes are not HTTP.
    Loose,
}

impl Reading {
    /// Whether the message has ended.
    fn is_over(self) -> bool {
        [Self::Body(0), Self::Chunks(Chunks::Over)].contains(&self)
    }
}

impl Messages {
    pub(super) fn new(stream: Paced, exchange: Arc<Exchange>, memory: Arc<HttpMemory>) -> Self {
        Self {
            stream,
            exchange,
            memory,
            ahead: BytesMut::new(),
            seen: 0,
            reading: Reading::Head,
            first: First::default(),
        }
    }

    /// Whether the client has sent nothing since its last message.
    pub(super) fn is_silent(&self) -> bool {
        self.ahead.is_empty()
    }

    /// Returns the bytes that were read ahead.
    pub(super) fn into_ahead(self) -> Bytes {
        self.ahead.freeze()
    }

    /// Reads until a head is complete or can't become one; then hyper reports the error.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.reading == Reading::Head {
            self.ahead.advance(empty_lines(&self.ahead));
            let end = end_of_head(&self.ahead, self.seen);
            self.seen = self.ahead.len();
            if let Some(end) = end {
                self.give(end);
            } else if is_hopeless(&self.ahead)
                || self.seen >= HEAD_LEN_MAX
                || ready!(self.poll_more(cx))? == 0
            {
                self.reading = Reading::Loose;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.ahead.len() == self.ahead.capacity() {
            self.ahead.reserve(BUFFER_LEN);
            self.memory.set_head(self.ahead.capacity());
        }
        pin!(self.stream.read_buf(&mut self.ahead)).poll(cx)
    }

    /// Hands a head of this length to hyper, if its first line is valid.
    fn give(&mut self, end: usize) {
        self.seen = 0;
        self.reading = Reading::Given(end);
        match encode_request_line(&self.ahead[..end]) {
            Ok(None) => {}
            Ok(Some(head)) => {
                self.reading = Reading::Given(head.len());
                let rest = self.ahead.split_off(end);
                self.ahead = BytesMut::from(&[&head[..], &rest].concat()[..]);
            }
            Err(error) => {
                let status = StatusCode::BAD_REQUEST;
                self.exchange.refuse(status, Some(error.to_string()));
            }
        }
    }

    /// Most bytes that hyper may read now.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.exchange.is_refused() {
            return Poll::Ready(Ok(0));
        }
        if self.reading == Reading::Given(0) {
            self.reading = match self.exchange.take_body() {
                Some(Framing::Length(len)) => Reading::Body(len),
                Some(Framing::Chunked) => Reading::Chunks(Chunks::BEGIN),
                None => Reading::Loose,
            };
        }
        if self.reading.is_over() {
            self.reading = Reading::Head;
        }
        if self.reading == Reading::Head {
            ready!(self.exchange.poll_next(cx));
        }
        ready!(self.poll_head(cx))?;
        let refused = self.exchange.is_refused();
        let most = match self.reading {
            // End of the stream.
            _ if refused => 0,
            Reading::Given(len) => len,
            Reading::Body(len) => usize::try_from(len).unwrap_or(usize::MAX),
            _ => usize::MAX,
        };
        Poll::Ready(Ok(match self.memory.may_be_head() {
            true => most.min(READ_MAX),
            false => most,
        }))
    }

    /// Counts `bytes` as part of the message, and returns how many of them belong to it.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let taken = match &mut self.reading {
            Reading::Chunks(chunks) => chunks.take(bytes),
            _ => bytes.len(),
        };
        match &mut self.reading {
            Reading::Given(left) => *left -= taken,
            Reading::Body(left) => *left -= taken as u64,
            _ => {}
        }
        if self.reading.is_over() {
            self.exchange.has_read_all();
        }
        self.memory.add_read(taken);
        taken
    }
}

impl AsyncRead for Messages {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = ready!(self.poll_room(cx))?.min(buffer.remaining());
        if !self.ahead.is_empty() {
            let len = self.ahead.len().min(room);
            let mut part = self.ahead.split_to(len);
            let mut rest = part.split_off(self.pass(&part));
            buffer.put_slice(&part);
            rest.unsplit(take(&mut self.ahead));
            self.ahead = rest;
            if self.ahead.is_empty() {
                self.ahead = BytesMut::new();
                self.memory.set_head(0);
            }
            return Poll::Ready(Ok(()));
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let taken = self.pass(part.filled());
        self.ahead.extend_from_slice(&part.filled()[taken..]);
        buffer.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Messages {
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
        let beginning = slices.first().map_or(&[][..], |slice| slice);
        match self.exchange.turn() {
            // hyper refuses a malformed head without a reason.
            Turn::Client => {
                let status = beginning
                    .get(9..12)
                    .and_then(|code| StatusCode::from_bytes(code).ok());
                self.exchange
                    .refuse(status.unwrap_or(StatusCode::BAD_REQUEST), None);
                return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
            }
            // The refusal is sent instead.
            _ if self.exchange.is_refused() => {
                return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
            }
            // Only the origin decides about 100 (Continue).
            Turn::Origin if beginning.starts_with(CONTINUE) => {
                return Poll::Ready(Ok(CONTINUE.len()));
            }
            _ => ready!(self.poll_first(cx))?,
        }
        self.exchange.responds();
        let slices = match self.exchange.has_trailers() {
            true => before_end(slices),
            false => Some(slices),
        };
        let Some(slices) = slices else {
            self.first = First(self.exchange.take_trailers().into());
            return Poll::Ready(Ok(END.len()));
        };
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Flushes. hyper calls it at each wake-up, and only when all its output is written.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_first(cx))?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.exchange.flushed(cx);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.exchange.is_refused() {
            true => Poll::Ready(Ok(())),
            false => Pin::new(&mut self.stream).poll_shutdown(cx),
        }
    }
}

impl Messages {
    /// Writes pending bytes that precede hyper's output.
    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.first.poll_write(cx, &mut self.stream))?;
            self.first = First(self.exchange.take_out().into());
            if self.first.0.is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
