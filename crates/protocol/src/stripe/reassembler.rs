// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiver: merges what the connections bring, trusting nothing that it reads.

use crate::stripe::{Frame, HEADER_LEN};

/// Merges sorted sequences of pieces into one stream. Connections are numbered from 0 in the order
/// of [`Reassembler::join`]; number 0 is there from the beginning, and unframed until a switch. Memory: under 64 bytes
/// a connection.
#[derive(Debug, Clone)]
pub struct Reassembler {
    next: u64,
    connections: Vec<Incoming>,
    /// Bytes that the first connection carries unframed, once they are known: from the switch, or from the first piece,
    /// which may overtake it on another connection.
    switch: Option<u64>,
    /// Whether the switch itself has arrived.
    is_announced: bool,
    end: Option<End>,
}

/// A fact beside the stream, for the sender of the same side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The other side has switched; a [`Frame::Confirm`] is due.
    Switched,
    /// The other side knows of our switch.
    Confirmed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    total: u64,
    connections: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Incoming {
    head: ReadState,
    /// Whether the connection has carried a piece.
    used: bool,
    /// Whether the sender has ended the connection. Only confirmations may follow.
    ended: bool,
}

/// State of the receiver for one connection: kind of the next byte.
#[derive(Debug, Clone, Copy)]
enum ReadState {
    /// The next byte is the next one of the stream. Only the first connection begins so.
    Unframed,
    /// The next byte belongs to a header, of which `filled` bytes have arrived.
    Header {
        bytes: [u8; HEADER_LEN],
        filled: usize,
    },
    /// The next byte is number `offset` of the stream; `left` bytes of the piece are still to come.
    Piece { offset: u64, left: u32 },
    /// The connection has closed, and nothing is missing of it.
    Gone,
}

impl Default for ReadState {
    fn default() -> Self {
        Self::Header {
            bytes: [0; HEADER_LEN],
            filled: 0,
        }
    }
}

/// Connection that the next bytes come from, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextRead {
    /// The connection.
    pub connection: usize,
    /// At most so many may be taken; at least 1.
    pub bytes: u32,
}

/// Why the stream can't be put together: an abnormal end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Sixteen bytes that are no header.
    #[error("a striped connection brought no header where one must be")]
    Header,
    /// A second switch, or one that comes too late.
    #[error("striped connections disagree about where their pieces begin")]
    Switch,
    /// Bytes that came before, on this connection or another.
    #[error("striped connections brought the same bytes twice")]
    Overlap,
    /// Ends that contradict each other or the pieces.
    #[error("striped connections disagree about the end")]
    End,
    /// A connection closed in the middle.
    #[error("a striped connection was cut off")]
    CutOff,
    /// No connection is left that could bring what is next.
    #[error("striped connections left a gap")]
    Gap,
}

impl Reassembler {
    /// A stream of which `unframed` bytes were read from the first connection.
    #[must_use]
    pub fn new(unframed: u64) -> Self {
        let first = Incoming {
            head: ReadState::Unframed,
            used: true,
            ended: false,
        };
        Self {
            next: unframed,
            connections: vec![first],
            switch: None,
            is_announced: false,
            end: None,
        }
    }

    /// A further connection; returns its number.
    pub fn join(&mut self) -> usize {
        self.connections.push(Incoming::default());
        self.connections.len() - 1
    }

    /// How many bytes of a header are to be read from this connection now. While it is 0, nothing
    /// is to be read from it but by [`Reassembler::next_read`].
    #[must_use]
    pub fn missing(&self, connection: usize) -> usize {
        match self.connections[connection].head {
            ReadState::Header { filled, .. } => HEADER_LEN - filled,
            _ => 0,
        }
    }

    /// Takes bytes of a header; no more than [`Reassembler::missing`] said. Returns what the header says beside the
    /// stream.
    ///
    /// # Panics
    /// With more.
    pub fn header(&mut self, connection: usize, more: &[u8]) -> Result<Option<Notice>, Broken> {
        let incoming = &mut self.connections[connection];
        let ReadState::Header { bytes, filled } = &mut incoming.head else {
            panic!("no header is due");
        };
        bytes[*filled..][..more.len()].copy_from_slice(more);
        *filled += more.len();
        if *filled < HEADER_LEN {
            return Ok(None);
        }
        let frame = Frame::parse(*bytes).map_err(|_| Broken::Header)?;
        let (head, notice) = match frame {
            Frame::Data { offset, len } => (ReadState::Piece { offset, left: len }, None),
            Frame::End { .. } => (ReadState::default(), None),
            Frame::Switch { .. } => (ReadState::default(), Some(Notice::Switched)),
            Frame::Confirm => (ReadState::default(), Some(Notice::Confirmed)),
        };
        incoming.head = head;
        incoming.used |= matches!(frame, Frame::Data { .. });
        if incoming.ended && frame != Frame::Confirm {
            return Err(Broken::End);
        }
        incoming.ended |= matches!(frame, Frame::End { .. });
        match frame {
            Frame::End { total, connections } => self.learn_end(End { total, connections })?,
            Frame::Switch { offset } => self.learn_switch(offset)?,
            Frame::Data { .. } | Frame::Confirm => {}
        }
        self.check_heads()?;
        Ok(notice)
    }

