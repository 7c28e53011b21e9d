// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finder of the end of a chunked body (RFC 9112 §7.1). No I/O.
//!
//! This parser validates nothing. hyper's decoder reads the same bytes, is stricter, and closes the connection on an
//! error.

/// Position within a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkedBody {
    /// In the line before a chunk: the size so far, and whether its last digit has been read.
    Size(u64, bool),
    /// In a chunk: the number of its bytes that are still to come.
    Data(u64),
    /// In the line break after a chunk.
    DataEnd,
    /// In the trailer section after the last chunk. True if the current line is not empty.
    Trailers(bool),
    /// The body has ended.
    End,
}

impl ChunkedBody {
    /// The position before the first byte of a body.
    pub const START: Self = Self::Size(0, false);

    /// Reads bytes and returns how many of them belong to the body.
    pub fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && *self != Self::End {
            taken += match self {
                Self::Data(left) => {
                    let more = left.min(&mut ((bytes.len() - taken) as u64)).to_owned();
                    *left -= more;
                    if *left == 0 {
                        *self = Self::DataEnd;
                    }
                    more as usize
                }
                _ => {
                    *self = self.after_byte(bytes[taken]);
                    1
                }
            };
        }
        taken
    }

    /// Returns the position after a byte outside of chunk data.
    fn after_byte(self, byte: u8) -> Self {
        let digit = char::from(byte).to_digit(16).map(u64::from);
        match (self, byte, digit) {
            (Self::Size(0, _), b'\n', _) => Self::Trailers(false),
            (Self::Size(size, _), b'\n', _) => Self::Data(size),
            (Self::Size(size, false), _, Some(digit)) => {
                Self::Size(size.saturating_mul(16).saturating_add(digit), false)
            }
            (Self::Size(size, _), ..) => Self::Size(size, true),
            (Self::DataEnd, b'\n', _) => Self::START,
            (Self::Trailers(false), b'\n', _) => Self::End,
            (Self::Trailers(_), b'\n', _) => Self::Trailers(false),
            (Self::Trailers(has_text), ..) => Self::Trailers(has_text || byte != b'\r'),
            (same, ..) => same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_end_for_any_segmentation() {
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "5;a=\"0\"\r\n0\r\n\r\n\r\n00\r\n\r\n",
            "1F \r\n0123456789012345678901234567890\r\n0\r\nX-Sum: 1\r\nX: \r\n\r\n",
        ] {
            let sent = [body, "GET / HTTP/1.1\r\n\r\n"].concat();
            for piece in [1, 2, 7, 1000] {
                let mut chunks = ChunkedBody::START;
                let pieces = sent.as_bytes().chunks(piece);
                let taken: usize = pieces.map(|piece| chunks.advance(piece)).sum();
                assert_eq!(
                    (taken, chunks),
                    (body.len(), ChunkedBody::End),
                    "{body:?} by {piece}"
                );
            }
        }
    }

    #[test]
    fn finds_no_end_after_an_overflowing_size() {
        let mut chunks = ChunkedBody::START;
        let body = [&[b'f'; 40][..], b"\r\n0\r\n\r\n"].concat();
        assert_eq!(chunks.advance(&body), body.len());
        assert_ne!(chunks, ChunkedBody::End);
    }
}
