// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection, as a program reads and writes it.

use super::state::{Shared, State, Waiters, Wakers};
use crate::connection::{CloseReason, Connection, Stats};
use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// An end of a connection: bytes by [`AsyncRead`] and [`AsyncWrite`]. Dropped, what was written still goes, and
/// then the connection is closed.
#[derive(Debug)]
pub struct Stream {
    id: u32,
    shared: Arc<Shared>,
}

impl Stream {
    pub(super) fn new(id: u32, shared: Arc<Shared>) -> Self {
        shared.lock().waiters.entry(id).or_default();
        Self { id, shared }
    }

    /// How it fares; nothing before it is open and after the socket broke.
    #[must_use]
    pub fn stats(&self) -> Option<Stats> {
        let mut state = self.shared.lock();
        Some(state.endpoint.connection(self.id)?.stats())
    }

    /// Where its other end is.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.shared.lock().endpoint.peer_addr(self.id)
    }

    /// Bytes of the longest packet that goes now, with the headers of IPv4 and UDP (IPv6: 20 more).
    #[must_use]
    pub fn packet_len(&self) -> Option<usize> {
        let mut state = self.shared.lock();
        Some(state.endpoint.connection(self.id)?.packet_len())
    }

    /// Whether there is something to read of a stream: `WouldBlock` if nothing is yet, `false` after the other end has closed
    /// the connection.
    pub fn try_peek(&self) -> io::Result<bool> {
        let peeked = self.with_connection(&mut self.shared.lock(), |connection| {
            let over = connection.close_reason().is_some();
            Ok((connection.can_read() || over).then(|| connection.can_read()))
        })?;
        peeked.ok_or(io::ErrorKind::WouldBlock.into())
    }

    /// The address of this end.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local_addr
    }

    /// Reads what is there of a stream: `WouldBlock` if nothing is yet, 0 after the other end has closed the connection.
    pub fn try_read(&self, to: &mut [u8]) -> io::Result<usize> {
        let read =
            self.with_connection(&mut self.shared.lock(), |connection| read(connection, to))?;
        read.ok_or(io::ErrorKind::WouldBlock.into())
    }

    /// Writes what there is room for: `WouldBlock` if there is none.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.with_connection(&mut self.shared.lock(), |connection| {
            write(connection, bytes)
        })?;
        written.ok_or(io::ErrorKind::WouldBlock.into())
    }

    /// Ready when [`Self::try_read`] has something to say.
    pub fn poll_readable(&self, context: &Context<'_>) -> Poll<()> {
        let is_ready = |connection: &mut Connection| {
            let ready = connection.can_read() || connection.close_reason().is_some();
            Ok(ready.then_some(()))
        };
        self.poll(context, READER, is_ready).map(drop)
    }

    /// Ready when [`Self::try_write`] has something to say.
    pub fn poll_writable(&self, context: &Context<'_>) -> Poll<()> {
        let is_ready = |connection: &mut Connection| {
            let ready = connection.send_buffer_free() > 0 || connection.close_reason().is_some();
            Ok(ready.then_some(()))
        };
        self.poll(context, WRITER, is_ready).map(drop)
    }

    /// Ready when all that was written has arrived.
    pub fn poll_flushed(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        self.poll(context, WRITER, |connection| {
            match (connection.is_flushed(), connection.close_reason()) {
                (true, _) => Ok(Some(())),
                (false, Some(end)) => Err(closed_error(end)),
                (false, None) => Ok(None),
            }
        })
    }

    /// Whether it is over: the other end has closed it, this one has, or it is lost. What came may still be read.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let ended = |connection: &mut Connection| Ok(connection.close_reason().map(drop));
        let ended = self.with_connection(&mut self.shared.lock(), ended);
        !matches!(ended, Ok(None))
    }

    /// Ready when it is lost: nothing was heard for too long, or nothing goes over the socket any more.
    pub fn poll_lost(&self, context: &Context<'_>) -> Poll<io::Error> {
        let lost = |connection: &mut Connection| match connection.close_reason() {
            Some(CloseReason::Timeout) => Err(closed_error(CloseReason::Timeout)),
            _ => Ok(None::<io::Error>),
        };
        let lost = self.poll(context, READER, lost);
        lost.map(|lost| lost.unwrap_or_else(|error| error))
    }

    /// Takes no more than so many packets that were not sent, from now on.
    pub fn limit_unsent(&self, packets: u32) {
        let limit = |connection: &mut Connection| {
            connection.limit_unsent(packets);
            Ok(Some(()))
        };
        // One that is over takes nothing.
        let _over = self.with_connection(&mut self.shared.lock(), limit);
    }

    /// Closes it at once: what has not arrived is given up.
    pub fn abort(&self) {
        let abort = |connection: &mut Connection| {
            connection.abort();
            Ok(Some(()))
        };
        // One that is not open has nothing to give up.
        let _ended = self.with_connection(&mut self.shared.lock(), abort);
    }

    /// Does something with the connection, and has it say what follows from that.
    fn with_connection<T>(
        &self,
        state: &mut State,
        act: impl FnOnce(&mut Connection) -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        if let Some(broken) = state.failure {
            return Err(broken.into());
        }
        let before = state.endpoint.deadline();
        let connection = state.endpoint.connection(self.id);
        let done = act(connection.ok_or(io::ErrorKind::NotConnected)?)?;
        state.endpoint.wake(self.id);
        let after = state.endpoint.deadline();
        // The driver knows of all later deadlines.
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.shared.wakeup.notify();
        }
        Ok(done)
    }

    /// The same; if there is nothing to do yet, it is asked again once something has happened.
    fn poll<T>(
        &self,
        context: &Context<'_>,
        slot: WakerSlot,
        act: impl FnOnce(&mut Connection) -> io::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        let mut state = self.shared.lock();
        if let Some(done) = self.with_connection(&mut state, act)? {
            return Poll::Ready(Ok(done));
        }
        match state.waiters.get_mut(&self.id) {
            Some(waiting) => slot(waiting).add(context.waker()),
            None => return Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
        Poll::Pending
    }
}

