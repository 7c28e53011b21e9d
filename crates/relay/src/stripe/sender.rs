// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending half of a bundle: each leg takes pieces at its own rate.

use crate::{
    records::counters::GaugeGuard,
    stripe::bundle::{Bundle, Subflow},
};
use longhaul_linux::pipe_pool::Lease;
use longhaul_protocol::stripe::Distributor;
use longhaul_protocol::stripe::HEADER_LEN;
use longhaul_transport::channel::Channel;
use std::{
    io,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Sends one stream over the legs of a bundle. Memory: one pipe or buffer for each leg that has not
/// taken its whole piece, with at most [`longhaul_protocol::stripe::PIECE_LEN`] bytes in it.
pub(crate) struct StripeSender<'a> {
    bundle: &'a Bundle,
    distributor: Distributor,
    subflows: Vec<SubflowSender<'a>>,
    version: usize,
    /// Number of legs whose sending direction is closed.
    closed: usize,
}

/// A leg, and the piece that it has not fully taken yet.
struct SubflowSender<'a> {
    subflow: Arc<Subflow>,
    header: [u8; HEADER_LEN],
    /// Bytes of the header that were sent.
    header_sent: usize,
    piece: Option<OutgoingPiece<'a>>,
    busy: bool,
}

/// A piece that is being sent.
pub(crate) struct OutgoingPiece<'a> {
    pub(crate) buffer: Lease<'a>,
    pub(crate) _held: GaugeGuard<'a>,
}

impl<'a> StripeSender<'a> {
    /// Returns a sender whose first `ahead` bytes were already sent over the first leg.
    pub(crate) fn new(bundle: &'a Bundle, ahead: usize) -> Self {
        let mut distributor = Distributor::default();
        if ahead > 0 {
            distributor.begin(0, ahead);
            distributor.piece_written(0);
        }
        Self {
            bundle,
            distributor,
            subflows: Vec::new(),
            version: 0,
            closed: 0,
        }
    }

    /// Returns a leg that would take bytes at once.
    pub(crate) fn free(&mut self) -> io::Result<Option<usize>> {
        self.add_new_subflows();
        let mut problem = None;
        let subflows = &self.subflows;
        let can_write = |n: usize| match subflows[n].subflow.has_room() {
            Ok(room) => room,
            Err(error) => {
                problem = Some(error);
                true
            }
        };
        let free = self.distributor.pick(can_write);
        match problem {
            Some(error) => Err(error),
            None => Ok(free),
        }
    }

    /// Gives the next piece to a free leg.
    pub(crate) fn begin(&mut self, n: usize, piece: OutgoingPiece<'a>) {
        let sender = &mut self.subflows[n];
        sender.subflow.mark_used();
        let header = self.distributor.begin(n, piece.buffer.buffered_len());
        sender.start(header, Some(piece));
    }

    /// Writes to all legs until they block. Returns the number of bytes of the stream that were
    /// taken. A leg that has taken its whole piece is free.
    pub(crate) fn push(&mut self) -> io::Result<usize> {
        let mut pushed = 0;
        for (n, sender) in self.subflows.iter_mut().enumerate().filter(|(_, s)| s.busy) {
            pushed += sender.push()?;
            if !sender.busy {
                self.distributor.piece_written(n);
            }
        }
        Ok(pushed)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.subflows.iter().any(|sender| sender.busy)
    }

    /// Ready when [`StripeSender::push`] may make progress, or, if `idle`, [`StripeSender::free`].
    pub(crate) fn poll_ready(&self, idle: bool, cx: &mut Context<'_>) -> Poll<()> {
        let mut ready = idle && self.bundle.poll_changed(self.version, cx).is_ready();
        for sender in self.subflows.iter().filter(|sender| sender.waits(idle)) {
            ready |= sender.subflow.leg.poll_write_ready(cx).is_ready();
        }
        match ready {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Queues the end marker on every leg that carried bytes; [`StripeSender::push`] sends it.
    pub(crate) fn end(&mut self) {
        self.add_new_subflows();
        for (n, header) in self.distributor.end() {
            self.subflows[n].start(header, None);
        }
    }

    /// Closes the sending direction of every leg that carried bytes, once no leg is busy. Each leg
    /// is closed once only: when the other side has closed too, there is nothing left to close.
    pub(crate) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        for (n, _) in self.distributor.end().into_iter().skip(self.closed) {
            ready!(self.subflows[n].subflow.leg.poll_finish_sending(cx))?;
            self.closed += 1;
        }
        Poll::Ready(Ok(()))
    }

    fn add_new_subflows(&mut self) {
        let updates = self.bundle.updates_since(self.subflows.len());
        for subflow in updates.new {
            if !self.subflows.is_empty() {
                self.distributor.join();
            }
            self.subflows.push(SubflowSender::new(subflow));
        }
        self.version = updates.version;
    }
}

impl<'a> SubflowSender<'a> {
    fn new(subflow: Arc<Subflow>) -> Self {
        Self {
            subflow,
            header: [0; HEADER_LEN],
            header_sent: 0,
            piece: None,
            busy: false,
        }
    }

    fn start(&mut self, header: [u8; HEADER_LEN], piece: Option<OutgoingPiece<'a>>) {
        (self.header, self.header_sent, self.piece, self.busy) = (header, 0, piece, true);
    }

    /// Returns whether the leg waits for room.
    fn waits(&self, idle: bool) -> bool {
        self.busy || (idle && !self.subflow.is_dead())
    }

    /// Returns the number of bytes of the stream that the leg took.
    fn push(&mut self) -> io::Result<usize> {
        let mut pushed = 0;
        match self.push_all(&mut pushed) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(pushed),
        }
    }

    fn push_all(&mut self, pushed: &mut usize) -> io::Result<()> {
        let leg = &self.subflow.leg;
        while self.header_sent < HEADER_LEN {
            let rest = &self.header[self.header_sent..];
            self.header_sent += match self.piece {
                Some(_) => leg.write_more(rest)?,
                None => leg.try_write_vectored(&[io::IoSlice::new(rest)])?,
            };
        }
        if let Some(piece) = &mut self.piece {
            while piece.buffer.buffered_len() > 0 {
                *pushed += leg.drain(&mut piece.buffer)?;
            }
        }
        self.piece = None;
        self.busy = !leg.try_flush()?;
        Ok(())
    }
}
