// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sender: which connection carries the next piece.

use crate::stripe::{Frame, HEADER_LEN};

/// Bytes of a full piece: 64 KiB. At 10 Gbit/s over four connections one lasts 0.2 ms on its own;
/// on a connection at 10 Mbit/s the others wait 50 ms for it.
pub const PIECE_LEN: usize = 64 * 1024;

/// Hands out pieces. Connections are numbered from 0 in the order of [`Distributor::join`]; number 0 is
/// there from the beginning.
///
/// Full pieces go round the connections that can take one at once, so that whoever is slow gets
/// fewer. Short ones stay where the last one went: messages of an interactive connection travel
/// behind each other and never wait for a loss on another path.
#[derive(Debug, Clone)]
pub struct Distributor {
    next: u64,
    connections: Vec<Outgoing>,
    current: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Outgoing {
    /// Whether the connection carries or carried a piece.
    used: bool,
    /// Whether part of its last piece is still to be written.
    busy: bool,
    gone: bool,
}

impl Default for Distributor {
    fn default() -> Self {
        Self {
            next: 0,
            connections: vec![Outgoing::default()],
            current: 0,
        }
    }
}

impl Distributor {
    /// A further connection; returns its number.
    pub fn join(&mut self) -> usize {
        self.connections.push(Outgoing::default());
        self.connections.len() - 1
    }

    /// The connection for the next piece: the first from the current one on that is free and of
    /// which `can_write` says that it would take bytes at once.
    pub fn pick(&self, mut can_write: impl FnMut(usize) -> bool) -> Option<usize> {
        let all = self.connections.len();
        let round = (self.current..all).chain(0..self.current);
        let free = |n: &usize| !self.connections[*n].busy && !self.connections[*n].gone;
        round.filter(free).find(|n| can_write(*n))
    }

    /// Gives this connection the next `len` bytes of the stream; returns their header.
    ///
    /// # Panics
    /// If it is busy, or without bytes.
    pub fn begin(&mut self, connection: usize, len: usize) -> [u8; HEADER_LEN] {
        let outgoing = &mut self.connections[connection];
        assert!(!outgoing.busy && len > 0, "one piece after the other");
        (outgoing.used, outgoing.busy) = (true, true);
        let full = usize::from(len >= PIECE_LEN);
        self.current = (connection + full) % self.connections.len();
        let (offset, len) = (self.next, len as u32);
        self.next += u64::from(len);
        Frame::Data { offset, len }.encode()
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

    /// The end, once no connection is busy: what each of these connections still has to carry.
    #[must_use]
    pub fn end(&self) -> Vec<(usize, [u8; HEADER_LEN])> {
        let carries = |n: &usize| *n == 0 || self.connections[*n].used;
        let carriers: Vec<_> = (0..self.connections.len()).filter(carries).collect();
        let end = Frame::End {
            total: self.next,
            connections: carriers.len() as u32,
        };
        carriers.into_iter().map(|n| (n, end.encode())).collect()
    }
}
