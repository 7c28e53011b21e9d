// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocking connections for threads: a TCP socket, or a UDT connection.

use crate::udt_info;
use anyhow::{Context as _, Result};
use longhaul_linux::tcp_info::TcpInfo;
use longhaul_udt::socket::{Socket, Stream};
use rustix::net::sockopt;
use std::{
    io::{self, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::fd::AsFd,
    pin::pin,
    sync::Arc,
    task::{self, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// Size of the receive buffer in bytes. rustls itself reads 4 KiB at a time.
const RECEIVE_LEN: usize = 256 << 10;

/// Blocking connection; clones share it.
#[derive(Debug)]
pub enum Connection {
    /// TCP.
    Tcp(TcpStream),
    /// UDT, and the read timeout of this clone.
    Udt(Arc<Stream>, Option<Duration>),
}

impl Connection {
    /// Opens a UDT connection.
    ///
    /// # Errors
    /// The peer refuses the connection, or no answer comes.
    pub fn connect_udt(address: SocketAddr, socket: &Socket) -> io::Result<Self> {
        let mut connecting = pin!(socket.connect(address));
        let stream = block_on(None, |cx| connecting.as_mut().poll(cx));
        Ok(stream.expect("no timeout is set")?.into())
    }

    /// Accepts the next UDT connection.
    ///
    /// # Errors
    /// The socket failed.
    pub fn accept_udt(socket: &Socket) -> io::Result<Self> {
        let mut accepting = pin!(socket.accept());
        let stream = block_on(None, |cx| accepting.as_mut().poll(cx));
        Ok(stream.expect("no timeout is set")?.into())
    }

    /// Returns another handle of the connection.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(socket) => Self::Tcp(socket.try_clone()?),
            Self::Udt(stream, timeout) => Self::Udt(stream.clone(), *timeout),
        })
    }

    /// Sets the read timeout. For TCP it applies to all clones.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_read_timeout(timeout),
            Self::Udt(_, read_timeout) => {
                *read_timeout = timeout;
                Ok(())
            }
        }
    }

    /// Ends the sending direction. Over UDT this waits until all data is acknowledged; the receiving direction ends
    /// too when the last clone is dropped.
    ///
    /// # Errors
    /// A connection that broke.
    pub fn finish_sending(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Self::Udt(stream, _) => {
                block_on(None, |cx| stream.poll_flushed(cx)).expect("no timeout is set")
            }
        }
    }

    /// Closes both directions: blocked reads and writes fail.
    pub fn shutdown(&self) {
        match self {
            // It may have ended by itself.
            Self::Tcp(socket) => drop(socket.shutdown(Shutdown::Both)),
            Self::Udt(stream, _) => stream.abort(),
        }
    }

    /// Closes the receiving direction: blocked reads return the end of the stream. Over TCP the peer does not notice.
    pub fn shutdown_read(&self) {
        match self {
            // It may have ended by itself.
            Self::Tcp(socket) => drop(socket.shutdown(Shutdown::Read)),
            Self::Udt(stream, _) => stream.abort(),
        }
    }

    /// Whether the peer closed the connection or it failed, without a read or a write.
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Tcp(socket) => {
                longhaul_linux::socket::peer_has_hung_up(socket).unwrap_or_default()
            }
            Self::Udt(stream, _) => stream.has_ended(),
        }
    }

    /// Returns the TCP socket; `None` for UDT.
    pub fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(socket) => Some(socket),
            Self::Udt(..) => None,
        }
    }

    /// Returns the state as `TCP_INFO`; `None` once the connection is gone.
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        match self {
            Self::Tcp(socket) => TcpInfo::of(socket).ok(),
            Self::Udt(stream, _) => stream.stats().map(|stats| udt_info::tcp_info(&stats)),
        }
    }

    /// Limits the unsent data, in bytes.
    pub fn limit_unsent(&self, bytes: u32) {
        match self {
            Self::Tcp(socket) => drop(longhaul_linux::socket::set_notsent_lowat(socket, bytes)),
            Self::Udt(stream, _) => stream.limit_unsent(bytes / udt_info::PACKET_PAYLOAD_LEN),
        }
    }
}

impl From<Stream> for Connection {
    fn from(stream: Stream) -> Self {
        Self::Udt(stream.into(), None)
    }
}

