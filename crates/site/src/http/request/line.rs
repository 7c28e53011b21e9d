// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first lines of requests as they come. hyper drops what is behind a "#" in them, and a client that does not escape it
//! in a name would have `a` removed where it says `a#b`.
//!
//! A request that is sent before the one before it has its answer is not looked at.

use parking_lot::Mutex;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of a first line that are looked at, at most.
const LINE_LEN_MAX: usize = 64 << 10;

/// What was seen of a connection's current request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Line>>);

#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    is_whole: bool,
}

impl Lines {
    /// The request has its answer, and what comes is the next one.
    pub(crate) fn await_next(&self) {
        *self.0.lock() = Line::default();
    }

    /// Whether the request's line has a fragment in it (RFC 9112 §3.2: none has).
    pub(crate) fn has_fragment(&self) -> bool {
        let line = self.0.lock();
        let words: Vec<_> = line
            .bytes
            .trim_ascii()
            .split(|byte| *byte == b' ')
            .collect();
        match words[..] {
            [_, target, version] => version.starts_with(b"HTTP/") && target.contains(&b'#'),
            _ => false,
        }
    }

    fn see(&self, come: &[u8]) {
        let mut line = self.0.lock();
        for &byte in come {
            if line.is_whole {
                return;
            }
            // Empty lines before a request are none (RFC 9112 §2.2).
            let is_before = line.bytes.is_empty() && b"\r\n".contains(&byte);
            if !is_before {
                line.bytes.push(byte);
                line.is_whole = byte == b'\n' || line.bytes.len() == LINE_LEN_MAX;
            }
        }
    }
}

/// A connection whose first lines are seen.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    stream: S,
    lines: Lines,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S, lines: &Lines) -> Self {
        let lines = lines.clone();
        Self { stream, lines }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        self.lines.see(&into.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_is_seen_in_the_first_line_alone() {
        for (pieces, seen) in [
            (&["DELETE /a#b HTTP/1.1\r\nHost: x\r\n"][..], true),
            (&["\r\nDELETE /a", "#b HT", "TP/1.1\r\n", "x"], true),
            (&["DELETE /a%23b HTTP/1.1\r\nX: #\r\n"], false),
            (&["GET / HTTP/1.1\r\n", "DELETE /a#b HTTP/1.1\r\n"], false),
            (&["a #b c\n"], false),
        ] {
            let lines = Lines::default();
            for piece in pieces {
                lines.see(piece.as_bytes());
            }
            assert_eq!(lines.has_fragment(), seen, "{pieces:?}");
            lines.await_next();
            assert!(!lines.has_fragment());
        }
    }
}
