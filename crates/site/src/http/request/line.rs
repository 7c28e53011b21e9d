// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first lines of requests as they come. hyper drops what is behind a "#" in them, and a client that does not escape it
//! in a name would have `a` removed where it says `a#b`.
//!
//! The line of a request that comes before the answer to the one before it is not seen. What is seen is held against what
//! hyper has read, so that nothing else is taken for it.

use hyper::{Request, Uri};
use parking_lot::Mutex;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of a first line that are looked at, at most: hyper has some 64 KiB for a URI.
const LINE_LEN_MAX: usize = 66 << 10;

/// What is known of a request's own line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Whole,
    /// It has a fragment (RFC 9112 §3.2: none has).
    WithFragment,
    /// It came before the answer to the request before it.
    Not,
}

/// What was seen of a connection's current request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Line>>);

#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    is_whole: bool,
}

impl Lines {
    /// The request is read, and will have its answer: what comes is the next one.
    pub(crate) fn await_next(&self) {
        *self.0.lock() = Line::default();
    }

    /// What is known of the line of this request.
    pub(crate) fn of<B>(&self, request: &Request<B>) -> Seen {
        let line = self.0.lock();
        let words: Vec<_> = line
            .bytes
            .trim_ascii()
            .split(|byte| *byte == b' ')
            .collect();
        let [method, target, version] = words[..] else {
            return Seen::Not;
        };
        let is_its = method == request.method().as_str().as_bytes()
            && Uri::try_from(target).is_ok_and(|uri| uri == *request.uri())
            && version.starts_with(b"HTTP/");
        match (is_its, target.contains(&b'#')) {
            (false, _) => Seen::Not,
            (true, false) => Seen::Whole,
            (true, true) => Seen::WithFragment,
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

    fn seen(pieces: &[&str], method: &str, uri: &str) -> Seen {
        let lines = Lines::default();
        for piece in pieces {
            lines.see(piece.as_bytes());
        }
        let request = Request::builder().method(method).uri(uri);
        let request = request.body(()).unwrap();
        let seen = lines.of(&request);
        lines.await_next();
        assert_eq!(lines.of(&request), Seen::Not);
        seen
    }

    #[test]
    fn a_fragment_is_seen_in_the_first_line_alone() {
        for (pieces, wanted) in [
            (
                &["DELETE /a#b HTTP/1.1\r\nHost: x\r\n"][..],
                Seen::WithFragment,
            ),
            (
                &["\r\nDELETE /a", "#b HT", "TP/1.1\r\n", "x"],
                Seen::WithFragment,
            ),
            (&["DELETE /a HTTP/1.1\r\nX: #\r\n"], Seen::Whole),
            (
                &["DELETE /a HTTP/1.1\r\n", "DELETE /a#b HTTP/1.1\r\n"],
                Seen::Whole,
            ),
        ] {
            assert_eq!(seen(pieces, "DELETE", "/a"), wanted, "{pieces:?}");
        }
        let absolute = ["DELETE http://h/a?b#c HTTP/1.1\r\n"];
        assert_eq!(
            seen(&absolute, "DELETE", "http://h/a?b"),
            Seen::WithFragment
        );
        assert_eq!(
            seen(&["OPTIONS * HTTP/1.1\r\n"], "OPTIONS", "*"),
            Seen::Whole
        );
    }

    #[test]
    fn what_is_no_request_s_own_line_is_not_taken_for_it() {
        for pieces in [
            &[][..],
            &["b HTTP/1.1\r\n"],
            &["a body that came late DELETE /a#b HTTP/1.1\r\n"],
            &["PUT /a HTTP/1.1\r\n"],
            &["DELETE /b HTTP/1.1\r\n"],
            &["DELETE /a x\r\n"],
        ] {
            assert_eq!(seen(pieces, "DELETE", "/a"), Seen::Not, "{pieces:?}");
        }
    }
}