/// Who waits.
type WakerSlot = fn(&mut Waiters) -> &mut Wakers;

const READER: WakerSlot = |waiting| &mut waiting.readers;
const WRITER: WakerSlot = |waiting| &mut waiting.writers;

/// Nothing if nothing is there yet.
fn read(connection: &mut Connection, to: &mut [u8]) -> io::Result<Option<usize>> {
    let read = connection.read(to);
    match (read, connection.close_reason()) {
        (0, Some(CloseReason::Timeout)) => Err(closed_error(CloseReason::Timeout)),
        (0, None) => Ok(None),
        _ => Ok(Some(read)),
    }
}

/// Nothing if there is no room yet.
fn write(connection: &mut Connection, bytes: &[u8]) -> io::Result<Option<usize>> {
    if let Some(end) = connection.close_reason() {
        return Err(closed_error(end));
    }
    let written = connection.write(bytes);
    Ok((written > 0 || bytes.is_empty()).then_some(written))
}

fn closed_error(end: CloseReason) -> io::Error {
    match end {
        CloseReason::Local => io::ErrorKind::NotConnected.into(),
        CloseReason::Remote => io::ErrorKind::ConnectionReset.into(),
        CloseReason::Timeout => io::ErrorKind::TimedOut.into(),
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = to.initialize_unfilled();
        let read = self.poll(context, READER, |connection| read(connection, bytes));
        read.map_ok(|read| to.advance(read))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(context, WRITER, |connection| write(connection, bytes))
    }

    /// Returns when all that was written has arrived.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flushed(context)
    }

    /// Returns when all that was written has arrived and the other end was told that it is over. UDT knows no half of a
    /// close: nothing more is read after that but what had come.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(context, WRITER, |connection| {
            connection.close();
            match (connection.is_flushed(), connection.close_reason()) {
                (_, Some(CloseReason::Local)) | (true, Some(_)) => Ok(Some(())),
                (false, Some(end)) => Err(closed_error(end)),
                (_, None) => Ok(None),
            }
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let open = state
            .endpoint
            .connection(self.id)
            .is_some_and(|connection| {
                connection.close();
                connection.close_reason().is_none()
            });
        match open {
            // The driver forgets it at its end.
            true => state.detach(self.id),
            false => state.forget(self.id),
        }
        self.shared.wakeup.notify();
    }
}
