// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a chunked body (RFC 9112 §7.1). hyper's decoder is stricter and ends the connection on an error. This
//! decoder only finds the end of bodies that hyper accepts. No I/O.

/// State of a decoder within a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunks {
    /// In the line before a chunk: its size, and whether the digits are over.
    Size(u64, bool),
    /// In a chunk of which so many bytes are to come.
    Data(u64),
    /// In the line break behind a chunk.
    DataEnd,
    /// In the lines behind the last chunk, and whether this one has something.
    Trailers(bool),
    /// The body has ended.
    Over,
}

impl Chunks {
    /// Nothing has been seen.
    pub const BEGIN: Self = Self::Size(0, false);

    /// How many of these bytes are the body's.
    pub fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && *self != Self::Over {
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
                    *self = self.after(bytes[taken]);
                    1
                }
            };
        }
        taken
    }

    /// A byte that is no data.
    fn after(self, byte: u8) -> Self {
        let digit = char::from(byte).to_digit(16).map(u64::from);
        match (self, byte, digit) {
            (Self::Size(0, _), b'\n', _) => Self::Trailers(false),
            (Self::Size(size, _), b'\n', _) => Self::Data(size),
            (Self::Size(size, false), _, Some(digit)) => {
                Self::Size(size.saturating_mul(16).saturating_add(digit), false)
            }
            (Self::Size(size, _), ..) => Self::Size(size, true),
            (Self::DataEnd, b'\n', _) => Self::BEGIN,
            (Self::Trailers(false), b'\n', _) => Self::Over,
            (Self::Trailers(_), b'\n', _) => Self::Trailers(false),
            (Self::Trailers(something), ..) => Self::Trailers(something || byte != b'\r'),
            (same, ..) => same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_end_whatever_the_segmentation() {
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "5;a=\"0\"\r\n0\r\n\r\n\r\n00\r\n\r\n",
            "1F \r\n0123456789012345678901234567890\r\n0\r\nX-Sum: 1\r\nX: \r\n\r\n",
        ] {
            let sent = [body, "GET / HTTP/1.1\r\n\r\n"].concat();
            for piece in [1, 2, 7, 1000] {
                let mut chunks = Chunks::BEGIN;
                let pieces = sent.as_bytes().chunks(piece);
                let taken: usize = pieces.map(|piece| chunks.advance(piece)).sum();
                assert_eq!(
                    (taken, chunks),
                    (body.len(), Chunks::Over),
                    "{body:?} by {piece}"
                );
            }
        }
    }

    #[test]
    fn finds_no_end_after_an_overflowing_size() {
        let mut chunks = Chunks::BEGIN;
        let body = [&[b'f'; 40][..], b"\r\n0\r\n\r\n"].concat();
        assert_eq!(chunks.advance(&body), body.len());
        assert_ne!(chunks, Chunks::Over);
    }
}