    /// The first connection has at most the bytes before `offset` left to bring unframed.
    fn learn_switch(&mut self, offset: u64) -> Result<(), Broken> {
        let is_second = std::mem::replace(&mut self.is_announced, true);
        let is_possible = match self.switch {
            Some(known) => known == offset,
            None => self.is_unframed() && offset >= self.next,
        };
        if is_second || !is_possible {
            return Err(Broken::Switch);
        }
        self.switch = Some(offset);
        self.end_unframed_part();
        Ok(())
    }

    /// Expects a header on the first connection once its unframed part has been taken.
    fn end_unframed_part(&mut self) {
        if self.switch == Some(self.next) && self.is_unframed() {
            self.connections[0].head = ReadState::default();
        }
    }

    fn learn_end(&mut self, end: End) -> Result<(), Broken> {
        match self.end.replace(end) {
            Some(known) if known != end => Err(Broken::End),
            _ if end.total < self.next || self.ended() > end.connections => Err(Broken::End),
            _ => Ok(()),
        }
    }

    /// Every head must lie between what was taken and the end.
    fn check_heads(&self) -> Result<(), Broken> {
        let total = self.end.map_or(u64::MAX, |end| end.total);
        for incoming in &self.connections {
            if let ReadState::Piece { offset, left } = incoming.head {
                if offset < self.next {
                    return Err(Broken::Overlap);
                }
                if offset + u64::from(left) > total {
                    return Err(Broken::End);
                }
            }
        }
        Ok(())
    }

    /// Returns the connection that the next bytes come from. `None`: headers are missing, or the stream is complete or
    /// broken. While the first connection is unframed, the headers of the others must be read first: a piece that is
    /// next tells that the unframed part has ended.
    #[must_use]
    pub fn next_read(&self) -> Option<NextRead> {
        let heads = self.connections.iter().enumerate();
        let piece = heads
            .filter_map(|(connection, incoming)| match incoming.head {
                ReadState::Piece { offset, left } if offset == self.next => Some(NextRead {
                    connection,
                    bytes: left,
                }),
                _ => None,
            })
            .next();
        piece.or_else(|| self.next_unframed())
    }

    fn next_unframed(&self) -> Option<NextRead> {
        let left = || self.switch.map_or(u64::MAX, |switch| switch - self.next);
        self.is_unframed().then(|| NextRead {
            connection: 0,
            bytes: u32::try_from(left()).unwrap_or(u32::MAX),
        })
    }

    /// Whether the first connection brings bytes without headers.
    #[must_use]
    pub fn is_unframed(&self) -> bool {
        matches!(self.connections[0].head, ReadState::Unframed)
    }

    /// Records that this many bytes were read from the connection that [`Self::next_read`] named.
    ///
    /// # Panics
    /// If `next_read` named none, or fewer bytes.
    pub fn consume(&mut self, bytes: usize) -> Result<(), Broken> {
        let turn = self.next_read().expect("somebody's turn");
        assert!(bytes <= turn.bytes as usize, "{bytes} of {}", turn.bytes);
        if turn.connection > 0 && self.is_unframed() {
            self.switch = Some(self.next);
            self.end_unframed_part();
        }
        self.next += bytes as u64;
        let left = turn.bytes - bytes as u32;
        let offset = self.next;
        let head = &mut self.connections[turn.connection].head;
        match (*head, left) {
            (ReadState::Unframed, _) => self.end_unframed_part(),
            (_, 0) => *head = ReadState::default(),
            (_, left) => *head = ReadState::Piece { offset, left },
        }
        self.check_heads()
    }

    /// The connection brings nothing more. One that never brought a piece may leave. If the first one leaves unframed,
    /// the stream is complete: its sender does not close it between a switch and the end.
    pub fn closed(&mut self, connection: usize) -> Result<(), Broken> {
        let is_complete = self.is_complete();
        let incoming = &mut self.connections[connection];
        match incoming.head {
            ReadState::Gone => Ok(()),
            ReadState::Unframed if self.switch.is_none() => {
                (incoming.head, incoming.ended) = (ReadState::Gone, true);
                self.learn_end(End {
                    total: self.next,
                    connections: 1,
                })?;
                self.check_heads()
            }
            ReadState::Header { filled, .. }
                if is_complete
                    || filled == 0 && (incoming.ended || !incoming.used && connection > 0) =>
            {
                incoming.head = ReadState::Gone;
                Ok(())
            }
            _ => Err(Broken::CutOff),
        }
    }

    /// Whether it can go on, if no further connection joins.
    pub fn check_progress(&self) -> Result<(), Broken> {
        let count = |is: fn(&ReadState) -> bool| {
            let unended = self.connections.iter().filter(|incoming| !incoming.ended);
            unended.filter(|incoming| is(&incoming.head)).count()
        };
        let open = count(|head| matches!(head, ReadState::Header { .. } | ReadState::Unframed));
        let pieces = count(|head| matches!(head, ReadState::Piece { .. }));
        let ends_possible = self.ended() as usize + open + pieces;
        let ends_wanted = self.end.map_or(0, |end| end.connections as usize);
        let waits = open > 0 || self.next_read().is_some() || self.is_complete();
        if waits && ends_possible >= ends_wanted {
            Ok(())
        } else {
            Err(Broken::Gap)
        }
    }

    /// Whether everything was taken and all ends have come.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let done = |end: End| self.next == end.total && self.ended() == end.connections;
        self.end.is_some_and(done)
    }

    /// Bytes of the stream that were taken.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.next
    }

    fn ended(&self) -> u32 {
        let ended = self.connections.iter().filter(|incoming| incoming.ended);
        ended.count() as u32
    }
}
