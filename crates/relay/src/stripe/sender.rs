// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending half of a bundle: each leg takes pieces at its own rate.

use crate::{
    records::counters::GaugeGuard,
    stripe::bundle::{Bundle, Subflow},
};
use longhaul_linux::pipe_pool::Lease;
use longhaul_protocol::stripe::{Distributor, Frame, HEADER_LEN, PIECE_LEN, PIECE_LEN_MAX};
use longhaul_transport::channel::Channel;
use std::{
    future::poll_fn,
    io,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Sends one stream over the legs of a bundle. Memory: one pipe or buffer for each leg that has not
/// taken its whole piece, with at most [`longhaul_protocol::stripe::PIECE_LEN`] bytes in it.
#[derive(Debug)]
pub(crate) struct StripeSender<'a> {
    bundle: Arc<Bundle>,
    distributor: Distributor,
    subflows: Vec<SubflowSender<'a>>,
    version: usize,
    /// Whether the other relay's bytes have all been received.
    received_all: bool,
    /// Number of further legs whose sending direction is closed.
    closed: usize,
}

/// A leg, and the piece that it has not fully taken yet.
#[derive(Debug)]
struct SubflowSender<'a> {
    subflow: Arc<Subflow>,
    header: [u8; HEADER_LEN],
    /// Bytes of the header that were sent.
    header_sent: usize,
    piece: Option<OutgoingPiece<'a>>,
    busy: bool,
    /// Whether a confirmation is to be sent.
    confirmation_due: bool,
}

/// A piece that is being sent.
#[derive(Debug)]
pub(crate) struct OutgoingPiece<'a> {
    pub(crate) buffer: Lease<'a>,
    pub(crate) _held: Option<GaugeGuard<'a>>,
}

impl<'a> StripeSender<'a> {
    /// Returns a sender for a stream of which `unframed` bytes were sent over the first leg.
    pub(crate) fn new(bundle: &Arc<Bundle>, unframed: u64) -> Self {
        Self {
            bundle: bundle.clone(),
            distributor: Distributor::new(unframed),
            subflows: Vec::new(),
            version: 0,
            received_all: false,
            closed: 0,
        }
    }

    /// Returns a leg that would take bytes at once, and the largest piece for it.
    pub(crate) fn free(&mut self) -> io::Result<Option<(usize, usize)>> {
        self.switch_if_worthwhile()?;
        let piece_len = if self.distributor.is_unframed() {
            PIECE_LEN_MAX as usize
        } else {
            PIECE_LEN
        };
        let distributor = &self.distributor;
        let free = pick_writable(&self.subflows, |can_write| distributor.pick(can_write))?;
        Ok(free.map(|leg| (leg, piece_len)))
    }

