// SPDX-License-Identifier: MIT OR Apache-2.0
//! One byte stream over several connections, each of which keeps its order. [`Distributor`] chooses a connection for
//! each piece, and [`Reassembler`] joins the pieces to one stream again.
//!
//! **The first connection begins unframed**: it carries the stream as it is, and a stream that needs no second
//! connection costs nothing. Further connections may join at any time. In each direction the sender decides when it
//! uses them: it ends the unframed part where it is, and announces this offset by a switch on a connection that has
//! joined. Pieces go over the joined connections at once. The receiver confirms that it knows the offset. From then on
//! the first connection carries pieces, too. So a byte behind the unframed part is never taken for a part of it.
//!
//! From the switch on, the sender cuts the stream into pieces. In the order of their offsets, it puts each piece on
//! some connection, after a header with the offset. So each connection carries a sorted sequence, and the receiver
//! merges these: it looks at each connection's head and takes the piece that is next. A piece that is not next yet
//! stays in its connection.
//!
//! **Bound.** The receiver holds one header a connection and no byte of the stream. Pieces that are not next yet wait
//! in the kernel's receive buffers, at most one window a connection. When a window is full, that connection accepts no
//! more from the sender.
//!
//! **No deadlock.** Let `n` be the first byte that has not been taken. Its piece is on one connection; all pieces that
//! were put on that connection before it have smaller offsets and have been taken. So the piece is at that connection's
//! head: no other piece is in front of it, the window is open, and TCP delivers it. The sender does not wait for one
//! connection before it sends on another. So a piece that was begun is finished, whatever the other connections do.
//!
//! **The end.** The end of a stream without a switch is the first connection's. After a switch, every connection that
//! carried anything in this direction carries an end frame last; the first connection always does, so a sender first
//! waits for the confirmation. The frame has the total length and the number of connections that carry one. A
//! connection that closes before it was cut off.
//!
//! **The header** of a piece has sixteen bytes, big-endian: the offset of the piece in the stream (8), a length (4), a
//! kind (1), and three zeroes. The bytes of a piece follow its header at once, on the same connection.

mod distributor;
mod reassembler;

pub use distributor::{Distributor, PIECE_LEN};
pub use reassembler::{Broken, NextRead, Notice, Reassembler};

/// The length of a header, bytes.
pub const HEADER_LEN: usize = 16;

/// The length of the longest piece, bytes. A long piece takes no memory at the receiver, but the other connections wait
/// until it has arrived.
pub const PIECE_LEN_MAX: u32 = 1 << 20;

const DATA: u8 = 0;
const END: u8 = 1;
const SWITCH: u8 = 2;
const CONFIRM: u8 = 3;

/// Contents of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// `len` bytes of the stream follow, from number `offset` on.
    Data {
        /// Bytes of the stream before this piece.
        offset: u64,
        /// Bytes that follow, 1 to [`PIECE_LEN_MAX`].
        len: u32,
    },
    /// End frame: the last bytes of this connection in this direction.
    End {
        /// Bytes of the whole stream.
        total: u64,
        /// Number of connections that carry an end frame, this one included; at least 1.
        connections: u32,
    },
    /// The first connection carries no unframed byte from number `offset` on.
    Switch {
        /// Bytes of the stream that the first connection carries unframed.
        offset: u64,
    },
    /// The switch of the other direction is known.
    Confirm,
}

/// Error: sixteen bytes that are not a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no header of a striped stream")]
pub struct BadHeader;

impl Frame {
    /// Encodes the header.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let (offset, len, kind) = match self {
            Self::Data { offset, len } => (offset, len, DATA),
            Self::End { total, connections } => (total, connections, END),
            Self::Switch { offset } => (offset, 0, SWITCH),
            Self::Confirm => (0, 0, CONFIRM),
        };
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&len.to_be_bytes());
        bytes[12] = kind;
        bytes
    }

    /// Parses a header. A piece that would end beyond the largest offset is refused, too.
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
            (SWITCH, 0) => Ok(Self::Switch { offset }),
            (CONFIRM, 0) if offset == 0 => Ok(Self::Confirm),
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
        assert_eq!(header(0, 1, 9, 0), Err(BadHeader), "unknown kind");
        assert_eq!(header(0, 1, SWITCH, 0), Err(BadHeader), "a length");
        assert_eq!(header(1, 0, CONFIRM, 0), Err(BadHeader), "an offset");
        assert_eq!(header(0, 1, DATA, 1), Err(BadHeader), "not zero");
    }

    proptest! {
        #[test]
        fn what_can_be_read_reads_back(bytes: [u8; HEADER_LEN], len in 0..=PIECE_LEN_MAX, kind in 0u8..5) {
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
