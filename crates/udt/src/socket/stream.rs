// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stream of an application over one connection.

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

/// Byte stream over a connection, with [`AsyncRead`] and [`AsyncWrite`]. After a drop, written data is still sent,
/// and then the connection is closed.
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

    /// Returns the statistics; `None` before the connection is open and after the socket broke.
    #[must_use]
    pub fn stats(&self) -> Option<Stats> {
        let mut state = self.shared.lock();
        Some(state.endpoint.connection(self.id)?.stats())
    }

    /// Returns the peer's address; `None` once the connection is gone.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.shared.lock().endpoint.peer_addr(self.id)
    }

    /// Returns the maximum length of a packet at present, in bytes with the headers of IPv4 and UDP (IPv6: 20 more).
    #[must_use]
    pub fn packet_len(&self) -> Option<usize> {
        let mut state = self.shared.lock();
        Some(state.endpoint.connection(self.id)?.packet_len())
    }

    /// Whether there are bytes to read: `WouldBlock` if none have arrived yet, `false` after the connection closed.
    pub fn try_peek(&self) -> io::Result<bool> {
        let peeked = self.with_connection(&mut self.shared.lock(), |connection| {
            let closed = connection.close_reason().is_some();
            Ok((connection.can_read() || closed).then(|| connection.can_read()))
        })?;
        peeked.ok_or(io::ErrorKind::WouldBlock.into())
    }

    /// Returns the local address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local_addr
    }

    /// Reads bytes that arrived: `WouldBlock` if there are none yet, 0 after the peer closed the connection.
    pub fn try_read(&self, to: &mut [u8]) -> io::Result<usize> {
        let read =
            self.with_connection(&mut self.shared.lock(), |connection| read(connection, to))?;
        read.ok_or(io::ErrorKind::WouldBlock.into())
    }

    /// Writes as much as the send buffer has space for: `WouldBlock` if it is full.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.with_connection(&mut self.shared.lock(), |connection| {
            write(connection, bytes)
        })?;
        written.ok_or(io::ErrorKind::WouldBlock.into())
    }

    /// Ready when [`Self::try_read`] would not block.
    pub fn poll_readable(&self, context: &Context<'_>) -> Poll<()> {
        let is_ready = |connection: &mut Connection| {
            let ready = connection.can_read() || connection.close_reason().is_some();
            Ok(ready.then_some(()))
        };
        self.poll(context, READER, is_ready).map(drop)
    }

    /// Ready when [`Self::try_write`] would not block.
    pub fn poll_writable(&self, context: &Context<'_>) -> Poll<()> {
        let is_ready = |connection: &mut Connection| {
            let ready = connection.send_buffer_free() > 0 || connection.close_reason().is_some();
            Ok(ready.then_some(()))
        };
        self.poll(context, WRITER, is_ready).map(drop)
    }

    /// Ready when all written data is acknowledged.
    pub fn poll_flushed(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        self.poll(context, WRITER, |connection| {
            match (connection.is_flushed(), connection.close_reason()) {
                (true, _) => Ok(Some(())),
                (false, Some(reason)) => Err(closed_error(reason)),
                (false, None) => Ok(None),
            }
        })
    }

    /// Whether the connection closed: by the peer, here, or by a timeout. Data that arrived can still be read.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let ended = |connection: &mut Connection| Ok(connection.close_reason().map(drop));
        let ended = self.with_connection(&mut self.shared.lock(), ended);
        !matches!(ended, Ok(None))
    }

    /// Ready with the error when the connection timed out, the peer's port was closed or the socket broke.
    pub fn poll_lost(&self, context: &Context<'_>) -> Poll<io::Error> {
        let lost = |connection: &mut Connection| match connection.close_reason() {
            Some(reason) if reason.is_failure() => Err(closed_error(reason)),
            _ => Ok(None::<io::Error>),
        };
        let lost = self.poll(context, READER, lost);
        lost.map(|lost| lost.unwrap_or_else(|error| error))
    }

    /// Limits the unsent packets of the send buffer.
    pub fn limit_unsent(&self, packets: u32) {
        let limit = |connection: &mut Connection| {
            connection.limit_unsent(packets);
            Ok(Some(()))
        };
        // A closed connection accepts no data.
        let _closed = self.with_connection(&mut self.shared.lock(), limit);
    }

    /// Closes the connection at once and gives up unacknowledged data.
    pub fn abort(&self) {
        let abort = |connection: &mut Connection| {
            connection.abort();
            Ok(Some(()))
        };
        // A connection that is not open has no data to give up.
        let _ended = self.with_connection(&mut self.shared.lock(), abort);
    }

    /// Applies `act` to the connection and wakes the driver if its deadline moved forward. Returns `None` if `act`
    /// would block.
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
        // The driver wakes up for later deadlines by itself.
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.shared.wakeup.notify();
        }
        Ok(done)
    }

    /// Applies `act` as [`Self::with_connection`] does, and registers the task's waker if it would block.
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

/// Selects the waiters of an operation.
type WakerSlot = fn(&mut Waiters) -> &mut Wakers;

const READER: WakerSlot = |waiting| &mut waiting.readers;
const WRITER: WakerSlot = |waiting| &mut waiting.writers;

/// Reads bytes; `None` if there are none yet.
fn read(connection: &mut Connection, to: &mut [u8]) -> io::Result<Option<usize>> {
    let read = connection.read(to);
    match (read, connection.close_reason()) {
        (0, Some(reason)) if reason.is_failure() => Err(closed_error(reason)),
        (0, None) => Ok(None),
        _ => Ok(Some(read)),
    }
}

/// Writes bytes; `None` if the send buffer is full.
fn write(connection: &mut Connection, bytes: &[u8]) -> io::Result<Option<usize>> {
    if let Some(reason) = connection.close_reason() {
        return Err(closed_error(reason));
    }
    let written = connection.write(bytes);
    Ok((written > 0 || bytes.is_empty()).then_some(written))
}

fn closed_error(reason: CloseReason) -> io::Error {
    match reason {
        CloseReason::Local => io::ErrorKind::NotConnected.into(),
        CloseReason::Remote => io::ErrorKind::ConnectionReset.into(),
        CloseReason::Timeout => io::ErrorKind::TimedOut.into(),
        CloseReason::Refused => {
            let message = "the UDT program there ended (ICMP port unreachable)";
            io::Error::new(io::ErrorKind::ConnectionReset, message)
        }
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

    /// Ready when all written data is acknowledged.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flushed(context)
    }

    /// Ready when all written data is acknowledged and the peer got the shutdown. UDT cannot close one direction
    /// only: afterwards only data that had already arrived can be read.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(context, WRITER, |connection| {
            connection.close();
            match (connection.is_flushed(), connection.close_reason()) {
                (_, Some(CloseReason::Local)) | (true, Some(_)) => Ok(Some(())),
                (false, Some(reason)) => Err(closed_error(reason)),
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
        if open {
            state.detach(self.id);
        } else {
            state.remove(self.id);
        }
        self.shared.wakeup.notify();
    }
}