    /// Ends the unframed part as soon as several legs are to be used.
    fn switch_if_worthwhile(&mut self) -> io::Result<()> {
        self.update();
        if self.bundle.legs_in_use() == 1 || !self.distributor.is_unframed() {
            return Ok(());
        }
        let distributor = &mut self.distributor;
        let switch = pick_writable(&self.subflows, |can_write| distributor.switch(can_write))?;
        if let Some((announcer, frame)) = switch {
            self.subflows[announcer].subflow.mark_used();
            self.subflows[announcer].start(Some(frame), None);
        }
        Ok(())
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
        self.update();
        self.begin_confirmations();
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
        let mut ready = self.bundle.poll_changed(self.version, cx).is_ready();
        for (n, sender) in self.subflows.iter().enumerate() {
            // Room on a leg that gets nothing now would wake the task again and again.
            let is_wanted = idle && self.distributor.waits_for(n) && !sender.subflow.is_dead();
            if sender.busy || is_wanted {
                ready |= sender.subflow.leg.poll_write_ready(cx).is_ready();
            }
        }
        if ready {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Returns whether the end must wait for the other relay's confirmation.
    fn awaits_confirmation(&self) -> bool {
        self.distributor.awaits_confirmation()
    }

    /// Queues the end marker on every leg that carried bytes; [`StripeSender::push`] sends it.
    fn end(&mut self) {
        for (n, header) in self.distributor.end() {
            self.subflows[n].start(Some(header), None);
        }
    }

    /// Sends the end over every leg that has carried bytes. `on_taken` gets the bytes of the stream that the legs take.
    pub(crate) async fn finish(&mut self, on_taken: impl Fn(usize)) -> io::Result<()> {
        self.push_while(
            |sender| sender.is_busy() || sender.awaits_confirmation(),
            &on_taken,
        )
        .await?;
        self.end();
        self.push_while(Self::is_busy, &on_taken).await?;
        poll_fn(|cx| self.poll_finish_first(cx)).await
    }

    /// Closes the further legs. Until all bytes of the other relay are here, it may wait for a confirmation.
    pub(crate) async fn finish_further_legs(&mut self) -> io::Result<()> {
        self.push_while(|sender| sender.is_busy() || !sender.received_all, |_| {})
            .await?;
        poll_fn(|cx| self.poll_finish_others(cx)).await
    }

    /// Writes to all legs as long as `goes_on` holds.
    async fn push_while(
        &mut self,
        goes_on: impl Fn(&Self) -> bool,
        on_taken: impl Fn(usize),
    ) -> io::Result<()> {
        on_taken(self.push()?);
        while goes_on(self) {
            poll_fn(|cx| self.poll_ready(false, cx)).await;
            on_taken(self.push()?);
        }
        Ok(())
    }

    /// Closes the sending direction of the first leg, once no leg is busy.
    fn poll_finish_first(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.subflows[0].subflow.leg.poll_finish_sending(cx)
    }

    /// Closes the sending direction of the further legs. Each leg is closed once only: when the other side has closed
    /// too, there is nothing left to close.
    fn poll_finish_others(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(sender) = self.subflows.get(self.closed + 1) {
            match ready!(sender.subflow.leg.poll_finish_sending(cx)) {
                Err(error) if sender.subflow.is_used() => return Poll::Ready(Err(error)),
                _ => self.closed += 1,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Learns of new legs, and of what the receiving half has found.
    pub(crate) fn update(&mut self) {
        let updates = self.bundle.updates_since(self.subflows.len());
        for subflow in updates.new {
            if !self.subflows.is_empty() {
                self.distributor.join();
            }
            self.subflows.push(SubflowSender::new(subflow));
        }
        if updates.is_confirmed {
            self.distributor.confirm();
        }
        self.distributor.use_connections(updates.in_use);
        for n in self.bundle.take_confirmations_due() {
            self.subflows[n].confirmation_due = true;
        }
        self.received_all = updates.received_all;
        self.version = updates.version;
    }

    fn begin_confirmations(&mut self) {
        for (n, sender) in self.subflows.iter_mut().enumerate() {
            // A leg may be busy with its end marker, of which the distributor does not know.
            let can_begin = sender.confirmation_due && !sender.busy;
            if can_begin && self.distributor.begin_confirmation(n) {
                sender.subflow.mark_used();
                sender.confirmation_due = false;
                sender.start(Some(Frame::Confirm.encode()), None);
            }
        }
    }
}

/// Calls `pick` with a function that returns whether a leg has room. An error of a leg that carries bytes comes first.
fn pick_writable<T>(
    subflows: &[SubflowSender<'_>],
    pick: impl FnOnce(&mut dyn FnMut(usize) -> bool) -> Option<T>,
) -> io::Result<Option<T>> {
    let mut problem = None;
    let picked = pick(&mut |n| {
        let room = subflows[n].subflow.has_room();
        room.unwrap_or_else(|error| {
            problem = Some(error);
            true
        })
    });
    match problem {
        Some(error) => Err(error),
        None => Ok(picked),
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
            confirmation_due: false,
        }
    }

    /// Starts a header, a piece, or both.
    fn start(&mut self, header: Option<[u8; HEADER_LEN]>, piece: Option<OutgoingPiece<'a>>) {
        self.header_sent = header.map_or(HEADER_LEN, |_| 0);
        self.header = header.unwrap_or_default();
        (self.piece, self.busy) = (piece, true);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::profile::Profile;
    use longhaul_linux::transfer_buffer::{Buffer, TransferBuffer};
    use longhaul_transport::leg::Leg;
    use tokio::net::{TcpListener, TcpStream};

    async fn leg() -> (Leg, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(near, listener.accept());
        (Leg::plain(near.unwrap()), far.unwrap().0)
    }

    fn piece() -> OutgoingPiece<'static> {
        let mut buffer = Buffer::with_capacity(PIECE_LEN);
        buffer.copy_from(&[io::IoSlice::new(&[7; PIECE_LEN])]);
        let buffer = Lease::unpooled(TransferBuffer::Copy(buffer));
        OutgoingPiece {
            buffer,
            _held: None,
        }
    }

    /// Otherwise the task would be woken without end.
    #[tokio::test]
    async fn room_on_a_leg_that_gets_nothing_is_no_reason_to_wake() {
        let ((first, _first_end), (second, _second_end)) = (leg().await, leg().await);
        let bundle = Bundle::new(first, 2, &Profile::default());
        bundle.join(second, None);
        let mut sender = StripeSender::new(&bundle, 0);
        while let Some((n, _)) = sender.free().unwrap() {
            assert_eq!(n, 0, "one leg is in use");
            sender.begin(n, piece());
            sender.push().unwrap();
        }
        let polled = |sender: &StripeSender<'_>| {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            sender.poll_ready(true, &mut cx)
        };
        assert!(polled(&sender).is_pending());
        bundle.use_legs(2);
        assert!(polled(&sender).is_ready(), "a change");
    }
}