impl Read for Connection {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let (stream, timeout) = match self {
            Self::Tcp(socket) => return socket.read(bytes),
            Self::Udt(stream, timeout) => (stream, *timeout),
        };
        loop {
            match stream.try_read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            let ready = block_on(timeout, |cx| stream.poll_readable(cx));
            ready.ok_or(io::ErrorKind::TimedOut)?;
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stream = match self {
            Self::Tcp(socket) => return socket.write(bytes),
            Self::Udt(stream, _) => stream,
        };
        loop {
            match stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return written,
            }
            block_on(None, |cx| stream.poll_writable(cx));
        }
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write_vectored(slices),
            Self::Udt(..) => {
                let first = slices.iter().find(|slice| !slice.is_empty());
                first.map_or(Ok(0), |slice| self.write(slice))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waker that unparks a thread.
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks the thread until `poll` is ready. Returns `None` if that takes longer than `timeout`.
fn block_on<T>(
    timeout: Option<Duration>,
    mut poll: impl FnMut(&mut task::Context<'_>) -> Poll<T>,
) -> Option<T> {
    let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
    let mut context = task::Context::from_waker(&waker);
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        if let Poll::Ready(outcome) = poll(&mut context) {
            return Some(outcome);
        }
        match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            None => thread::park(),
            Some(Duration::ZERO) => return None,
            Some(left) => thread::park_timeout(left),
        }
    }
}

/// Connection with a large read buffer.
pub struct BufferedConnection {
    reader: BufReader<Connection>,
    writer: Connection,
    /// Time by which the handshake must be finished, even if the peer sends a byte now and then.
    handshake_deadline: Option<Instant>,
}

impl Read for BufferedConnection {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if let Some(deadline) = self.handshake_deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            // A read timeout of zero is invalid.
            let left = left.max(Duration::from_millis(1));
            self.reader.get_mut().set_read_timeout(Some(left))?;
        }
        self.reader.read(bytes)
    }
}

impl Write for BufferedConnection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.writer.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl BufferedConnection {
    /// Wraps a connection whose handshake may take `handshake_timeout`. Disables Nagle's algorithm (RFC 896) on TCP.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(connection: Connection, handshake_timeout: Duration) -> Result<Self> {
        if let Some(socket) = connection.tcp() {
            socket.set_nodelay(true)?;
        }
        let writer = connection.try_clone().context("no descriptor is left")?;
        Ok(Self {
            reader: BufReader::with_capacity(RECEIVE_LEN, connection),
            writer,
            handshake_deadline: Some(Instant::now() + handshake_timeout),
        })
    }

    /// Removes the read timeout after the handshake.
    ///
    /// # Errors
    /// Those of the system.
    pub fn end_handshake(&mut self) -> io::Result<()> {
        self.handshake_deadline = None;
        self.reader.get_mut().set_read_timeout(None)
    }

    /// Returns a handle by which another thread can close the connection.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn handle(&self) -> io::Result<Arc<Connection>> {
        Ok(Arc::new(self.writer.try_clone()?))
    }

    /// Ends the sending direction.
    ///
    /// # Errors
    /// A connection that broke.
    pub fn finish_sending(&self) -> io::Result<()> {
        self.writer.finish_sending()
    }
}

/// Enables TCP keepalive: a connection whose peer sends nothing for `timeout`, not even an ACK, fails.
///
/// # Errors
/// Those of the system.
pub fn enable_keepalive(socket: &impl AsFd, timeout: Duration) -> io::Result<()> {
    // The kernel counts in seconds, at least one.
    let interval = (timeout / 4).max(Duration::from_secs(1));
    sockopt::set_tcp_user_timeout(socket, timeout.as_millis() as u32)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, interval)?;
    sockopt::set_tcp_keepintvl(socket, interval)?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        net::{TcpListener, TcpStream},
        thread,
    };

    /// A plain read timeout would restart with each byte.
    #[test]
    fn handshake_timeout_holds_for_a_slow_sender() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let slow_sender = thread::spawn(move || {
            while client.write_all(&[0]).is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let mut socket =
            BufferedConnection::new(Connection::Tcp(accepted), Duration::from_millis(100)).unwrap();
        let mut bytes = [0; 1 << 20];
        assert!(socket.read_exact(&mut bytes).is_err());
        drop(socket);
        slow_sender.join().unwrap();
    }
}
