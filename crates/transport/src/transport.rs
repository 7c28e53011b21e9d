// SPDX-License-Identifier: MIT OR Apache-2.0
//! What carries a leg's bytes: a TCP socket, or a connection of UDT. Whoever relays need not know which.

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
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::{io::Interest, net::TcpStream};

/// A carrier; clones share it.
///
/// UDT has no half of a close and no reset: a leg over it always has TLS, whose close_notify ends a direction, and without
/// which an end is an abnormal one (RFC 8446 §6.1).
#[derive(Debug, Clone)]
pub enum Transport {
    /// A socket.
    Tcp(Arc<TcpStream>),
    /// A connection on a UDP port.
    Udt(Arc<Stream>),
}

impl Transport {
    /// The socket, if it is one.
    pub fn tcp(&self) -> Option<&Arc<TcpStream>> {
        match self {
            Self::Tcp(socket) => Some(socket),
            Self::Udt(_) => None,
        }
    }

    /// The address of this end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.local_addr(),
            Self::Udt(stream) => Ok(stream.local_addr()),
        }
    }

    /// The address at the other end; `None` once the connection is gone.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.peer_addr().ok(),
            Self::Udt(stream) => stream.peer_addr(),
        }
    }

    /// The same, driven by the calling thread's event loop from now on. (UDT has a thread of its own.)
    pub fn rebind_to_current_runtime(self) -> io::Result<Self> {
        let Self::Tcp(socket) = self else {
            return Ok(self);
        };
        Ok(Self::Tcp(match Arc::try_unwrap(socket) {
            Ok(socket) => TcpStream::from_std(socket.into_std()?)?.into(),
            // Somebody else has it too: it stays where it is, which costs wake-ups only.
            Err(shared) => shared,
        }))
    }

    /// Fills an empty conduit with what has come; `Ok(0)` is the end.
    pub fn fill(&self, conduit: &mut TransferBuffer, len_max: usize) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => {
                socket.try_io(Interest::READABLE, || conduit.fill(&**socket, len_max))
            }
            Self::Udt(stream) => conduit.fill_with(len_max, |bytes| stream.try_read(bytes)),
        }
    }

    /// Takes from the conduit what there is room for.
    pub fn drain(&self, conduit: &mut TransferBuffer) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_io(Interest::WRITABLE, || conduit.drain(&**socket)),
            Self::Udt(stream) => conduit.drain_with(|bytes| stream.try_write(bytes)),
        }
    }

    /// Appends what has come to `bytes`, as far as they have room.
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

    /// Writes what there is room for.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_write(bytes),
            Self::Udt(stream) => stream.try_write(bytes),
        }
    }

    /// Writes bytes that others follow at once.
    pub fn write_more(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => {
                let write = || longhaul_linux::transfer_buffer::send_more(&**socket, bytes);
                socket.try_io(Interest::WRITABLE, write)
            }
            Self::Udt(stream) => stream.try_write(bytes),
        }
    }

    /// Whether bytes written now would find room. If not, [`Self::poll_write_ready`] waits for it.
    pub fn is_writable(&self) -> io::Result<bool> {
        let Self::Tcp(socket) = self else {
            return Ok(self.is_udt_writable());
        };
        let look = || match socket::is_writable(&**socket)? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        match socket.try_io(Interest::WRITABLE, look) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn is_udt_writable(&self) -> bool {
        let mut nobody = Context::from_waker(std::task::Waker::noop());
        self.poll_write_ready(&mut nobody).is_ready()
    }

    /// Ready when reading is worth a try.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) => socket.poll_read_ready(cx),
            Self::Udt(stream) => stream.poll_readable(cx).map(Ok),
        }
    }

    /// Ready when writing is worth a try.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) => socket.poll_write_ready(cx),
            Self::Udt(stream) => stream.poll_writable(cx).map(Ok),
        }
    }

    /// How many bytes there are to read, at least; 0 is the end.
    pub fn peek(&self) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => {
                let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
                Ok(recv(&**socket, &mut [0; 1][..], flags)?.0)
            }
            Self::Udt(stream) => stream.try_peek().map(usize::from),
        }
    }

    /// The same, where tokio takes back what it said of readiness if nothing is there.
    pub fn try_peek(&self) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_io(Interest::READABLE, || self.peek()),
            Self::Udt(_) => self.peek(),
        }
    }

    /// The same, once there is something to say.
    pub async fn wait_peek(&self) -> io::Result<usize> {
        loop {
            self.readable().await?;
            match self.try_peek() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                peeked => return peeked,
            }
        }
    }

    /// Ends this direction: FIN. UDT has none: there it is waited until everything has arrived, for with this process goes
    /// what has not; that it is over goes with its last user.
    pub fn poll_finish_sending(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        match self {
            // FIN stands for everything before it: from here on a close drops none of that.
            Self::Tcp(socket) => Poll::Ready(
                socket::shutdown_write(&**socket).and_then(|()| socket::fin_on_close(&**socket)),
            ),
            Self::Udt(stream) => stream.poll_flushed(cx),
        }
    }

    /// Makes the coming close an abnormal one; UDT is closed at once. One that has lost its connection already stays as it is.
    pub fn reset_on_close(&self) {
        match self {
            Self::Tcp(socket) => drop(socket::reset_on_close(&**socket)),
            Self::Udt(stream) => stream.abort(),
        }
    }

    /// Makes the coming close a clean one, though no end was said.
    pub fn fin_on_close(&self) {
        if let Self::Tcp(socket) = self {
            // An error means that it is no more, and then there is nothing to close.
            drop(socket::fin_on_close(&**socket));
        }
    }

    /// Makes a close an abnormal one until the end was passed on, also if this process is killed. (Of UDT nothing is closed
    /// then: the other side hears nothing more.)
    pub fn reset_unless_finished(&self) {
        if let Self::Tcp(socket) = self {
            drop(socket::reset_on_close(&**socket));
        }
    }

    /// Ends it now, and not cleanly, whoever else has it.
    pub fn reset(&self) {
        match self {
            Self::Tcp(socket) => drop(socket::reset(&**socket)),
            Self::Udt(stream) => stream.abort(),
        }
    }

    /// Bounds what it holds unsent, in bytes.
    pub fn limit_unsent(&self, bytes: u32) {
        match self {
            // An error means that it is broken, which its first use will say.
            Self::Tcp(socket) => drop(socket::set_notsent_lowat(&**socket, bytes)),
            Self::Udt(stream) => stream.limit_unsent(bytes / udt_info::PACKET_PAYLOAD_LEN),
        }
    }

    /// Memory that it holds for data, in bytes; `None` if it is no more.
    pub fn memory_bytes(&self) -> Option<u64> {
        match self {
            Self::Tcp(socket) => socket::memory(&**socket).ok(),
            Self::Udt(stream) => stream
                .stats()
                .map(|report| udt_info::buffered_bytes(&report)),
        }
    }

    /// How it fares; `None` if it is no more.
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        match self {
            Self::Tcp(socket) => TcpInfo::of(&**socket).ok(),
            Self::Udt(stream) => stream.stats().map(|report| udt_info::tcp_info(&report)),
        }
    }

    /// Returns when it has an error, whether or not somebody reads. The end of a connection of UDT is an error to whoever
    /// reads and does not find TLS's end before it; until then it may be a good one.
    pub async fn wait_error(&self) -> io::Error {
        let socket = match self {
            Self::Tcp(socket) => socket,
            Self::Udt(stream) => return poll_fn(|cx| stream.poll_lost(cx)).await,
        };
        let ready = socket.ready(Interest::ERROR).await;
        match ready.and_then(|_| pending_error(&**socket)) {
            Err(error) | Ok(Some(error)) => error,
            // Another call has taken the error off the socket.
            Ok(None) => io::ErrorKind::ConnectionReset.into(),
        }
    }
}

impl From<TcpStream> for Transport {
    fn from(socket: TcpStream) -> Self {
        Self::Tcp(socket.into())
    }
}

impl Channel for Transport {
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
