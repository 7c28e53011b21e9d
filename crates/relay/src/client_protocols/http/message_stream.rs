// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stream between a client's leg and hyper's server that finds the limits of messages. hyper
//! receives a head only when it is complete, in a buffer of the head's size. By itself, hyper would
//! use some 25 KiB for a silent client, and several times the head for a slow one.

use crate::{
    client_protocols::http::{
        exchange::{CONTINUE, Exchange, ExchangePhase, Framing},
        head_timer::{HeadPhase, HeadTimer},
        rate_limited_io::RateLimitedIo,
        trailers::{LAST_CHUNK, PendingWrite, without_last_chunk},
    },
    session::http_memory::{HEAD_LEN_MAX, HttpMemory},
};
use bytes::{Buf as _, Bytes, BytesMut};
use hyper::StatusCode;
use longhaul_protocol::{
    chunks::ChunkedBody,
    framing_fields::normalize_framing,
    request_line::{RequestLineError, empty_lines, encode_request_line, end_of_head, is_hopeless},
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
pub(crate) struct MessageStream {
    stream: RateLimitedIo,
    exchange: Arc<Exchange>,
    memory: Arc<HttpMemory>,
    timer: HeadTimer,
    /// Bytes that were read ahead of hyper.
    read_ahead: BytesMut,
    /// Bytes of `read_ahead` that were searched for the end of a head.
    searched: usize,
    state: ReadState,
    pending: PendingWrite,
}

/// Part of a message that hyper reads next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadState {
    Head,
    /// Bytes left of a complete head.
    HeadRest(usize),
    Body(u64),
    Chunked(ChunkedBody),
    /// Anything: the bytes are not HTTP.
    Unframed,
    /// Nothing: the time for a head is over.
    TimedOut,
}

impl ReadState {
    /// Whether the message has ended.
    fn is_over(self) -> bool {
        [Self::Body(0), Self::Chunked(ChunkedBody::End)].contains(&self)
    }
}

impl MessageStream {
    pub(super) fn new(
        stream: RateLimitedIo,
        exchange: Arc<Exchange>,
        memory: Arc<HttpMemory>,
        timer: HeadTimer,
    ) -> Self {
        Self {
            stream,
            exchange,
            memory,
            timer,
            read_ahead: BytesMut::new(),
            searched: 0,
            state: ReadState::Head,
            pending: PendingWrite::default(),
        }
    }

    /// Whether the client has sent nothing since its last message.
    pub(super) fn has_no_input(&self) -> bool {
        self.read_ahead.is_empty()
    }

    /// Returns the bytes that were read ahead.
    pub(super) fn into_read_ahead(self) -> Bytes {
        self.read_ahead.freeze()
    }

