// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection between two neighbours: TCP, or TLS over TCP or UDT. The plain one is the socket and
//! nothing more, so that it costs what the socket costs.

use crate::{
    channel::{Channel, first_nonempty},
    tls::Tls,
    transport::Transport,
};
use longhaul_linux::transfer_buffer::TransferBuffer;
use std::{
    future::poll_fn,
    io,
    sync::Arc,
    task::{Context, Poll},
};

/// A leg; clones share it.
#[derive(Debug, Clone)]
pub struct Leg {
    transport: Transport,
    tls: Option<Arc<Tls>>,
}

impl Leg {
    /// One without TLS.
    pub fn plain(carrier: impl Into<Transport>) -> Self {
        Self {
            transport: carrier.into(),
            tls: None,
        }
    }

    /// A leg whose bytes are protected by `tls`, the handshake done.
    pub fn with_tls(carrier: Transport, tls: Option<Arc<Tls>>) -> Self {
        Self {
            transport: carrier,
            tls,
        }
    }

    /// The same leg, driven by the calling thread's event loop from now on.
    pub fn rebind_to_current_runtime(self) -> io::Result<Self> {
        let carrier = self.transport.rebind_to_current_runtime()?;
        Ok(Self {
            transport: carrier,
            ..self
        })
    }

    /// For TCP_INFO, addresses and RST; what is read or written here bypasses TLS.
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Whether bytes must pass through user space, because TLS or UDT works there. (Kernel TLS would
    /// change that; it is a module that many systems lack.)
    pub fn needs_copy(&self) -> bool {
        self.tls.is_some() || self.transport.tcp().is_none()
    }

    /// Fills an empty conduit with what has come; `Ok(0)` is the clean end of the stream.
    pub fn fill(&self, conduit: &mut TransferBuffer, most: usize) -> io::Result<usize> {
        match &self.tls {
            None => self.transport.fill(conduit, most),
            Some(tls) => conduit.fill_with(most, |bytes| tls.try_read(&self.transport, bytes)),
        }
    }

    /// Takes from the conduit what fits into the socket.
    pub fn drain(&self, conduit: &mut TransferBuffer) -> io::Result<usize> {
        match &self.tls {
            None => self.transport.drain(conduit),
            Some(tls) => conduit.drain_with(|bytes| tls.try_write(&self.transport, bytes)),
        }
    }

    /// Whether bytes written now would find room. If not, [`Leg::poll_write_ready`] waits for it.
    pub fn is_writable(&self) -> io::Result<bool> {
        match self.transport.is_writable()? {
            true => self.try_flush(),
            false => Ok(false),
        }
    }

    /// Writes bytes that others follow at once.
    pub fn write_more(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.transport.write_more(bytes),
            Some(tls) => tls.try_write(&self.transport, bytes),
        }
    }

    /// What the other side is known by, if by anything: its certificate.
    pub fn peer_certificate(&self) -> Option<Vec<u8>> {
        self.tls.as_ref().and_then(|tls| tls.peer_certificate())
    }

    /// Waits until TLS holds back nothing of what was written.
    pub async fn flush(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Whether TLS holds back nothing of what was written.
    pub fn try_flush(&self) -> io::Result<bool> {
        match &self.tls {
            None => Ok(true),
            Some(tls) => tls.try_flush(&self.transport),
        }
    }

    /// Ends this direction cleanly: close_notify where there is TLS (RFC 8446 §6.1: it leaves the
    /// other direction open), and FIN.
    pub async fn finish_sending(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_finish_sending(cx)).await
    }

    /// Ends this direction; ready once that has left.
    pub fn poll_finish_sending(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(tls) = &self.tls {
            tls.close_notify();
        }
        std::task::ready!(self.poll_flush(cx))?;
        self.transport.poll_finish_sending(cx)
    }

    /// Ready once all that was written is with the carrier.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.try_flush()? {
            std::task::ready!(self.transport.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when writing is worth a try.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport.poll_write_ready(cx)
    }

    /// Ready when reading is worth a try.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.has_buffered() {
            true => Poll::Ready(Ok(())),
            false => self.transport.poll_read_ready(cx),
        }
    }

    /// Ready when the other side has closed its direction, or lost it. Bytes before that are dropped.
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

    /// Whether nothing has come, neither bytes nor an end: what is expected of a leg over which
    /// nothing has been asked yet.
    pub fn is_idle(&self) -> bool {
        if self.has_buffered() {
            return false;
        }
        // Readiness that is left over from a handshake is taken back by a fruitless read.
        let _ = self.transport.try_peek();
        matches!(self.transport.peek(), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Of a leg that is no longer quiet: whether there is no word to be read, but an end.
    pub fn is_closed(&self) -> bool {
        !self.has_buffered() && !matches!(self.transport.peek(), Ok(1..))
    }

    /// Whether TLS has something that it took off the socket before.
    fn has_buffered(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_buffered())
    }

    /// Waits until it is no longer quiet. (A new socket calls itself readable before it is.)
    pub async fn wait_activity(&self) -> io::Result<()> {
        while self.is_idle() {
            self.readable().await?;
        }
        Ok(())
    }
}

impl Channel for Leg {
    async fn readable(&self) -> io::Result<()> {
        match self.has_buffered() {
            true => Ok(()),
            false => self.transport.readable().await,
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
