// SPDX-License-Identifier: MIT OR Apache-2.0
//! hyper ends a chunked message without trailers unless they were announced, and without them for clients that do not
//! say that they take them. So the streams below hyper put them in.

use bytes::{Buf as _, Bytes};
use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::AsyncWrite;

/// How hyper ends a chunked message: always in a slice of its own, and the last.
pub(super) const END: &[u8] = b"0\r\n\r\n";

/// What of a message's bytes may be written when trailers take the place of its end; none if it is their turn. Data
/// that looks like an end is not taken for it: the line break that ends its chunk is there, too.
pub(super) fn before_end<'a, 'b>(slices: &'a [IoSlice<'b>]) -> Option<&'a [IoSlice<'b>]> {
    match slices {
        [end] if **end == *END => None,
        [before @ .., end] if **end == *END => Some(before),
        all => Some(all),
    }
}

/// Bytes that go out before all others.
#[derive(Debug, Default)]
pub(super) struct First(pub(super) Bytes);

impl First {
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
    fn an_end_is_the_last_slice_and_its_own() {
        let lens = |parts: &[&[u8]]| {
            let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            before_end(&slices).map(<[IoSlice<'_>]>::len)
        };
        assert_eq!(lens(&[END]), None);
        assert_eq!(lens(&[b"1\r\n", b"x", b"\r\n", END]), Some(3));
        assert_eq!(lens(&[b"5\r\n", END, b"\r\n"]), Some(3));
        assert_eq!(lens(&[b"HTTP/1.1 200 OK\r\n\r\n"]), Some(1));
    }
}
