// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection between the two endpoints of a copy: TLS 1.3 over TCP or UDT. A first message states its purpose. Many
//! threads send control messages over one connection, through a queue.
//!
//! With `--encrypt off`, a stream continues without TLS after both endpoints have authenticated. Because TLS may read
//! ahead, each side marks its last encrypted or first plain byte: the side that accepted sends a last encrypted byte, the
//! other side a first plain byte.
//!
//! Reads and writes block the thread. After the handshake each connection carries data in one direction only, so no
//! writer waits for a lock that a reader holds. Another thread can end the connection through its handle.

use crate::protocol::{message, options::Switch};
use anyhow::{Context as _, Result, bail, ensure};
use longhaul_transport::{
    blocking::{self, BufferedConnection},
    identity::{Initiator, Responder},
};
use rustls::{ConnectionCommon, SideData, StreamOwned};
use serde::Serialize;
use std::{
    io::{self, BufWriter, Read, Write},
    ops::DerefMut,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Control messages from the source to the target.
    SourceMessages,
    /// Control messages from the target to the source.
    TargetMessages,
    /// Blocks of files, on the stream of this number. Streams are numbered as they are opened, and a session uses each
    /// number once.
    Data(u64),
}

impl Purpose {
    fn encode(self) -> [u8; 9] {
        let (kind, number) = match self {
            Self::SourceMessages => (1, 0),
            Self::TargetMessages => (2, 0),
            Self::Data(number) => (3, number),
        };
        let mut bytes = [kind; 9];
        bytes[1..].copy_from_slice(&u64::to_be_bytes(number));
        bytes
    }

    /// Whether the connection continues without TLS. Control messages are always encrypted.
    fn uses_plaintext(self, encrypt: Switch) -> bool {
        matches!(self, Self::Data(_)) && encrypt == Switch::Off
    }

    fn parse([kind, number @ ..]: [u8; 9]) -> Option<Self> {
        match (kind, u64::from_be_bytes(number)) {
            (1, 0) => Some(Self::SourceMessages),
            (2, 0) => Some(Self::TargetMessages),
            (3, number) => Some(Self::Data(number)),
            _ => None,
        }
    }
}

/// Connection, by the side of this endpoint.
pub(crate) enum Connection {
    Initiated(StreamOwned<rustls::ClientConnection, BufferedConnection>),
    Accepted(StreamOwned<rustls::ServerConnection, BufferedConnection>),
    /// Stream without TLS, with `--encrypt off`.
    Plain(BufferedConnection),
}

/// Byte that each side sends before it continues without TLS.
const PLAINTEXT_MARKER: [u8; 1] = *b"P";

/// Time limit for a handshake: a few round trips, on any path.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

impl Connection {
    /// Performs the handshake as the side that connected, and sends the purpose.
    pub(crate) fn open(
        socket: blocking::Connection,
        trust: &Initiator,
        purpose: Purpose,
        encrypt: Switch,
    ) -> Result<Self> {
        let socket = BufferedConnection::new(socket, HANDSHAKE_TIMEOUT)?;
        let mut stream = StreamOwned::new(trust.connection()?, socket);
        complete_handshake(&mut stream.conn, &mut stream.sock)?;
        stream.write_all(&purpose.encode())?;
        stream.flush()?;
        if !purpose.uses_plaintext(encrypt) {
            stream.sock.end_handshake()?;
            return Ok(Self::Initiated(stream));
        }
        expect(&mut stream, PLAINTEXT_MARKER)?;
        let mut socket = stream.sock;
        socket.write_all(&PLAINTEXT_MARKER)?;
        socket.end_handshake()?;
        Ok(Self::Plain(socket))
    }

    /// Performs the handshake as the side that accepted, and receives the purpose.
    pub(crate) fn accept(
        socket: blocking::Connection,
        trust: &Responder,
        encrypt: Switch,
    ) -> Result<(Self, Purpose)> {
        let socket = BufferedConnection::new(socket, HANDSHAKE_TIMEOUT)?;
        let mut stream = StreamOwned::new(trust.connection()?, socket);
        complete_handshake(&mut stream.conn, &mut stream.sock)?;
        let mut purpose = [0; 9];
        stream.read_exact(&mut purpose)?;
        let Some(purpose) = Purpose::parse(purpose) else {
            bail!("a connection with an unknown purpose");
        };
        if !purpose.uses_plaintext(encrypt) {
            stream.sock.end_handshake()?;
            return Ok((Self::Accepted(stream), purpose));
        }
        stream.write_all(&PLAINTEXT_MARKER)?;
        stream.flush()?;
        let mut socket = stream.sock;
        expect(&mut socket, PLAINTEXT_MARKER)?;
        socket.end_handshake()?;
        Ok((Self::Plain(socket), purpose))
    }

