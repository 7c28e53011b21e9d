// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending half of a bundle: each leg takes pieces at its own rate.

use crate::{
    records::counters::Guard,
    stripe::trunk::{Strand, Trunk},
};
use longhaul_linux::pipe_pool::Lease;
use longhaul_protocol::stripe::HEADER_LEN;
use longhaul_protocol::stripe::Spread;
use longhaul_transport::channel::Channel;
use std::{
    io,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Sends one stream over the legs of a bundle. Memory: one pipe or buffer for each leg that has not
/// taken its whole piece, with at most [`longhaul_protocol::stripe::PIECE_LEN`] bytes in it.
pub(crate) struct Spreader<'a> {
    trunk: &'a Trunk,
    spread: Spread,
    lines: Vec<Line<'a>>,
    version: usize,
    /// Number of legs whose sending direction is closed.
    closed: usize,
}

/// A leg, and the piece that it has not fully taken yet.
struct Line<'a> {
    strand: Arc<Strand>,
    header: [u8; HEADER_LEN],
    /// Bytes of the header that were sent.
    said: usize,
    load: Option<Load<'a>>,
    busy: bool,
}

/// A piece that is being sent.
pub(crate) struct Load<'a> {
    pub(crate) conduit: Lease<'a>,
    pub(crate) _held: Guard<'a>,
}

impl<'a> Spreader<'a> {
    /// Returns a sender whose first `ahead` bytes were already sent over the first leg.
    pub(crate) fn new(trunk: &'a Trunk, ahead: usize) -> Self {
        let mut spread = Spread::default();
        if ahead > 0 {
            spread.begin(0, ahead);
            spread.finished(0);
        }
        Self {
            trunk,
            spread,
            lines: Vec::new(),
            version: 0,
            closed: 0,
        }
    }

    /// Returns a leg that would take bytes at once.
    pub(crate) fn free(&mut self) -> io::Result<Option<usize>> {
        self.look_for_joins();
        let mut problem = None;
        let lines = &self.lines;
        let can_write = |n: usize| match lines[n].strand.has_room() {
            Ok(room) => room,
            Err(error) => {
                problem = Some(error);
                true
            }
        };
        let free = self.spread.pick(can_write);
        match problem {
            Some(error) => Err(error),
            None => Ok(free),
        }
    }

    /// Gives the next piece to a free leg.
    pub(crate) fn begin(&mut self, n: usize, load: Load<'a>) {
        let line = &mut self.lines[n];
        line.strand.use_it();
        let header = self.spread.begin(n, load.conduit.held());
        line.say(header, Some(load));
    }

    /// Writes to all legs until they block. Returns the number of bytes of the stream that were
    /// taken. A leg that has taken its whole piece is free.
    pub(crate) fn push(&mut self) -> io::Result<usize> {
        let mut pushed = 0;
        for (n, line) in self.lines.iter_mut().enumerate().filter(|(_, l)| l.busy) {
            pushed += line.push()?;
            if !line.busy {
                self.spread.finished(n);
            }
        }
        Ok(pushed)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.lines.iter().any(|line| line.busy)
    }

    /// Ready when [`Spreader::push`] may make progress, or, if `idle`, [`Spreader::free`].
    pub(crate) fn poll_ready(&self, idle: bool, cx: &mut Context<'_>) -> Poll<()> {
        let mut ready = idle && self.trunk.poll_changed(self.version, cx).is_ready();
        for line in self.lines.iter().filter(|line| line.waits(idle)) {
            ready |= line.strand.leg.poll_write_ready(cx).is_ready();
        }
        match ready {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Queues the end marker on every leg that carried bytes; [`Spreader::push`] sends it.
    pub(crate) fn end(&mut self) {
        self.look_for_joins();
        for (n, header) in self.spread.end() {
            self.lines[n].say(header, None);
        }
    }

    /// Closes the sending direction of every leg that carried bytes, once no leg is busy. Each leg
    /// is closed once only: when the other side has closed too, there is nothing left to close.
    pub(crate) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        for (n, _) in self.spread.end().into_iter().skip(self.closed) {
            ready!(self.lines[n].strand.leg.poll_finish_sending(cx))?;
            self.closed += 1;
        }
        Poll::Ready(Ok(()))
    }

    fn look_for_joins(&mut self) {
        let view = self.trunk.look(self.lines.len());
        for strand in view.new {
            if !self.lines.is_empty() {
                self.spread.join();
            }
            self.lines.push(Line::new(strand));
        }
        self.version = view.version;
    }
}

impl<'a> Line<'a> {
    fn new(strand: Arc<Strand>) -> Self {
        Self {
            strand,
            header: [0; HEADER_LEN],
            said: 0,
            load: None,
            busy: false,
        }
    }

    fn say(&mut self, header: [u8; HEADER_LEN], load: Option<Load<'a>>) {
        (self.header, self.said, self.load, self.busy) = (header, 0, load, true);
    }

    /// Returns whether the leg waits for room.
    fn waits(&self, idle: bool) -> bool {
        self.busy || (idle && !self.strand.is_dead())
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
        let leg = &self.strand.leg;
        while self.said < HEADER_LEN {
            let rest = &self.header[self.said..];
            self.said += match self.load {
                Some(_) => leg.announce(rest)?,
                None => leg.try_write_vectored(&[io::IoSlice::new(rest)])?,
            };
        }
        if let Some(load) = &mut self.load {
            while load.conduit.held() > 0 {
                *pushed += leg.drain(&mut load.conduit)?;
            }
        }
        self.load = None;
        self.busy = !leg.try_flush()?;
        Ok(())
    }
}
