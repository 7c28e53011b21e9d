// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trailer sections of chunked messages. hyper drops trailers that were not announced, and all
//! trailers for clients that do not accept them. So the streams below hyper insert them.

use bytes::{Buf as _, Bytes};
use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::AsyncWrite;

/// Last chunk, as hyper writes it: always as a separate slice, and the last one.
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Slices before the last chunk, which trailers replace; `None` if only the last chunk is left.
/// Data that looks like a last chunk is not mistaken for it: its slices are followed by the line
/// break that ends the data's chunk.
pub(super) fn without_last_chunk<'a, 'b>(slices: &'a [IoSlice<'b>]) -> Option<&'a [IoSlice<'b>]> {
    match slices {
        [end] if **end == *LAST_CHUNK => None,
        [before @ .., end] if **end == *LAST_CHUNK => Some(before),
        all => Some(all),
    }
}

/// Pending bytes that precede all others.
#[derive(Debug, Default)]
pub(super) struct PendingWrite(pub(super) Bytes);

impl PendingWrite {
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        while self.0.has_remaining() {
            let written = ready!(Pin::new(&mut *stream).poll_write(cx, &self.0))?;
            self.0.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_last_chunk_only_as_last_slice() {
        let lens = |parts: &[&[u8]]| {
            let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            without_last_chunk(&slices).map(<[IoSlice<'_>]>::len)
        };
        assert_eq!(lens(&[LAST_CHUNK]), None);
        assert_eq!(lens(&[b"1\r\n", b"x", b"\r\n", LAST_CHUNK]), Some(3));
        assert_eq!(lens(&[b"5\r\n", LAST_CHUNK, b"\r\n"]), Some(3));
        assert_eq!(lens(&[b"HTTP/1.1 200 OK\r\n\r\n"]), Some(1));
    }
}
