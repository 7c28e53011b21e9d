// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transport of a leg: a TCP socket, or a UDT connection, behind one interface.

use crate::{
    channel::{Channel, first_nonempty},
    udt_info,
};
use longhaul_linux::{
    socket::{self, pending_error},
    tcp_info::TcpInfo,
    transfer_buffer::TransferBuffer,
};
use longhaul_udt::socket::Stream;
use rustix::net::{RecvFlags, recv};
use std::{
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
};
use tokio::{io::Interest, net::TcpStream};

/// Returns the address as IPv4 if it is IPv4-mapped, as those of IPv4 connections to a socket on `[::]` are.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Transport connection; clones share it.
///
/// UDT has neither a half-close nor a reset. A leg over UDT therefore always has TLS: close_notify ends a direction,
/// and an end without it is an abnormal one (RFC 8446 §6.1).
#[derive(Debug, Clone)]
pub enum TransportStream {
    /// TCP socket.
    Tcp(Arc<TcpStream>),
    /// UDT connection.
    Udt(Arc<Stream>),
}

impl TransportStream {
    /// Returns the TCP socket; `None` for UDT.
    pub fn tcp(&self) -> Option<&Arc<TcpStream>> {
        match self {
            Self::Tcp(socket) => Some(socket),
            Self::Udt(_) => None,
        }
    }

