// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sender: which connection carries the next piece.

use crate::stripe::{Frame, HEADER_LEN};
use std::ops::Range;

/// Bytes of a full piece: 64 KiB. At 10 Gbit/s over four connections one lasts 0.2 ms on its own;
/// on a connection at 10 Mbit/s the others wait 50 ms for it.
pub const PIECE_LEN: usize = 64 * 1024;

/// Hands out pieces. Connections are numbered from 0 in the order of [`Distributor::join`]; number 0 is
/// there from the beginning, and unframed until [`Distributor::switch`].
///
/// Full pieces go round the connections that can take one at once, so that whoever is slow gets
/// fewer. Short ones stay where the last one went: messages of an interactive connection travel
/// behind each other and never wait for a loss on another path.
#[derive(Debug, Clone)]
pub struct Distributor {
    next: u64,
    connections: Vec<Outgoing>,
    current: usize,
    first: First,
    /// Number of connections, from the first on, that get pieces.
    in_use: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Outgoing {
    /// Whether the connection carries or carried a piece.
    used: bool,
    /// Whether part of its last piece is still to be written.
    busy: bool,
    gone: bool,
}

/// State of the first connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Unframed,
    /// The unframed part has ended, but the receiver may not know.
    AwaitsConfirmation,
    Framed,
}

impl Distributor {
    /// A stream of which the first connection has carried `unframed` bytes.
    #[must_use]
    pub fn new(unframed: u64) -> Self {
        Self {
            next: unframed,
            connections: vec![Outgoing::default()],
            current: 0,
            first: First::Unframed,
            in_use: usize::MAX,
        }
    }

    /// A further connection; returns its number.
    pub fn join(&mut self) -> usize {
        self.connections.push(Outgoing::default());
        self.connections.len() - 1
    }

    /// Sets the number of connections, from the first on, that get pieces; at least 1. While the first connection can't
    /// carry pieces, one more does.
    pub fn use_connections(&mut self, count: usize) {
        self.in_use = count.max(1);
    }

    /// The connection for the next piece: the first from the current one on that is free and of
    /// which `can_write` says that it would take bytes at once.
    pub fn pick(&self, mut can_write: impl FnMut(usize) -> bool) -> Option<usize> {
        let all = self.carriers();
        let last = all.end.min(self.connections.len());
        let current = self.current.clamp(all.start, last);
        let round = (current..last).chain(all.start..current);
        let free = |n: &usize| !self.connections[*n].busy && !self.connections[*n].gone;
        round.filter(free).find(|n| can_write(*n))
    }

    /// Connections that get pieces, those that have not joined yet included.
    fn carriers(&self) -> Range<usize> {
        match self.first {
            First::Unframed => 0..1,
            First::AwaitsConfirmation => 1..self.in_use.saturating_add(1),
            First::Framed => 0..self.in_use,
        }
    }

    /// Whether the next piece, or the switch, waits for room on this connection.
    #[must_use]
    pub fn waits_for(&self, connection: usize) -> bool {
        let may_switch = self.is_unframed() && self.in_use > 1 && !self.connections[0].busy;
        self.carriers().contains(&connection) || may_switch
    }

    /// Gives this connection the next `len` bytes of the stream; returns their header, which an unframed piece has not.
    ///
    /// # Panics
    /// If it is busy, or without bytes.
    pub fn begin(&mut self, connection: usize, len: usize) -> Option<[u8; HEADER_LEN]> {
        let outgoing = &mut self.connections[connection];
        assert!(!outgoing.busy && len > 0, "one piece after the other");
        (outgoing.used, outgoing.busy) = (true, true);
        let full = usize::from(len >= PIECE_LEN);
        self.current = (connection + full) % self.connections.len();
        let (offset, len) = (self.next, len as u32);
        self.next += u64::from(len);
        (self.first != First::Unframed).then(|| Frame::Data { offset, len }.encode())
    }

    /// Whether the first connection carries the stream without headers.
    #[must_use]
    pub fn is_unframed(&self) -> bool {
        self.first == First::Unframed
    }

    /// Ends the unframed part, if a connection has joined that can announce it, and of which `can_write` says that it
    /// would take bytes at once. Returns that connection and its frame. The connection is busy until
    /// [`Distributor::piece_written`].
    pub fn switch(
        &mut self,
        mut can_write: impl FnMut(usize) -> bool,
    ) -> Option<(usize, [u8; HEADER_LEN])> {
        if self.first != First::Unframed || self.connections[0].busy {
            return None;
        }
        let is_free = |n: &usize| !self.connections[*n].busy && !self.connections[*n].gone;
        let mut joined = (1..self.connections.len()).filter(is_free);
        let announcer = joined.find(|n| can_write(*n))?;
        let outgoing = &mut self.connections[announcer];
        (outgoing.used, outgoing.busy) = (true, true);
        (self.first, self.current) = (First::AwaitsConfirmation, announcer);
        let offset = self.next;
        Some((announcer, Frame::Switch { offset }.encode()))
    }

    /// Records that the receiver knows the offset of the switch. Does nothing if there was none.
    pub fn confirm(&mut self) {
        if self.first == First::AwaitsConfirmation {
            self.first = First::Framed;
        }
    }

    /// Whether the end must wait for a confirmation.
    #[must_use]
    pub fn awaits_confirmation(&self) -> bool {
        self.first == First::AwaitsConfirmation
    }

    /// Gives this connection a frame of another direction; it is busy until [`Distributor::piece_written`]. Returns
    /// `false` if it is busy or gone.
    #[must_use]
    pub fn begin_confirmation(&mut self, connection: usize) -> bool {
        let outgoing = &mut self.connections[connection];
        let can_carry = !outgoing.busy && !outgoing.gone;
        outgoing.busy |= can_carry;
        outgoing.used |= can_carry;
        can_carry
    }

    /// Records that all of the connection's piece is written.
    pub fn piece_written(&mut self, connection: usize) {
        self.connections[connection].busy = false;
    }

    /// Records that the connection closed. Returns `false` if bytes are lost. One that never carried anything may close,
    /// except the first.
    #[must_use]
    pub fn close(&mut self, connection: usize) -> bool {
        let outgoing = &mut self.connections[connection];
        outgoing.gone = !outgoing.used && connection > 0;
        outgoing.gone
    }

    /// The end, once no connection is busy and no confirmation is due: what each of these connections still has to
    /// carry. Without a switch, that is nothing: the first connection is closed.
    #[must_use]
    pub fn end(&self) -> Vec<(usize, [u8; HEADER_LEN])> {
        if self.first == First::Unframed {
            return Vec::new();
        }
        let carries = |n: &usize| *n == 0 || self.connections[*n].used;
        let carriers: Vec<_> = (0..self.connections.len()).filter(carries).collect();
        let end = Frame::End {
            total: self.next,
            connections: carriers.len() as u32,
        };
        carriers.into_iter().map(|n| (n, end.encode())).collect()
    }
}