    /// Reads until a head is complete or can't become one, in which case hyper reports the error, or until its time is
    /// over.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.state == ReadState::Head {
            self.read_ahead.advance(empty_lines(&self.read_ahead));
            let end = end_of_head(&self.read_ahead, self.searched);
            self.searched = self.read_ahead.len();
            if let Some(end) = end {
                self.release_head(end);
            } else if is_hopeless(&self.read_ahead) || self.searched >= HEAD_LEN_MAX {
                self.state = ReadState::Unframed;
            } else {
                ready!(self.poll_more_of_head(cx))?;
            }
        }
        self.timer.stop();
        Poll::Ready(Ok(()))
    }

    fn poll_more_of_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.poll_fill(cx)? {
            Poll::Ready(0) => self.state = ReadState::Unframed,
            Poll::Ready(_) => {}
            Poll::Pending => ready!(self.poll_timeout(cx)),
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when the time for a head is over. A client that has begun one learns why; an idle one sees the end of the
    /// connection.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let phase = if self.has_no_input() {
            HeadPhase::Idle
        } else {
            HeadPhase::Begun
        };
        ready!(self.timer.poll_expired(phase, cx));
        if phase == HeadPhase::Begun {
            self.exchange.refuse_slow_head();
        }
        self.state = ReadState::TimedOut;
        Poll::Ready(())
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.read_ahead.len() == self.read_ahead.capacity() {
            self.read_ahead.reserve(BUFFER_LEN);
            self.memory.set_head(self.read_ahead.capacity());
        }
        pin!(self.stream.read_buf(&mut self.read_ahead)).poll(cx)
    }

    /// Hands a head of this length to hyper, if its first line is valid.
    fn release_head(&mut self, end: usize) {
        self.searched = 0;
        self.state = ReadState::HeadRest(end);
        self.exchange.set_ambiguous_end(false);
        match rewrite_head(&self.read_ahead[..end]) {
            Ok(None) => {}
            Ok(Some(head)) => {
                let is_connect = head.starts_with(b"CONNECT ");
                self.exchange.set_ambiguous_end(is_connect);
                self.state = ReadState::HeadRest(head.len());
                let rest = self.read_ahead.split_off(end);
                self.read_ahead = BytesMut::from(&[&head[..], &rest].concat()[..]);
            }
            Err(error) => {
                let status = StatusCode::BAD_REQUEST;
                self.exchange.refuse(status, Some(error.to_string()));
            }
        }
    }

    /// Most bytes that hyper may read now.
    fn poll_read_limit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.exchange.is_refused() {
            return Poll::Ready(Ok(0));
        }
        if self.state == ReadState::HeadRest(0) {
            self.state = match self.exchange.take_body() {
                Some(Framing::Length(len)) => ReadState::Body(len),
                Some(Framing::Chunked) => ReadState::Chunked(ChunkedBody::START),
                None => ReadState::Unframed,
            };
        }
        if self.state.is_over() {
            self.state = ReadState::Head;
        }
        if self.state == ReadState::Head {
            ready!(self.exchange.poll_next_request(cx));
        }
        ready!(self.poll_head(cx))?;
        let is_refused = self.exchange.is_refused();
        let most = match self.state {
            // End of the stream.
            _ if is_refused => 0,
            ReadState::TimedOut => 0,
            ReadState::HeadRest(len) => len,
            ReadState::Body(len) => usize::try_from(len).unwrap_or(usize::MAX),
            _ => usize::MAX,
        };
        Poll::Ready(Ok(if self.memory.may_be_head() {
            most.min(READ_MAX)
        } else {
            most
        }))
    }

    /// Counts `bytes` as part of the message, and returns how many of them belong to it.
    fn count_bytes(&mut self, bytes: &[u8]) -> usize {
        let count = match &mut self.state {
            ReadState::Chunked(chunks) => chunks.advance(bytes),
            _ => bytes.len(),
        };
        match &mut self.state {
            ReadState::HeadRest(left) => *left -= count,
            ReadState::Body(left) => *left -= count as u64,
            _ => {}
        }
        if self.state.is_over() {
            self.exchange.on_request_end();
        }
        self.memory.add_read(count);
        count
    }
}

/// Returns the head with its request line and its framing put right; `None` if it is right as it is.
fn rewrite_head(head: &[u8]) -> Result<Option<Vec<u8>>, RequestLineError> {
    let encoded = encode_request_line(head)?;
    let normalized = normalize_framing(encoded.as_deref().unwrap_or(head));
    Ok(normalized.or(encoded))
}

impl AsyncRead for MessageStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let limit = ready!(self.poll_read_limit(cx))?.min(buffer.remaining());
        if limit == 0 {
            return Poll::Ready(Ok(()));
        }
        if !self.read_ahead.is_empty() {
            let len = self.read_ahead.len().min(limit);
            let mut part = self.read_ahead.split_to(len);
            let mut rest = part.split_off(self.count_bytes(&part));
            buffer.put_slice(&part);
            rest.unsplit(take(&mut self.read_ahead));
            self.read_ahead = rest;
            if self.read_ahead.is_empty() {
                self.read_ahead = BytesMut::new();
                self.memory.set_head(0);
            }
            return Poll::Ready(Ok(()));
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(limit));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let count = self.count_bytes(part.filled());
        self.read_ahead.extend_from_slice(&part.filled()[count..]);
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MessageStream {
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
        let first_slice = slices.first().map_or(&[][..], |slice| slice);
        match self.exchange.phase() {
            // hyper refuses a malformed head without a reason.
            ExchangePhase::AwaitRequest => {
                let status = first_slice
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
            ExchangePhase::AwaitResponse if first_slice.starts_with(CONTINUE) => {
                return Poll::Ready(Ok(CONTINUE.len()));
            }
            _ => ready!(self.poll_pending(cx))?,
        }
        self.exchange.on_response_bytes();
        let slices = if self.exchange.has_trailers() {
            without_last_chunk(slices)
        } else {
            Some(slices)
        };
        let Some(slices) = slices else {
            self.pending = PendingWrite(self.exchange.take_trailers().into());
            return Poll::Ready(Ok(LAST_CHUNK.len()));
        };
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Flushes. hyper calls it at each wake-up, and only when all its output is written.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(cx))?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.exchange.on_flush(cx);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.exchange.is_refused() {
            Poll::Ready(Ok(()))
        } else {
            Pin::new(&mut self.stream).poll_shutdown(cx)
        }
    }
}

impl MessageStream {
    /// Writes pending bytes that precede hyper's output.
    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.pending.poll_write(cx, &mut self.stream))?;
            self.pending = PendingWrite(self.exchange.take_output().into());
            if self.pending.0.is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
