// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS 1.3 on a shared transport. As a socket does, it reads and writes as much as is possible through a shared
//! reference, and returns `WouldBlock` otherwise.

use crate::{channel::Channel as _, transport::TransportStream};
use parking_lot::{Mutex, MutexGuard};
use rustls::Connection;
use std::{
    collections::VecDeque,
    io::{self, IoSlice, Read, Write},
};

/// TLS connection. The lock is for soundness only: each connection belongs to one thread.
///
/// Memory: about 10 KiB of keys and state. While data flows, up to 64 KiB that the socket has not accepted yet, and
/// as much that was received and not yet decrypted.
#[derive(Debug)]
pub struct Tls(Mutex<Session>);

#[derive(Debug)]
struct Session {
    connection: Connection,
    /// Bytes that were sent in small records, up to [`SMALL_RECORD_BYTES_MAX`].
    small_record_bytes: usize,
    /// Received bytes that rustls has not taken yet; it takes 4 KiB at a time.
    incoming: VecDeque<u8>,
}

/// Bytes in one read from the socket: a few records (RFC 8446 §5.1: 16 KiB each).
const RECEIVE_LEN: usize = 64 * 1024;

/// Length of a small record in bytes, which fits into one segment of any usual path. A receiver cannot decrypt a
/// record before its last byte arrives. A record of 16 KiB exceeds the initial window of ten segments, and waits for
/// a second round trip.
const SMALL_RECORD_LEN: usize = 1360;
/// Bytes at the start of a connection that are sent in small records: more than slow start sends in its first two
/// round trips.
const SMALL_RECORD_BYTES_MAX: usize = 48 * 1024;

impl Tls {
    /// Performs the handshake over `transport`. An error is reported to the peer in an alert if possible.
    pub async fn handshake(
        transport: &TransportStream,
        connection: impl Into<Connection>,
    ) -> io::Result<Self> {
        let tls = Self(Mutex::new(Session {
            connection: connection.into(),
            small_record_bytes: 0,
            incoming: VecDeque::new(),
        }));
        loop {
            while !tls.try_flush(transport)? {
                transport.writable().await?;
            }
            if !tls.session().connection.is_handshaking() {
                return Ok(tls);
            }
            transport.readable().await?;
            match tls.session().receive(transport) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }

    /// Reads received data. `Ok(0)` is the peer's close_notify; a FIN without it is `UnexpectedEof` (RFC 8446 §6.1:
    /// data may have been cut off).
    pub fn try_read(&self, transport: &TransportStream, bytes: &mut [u8]) -> io::Result<usize> {
        let mut session = self.session();
        let mut read = 0;
        while read < bytes.len() {
            match session.connection.reader().read(&mut bytes[read..]) {
                Ok(more @ 1..) => read += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match session.receive(transport) {
                        Ok(_) => {}
                        Err(_) if read > 0 => break,
                        Err(error) => return Err(error),
                    }
                }
                // The end is reported again after all data before it was delivered.
                _ if read > 0 => break,
                end => return end,
            }
        }
        Ok(read)
    }

    /// Encrypts as much as there is space for, and writes as much as the socket accepts. The next call writes the
    /// rest.
    pub fn try_write(&self, transport: &TransportStream, bytes: &[u8]) -> io::Result<usize> {
        let mut session = self.session();
        if !flush(&mut session.connection, transport)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let written = session.encrypt(bytes)?;
        flush(&mut session.connection, transport)?;
        Ok(written)
    }

    /// Whether the socket has accepted all written data.
    pub fn try_flush(&self, transport: &TransportStream) -> io::Result<bool> {
        flush(&mut self.session().connection, transport)
    }

    /// Queues close_notify, once only.
    pub fn close_notify(&self) {
        self.session().connection.send_close_notify();
    }

    /// Whether a read would return without reading the socket.
    pub fn has_buffered(&self) -> bool {
        let mut session = self.session();
        let state = session.connection.process_new_packets();
        let decrypted = state.map_or(true, |state| {
            state.plaintext_bytes_to_read() > 0 || state.peer_has_closed()
        });
        decrypted || !session.incoming.is_empty()
    }

    /// Returns the peer's certificate (DER).
    pub fn peer_certificate(&self) -> Option<Vec<u8>> {
        let session = self.session();
        let certificates = session.connection.peer_certificates()?;
        certificates.first().map(|first| first.to_vec())
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.0.lock()
    }
}

impl Session {
    /// Encrypts as much as there is space for: at first in small records, then in the largest.
    fn encrypt(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut writer = self.connection.writer();
        let (begin, rest) = bytes.split_at(
            bytes
                .len()
                .min(SMALL_RECORD_BYTES_MAX - self.small_record_bytes),
        );
        let mut written = 0;
        for record in begin.chunks(SMALL_RECORD_LEN) {
            let taken = writer.write(record)?;
            written += taken;
            self.small_record_bytes += taken;
            if taken < record.len() {
                return Ok(written);
            }
        }
        match rest {
            [] => Ok(written),
            rest => Ok(written + writer.write(rest)?),
        }
    }

    /// Reads and decrypts data; `Ok(0)` is FIN. Replies of the protocol itself are sent at once.
    fn receive(&mut self, transport: &TransportStream) -> io::Result<usize> {
        if self.incoming.is_empty() {
            self.fetch(transport)?;
        }
        let read = self.connection.read_tls(&mut self.incoming)?;
        if self.incoming.is_empty() {
            // An idle connection keeps no receive buffer.
            self.incoming = VecDeque::new();
        }
        let outcome = self.connection.process_new_packets();
        // After an error this sends the alert. If it cannot be sent, the error is returned anyway.
        let _ = flush(&mut self.connection, transport);
        outcome.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(read)
    }

    fn fetch(&mut self, transport: &TransportStream) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(RECEIVE_LEN);
        transport.try_read_into(&mut bytes)?;
        self.incoming = bytes.into();
        Ok(())
    }
}

fn flush(connection: &mut Connection, transport: &TransportStream) -> io::Result<bool> {
    while connection.wants_write() {
        match connection.write_tls(&mut TransportWriter(transport)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Writer over a transport, for rustls.
struct TransportWriter<'a>(&'a TransportStream);

impl Write for TransportWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
