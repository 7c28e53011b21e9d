// SPDX-License-Identifier: MIT OR Apache-2.0
//! One byte stream over several connections that each keep their order: who carries what
//! ([`Distributor`]), and how it becomes one stream again ([`Reassembler`]).
//!
//! The sender cuts the stream into pieces and puts each, behind a header with its offset, on some
//! connection, in rising order. So every connection carries a sorted sequence, and the receiver
//! merges sorted sequences: it looks at each connection's head and takes the piece that is next.
//! What is ahead stays in its connection.
//!
//! **Bound.** The receiver holds one header a connection and no byte of the stream. What is ahead
//! waits in the kernel's receive buffers, at most one window a connection, and then the sender's
//! connection takes no more.
//!
//! **No deadlock.** Let `n` be the first byte that has not been taken. Its piece is on one
//! connection; all that was put on that connection before it has smaller offsets and has been taken.
//! So the piece is at that connection's head: nothing of ours is in front of it, its window is open
//! for it, and TCP delivers it. The sender never waits for one connection before it goes on
//! sending on another, so a piece that was begun is finished whatever the others do.
//!
//! **The end.** Each connection that carried anything in a direction, and the first one always,
//! carries an end with the total length and with how many connections carry such an end. Then the
//! direction is closed, and a connection that closes before its end was cut off.
//!
//! **The header** of a piece has sixteen bytes, big-endian: the offset of the piece in the stream (8), a length (4),
//! a kind (1), and three zeroes. A piece of [`Frame::Data`] follows its header at once, on the same connection.

mod distributor;
mod reassembler;

pub use distributor::{Distributor, PIECE_LEN};
pub use reassembler::{Broken, NextRead, Reassembler};

/// Bytes in a header.
pub const HEADER_LEN: usize = 16;

/// The longest piece, in bytes. It costs the receiver nothing, but the other connections wait for
/// the end of the piece that is next.
pub const PIECE_LEN_MAX: u32 = 1 << 20;

const DATA: u8 = 0;
const END: u8 = 1;

/// A header's meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// `len` bytes of the stream follow, of which the first one is number `offset`.
    Data {
        /// Bytes of the stream before this piece.
        offset: u64,
        /// Bytes that follow, 1 to [`PIECE_LEN_MAX`].
        len: u32,
    },
    /// The last that this connection carries in this direction.
    End {
        /// Bytes of the whole stream.
        total: u64,
        /// Connections that carry such an end, this one included; at least 1.
        connections: u32,
    },
}

/// Why sixteen bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no header of a striped stream")]
pub struct BadHeader;

impl Frame {
    /// The header.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let (offset, len, kind) = match self {
            Self::Data { offset, len } => (offset, len, DATA),
            Self::End { total, connections } => (total, connections, END),
        };
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&len.to_be_bytes());
        bytes[12] = kind;
        bytes
    }

    /// Reads a header. A piece that would run past the largest offset is refused too.
    pub fn parse(bytes: [u8; HEADER_LEN]) -> Result<Self, BadHeader> {
        let [
            o0,
            o1,
            o2,
            o3,
            o4,
            o5,
            o6,
            o7,
            l0,
            l1,
            l2,
            l3,
            kind,
            0,
            0,
            0,
        ] = bytes
        else {
            return Err(BadHeader);
        };
        let offset = u64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
        let len = u32::from_be_bytes([l0, l1, l2, l3]);
        let fits = offset.checked_add(len.into()).is_some();
        match (kind, len) {
            (DATA, 1..=PIECE_LEN_MAX) if fits => Ok(Self::Data { offset, len }),
            (END, 1..) => Ok(Self::End {
                total: offset,
                connections: len,
            }),
            _ => Err(BadHeader),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_as_documented() {
        let data = Frame::Data {
            offset: 0x0102,
            len: 3,
        };
        let want = [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3, 0, 0, 0, 0];
        assert_eq!(data.encode(), want);
    }

    #[test]
    fn impossible_headers_are_refused() {
        let header = |offset: u64, len: u32, kind: u8, rest: u8| {
            let mut bytes = Frame::Data { offset, len }.encode();
            (bytes[12], bytes[15]) = (kind, rest);
            Frame::parse(bytes)
        };
        assert!(header(0, 1, DATA, 0).is_ok());
        assert_eq!(header(0, 0, DATA, 0), Err(BadHeader), "nothing");
        assert_eq!(header(0, PIECE_LEN_MAX + 1, DATA, 0), Err(BadHeader));
        assert_eq!(header(u64::MAX, 1, DATA, 0), Err(BadHeader), "runs over");
        assert_eq!(header(0, 0, END, 0), Err(BadHeader), "an end nowhere");
        assert_eq!(header(0, 1, 2, 0), Err(BadHeader), "unknown kind");
        assert_eq!(header(0, 1, DATA, 1), Err(BadHeader), "not zero");
    }

    proptest! {
        #[test]
        fn what_can_be_read_reads_back(bytes: [u8; HEADER_LEN], len in 0..=PIECE_LEN_MAX, kind in 0u8..3) {
            let mut shaped = bytes;
            shaped[8..12].copy_from_slice(&len.to_be_bytes());
            shaped[12..].copy_from_slice(&[kind, 0, 0, 0]);
            for bytes in [bytes, shaped] {
                if let Ok(frame) = Frame::parse(bytes) {
                    prop_assert_eq!(frame.encode(), bytes);
                }
            }
        }
    }
}
