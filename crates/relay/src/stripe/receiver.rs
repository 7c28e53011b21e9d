// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiving half of a bundle: reads headers, and moves the piece that is next.

use crate::stripe::bundle::{Bundle, Subflow};
use longhaul_linux::transfer_buffer::TransferBuffer;
use longhaul_protocol::stripe::HEADER_LEN;
use longhaul_protocol::stripe::{Broken, NextRead, Reassembler};
use longhaul_transport::channel::Channel;
use std::{
    io,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Merges the bytes of the legs. It reads no byte ahead of its turn, except headers.
#[derive(Debug)]
pub(crate) struct StripeReceiver {
    reassembler: Reassembler,
    subflows: Vec<Arc<Subflow>>,
    /// Bytes of the first leg that were read behind the request and are not used yet.
    early_bytes: Vec<u8>,
    version: usize,
    /// Number of legs, from the first on, whose close is complete or not needed.
    closed: usize,
}

impl StripeReceiver {
    pub(crate) fn new(early_bytes: Vec<u8>) -> Self {
        Self {
            reassembler: Reassembler::default(),
            subflows: Vec::new(),
            early_bytes,
            version: 0,
            closed: 0,
        }
    }

    /// Returns whether the next bytes are in user space already, from where a pipe can't take them.
    pub(crate) fn wants_copy(&self) -> bool {
        !self.early_bytes.is_empty()
    }

    /// Fills the buffer from the merged stream, as `Leg::fill` does from a leg.
    pub(crate) fn fill(
        &mut self,
        bundle: &Bundle,
        buffer: &mut TransferBuffer,
        most: usize,
    ) -> io::Result<usize> {
        loop {
            let accepts_joins = self.add_new_subflows(bundle);
            if self.reassembler.is_complete() {
                return Ok(0);
            }
            if let Some(next) = self.reassembler.next_read() {
                return self.fill_from(next, buffer, most);
            }
            if !self.read_headers()? {
                if !accepts_joins {
                    self.reassembler.check_progress().map_err(to_io_error)?;
                }
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
    }

    /// Ready when [`StripeReceiver::fill`] may make progress.
    pub(crate) fn poll_ready(&self, bundle: &Bundle, cx: &mut Context<'_>) -> Poll<()> {
        let mut ready = bundle.poll_changed(self.version, cx).is_ready();
        match self.reassembler.next_read() {
            Some(next) => ready |= self.is_readable(next.connection, cx),
            // Every leg must be polled, or it would not wake this task.
            None => {
                for n in 0..self.subflows.len() {
                    ready |= self.reassembler.missing(n) > 0 && self.is_readable(n, cx);
                }
            }
        }
        match ready || self.reassembler.is_complete() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Ready when the other relay has closed every leg that carried an end marker. If a socket is
    /// closed here earlier, it answers close_notify (RFC 8446 §6.1) with RST. To the other relay,
    /// this is a broken leg as long as it waits for the end of another leg.
    pub(crate) fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(subflow) = self.subflows.get(self.closed) {
            if self.reassembler.has_ended(self.closed) {
                ready!(subflow.leg.poll_closed(cx));
            }
            self.closed += 1;
        }
        Poll::Ready(())
    }

    fn is_readable(&self, n: usize, cx: &mut Context<'_>) -> bool {
        let has_early = n == 0 && !self.early_bytes.is_empty();
        has_early || self.subflows[n].leg.poll_read_ready(cx).is_ready()
    }

    /// Adds new legs. Returns whether more legs may join.
    fn add_new_subflows(&mut self, bundle: &Bundle) -> bool {
        let updates = bundle.updates_since(self.subflows.len());
        for subflow in updates.new {
            if !self.subflows.is_empty() {
                self.reassembler.join();
            }
            self.subflows.push(subflow);
        }
        self.version = updates.version;
        updates.accepts_joins
    }

    /// Moves bytes of the piece that is next.
    fn fill_from(
        &mut self,
        next: NextRead,
        buffer: &mut TransferBuffer,
        most: usize,
    ) -> io::Result<usize> {
        let most = most.min(next.bytes as usize);
        let filled = match next.connection {
            0 if !self.early_bytes.is_empty() => buffer.fill_with(most, |bytes| {
                let len = bytes.len().min(self.early_bytes.len());
                bytes[..len].copy_from_slice(&self.early_bytes[..len]);
                self.early_bytes.drain(..len);
                Ok(len)
            })?,
            n => self.subflows[n].leg.fill(buffer, most)?,
        };
        if filled == 0 {
            return Err(to_io_error(Broken::CutOff));
        }
        self.reassembler.consume(filled).map_err(to_io_error)?;
        Ok(filled)
    }

    /// Reads available header bytes. Returns whether there were any.
    fn read_headers(&mut self) -> io::Result<bool> {
        let mut any = false;
        for n in 0..self.subflows.len() {
            any |= self.read_header(n)?;
        }
        Ok(any)
    }

    fn read_header(&mut self, n: usize) -> io::Result<bool> {
        let mut bytes = [0; HEADER_LEN];
        let wanted = &mut bytes[..self.reassembler.missing(n)];
        if wanted.is_empty() {
            return Ok(false);
        }
        match self.read(n, wanted) {
            Ok(0) => self.handle_close(n, to_io_error(Broken::CutOff))?,
            Ok(len) => {
                self.subflows[n].mark_used();
                self.reassembler
                    .header(n, &bytes[..len])
                    .map_err(to_io_error)?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => self.handle_close(n, error)?,
        }
        Ok(true)
    }

    /// Handles a closed leg. Only a leg that never carried anything may close.
    fn handle_close(&mut self, n: usize, error: io::Error) -> io::Result<()> {
        self.reassembler.closed(n).map_err(|_| error)?;
        if !self.subflows[n].is_used() {
            self.subflows[n].mark_dead();
        }
        Ok(())
    }

    fn read(&mut self, n: usize, bytes: &mut [u8]) -> io::Result<usize> {
        if n > 0 || self.early_bytes.is_empty() {
            return self.subflows[n].leg.try_read(bytes);
        }
        let len = bytes.len().min(self.early_bytes.len());
        bytes[..len].copy_from_slice(&self.early_bytes[..len]);
        self.early_bytes.drain(..len);
        Ok(len)
    }
}

/// Converts a protocol violation to an error: an abnormal end, as RST is.
fn to_io_error(broken: Broken) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, broken)
}
