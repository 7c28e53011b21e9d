// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving half of a trunk: reads headers, and moves the piece that is next.

use crate::stripe::trunk::{Strand, Trunk};
use longhaul_linux::conduit::Conduit;
use longhaul_protocol::stripe::HEADER_LEN;
use longhaul_protocol::stripe::{Broken, Gather, Turn};
use longhaul_transport::channel::Channel;
use std::{
    io,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Merges what the legs bring. It reads no byte ahead of its turn but headers.
#[derive(Debug)]
pub(crate) struct Gatherer {
    gather: Gather,
    strands: Vec<Arc<Strand>>,
    /// Of the first leg, read behind the request and not used yet.
    ahead: Vec<u8>,
    version: usize,
    /// Legs, from the first on, that need not be waited for any more at the end.
    closed: usize,
}

impl Gatherer {
    pub(crate) fn new(ahead: Vec<u8>) -> Self {
        Self {
            gather: Gather::default(),
            strands: Vec::new(),
            ahead,
            version: 0,
            closed: 0,
        }
    }

    /// Whether the next bytes are in user space already, where a pipe can't take them.
    pub(crate) fn wants_copy(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// As `Leg::fill`, of the merged stream.
    pub(crate) fn fill(
        &mut self,
        trunk: &Trunk,
        conduit: &mut Conduit,
        most: usize,
    ) -> io::Result<usize> {
        loop {
            let open = self.look_for_joins(trunk);
            if self.gather.is_complete() {
                return Ok(0);
            }
            if let Some(turn) = self.gather.turn() {
                return self.take(turn, conduit, most);
            }
            if !self.read_headers()? {
                if !open {
                    self.gather.check_progress().map_err(abnormal)?;
                }
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
    }

    /// Ready when [`Gatherer::fill`] is worth a try.
    pub(crate) fn poll_ready(&self, trunk: &Trunk, cx: &mut Context<'_>) -> Poll<()> {
        let mut ready = trunk.poll_changed(self.version, cx).is_ready();
        match self.gather.turn() {
            Some(turn) => ready |= self.has_some(turn.connection, cx),
            // Every one must be asked, or it would not wake this task.
            None => {
                for n in 0..self.strands.len() {
                    ready |= self.gather.missing(n) > 0 && self.has_some(n, cx);
                }
            }
        }
        match ready || self.gather.is_complete() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Ready when every leg that brought an end is closed by the other relay, too. A socket that is closed
    /// here before that answers close_notify (RFC 8446 §6.1) with RST, and to the other relay this is a broken
    /// leg as long as it waits for another one's end.
    pub(crate) fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(strand) = self.strands.get(self.closed) {
            if self.gather.has_ended(self.closed) {
                ready!(strand.leg.poll_closed(cx));
            }
            self.closed += 1;
        }
        Poll::Ready(())
    }

    fn has_some(&self, n: usize, cx: &mut Context<'_>) -> bool {
        let ahead = n == 0 && !self.ahead.is_empty();
        ahead || self.strands[n].leg.poll_read_ready(cx).is_ready()
    }

    /// Returns whether more may join.
    fn look_for_joins(&mut self, trunk: &Trunk) -> bool {
        let view = trunk.look(self.strands.len());
        for strand in view.new {
            if !self.strands.is_empty() {
                self.gather.join();
            }
            self.strands.push(strand);
        }
        self.version = view.version;
        view.open
    }

    /// Moves bytes of the piece that is next.
    fn take(&mut self, turn: Turn, conduit: &mut Conduit, most: usize) -> io::Result<usize> {
        let most = most.min(turn.bytes as usize);
        let taken = match turn.connection {
            0 if !self.ahead.is_empty() => conduit.fill_by(most, |bytes| {
                let len = bytes.len().min(self.ahead.len());
                bytes[..len].copy_from_slice(&self.ahead[..len]);
                self.ahead.drain(..len);
                Ok(len)
            })?,
            n => self.strands[n].leg.fill(conduit, most)?,
        };
        if taken == 0 {
            return Err(abnormal(Broken::CutOff));
        }
        self.gather.took(taken).map_err(abnormal)?;
        Ok(taken)
    }

    /// Reads what is there of headers; returns whether that was anything.
    fn read_headers(&mut self) -> io::Result<bool> {
        let mut any = false;
        for n in 0..self.strands.len() {
            any |= self.read_header(n)?;
        }
        Ok(any)
    }

    fn read_header(&mut self, n: usize) -> io::Result<bool> {
        let mut bytes = [0; HEADER_LEN];
        let wanted = &mut bytes[..self.gather.missing(n)];
        if wanted.is_empty() {
            return Ok(false);
        }
        match self.read(n, wanted) {
            Ok(0) => self.closed(n, abnormal(Broken::CutOff))?,
            Ok(len) => {
                self.strands[n].use_it();
                self.gather.header(n, &bytes[..len]).map_err(abnormal)?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => self.closed(n, error)?,
        }
        Ok(true)
    }

    /// A leg that never carried anything may leave.
    fn closed(&mut self, n: usize, error: io::Error) -> io::Result<()> {
        self.gather.closed(n).map_err(|_| error)?;
        if !self.strands[n].is_used() {
            self.strands[n].give_up();
        }
        Ok(())
    }

    fn read(&mut self, n: usize, bytes: &mut [u8]) -> io::Result<usize> {
        if n > 0 || self.ahead.is_empty() {
            return self.strands[n].leg.try_read(bytes);
        }
        let len = bytes.len().min(self.ahead.len());
        bytes[..len].copy_from_slice(&self.ahead[..len]);
        self.ahead.drain(..len);
        Ok(len)
    }
}

/// What the other relay broke is an abnormal end, as RST is.
fn abnormal(broken: Broken) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, broken)
}
