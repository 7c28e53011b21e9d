// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS 1.3 on a carrier that others hold too: like a socket it reads and writes what it can through
//! a shared reference and says `WouldBlock` for the rest.

use crate::{channel::Channel as _, transport::Transport};
use parking_lot::{Mutex, MutexGuard};
use rustls::Connection;
use std::{
    collections::VecDeque,
    io::{self, IoSlice, Read, Write},
};

/// One end of a TLS connection. The lock is for soundness only: each connection belongs to one
/// thread.
///
/// Memory: about 10 KiB of keys and state; while bytes move, up to 64 KiB that the socket has not
/// taken yet and as much that was received and not yet decrypted.
#[derive(Debug)]
pub struct Tls(Mutex<Session>);

#[derive(Debug)]
struct Session {
    connection: Connection,
    /// Bytes that left in small records, up to [`SMALL_RECORDS`].
    small_record_bytes: usize,
    /// Received, and of no use to rustls yet, which takes 4 KiB at a time.
    incoming: VecDeque<u8>,
}

/// Bytes in one read from the socket: a few records (RFC 8446 §5.1: 16 KiB each).
const RECEIVE_LEN: usize = 64 * 1024;

/// A record that fits one segment of any usual path. Nobody can read a record before its last byte is
/// there: one of 16 KiB is more than the initial window of ten segments, and so waits for a second
/// round trip.
const SMALL_RECORD_LEN: usize = 1360;
/// The bytes at the beginning of a connection that leave in such records: more than slow start sends
/// in its first two round trips.
const SMALL_RECORD_BYTES_MAX: usize = 48 * 1024;

impl Tls {
    /// Shakes hands over `carrier`. An error is told to the other side in an alert, if it can be.
    pub async fn handshake(
        carrier: &Transport,
        connection: impl Into<Connection>,
    ) -> io::Result<Self> {
        let tls = Self(Mutex::new(Session {
            connection: connection.into(),
            small_record_bytes: 0,
            incoming: VecDeque::new(),
        }));
        loop {
            while !tls.try_flush(carrier)? {
                carrier.writable().await?;
            }
            if !tls.session().connection.is_handshaking() {
                return Ok(tls);
            }
            carrier.readable().await?;
            match tls.session().receive(carrier) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }

    /// Reads what has come. `Ok(0)` is the other side's close_notify; a FIN without it is
    /// `UnexpectedEof` (RFC 8446 §6.1: data may have been cut off).
    pub fn try_read(&self, carrier: &Transport, bytes: &mut [u8]) -> io::Result<usize> {
        let mut session = self.session();
        let mut read = 0;
        while read < bytes.len() {
            match session.connection.reader().read(&mut bytes[read..]) {
                Ok(more @ 1..) => read += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match session.receive(carrier) {
                        Ok(_) => {}
                        Err(_) if read > 0 => break,
                        Err(error) => return Err(error),
                    }
                }
                // An end is reported again when everything before it is delivered.
                _ if read > 0 => break,
                end => return end,
            }
        }
        Ok(read)
    }

    /// Encrypts what there is room for and gives the socket what it takes; the rest leaves with
    /// the next call.
    pub fn try_write(&self, carrier: &Transport, bytes: &[u8]) -> io::Result<usize> {
        let mut session = self.session();
        if !flush(&mut session.connection, carrier)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let written = session.encrypt(bytes)?;
        flush(&mut session.connection, carrier)?;
        Ok(written)
    }

    /// Whether the socket has taken everything that was written.
    pub fn try_flush(&self, carrier: &Transport) -> io::Result<bool> {
        flush(&mut self.session().connection, carrier)
    }

    /// Queues close_notify; a second one is none.
    pub fn close_notify(&self) {
        self.session().connection.send_close_notify();
    }

    /// Whether a read has something to say without looking at the socket.
    pub fn has_buffered(&self) -> bool {
        let mut session = self.session();
        let state = session.connection.process_new_packets();
        let decrypted = state.map_or(true, |state| {
            state.plaintext_bytes_to_read() > 0 || state.peer_has_closed()
        });
        decrypted || !session.incoming.is_empty()
    }

    /// The other side's certificate (DER).
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
    /// Encrypts what there is room for: at first in small records, then in the largest.
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

    /// Reads and decrypts some; `Ok(0)` is FIN. What the protocol itself has to answer leaves at
    /// once.
    fn receive(&mut self, carrier: &Transport) -> io::Result<usize> {
        if self.incoming.is_empty() {
            self.fetch(carrier)?;
        }
        let read = self.connection.read_tls(&mut self.incoming)?;
        if self.incoming.is_empty() {
            // An idle connection holds no memory for what it does not receive.
            self.incoming = VecDeque::new();
        }
        let outcome = self.connection.process_new_packets();
        // After an error this is the alert that names it; if it can't leave, the error stands
        // anyway.
        let _ = flush(&mut self.connection, carrier);
        outcome.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(read)
    }

    fn fetch(&mut self, carrier: &Transport) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(RECEIVE_LEN);
        carrier.try_read_into(&mut bytes)?;
        self.incoming = bytes.into();
        Ok(())
    }
}

fn flush(connection: &mut Connection, carrier: &Transport) -> io::Result<bool> {
    while connection.wants_write() {
        match connection.write_tls(&mut TransportWriter(carrier)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// A carrier as rustls wants it.
struct TransportWriter<'a>(&'a Transport);

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
