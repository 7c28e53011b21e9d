// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS connection that one thread reads while another writes: no thread holds the lock while it waits for bytes.

use parking_lot::{Mutex, MutexGuard};
use rustls::ClientConnection;
use std::{
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, TcpStream},
    sync::Arc,
};

/// Bytes per read from the socket, as rustls takes them.
const RECEIVE_LEN: usize = 4096;

/// Shared TLS connection for messages: a write holds the lock until the socket has accepted it.
#[derive(Debug, Clone)]
pub struct SharedTlsStream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tls: Mutex<ClientConnection>,
    socket: TcpStream,
    peer: IpAddr,
}

impl SharedTlsStream {
    /// Wraps a connection after its handshake.
    pub fn new(tls: ClientConnection, socket: TcpStream) -> io::Result<Self> {
        let peer = socket.peer_addr()?.ip();
        let tls = Mutex::new(tls);
        Ok(Self(Arc::new(Inner { tls, socket, peer })))
    }

    /// Returns the peer's address.
    pub fn peer(&self) -> IpAddr {
        self.0.peer
    }

    /// Removes the read timeout: a read waits until keepalive detects a dead peer.
    pub fn clear_read_timeout(&self) -> io::Result<()> {
        self.0.socket.set_read_timeout(None)
    }

    /// Closes the connection: blocked reads fail.
    pub fn shutdown(&self) {
        // The peer may already have closed it.
        let _ = self.0.socket.shutdown(Shutdown::Both);
    }

    fn tls(&self) -> MutexGuard<'_, ClientConnection> {
        self.0.tls.lock()
    }

    /// Processes bytes from the socket; an empty slice is its end.
    fn process_received(&self, mut received: &[u8]) -> io::Result<()> {
        let mut tls = self.tls();
        tls.read_tls(&mut received)?;
        tls.process_new_packets().map_err(io::Error::other)?;
        flush_tls(&mut tls, &self.0.socket)
    }
}

fn flush_tls(tls: &mut ClientConnection, mut socket: &TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut socket)?;
    }
    Ok(())
}

impl Read for SharedTlsStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut received = [0; RECEIVE_LEN];
        loop {
            match self.tls().reader().read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            let count = (&self.0.socket).read(&mut received)?;
            self.process_received(&received[..count])?;
        }
    }
}

impl Write for SharedTlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut tls = self.tls();
        let written = tls.writer().write(bytes)?;
        flush_tls(&mut tls, &self.0.socket)?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
