// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that threads wait in: a TCP socket, or a connection of UDT.

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

/// What rustls is given at once: it takes 4 KiB at a time by itself.
const RECEIVE_LEN: usize = 256 << 10;

/// A connection, or a share of one.
#[derive(Debug)]
pub enum Connection {
    /// TCP.
    Tcp(TcpStream),
    /// UDT, and how long a read of this share may wait.
    Udt(Arc<Stream>, Option<Duration>),
}

impl Connection {
    /// Opens a connection of UDT.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn connect_udt(address: SocketAddr, socket: &Socket) -> io::Result<Self> {
        let mut connecting = pin!(socket.connect(address));
        let stream = block_on(None, |cx| connecting.as_mut().poll(cx));
        Ok(stream.expect("it may take its time")?.into())
    }

    /// The next connection of UDT that another host opens.
    ///
    /// # Errors
    /// A port that broke.
    pub fn accept_udt(socket: &Socket) -> io::Result<Self> {
        let mut accepting = pin!(socket.accept());
        let stream = block_on(None, |cx| accepting.as_mut().poll(cx));
        Ok(stream.expect("it may take its time")?.into())
    }

    /// Another share of it.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(socket) => Self::Tcp(socket.try_clone()?),
            Self::Udt(stream, patience) => Self::Udt(stream.clone(), *patience),
        })
    }

    /// How long a read may wait; of a socket, a read of any share.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_read_timeout(&mut self, at_most: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_read_timeout(at_most),
            Self::Udt(_, patience) => {
                *patience = at_most;
                Ok(())
            }
        }
    }

    /// Nothing more is written. What is over UDT has arrived then: its other direction ends, too, when the last share goes.
    ///
    /// # Errors
    /// A connection that broke.
    pub fn finish_sending(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Self::Udt(stream, _) => {
                block_on(None, |cx| stream.poll_flushed(cx)).expect("it may take its time")
            }
        }
    }

    /// Whoever waits in it fails.
    pub fn shutdown(&self) {
        match self {
            // It may have ended by itself.
            Self::Tcp(socket) => drop(socket.shutdown(Shutdown::Both)),
            Self::Udt(stream, _) => stream.abort(),
        }
    }

    /// Whoever waits for something from the other end hears that there is nothing more. Over TCP the other end notices nothing.
    pub fn shutdown_read(&self) {
        match self {
            // It may have ended by itself.
            Self::Tcp(socket) => drop(socket.shutdown(Shutdown::Read)),
            Self::Udt(stream, _) => stream.abort(),
        }
    }

    /// Whether the other end has closed it, or it broke: who neither reads nor writes hears of neither.
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Tcp(socket) => {
                longhaul_linux::socket::peer_has_hung_up(socket).unwrap_or_default()
            }
            Self::Udt(stream, _) => stream.has_ended(),
        }
    }

    /// The socket, if it is one.
    pub fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(socket) => Some(socket),
            Self::Udt(..) => None,
        }
    }

    /// How it fares; `None` if it is no more.
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        match self {
            Self::Tcp(socket) => TcpInfo::of(socket).ok(),
            Self::Udt(stream, _) => stream.stats().map(|report| udt_info::tcp_info(&report)),
        }
    }

    /// Lets no more wait in it unsent.
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
        let (stream, patience) = match self {
            Self::Tcp(socket) => return socket.read(bytes),
            Self::Udt(stream, patience) => (stream, *patience),
        };
        loop {
            match stream.try_read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            let ready = block_on(patience, |cx| stream.poll_readable(cx));
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

/// Wakes the thread that waits.
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Has this thread wait for what tasks poll for; `None` if that takes longer than `at_most`.
fn block_on<T>(
    at_most: Option<Duration>,
    mut poll: impl FnMut(&mut task::Context<'_>) -> Poll<T>,
) -> Option<T> {
    let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
    let mut context = task::Context::from_waker(&waker);
    let until = at_most.map(|at_most| Instant::now() + at_most);
    loop {
        if let Poll::Ready(outcome) = poll(&mut context) {
            return Some(outcome);
        }
        match until.map(|until| until.saturating_duration_since(Instant::now())) {
            None => thread::park(),
            Some(Duration::ZERO) => return None,
            Some(left) => thread::park_timeout(left),
        }
    }
}

/// A connection that is read in large pieces.
pub struct BufferedConnection {
    reader: BufReader<Connection>,
    writer: Connection,
    /// When the handshake has to be over. A stranger may send a byte now and then.
    handshake_deadline: Option<Instant>,
}

impl Read for BufferedConnection {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if let Some(until) = self.handshake_deadline {
            let left = until.saturating_duration_since(Instant::now());
            // None at all would be for ever.
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
    /// A socket whose handshake may take so long. Without Nagle's delay (RFC 896), if it is TCP.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(connection: Connection, handshake: Duration) -> Result<Self> {
        if let Some(socket) = connection.tcp() {
            socket.set_nodelay(true)?;
        }
        let write = connection.try_clone().context("no descriptor is left")?;
        Ok(Self {
            reader: BufReader::with_capacity(RECEIVE_LEN, connection),
            writer: write,
            handshake_deadline: Some(Instant::now() + handshake),
        })
    }

    /// The handshake is over: reads wait as long as they must.
    ///
    /// # Errors
    /// Those of the system.
    pub fn end_handshake(&mut self) -> io::Result<()> {
        self.handshake_deadline = None;
        self.reader.get_mut().set_read_timeout(None)
    }

    /// A handle by which another thread ends it.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn handle(&self) -> io::Result<Handle> {
        Ok(Handle(Arc::new(self.writer.try_clone()?)))
    }

    /// Nothing more is written.
    ///
    /// # Errors
    /// A connection that broke.
    pub fn finish_sending(&self) -> io::Result<()> {
        self.writer.finish_sending()
    }
}

/// Ends a connection that another thread waits in.
#[derive(Debug, Clone)]
pub struct Handle(Arc<Connection>);

impl Handle {
    /// The connection, to look at and to set up.
    pub fn connection(&self) -> &Connection {
        &self.0
    }

    /// Whoever waits in it fails.
    pub fn shutdown(&self) {
        self.0.shutdown();
    }

    /// Whoever waits for something from the other end hears that there is nothing more. Over TCP the other end notices nothing.
    pub fn shutdown_read(&self) {
        self.0.shutdown_read();
    }
}

/// A far end that says nothing any more, not even that it is there, is an error.
///
/// # Errors
/// Those of the system.
pub fn enable_keepalive(socket: &impl AsFd, silence: Duration) -> io::Result<()> {
    // The kernel counts seconds, and one at least.
    let look = (silence / 4).max(Duration::from_secs(1));
    sockopt::set_tcp_user_timeout(socket, silence.as_millis() as u32)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, look)?;
    sockopt::set_tcp_keepintvl(socket, look)?;
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

    /// A read timeout of its own would begin anew with each byte.
    #[test]
    fn who_sends_a_byte_now_and_then_shakes_hands_no_longer_than_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let trickle = thread::spawn(move || {
            while stranger.write_all(&[0]).is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let mut socket =
            BufferedConnection::new(Connection::Tcp(accepted), Duration::from_millis(100)).unwrap();
        let mut bytes = [0; 1 << 20];
        assert!(socket.read_exact(&mut bytes).is_err());
        drop(socket);
        trickle.join().unwrap();
    }
}
