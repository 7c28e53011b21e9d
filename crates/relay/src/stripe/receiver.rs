// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiving half of a bundle: reads headers, and moves the piece that is next.

use crate::{
    leg::window::ReceiveWindow,
    stripe::bundle::{Bundle, Subflow},
};
use longhaul_linux::transfer_buffer::TransferBuffer;
use longhaul_protocol::stripe::{Broken, HEADER_LEN, NextRead, Notice, Reassembler};
use longhaul_transport::{channel::Channel, leg::Leg};
use std::{
    future::poll_fn,
    io,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

/// Merges the bytes of the legs. It reads no byte ahead of its turn, except headers.
#[derive(Debug)]
pub(crate) struct StripeReceiver {
    bundle: Arc<Bundle>,
    reassembler: Reassembler,
    subflows: Vec<Arc<Subflow>>,
    /// Receive window of each leg.
    windows: Vec<ReceiveWindow>,
    version: usize,
}

impl StripeReceiver {
    /// Returns a receiver for a stream of which `unframed` bytes were read from the first leg.
    pub(crate) fn new(bundle: &Arc<Bundle>, unframed: u64) -> Self {
        Self {
            bundle: bundle.clone(),
            reassembler: Reassembler::new(unframed),
            subflows: Vec::new(),
            windows: Vec::new(),
            version: 0,
        }
    }

    /// Fills the buffer from the merged stream, as `Leg::fill` does from a leg.
    pub(crate) fn fill(&mut self, buffer: &mut TransferBuffer, most: usize) -> io::Result<usize> {
        self.read_with(most, |leg, most| leg.fill(buffer, most))
    }

    /// Reads from the merged stream; `Ok(0)` is its end.
    pub(crate) fn try_read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let most = bytes.len();
        self.read_with(most, |leg, most| leg.try_read(&mut bytes[..most]))
    }

    /// Reads from the leg whose bytes are next, by `read`, which gets the number of bytes that it may take.
    fn read_with(
        &mut self,
        most: usize,
        mut read: impl FnMut(&Leg, usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let accepts_joins = self.add_new_subflows();
            if self.reassembler.is_unframed() {
                self.read_headers()?;
            }
            if let Some(next) = self.reassembler.next_read() {
                match self.read_from(next, most, &mut read)? {
                    0 => continue,
                    taken => return Ok(taken),
                }
            }
            if self.reassembler.is_complete() {
                self.bundle.record_received_all();
                return Ok(0);
            }
            if !self.read_headers()? {
                if !accepts_joins {
                    self.reassembler.check_progress().map_err(to_io_error)?;
                }
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
    }

    /// Records that the first leg has ended, unframed.
    pub(crate) fn end_unframed(&mut self) -> io::Result<()> {
        self.bundle.record_received_all();
        self.reassembler.closed(0).map_err(to_io_error)
    }

    /// Ready when [`StripeReceiver::fill`] may make progress.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut ready = self.bundle.poll_changed(self.version, cx).is_ready();
        let next = self.reassembler.next_read();
        if let Some(next) = next {
            ready |= self.is_readable(next.connection, cx);
        }
        if next.is_none() || self.reassembler.is_unframed() {
            ready |= self.is_any_header_readable(cx);
        }
        if ready || self.reassembler.is_complete() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Every leg must be polled, or it would not wake this task.
    fn is_any_header_readable(&self, cx: &mut Context<'_>) -> bool {
        let mut ready = false;
        for n in 0..self.subflows.len() {
            ready |= self.reassembler.missing(n) > 0 && self.is_readable(n, cx);
        }
        ready
    }

    /// Ready when the other relay has closed every leg. Until then it may still have something to confirm. If a socket
    /// is closed here earlier, it answers close_notify (RFC 8446 §6.1) with RST. To the other relay,
    /// this is a broken leg as long as it waits for the end of another leg.
    pub(crate) fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.add_new_subflows();
            while self.read_headers()? {}
            if !self.is_any_header_readable(cx) {
                break;
            }
        }
        let is_open = |n: usize| self.reassembler.missing(n) > 0;
        let mut closed = self.bundle.poll_changed(self.version, cx).is_pending();
        for (n, subflow) in self.subflows.iter().enumerate() {
            closed &= !is_open(n) && (subflow.is_dead() || subflow.leg.poll_closed(cx).is_ready());
        }
        if closed {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    /// Waits until the other relay has ended the stream and closed every leg. Bytes before the end are an error.
    pub(crate) async fn wait_for_end(&mut self) -> io::Result<()> {
        loop {
            match self.try_read(&mut [0; 1]) {
                Ok(0) => break,
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| self.poll_ready(cx)).await;
                }
                Err(error) => return Err(error),
            }
        }
        poll_fn(|cx| self.poll_closed(cx)).await
    }

    fn is_readable(&self, n: usize, cx: &mut Context<'_>) -> bool {
        self.subflows[n].leg.poll_read_ready(cx).is_ready()
    }

    /// Adds new legs. Returns whether more legs may join.
    fn add_new_subflows(&mut self) -> bool {
        let updates = self.bundle.updates_since(self.subflows.len());
        for subflow in updates.new {
            if !self.subflows.is_empty() {
                self.reassembler.join();
            }
            self.windows
                .push(ReceiveWindow::new(&subflow.leg, Instant::now()));
            self.subflows.push(subflow);
        }
        self.version = updates.version;
        updates.accepts_joins
    }

    /// Moves bytes that are next. Returns 0 if the first leg has ended, unframed.
    fn read_from(
        &mut self,
        next: NextRead,
        most: usize,
        read: impl FnOnce(&Leg, usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let most = most.min(next.bytes as usize);
        let leg = &self.subflows[next.connection].leg;
        let taken = read(leg, most)?;
        self.windows[next.connection].count(taken, leg, Instant::now());
        match taken {
            0 => self.reassembler.closed(next.connection),
            taken => self.reassembler.consume(taken),
        }
        .map_err(to_io_error)?;
        Ok(taken)
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
        match self.subflows[n].leg.try_read(wanted) {
            Ok(0) => self.handle_close(n, to_io_error(Broken::CutOff))?,
            Ok(len) => {
                self.subflows[n].mark_used();
                let header = self.reassembler.header(n, &bytes[..len]);
                self.pass_on(n, header.map_err(to_io_error)?);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => self.handle_close(n, error)?,
        }
        Ok(true)
    }

    /// Tells the sending half.
    fn pass_on(&self, n: usize, notice: Option<Notice>) {
        match notice {
            Some(Notice::Switched) => self.bundle.request_confirmation(n),
            Some(Notice::Confirmed) => self.bundle.record_confirmation(),
            None => {}
        }
    }

    /// Handles a closed leg. Only a leg that never carried anything may close.
    fn handle_close(&mut self, n: usize, error: io::Error) -> io::Result<()> {
        self.reassembler.closed(n).map_err(|_| error)?;
        if !self.subflows[n].is_used() {
            self.subflows[n].mark_dead();
        }
        Ok(())
    }
}

/// Converts a protocol violation to an error: an abnormal end, as RST is.
fn to_io_error(broken: Broken) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, broken)
}
