// SPDX-License-Identifier: MIT OR Apache-2.0
//! What carries a connection between the ends of a copy: a TCP socket, or a connection of UDT. Threads wait in either.

use longhaul_linux::tcp_info::TcpInfo;
use longhaul_transport::{port::Control, terms};
use longhaul_udt::socket::{Socket, Stream};
use serde::{
    Deserialize as _,
    de::value::{Error, StrDeserializer},
};
use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// A carrier, or a share of one.
#[derive(Debug)]
pub(crate) enum Carrier {
    Tcp(TcpStream),
    /// UDT, and how long a read of this share may wait.
    Udt(Arc<Stream>, Option<Duration>),
}

impl Carrier {
    /// Opens a connection of UDT.
    pub(crate) fn udt_to(address: SocketAddr, socket: &Socket) -> io::Result<Self> {
        let mut connecting = pin!(socket.connect(address));
        let stream = wait(None, |cx| connecting.as_mut().poll(cx));
        Ok(stream.expect("it may take its time")?.into())
    }

    /// The next connection of UDT that another host opens.
    pub(crate) fn udt_from(socket: &Socket) -> io::Result<Self> {
        let mut accepting = pin!(socket.accept());
        let stream = wait(None, |cx| accepting.as_mut().poll(cx));
        Ok(stream.expect("it may take its time")?.into())
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(socket) => Self::Tcp(socket.try_clone()?),
            Self::Udt(stream, patience) => Self::Udt(stream.clone(), *patience),
        })
    }

    /// How long a read may wait; of a socket, a read of any share.
    pub(crate) fn set_read_timeout(&mut self, at_most: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_read_timeout(at_most),
            Self::Udt(_, patience) => {
                *patience = at_most;
                Ok(())
            }
        }
    }

    /// Nothing more is written. What is over UDT has arrived then: its other direction ends, too, when the last share goes.
    pub(crate) fn finish_sending(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Self::Udt(stream, _) => {
                wait(None, |cx| stream.poll_flushed(cx)).expect("it may take its time")
            }
        }
    }

    /// Whoever waits in it fails.
    pub(crate) fn cut(&self) {
        match self {
            // It may have ended by itself.
            Self::Tcp(socket) => drop(socket.shutdown(Shutdown::Both)),
            Self::Udt(stream, _) => stream.abort(),
        }
    }

    /// Whoever waits for something from the other end hears that there is nothing more. Over TCP the other end notices nothing.
    pub(crate) fn deafen(&self) {
        match self {
            // It may have ended by itself.
            Self::Tcp(socket) => drop(socket.shutdown(Shutdown::Read)),
            Self::Udt(stream, _) => stream.abort(),
        }
    }

    /// Whether the other end has closed it, or it broke: who neither reads nor writes hears of neither.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Tcp(socket) => longhaul_linux::socket::has_hung_up(socket).unwrap_or_default(),
            Self::Udt(stream, _) => stream.has_ended(),
        }
    }

    /// The socket, if it is one.
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(socket) => Some(socket),
            Self::Udt(..) => None,
        }
    }

    /// How it fares; `None` if it is no more.
    pub(crate) fn tcp_info(&self) -> Option<TcpInfo> {
        match self {
            Self::Tcp(socket) => TcpInfo::of(socket).ok(),
            Self::Udt(stream, _) => stream.report().map(|report| terms::tcp_info(&report)),
        }
    }

    /// Lets no more wait in it unsent.
    pub(crate) fn limit_unsent(&self, bytes: u32) {
        match self {
            Self::Tcp(socket) => drop(longhaul_linux::socket::limit_unsent(socket, bytes)),
            Self::Udt(stream, _) => stream.limit_unsent(bytes / terms::PACKET),
        }
    }
}

impl From<Stream> for Carrier {
    fn from(stream: Stream) -> Self {
        Self::Udt(stream.into(), None)
    }
}

impl Read for Carrier {
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
            let ready = wait(patience, |cx| stream.poll_readable(cx));
            ready.ok_or(io::ErrorKind::TimedOut)?;
        }
    }
}

impl Write for Carrier {
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
            wait(None, |cx| stream.poll_writable(cx));
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
struct Waiting(Thread);

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Has this thread wait for what tasks poll for; `None` if that takes longer than `at_most`.
fn wait<T>(
    at_most: Option<Duration>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Option<T> {
    let waker = Waker::from(Arc::new(Waiting(thread::current())));
    let mut context = Context::from_waker(&waker);
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

/// Who decides how fast UDT sends, by its name.
pub(crate) fn udt_control(name: &str) -> Option<Control> {
    Control::deserialize(StrDeserializer::<Error>::new(name)).ok()
}