    /// Returns the handle by which another thread can end the connection.
    pub(crate) fn handle(&self) -> Result<Arc<blocking::Connection>> {
        let socket = match self {
            Self::Initiated(stream) => &stream.sock,
            Self::Accepted(stream) => &stream.sock,
            Self::Plain(socket) => socket,
        };
        Ok(socket.handle()?)
    }

    /// Announces the end of the data, so that the peer can tell it from a truncation (RFC 8446 §6.1).
    pub(crate) fn close(&mut self) -> io::Result<()> {
        match self {
            Self::Initiated(stream) => close_tls(&mut stream.conn, &mut stream.sock),
            Self::Accepted(stream) => close_tls(&mut stream.conn, &mut stream.sock),
            Self::Plain(socket) => socket.finish_sending(),
        }
    }
}

/// Default time that sent data may stay unacknowledged. TCP handles shorter interruptions of a path.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

fn complete_handshake<C, S>(connection: &mut C, socket: &mut BufferedConnection) -> Result<()>
where
    C: DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    while connection.is_handshaking() {
        connection
            .complete_io(socket)
            .context("the peer failed to authenticate, or closed the connection")?;
    }
    Ok(())
}

fn expect(from: &mut impl Read, expected: [u8; 1]) -> Result<()> {
    let mut received = [0];
    from.read_exact(&mut received)?;
    ensure!(
        received == expected,
        "the peer did not follow the encryption option"
    );
    Ok(())
}

fn close_tls<C, S>(connection: &mut C, socket: &mut BufferedConnection) -> io::Result<()>
where
    C: DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    connection.send_close_notify();
    while connection.wants_write() {
        connection.write_tls(socket)?;
    }
    socket.finish_sending()
}

impl Read for Connection {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Initiated(stream) => stream.read(bytes),
            Self::Accepted(stream) => stream.read(bytes),
            Self::Plain(socket) => socket.read(bytes),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Initiated(stream) => stream.write(bytes),
            Self::Accepted(stream) => stream.write(bytes),
            Self::Plain(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Initiated(stream) => stream.flush(),
            Self::Accepted(stream) => stream.flush(),
            Self::Plain(socket) => socket.flush(),
        }
    }
}

/// Maximum number of queued messages. A thread that adds more waits. An entry has about 200 bytes.
const QUEUE_LEN_MAX: usize = 4096;

/// Handle that adds messages to a send queue.
#[derive(Debug)]
pub(crate) struct SendQueue<M>(SyncSender<M>);

impl<M> Clone for SendQueue<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M> SendQueue<M> {
    /// Adds a message, and waits while the queue is full. After the session has ended, the message is dropped: callers learn
    /// of the end by other means.
    pub(crate) fn push(&self, message: M) {
        let _ = self.0.send(message);
    }
}

/// Creates a send queue and its sender. The sender ends when all clones of the queue are dropped.
pub(crate) fn send_queue<M: Serialize>() -> (SendQueue<M>, QueueSender<M>) {
    let (into, from) = sync_channel(QUEUE_LEN_MAX);
    (SendQueue(into), QueueSender(from))
}

/// Sender of the messages in a queue.
pub(crate) struct QueueSender<M>(Receiver<M>);

impl<M: Serialize> QueueSender<M> {
    /// Sends messages until the queue is closed, then closes the connection.
    pub(crate) fn run(self, to: Connection) -> Result<()> {
        let mut to = BufWriter::with_capacity(64 << 10, to);
        while let Ok(first) = self.0.recv() {
            message::write(&mut to, &first)?;
            while let Ok(next) = self.0.try_recv() {
                message::write(&mut to, &next)?;
            }
            to.flush()?;
        }
        let mut to = to.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(to.close()?)
    }
}