    /// Returns the local address, as IPv4 if it is IPv4-mapped.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = match self {
            Self::Tcp(socket) => socket.local_addr()?,
            Self::Udt(stream) => stream.local_addr(),
        };
        Ok(canonical(address))
    }

    /// Returns the peer's address; `None` once the connection is gone.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.peer_addr().ok(),
            Self::Udt(stream) => stream.peer_addr(),
        }
    }

    /// Registers the socket with the event loop of the calling thread. (UDT has its own thread.)
    pub fn rebind_to_current_runtime(self) -> io::Result<Self> {
        let Self::Tcp(socket) = self else {
            return Ok(self);
        };
        Ok(Self::Tcp(match Arc::try_unwrap(socket) {
            Ok(socket) => TcpStream::from_std(socket.into_std()?)?.into(),
            // The socket is shared: it keeps its event loop, which only costs wake-ups.
            Err(shared) => shared,
        }))
    }

    /// Fills an empty buffer with received data; `Ok(0)` is the end of the stream.
    pub fn fill(&self, buffer: &mut TransferBuffer, len_max: usize) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => {
                socket.try_io(Interest::READABLE, || buffer.fill(&**socket, len_max))
            }
            Self::Udt(stream) => buffer.fill_with(len_max, |bytes| stream.try_read(bytes)),
        }
    }

    /// Sends as much of the buffer as the transport accepts.
    pub fn drain(&self, buffer: &mut TransferBuffer) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_io(Interest::WRITABLE, || buffer.drain(&**socket)),
            Self::Udt(stream) => buffer.drain_with(|bytes| stream.try_write(bytes)),
        }
    }

    /// Appends received data to `bytes`, up to their capacity.
    pub fn try_read_into(&self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_read_buf(bytes),
            Self::Udt(stream) => {
                let filled = bytes.len();
                bytes.resize(bytes.capacity(), 0);
                let read = stream.try_read(&mut bytes[filled..]);
                bytes.truncate(filled + *read.as_ref().unwrap_or(&0));
                read
            }
        }
    }

    /// Writes as much as the transport accepts.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_write(bytes),
            Self::Udt(stream) => stream.try_write(bytes),
        }
    }

    /// Writes bytes. The caller writes more data immediately after them (MSG_MORE).
    pub fn write_more(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => {
                let write = || longhaul_linux::transfer_buffer::send_more(&**socket, bytes);
                socket.try_io(Interest::WRITABLE, write)
            }
            Self::Udt(stream) => stream.try_write(bytes),
        }
    }

    /// Whether a write would be accepted now. If not, [`Self::poll_write_ready`] waits for that.
    pub fn is_writable(&self) -> io::Result<bool> {
        let Self::Tcp(socket) = self else {
            return Ok(self.is_udt_writable());
        };
        let check = || {
            if socket::is_writable(&**socket)? {
                Ok(())
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            }
        };
        match socket.try_io(Interest::WRITABLE, check) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn is_udt_writable(&self) -> bool {
        let mut context = Context::from_waker(std::task::Waker::noop());
        self.poll_write_ready(&mut context).is_ready()
    }

    /// Is ready when a read may succeed.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) => socket.poll_read_ready(cx),
            Self::Udt(stream) => stream.poll_readable(cx).map(Ok),
        }
    }

    /// Is ready when a write may succeed.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) => socket.poll_write_ready(cx),
            Self::Udt(stream) => stream.poll_writable(cx).map(Ok),
        }
    }

    /// Returns a lower bound of the bytes that can be read; 0 at the end of the stream.
    pub fn peek(&self) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => {
                let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
                Ok(recv(&**socket, &mut [0; 1][..], flags)?.0)
            }
            Self::Udt(stream) => stream.try_peek().map(usize::from),
        }
    }

    /// Peeks, and clears tokio's readiness if nothing is there.
    pub fn try_peek(&self) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_io(Interest::READABLE, || self.peek()),
            Self::Udt(_) => self.peek(),
        }
    }

    /// Waits until there is data or the end of the stream, and peeks.
    pub async fn wait_peek(&self) -> io::Result<usize> {
        loop {
            self.readable().await?;
            match self.try_peek() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                peeked => return peeked,
            }
        }
    }

    /// Ends the sending direction with a FIN. UDT has none: there it waits until all data is acknowledged, because
    /// unacknowledged data is lost when the process ends. The shutdown is sent when the last user drops the
    /// connection.
    pub fn poll_finish_sending(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        match self {
            // A later close must not discard data that is still to be sent before the FIN.
            Self::Tcp(socket) => Poll::Ready(
                socket::shutdown_write(&**socket).and_then(|()| socket::fin_on_close(&**socket)),
            ),
            Self::Udt(stream) => stream.poll_flushed(cx),
        }
    }

    /// Resets the connection when it is closed. UDT is closed at once. A failed connection stays as it is.
    pub fn reset_on_close(&self) {
        match self {
            Self::Tcp(socket) => drop(socket::reset_on_close(&**socket)),
            Self::Udt(stream) => stream.abort(),
        }
    }

    /// Closes the connection with a FIN even if the stream has not ended.
    pub fn fin_on_close(&self) {
        if let Self::Tcp(socket) = self {
            // An error means that the connection is gone, so there is nothing to close.
            drop(socket::fin_on_close(&**socket));
        }
    }

    /// Resets the connection on a close before the stream has ended, also if this process is killed. (UDT is not
    /// closed then: the peer times out.)
    pub fn reset_unless_finished(&self) {
        if let Self::Tcp(socket) = self {
            drop(socket::reset_on_close(&**socket));
        }
    }

    /// Resets the connection now, whoever else shares it.
    pub fn reset(&self) {
        match self {
            Self::Tcp(socket) => drop(socket::reset(&**socket)),
            Self::Udt(stream) => stream.abort(),
        }
    }

    /// Limits the unsent data, in bytes.
    pub fn limit_unsent(&self, bytes: u32) {
        match self {
            // An error means that the connection failed, which its next use reports.
            Self::Tcp(socket) => drop(socket::set_notsent_lowat(&**socket, bytes)),
            Self::Udt(stream) => stream.limit_unsent(bytes / udt_info::PACKET_PAYLOAD_LEN),
        }
    }

    /// Makes room for a receive window of this many bytes, within the kernel's limits. UDT's is fixed.
    pub fn widen_receive_window(&self, bytes: u32) {
        if let Self::Tcp(socket) = self {
            // An error means that the connection failed, which its next use reports.
            drop(socket::widen_receive_window(&**socket, bytes));
        }
    }

    /// Returns the memory of its data buffers in bytes; `None` once the connection is gone.
    pub fn memory_bytes(&self) -> Option<u64> {
        match self {
            Self::Tcp(socket) => socket::memory(&**socket).ok(),
            Self::Udt(stream) => stream.stats().map(|stats| udt_info::buffered_bytes(&stats)),
        }
    }

    /// Returns the state as `TCP_INFO`; `None` once the connection is gone.
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        match self {
            Self::Tcp(socket) => TcpInfo::of(&**socket).ok(),
            Self::Udt(stream) => stream.stats().map(|stats| udt_info::tcp_info(&stats)),
        }
    }

    /// Waits for an error of the connection, without a read. The close of a UDT connection is an error only for a
    /// reader that has not received TLS's close_notify before it.
    pub async fn wait_error(&self) -> io::Error {
        let socket = match self {
            Self::Tcp(socket) => socket,
            Self::Udt(stream) => return poll_fn(|cx| stream.poll_lost(cx)).await,
        };
        let ready = socket.ready(Interest::ERROR).await;
        match ready.and_then(|_| pending_error(&**socket)) {
            Err(error) | Ok(Some(error)) => error,
            // Another call took the error from the socket.
            Ok(None) => io::ErrorKind::ConnectionReset.into(),
        }
    }
}

impl From<TcpStream> for TransportStream {
    fn from(socket: TcpStream) -> Self {
        Self::Tcp(socket.into())
    }
}

impl Channel for TransportStream {
    async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_read_ready(cx)).await
    }

    async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_write_ready(cx)).await
    }

    fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_read(bytes),
            Self::Udt(stream) => stream.try_read(bytes),
        }
    }

    fn try_write_vectored(&self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_write_vectored(slices),
            Self::Udt(stream) => stream.try_write(first_nonempty(slices)),
        }
    }

    async fn flushed(&self) -> io::Result<()> {
        Ok(())
    }
}
