// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiving half of a bundle: reads headers, and moves the piece that is next.

use crate::stripe::bundle::{Bundle, Subflow};
use longhaul_linux::conduit::Conduit;
use longhaul_protocol::stripe::HEADER_LEN;
use longhaul_protocol::stripe::{Broken, NextRead, StripeReceiver};
use longhaul_transport::channel::Channel;
use std::{
    io,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Merges the bytes of the legs. It reads no byte ahead of its turn, except headers.
#[derive(Debug)]
pub(crate) struct StripeReceiver {
    gather: StripeReceiver,
    subflows: Vec<Arc<Subflow>>,
    /// Bytes of the first leg that were read behind the request and are not used yet.
    early_bytes: Vec<u8>,
    version: usize,
    /// Number of legs, from the first on, whose close is complete or not needed.
    closed: usize,
}

impl StripeReceiver {
    pub(crate) fn new(ahead: Vec<u8>) -> Self {
        Self {
            gather: StripeReceiver::default(),
            strands: Vec::new(),
            ahead,
            version: 0,
            closed: 0,
        }
    }

    /// Returns whether the next bytes are in user space already, from where a pipe can't take them.
    pub(crate) fn wants_copy(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Fills the conduit from the merged stream, as `Leg::fill` does from a leg.
    pub(crate) fn fill(
        &mut self,
        trunk: &Bundle,
        conduit: &mut Conduit,
        most: usize,
    ) -> io::Result<usize> {
        loop {
            let open = self.look_for_joins(trunk);
            if self.gather.is_complete() {
                return Ok(0);
            }
            if let Some(turn) = self.gather.next_read() {
                return self.take(turn, conduit, most);
            }
            if !self.read_headers()? {
                if !open {
                    self.gather.check_progress().map_err(to_io_error)?;
                }
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
    }

    /// Ready when [`StripeReceiver::fill`] may make progress.
    pub(crate) fn poll_ready(&self, trunk: &Bundle, cx: &mut Context<'_>) -> Poll<()> {
        let mut ready = trunk.poll_changed(self.version, cx).is_ready();
        match self.gather.next_read() {
            Some(turn) => ready |= self.has_some(turn.connection, cx),
            // Every leg must be polled, or it would not wake this task.
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

    /// Ready when the other relay has closed every leg that carried an end marker. If a socket is
    /// closed here earlier, it answers close_notify (RFC 8446 §6.1) with RST. To the other relay,
    /// this is a broken leg as long as it waits for the end of another leg.
    pub(crate) fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(strand) = self.strands.get(self.closed) {
            if self.gather.has_ended(self.closed) {
                ready!(strand.leg.poll_closed(cx));
            }
            self.closed += 1;
        }
        Poll::Ready(())
    }

    fn is_readable(&self, n: usize, cx: &mut Context<'_>) -> bool {
        let ahead = n == 0 && !self.ahead.is_empty();
        ahead || self.strands[n].leg.poll_read_ready(cx).is_ready()
    }

    /// Adds new legs. Returns whether more legs may join.
    fn add_new_subflows(&mut self, trunk: &Bundle) -> bool {
        let updates = trunk.updates_since(self.strands.len());
        for strand in updates.new {
            if !self.strands.is_empty() {
                self.gather.join();
            }
            self.strands.push(strand);
        }
        self.version = updates.version;
        updates.open
    }

    /// Moves bytes of the piece that is next.
    fn fill_from_turn(
        &mut self,
        turn: NextRead,
        conduit: &mut Conduit,
        most: usize,
    ) -> io::Result<usize> {
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
            return Err(to_io_error(Broken::CutOff));
        }
        self.gather.consume(taken).map_err(to_io_error)?;
        Ok(taken)
    }

    /// Reads available header bytes. Returns whether there were any.
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
            Ok(0) => self.closed(n, to_io_error(Broken::CutOff))?,
            Ok(len) => {
                self.strands[n].mark_used();
                self.gather.header(n, &bytes[..len]).map_err(to_io_error)?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => self.closed(n, error)?,
        }
        Ok(true)
    }

    /// Handles a closed leg. Only a leg that never carried anything may close.
    fn handle_close(&mut self, n: usize, error: io::Error) -> io::Result<()> {
        self.gather.closed(n).map_err(|_| error)?;
        if !self.strands[n].is_used() {
            self.strands[n].mark_dead();
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

/// Converts a protocol violation to an error: an abnormal end, as RST is.
fn to_io_error(broken: Broken) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, broken)
}
