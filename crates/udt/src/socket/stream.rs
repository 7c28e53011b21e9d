// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection, as a program reads and writes it.

use super::Shared;
use crate::{
    connection::{Connection, End},
    sending::Counts,
};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use units::Time;

/// An end of a connection: bytes by [`AsyncRead`] and [`AsyncWrite`], or messages. Dropped, what was written still goes, and
/// then the connection is closed.
#[derive(Debug)]
pub struct Stream {
    id: u32,
    shared: Arc<Shared>,
}

impl Stream {
    pub(super) fn new(id: u32, shared: Arc<Shared>) -> Self {
        shared.lock().waiting.entry(id).or_default();
        Self { id, shared }
    }

    /// What its sending half has done, and the smoothed round trip; nothing before it is open and after the socket broke.
    #[must_use]
    pub fn counts(&self) -> Option<(Counts, Time)> {
        let mut state = self.shared.lock();
        let connection = state.endpoint.connection(self.id)?;
        Some((connection.counts(), connection.rtt()))
    }

    /// Bytes of the longest packet that goes now, with the headers of IPv4 and UDP (IPv6: 20 more).
    #[must_use]
    pub fn packet_len(&self) -> Option<usize> {
        let mut state = self.shared.lock();
        Some(state.endpoint.connection(self.id)?.packet_len())
    }

    /// Does something with the connection, and has it say what follows from that. If there is nothing to do yet, it is
    /// asked again once something has happened.
    fn poll<T>(
        &self,
        context: &Context<'_>,
        slot: Slot,
        act: impl FnOnce(&mut Connection) -> io::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        let mut state = self.shared.lock();
        if let Some(broken) = state.broken {
            return Poll::Ready(Err(broken.into()));
        }
        let before = state.endpoint.deadline();
        let connection = state.endpoint.connection(self.id);
        let done = act(connection.ok_or(io::ErrorKind::NotConnected)?)?;
        state.endpoint.wake(self.id);
        let after = state.endpoint.deadline();
        // The driver knows of all later deadlines.
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.shared.wakeup.call();
        }
        match (done, state.waiting.get_mut(&self.id)) {
            (Some(done), _) => Poll::Ready(Ok(done)),
            (None, Some(waiting)) => {
                *slot(waiting) = Some(context.waker().clone());
                Poll::Pending
            }
            (None, None) => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Sends a message, once there is room for all of it; it is given up if it has not arrived after `within`.
    pub async fn send(
        &self,
        message: &[u8],
        in_order: bool,
        within: Option<Time>,
    ) -> io::Result<()> {
        std::future::poll_fn(|context| {
            let until = within.map_or(Time::MAX, |within| self.shared.now() + within);
            self.poll(context, WRITER, |connection| match connection.end() {
                Some(end) => Err(ended(end)),
                None => Ok(connection
                    .write_message(message, in_order, until)
                    .then_some(())),
            })
        })
        .await
    }

    /// Receives a message into `to`, which it replaces; `false` after the other end has closed the connection.
    pub async fn receive(&self, to: &mut Vec<u8>) -> io::Result<bool> {
        std::future::poll_fn(|context| {
            self.poll(context, READER, |connection| {
                match (connection.read_message(to), connection.end()) {
                    (true, _) => Ok(Some(true)),
                    (false, Some(End::Silence)) => Err(ended(End::Silence)),
                    (false, Some(_)) => Ok(Some(false)),
                    (false, None) => Ok(None),
                }
            })
        })
        .await
    }
}

/// Who waits.
type Slot = fn(&mut super::Waiting) -> &mut Option<Waker>;

const READER: Slot = |waiting| &mut waiting.reader;
const WRITER: Slot = |waiting| &mut waiting.writer;

fn ended(end: End) -> io::Error {
    match end {
        End::Here => io::ErrorKind::NotConnected.into(),
        End::There => io::ErrorKind::ConnectionReset.into(),
        End::Silence => io::ErrorKind::TimedOut.into(),
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll(context, READER, |connection| {
            let read = connection.read(to.initialize_unfilled());
            to.advance(read);
            match (read, connection.end()) {
                (0, Some(End::Silence)) => Err(ended(End::Silence)),
                (0, None) => Ok(None),
                _ => Ok(Some(())),
            }
        })
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(context, WRITER, |connection| match connection.end() {
            Some(end) => Err(ended(end)),
            None => {
                let written = connection.write(bytes);
                Ok((written > 0 || bytes.is_empty()).then_some(written))
            }
        })
    }

    /// Returns when all that was written has arrived.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(context, WRITER, |connection| {
            match (connection.is_flushed(), connection.end()) {
                (true, _) => Ok(Some(())),
                (false, Some(end)) => Err(ended(end)),
                (false, None) => Ok(None),
            }
        })
    }

    /// Returns when all that was written has arrived and the other end was told that it is over. UDT knows no half of a
    /// close: nothing more is read after that but what had come.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(context, WRITER, |connection| {
            connection.close();
            match (connection.is_flushed(), connection.end()) {
                (_, Some(End::Here)) | (true, Some(_)) => Ok(Some(())),
                (false, Some(end)) => Err(ended(end)),
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
                connection.end().is_none()
            });
        match open {
            // The driver forgets it at its end.
            true => state.leave(self.id),
            false => state.forget(self.id),
        }
        self.shared.wakeup.call();
    }
}
