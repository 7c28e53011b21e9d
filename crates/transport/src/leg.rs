// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leg: one connection between two neighbouring relays or endpoints, over TCP, or TLS over TCP or UDT. A leg without
//! TLS is only the socket, so that it costs no more.

use crate::{
    channel::{Channel, first_nonempty},
    tls::Tls,
    transport::TransportStream,
};
use longhaul_linux::transfer_buffer::TransferBuffer;
use std::{
    future::poll_fn,
    io,
    sync::Arc,
    task::{Context, Poll},
};

/// Leg; clones share it.
#[derive(Debug, Clone)]
pub struct Leg {
    transport: TransportStream,
    tls: Option<Arc<Tls>>,
}

impl Leg {
    /// Creates a leg without TLS.
    pub fn plain(stream: impl Into<TransportStream>) -> Self {
        Self {
            transport: stream.into(),
            tls: None,
        }
    }

    /// Creates a leg with TLS, whose handshake is complete.
    pub fn with_tls(stream: TransportStream, tls: Option<Arc<Tls>>) -> Self {
        Self {
            transport: stream,
            tls,
        }
    }

    /// Registers the leg with the event loop of the calling thread.
    pub fn rebind_to_current_runtime(self) -> io::Result<Self> {
        let stream = self.transport.rebind_to_current_runtime()?;
        Ok(Self {
            transport: stream,
            ..self
        })
    }

    /// Returns the transport, for TCP_INFO, addresses and RST. Reads and writes on it bypass TLS.
    pub fn transport(&self) -> &TransportStream {
        &self.transport
    }

    /// Whether bytes must pass through user space, because TLS or UDT works there. (Kernel TLS would change that, but
    /// it is a module that many systems lack.)
    pub fn needs_copy(&self) -> bool {
        self.tls.is_some() || self.transport.tcp().is_none()
    }

    /// Fills an empty buffer with received data; `Ok(0)` is the clean end of the stream.
    pub fn fill(&self, buffer: &mut TransferBuffer, len_max: usize) -> io::Result<usize> {
        match &self.tls {
            None => self.transport.fill(buffer, len_max),
            Some(tls) => buffer.fill_with(len_max, |bytes| tls.try_read(&self.transport, bytes)),
        }
    }

    /// Sends as much of the buffer as the socket accepts.
    pub fn drain(&self, buffer: &mut TransferBuffer) -> io::Result<usize> {
        match &self.tls {
            None => self.transport.drain(buffer),
            Some(tls) => buffer.drain_with(|bytes| tls.try_write(&self.transport, bytes)),
        }
    }

    /// Whether a write would be accepted now. If not, [`Leg::poll_write_ready`] waits for that.
    pub fn is_writable(&self) -> io::Result<bool> {
        if self.transport.is_writable()? {
            self.try_flush()
        } else {
            Ok(false)
        }
    }

    /// Writes bytes that more data follows at once (MSG_MORE).
    pub fn write_more(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.transport.write_more(bytes),
            Some(tls) => tls.try_write(&self.transport, bytes),
        }
    }

    /// Returns the peer's certificate, if it presented one.
    pub fn peer_certificate(&self) -> Option<Vec<u8>> {
        self.tls.as_ref().and_then(|tls| tls.peer_certificate())
    }

    /// Waits until the transport has all written data: TLS holds none back.
    pub async fn flush(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Whether TLS holds no written data back.
    pub fn try_flush(&self) -> io::Result<bool> {
        match &self.tls {
            None => Ok(true),
            Some(tls) => tls.try_flush(&self.transport),
        }
    }

    /// Ends the sending direction: close_notify where there is TLS (RFC 8446 §6.1: it leaves the other direction
    /// open), and FIN.
    pub async fn finish_sending(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_finish_sending(cx)).await
    }

    /// Ends the sending direction. Is ready once the end has been sent.
    pub fn poll_finish_sending(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(tls) = &self.tls {
            tls.close_notify();
        }
        std::task::ready!(self.poll_flush(cx))?;
        self.transport.poll_finish_sending(cx)
    }

    /// Is ready once the transport has all written data.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.try_flush()? {
            std::task::ready!(self.transport.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when a write may succeed.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport.poll_write_ready(cx)
    }

    /// Ready when a read may succeed.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_buffered() {
            Poll::Ready(Ok(()))
        } else {
            self.transport.poll_read_ready(cx)
        }
    }

    /// Ready when the peer has closed its direction or the connection failed. Discards bytes before that.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.try_read(&mut [0; 64]) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let _ = std::task::ready!(self.poll_read_ready(cx));
                }
                Ok(0) | Err(_) => return Poll::Ready(()),
            }
        }
    }

    /// Whether neither data nor an end has arrived, as expected of a leg without an outstanding request.
    pub fn is_idle(&self) -> bool {
        if self.has_buffered() {
            return false;
        }
        // A read that finds nothing clears readiness left over from a handshake.
        let _ = self.transport.try_peek();
        matches!(self.transport.peek(), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Whether a leg that is no longer idle has an end and no data to read.
    pub fn is_closed(&self) -> bool {
        !self.has_buffered() && !matches!(self.transport.peek(), Ok(1..))
    }

    /// Whether TLS has buffered data that it read from the socket before.
    fn has_buffered(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_buffered())
    }

    /// Waits until the leg is no longer idle. (A new socket reports itself readable before it is.)
    pub async fn wait_activity(&self) -> io::Result<()> {
        while self.is_idle() {
            self.readable().await?;
        }
        Ok(())
    }
}

impl Channel for Leg {
    async fn readable(&self) -> io::Result<()> {
        if self.has_buffered() {
            Ok(())
        } else {
            self.transport.readable().await
        }
    }

    async fn writable(&self) -> io::Result<()> {
        self.transport.writable().await
    }

    fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.transport.try_read(bytes),
            Some(tls) => tls.try_read(&self.transport, bytes),
        }
    }

    fn try_write_vectored(&self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match &self.tls {
            None => self.transport.try_write_vectored(slices),
            Some(tls) => tls.try_write(&self.transport, first_nonempty(slices)),
        }
    }

    async fn flushed(&self) -> io::Result<()> {
        self.flush().await
    }
}
