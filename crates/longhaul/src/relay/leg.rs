// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection between two neighbours: TCP, or TLS over TCP. The plain one is the socket and
//! nothing more, so that it costs what the socket costs.

use super::{
    stream::Channel,
    tls::{self, Tls},
};
use host::{conduit::Conduit, socket};
use rustix::net::{RecvFlags, recv};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    task::{Context, Poll},
};
use tokio::{io::Interest, net::TcpStream};

/// A leg; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Leg {
    socket: Arc<TcpStream>,
    tls: Option<Arc<Tls>>,
}

impl Leg {
    pub(crate) fn plain(socket: impl Into<Arc<TcpStream>>) -> Self {
        Self {
            socket: socket.into(),
            tls: None,
        }
    }

    /// A leg whose bytes are protected by `tls`, the handshake done.
    pub(crate) fn protected(socket: Arc<TcpStream>, tls: Option<Arc<Tls>>) -> Self {
        Self { socket, tls }
    }

    /// The same leg, driven by the calling thread's event loop from now on.
    pub(crate) fn at_home_here(self) -> io::Result<Self> {
        let socket = match Arc::try_unwrap(self.socket) {
            Ok(socket) => TcpStream::from_std(socket.into_std()?)?.into(),
            // Somebody else has it too: it stays where it is, which costs wake-ups only.
            Err(shared) => shared,
        };
        Ok(Self { socket, ..self })
    }

    /// For TCP_INFO, addresses and RST; what is read or written here bypasses TLS.
    pub(crate) fn socket(&self) -> &Arc<TcpStream> {
        &self.socket
    }

    /// Whether bytes must pass through user space, because TLS works there. (Kernel TLS would
    /// change that; it is a module that many systems lack.)
    pub(crate) fn needs_copy(&self) -> bool {
        self.tls.is_some()
    }

    /// Fills an empty conduit with what has come; `Ok(0)` is the clean end of the stream.
    pub(crate) fn fill(&self, conduit: &mut Conduit, most: usize) -> io::Result<usize> {
        match &self.tls {
            None => self
                .socket
                .try_io(Interest::READABLE, || conduit.fill(&self.socket, most)),
            Some(tls) => conduit.fill_by(most, |bytes| tls.try_read(&self.socket, bytes)),
        }
    }

    /// Takes from the conduit what fits into the socket.
    pub(crate) fn drain(&self, conduit: &mut Conduit) -> io::Result<usize> {
        match &self.tls {
            None => self
                .socket
                .try_io(Interest::WRITABLE, || conduit.drain(&self.socket)),
            Some(tls) => conduit.drain_by(|bytes| tls.try_write(&self.socket, bytes)),
        }
    }

    /// Whether bytes written now would find room. If not, [`Leg::poll_write_ready`] waits for it.
    pub(crate) fn has_room(&self) -> io::Result<bool> {
        let look = || match socket::is_writable(&self.socket)? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        match self.socket.try_io(Interest::WRITABLE, look) {
            Ok(()) => self.try_flush(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes bytes that others follow at once.
    pub(crate) fn announce(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.tls {
            None => {
                let write = || host::conduit::announce(&self.socket, bytes);
                self.socket.try_io(Interest::WRITABLE, write)
            }
            Some(tls) => tls.try_write(&self.socket, bytes),
        }
    }

    /// What the other side is known by, if by anything: its certificate.
    pub(crate) fn certificate(&self) -> Option<Vec<u8>> {
        self.tls.as_ref().and_then(|tls| tls.peer_certificate())
    }

    /// Waits until TLS holds back nothing of what was written.
    pub(crate) async fn flush(&self) -> io::Result<()> {
        while !self.try_flush()? {
            self.socket.writable().await?;
        }
        Ok(())
    }

    /// Whether TLS holds back nothing of what was written.
    pub(crate) fn try_flush(&self) -> io::Result<bool> {
        match &self.tls {
            None => Ok(true),
            Some(tls) => tls.try_flush(&self.socket),
        }
    }

    /// Ends this direction cleanly: close_notify where there is TLS (RFC 8446 §6.1: it leaves the
    /// other direction open), and FIN.
    pub(crate) async fn finish_sending(&self) -> io::Result<()> {
        if let Some(tls) = &self.tls {
            tls.close_notify();
        }
        self.flush().await?;
        socket::finish_sending(&*self.socket)
    }

    pub(crate) fn poll_finish_sending(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(tls) = &self.tls {
            tls.close_notify();
        }
        std::task::ready!(self.poll_flush(cx))?;
        Poll::Ready(socket::finish_sending(&*self.socket))
    }

    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.try_flush()? {
            std::task::ready!(self.socket.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_write_ready(cx)
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.has_received() {
            true => Poll::Ready(Ok(())),
            false => self.socket.poll_read_ready(cx),
        }
    }

    /// Ready when the other side has closed its direction, or lost it. Bytes before that are dropped.
    pub(crate) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
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
    pub(crate) fn is_quiet(&self) -> bool {
        if self.has_received() {
            return false;
        }
        // Readiness that is left over from a handshake is taken back by a fruitless read.
        let _ = self.socket.try_io(Interest::READABLE, || self.peek());
        matches!(self.peek(), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Of a leg that is no longer quiet: whether there is no word to be read, but an end.
    pub(crate) fn is_abandoned(&self) -> bool {
        !self.has_received() && !matches!(self.peek(), Ok(1..))
    }

    /// Whether TLS has something that it took off the socket before.
    fn has_received(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_received())
    }

    /// Waits until it is no longer quiet. (A new socket calls itself readable before it is.)
    pub(crate) async fn disturbed(&self) -> io::Result<()> {
        while self.is_quiet() {
            self.readable().await?;
        }
        Ok(())
    }

    fn peek(&self) -> io::Result<usize> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        Ok(recv(&self.socket, &mut [0; 1][..], flags)?.0)
    }
}

impl AsFd for Leg {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Channel for Leg {
    async fn readable(&self) -> io::Result<()> {
        match self.has_received() {
            true => Ok(()),
            false => self.socket.readable().await,
        }
    }

    async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.socket.try_read(bytes),
            Some(tls) => tls.try_read(&self.socket, bytes),
        }
    }

    fn try_write_vectored(&self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match &self.tls {
            None => self.socket.try_write_vectored(slices),
            Some(tls) => tls.try_write(&self.socket, tls::first_of(slices)),
        }
    }

    async fn flushed(&self) -> io::Result<()> {
        self.flush().await
    }
}
