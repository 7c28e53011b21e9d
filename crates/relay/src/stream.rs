// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading and writing handshakes on a socket that splice uses as well: everything goes through a
//! shared reference and leaves no byte behind in a buffer.

use crate::{fault::Fault, leg::Leg, route::Far};
use longhaul_protocol::failure::Failure;
use longhaul_transport::channel::{Channel, read_some};
use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a client has sent and no parser has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Vec<u8>);

/// Bytes asked for in one read of a handshake: a request and some early data.
const READ_LEN: usize = 4096;

impl Inbox {
    /// Reads until `parse` has a whole message, and takes it out. A message that the parser calls
    /// incomplete although more than `len_max` bytes are there is a bad request.
    pub(crate) async fn message<T, E>(
        &mut self,
        stream: &impl Channel,
        len_max: usize,
        parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> Result<T, Unread<E>> {
        loop {
            if let Some((message, len)) = parse(&self.0).map_err(Unread::Malformed)? {
                self.0.drain(..len);
                return Ok(message);
            }
            if self.0.len() >= len_max {
                return Err(Unread::Failed(Failure::BadRequest));
            }
            match read_some(stream, &mut self.0, READ_LEN).await {
                Ok(1..) => {}
                _ => return Err(Unread::Failed(Failure::ClientGone)),
            }
        }
    }

    /// What no message was found in.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.0
    }

    /// What came behind the last message.
    pub(crate) fn into_rest(self) -> Vec<u8> {
        self.0
    }
}

/// Why there is no message.
#[derive(Debug)]
pub(crate) enum Unread<E> {
    /// The parser says so.
    Malformed(E),
    /// The client left, or never came to an end.
    Failed(Failure),
}

/// A socket as hyper wants it. Clones share the socket, so that the relay keeps hold of it for
/// splice, RST and TCP_INFO.
pub(crate) struct Shared {
    pub(crate) stream: Leg,
    /// Told how many bytes were read (first) or written (second).
    pub(crate) on_bytes: Box<dyn Fn(usize, usize) + Send + Sync>,
}

type Answer = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

/// An outgoing leg as hyper wants it: before the first byte is read from it comes the answer of the
/// peer on the way, if there is one. Writing does not wait for it.
pub(crate) struct Answered {
    stream: Shared,
    answer: Option<Answer>,
    /// Where a refusal goes.
    refused: Arc<OnceLock<Fault>>,
}

impl Answered {
    pub(crate) fn new(far: Arc<Far>, refused: Arc<OnceLock<Fault>>) -> Self {
        let stream = Shared {
            stream: far.stream.clone(),
            on_bytes: Box::new(|_, _| {}),
        };
        Self {
            stream,
            answer: Some(Box::pin(async move { far.answer().await })),
            refused,
        }
    }
}

impl Answered {
    /// Ready once the answer is there; a refusal is an error.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(answer) = &mut self.answer else {
            return Poll::Ready(Ok(()));
        };
        let outcome = ready!(answer.as_mut().poll(cx));
        self.answer = None;
        Poll::Ready(outcome.map_err(|fault| {
            let _ = self.refused.set(fault.clone());
            io::Error::other(fault)
        }))
    }
}

impl AsyncRead for Answered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_answer(cx))?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Answered {
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
        match Pin::new(&mut self.stream).poll_write_vectored(cx, slices) {
            // A peer that refuses closes: its answer says more than the error.
            Poll::Ready(Err(error)) => {
                ready!(self.poll_answer(cx))?;
                Poll::Ready(Err(error))
            }
            polled => polled,
        }
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

impl AsyncRead for Shared {
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

impl AsyncWrite for Shared {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.carrier().poll_write_ready(cx))?;
            match self.stream.try_write_vectored(slices) {
                Ok(written) => {
                    (self.on_bytes)(0, written);
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
