// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection between the two ends of a copy: TLS 1.3 over TCP or UDT, and a first message that says what it is for.
//!
//! Where `--encrypt off` says so, a stream goes on without TLS once both ends have shown who they are. TLS may have read
//! ahead, so each side says when it has stopped: the one that accepted by a last encrypted byte, the other by a first plain one.
//!
//! Threads read and write it, and wait in it. Each connection carries in one direction only, after the handshake, so
//! nobody waits for a lock that a reader holds. Another thread ends it through its [`Handle`].

use crate::protocol::options::Switch;
use anyhow::{Context as _, Result, bail, ensure};
use longhaul_transport::{
    blocking::{self, Buffered, Handle},
    identity::{Initiator, Responder},
};
use rustls::{ConnectionCommon, SideData, StreamOwned};
use std::{
    io::{self, Read, Write},
    ops::DerefMut,
    time::Duration,
};

/// What a connection is for. Orders go from the source to the target, answers back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    SourceMessages,
    TargetMessages,
    /// Blocks. Streams are numbered as they are opened; a number never comes again in a conversation.
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

    /// Orders and answers are always encrypted.
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

/// A connection, by either of its sides.
pub(crate) enum Connection {
    Initiated(StreamOwned<rustls::ClientConnection, Buffered>),
    Accepted(StreamOwned<rustls::ServerConnection, Buffered>),
    /// A stream after `--encrypt off`.
    Plain(Buffered),
}

/// What each side says before it goes on without TLS.
const PLAINTEXT_MARKER: [u8; 1] = [b'P'];

/// How long a handshake may take: some round trips, on any path.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

impl Connection {
    /// Shakes hands as the side that connected, and says what for.
    pub(crate) fn open(
        transport: blocking::Connection,
        trust: &Initiator,
        purpose: Purpose,
        encrypt: Switch,
    ) -> Result<Self> {
        let socket = Buffered::new(transport, HANDSHAKE_TIMEOUT)?;
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

    /// Shakes hands as the side that accepted, and hears what for.
    pub(crate) fn accept(
        carrier: blocking::Connection,
        trust: &Responder,
        encrypt: Switch,
    ) -> Result<(Self, Purpose)> {
        let socket = Buffered::new(carrier, HANDSHAKE_TIMEOUT)?;
        let mut stream = StreamOwned::new(trust.connection()?, socket);
        complete_handshake(&mut stream.conn, &mut stream.sock)?;
        let mut purpose = [0; 9];
        stream.read_exact(&mut purpose)?;
        let Some(purpose) = Purpose::parse(purpose) else {
            bail!("a connection for nothing that is known");
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

    /// By which another thread ends it.
    pub(crate) fn handle(&self) -> Result<Handle> {
        let socket = match self {
            Self::Initiated(stream) => &stream.sock,
            Self::Accepted(stream) => &stream.sock,
            Self::Plain(socket) => socket,
        };
        Ok(socket.handle()?)
    }

    /// Says that nothing more comes: what is missing after that was not cut off (RFC 8446 §6.1).
    pub(crate) fn close(&mut self) -> io::Result<()> {
        match self {
            Self::Initiated(stream) => close_tls(&mut stream.conn, &mut stream.sock),
            Self::Accepted(stream) => close_tls(&mut stream.conn, &mut stream.sock),
            Self::Plain(socket) => socket.finish_sending(),
        }
    }
}

/// How long what was sent may stay without an answer, if nobody says. Shorter interruptions of a path are TCP's matter.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

fn complete_handshake<C, S>(connection: &mut C, socket: &mut Buffered) -> Result<()>
where
    C: DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    while connection.is_handshaking() {
        connection
            .complete_io(socket)
            .context("the other end is not who it should be, or went away")?;
    }
    Ok(())
}

fn expect(from: &mut impl Read, wanted: [u8; 1]) -> Result<()> {
    let mut got = [0];
    from.read_exact(&mut got)?;
    ensure!(
        got == wanted,
        "the other end did not do as it was told: encryption"
    );
    Ok(())
}

fn close_tls<C, S>(connection: &mut C, socket: &mut Buffered) -> io::Result<()>
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
