// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes through a shared reference, on a socket that splice(2) uses as well: no byte stays in a buffer.

use std::{
    io::{self, IoSlice},
    sync::Arc,
};
use tokio::net::TcpStream;

/// Connection that is read and written through shared references. Each call does as much as is possible without
/// waiting.
pub trait Channel: Sync {
    /// Waits until [`Channel::try_read`] may succeed.
    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send;
    /// Waits until [`Channel::try_write_vectored`] may succeed.
    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send;
    /// Reads what was received; `Ok(0)` is the clean end of the stream.
    fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize>;
    /// Writes as much as is accepted, of the first slices at least.
    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Waits until the kernel has all written bytes.
    fn flushed(&self) -> impl Future<Output = io::Result<()>> + Send;
}

impl Channel for TcpStream {
    async fn readable(&self) -> io::Result<()> {
        Self::readable(self).await
    }

    async fn writable(&self) -> io::Result<()> {
        Self::writable(self).await
    }

    fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        Self::try_read(self, bytes)
    }

    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Self::try_write_vectored(self, slices)
    }

    async fn flushed(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Shared channel.
impl<C: Channel + Send> Channel for Arc<C> {
    async fn readable(&self) -> io::Result<()> {
        C::readable(self).await
    }

    async fn writable(&self) -> io::Result<()> {
        C::writable(self).await
    }

    fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        C::try_read(self, bytes)
    }

    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        C::try_write_vectored(self, slices)
    }

    async fn flushed(&self) -> io::Result<()> {
        C::flushed(self).await
    }
}

/// Writes all of `bytes`.
pub async fn write_all(stream: &impl Channel, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write_vectored(&[IoSlice::new(bytes)]) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    stream.flushed().await
}

/// Reads up to `len` bytes and appends them to `bytes`; `Ok(0)` is the end of the stream.
pub async fn read_some(
    stream: &impl Channel,
    bytes: &mut Vec<u8>,
    len: usize,
) -> io::Result<usize> {
    let filled = bytes.len();
    loop {
        stream.readable().await?;
        bytes.resize(filled + len, 0);
        let outcome = stream.try_read(&mut bytes[filled..]);
        bytes.truncate(filled + *outcome.as_ref().unwrap_or(&0));
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            outcome => return outcome,
        }
    }
}

/// Returns the first slice that is not empty: a TLS record or a UDT packet holds bytes of one slice.
pub fn first_nonempty<'a>(slices: &'a [IoSlice<'_>]) -> &'a [u8] {
    slices
        .iter()
        .find(|slice| !slice.is_empty())
        .map_or(&[], |slice| slice)
}
