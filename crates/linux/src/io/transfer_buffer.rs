// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffer that carries bytes from one socket to another: a pipe (splice) or user memory (copy). Both
//! are filled only when empty, and drained until empty.

use super::splice::Pipe;
use rustix::{
    io::retry_on_intr,
    net::{RecvFlags, SendFlags, recv, send},
};
use std::{
    io::{self, Write as _},
    os::fd::AsFd,
};

/// Bytes in user space between two sockets.
#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// Creates an empty buffer of `capacity` bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            bytes: vec![0; capacity].into(),
            start: 0,
            end: 0,
        }
    }

    fn buffered_len(&self) -> usize {
        self.end - self.start
    }

    fn fill(
        &mut self,
        len_max: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        assert_eq!(
            self.buffered_len(),
            0,
            "a buffer is drained before it is filled"
        );
        let len_max = len_max.min(self.bytes.len());
        let read = read(&mut self.bytes[..len_max])?;
        (self.start, self.end) = (0, read);
        Ok(read)
    }

    /// Copies bytes into the empty buffer, as many as its capacity holds.
    ///
    /// # Panics
    /// If the buffer is not empty.
    pub fn copy_from(&mut self, slices: &[io::IoSlice<'_>]) {
        let copied = self.fill(usize::MAX, |mut bytes| bytes.write_vectored(slices));
        copied.expect("a copy can't fail");
    }

    fn drain(&mut self, write: impl FnOnce(&[u8]) -> io::Result<usize>) -> io::Result<usize> {
        let sent = write(&self.bytes[self.start..self.end])?;
        self.start += sent;
        Ok(sent)
    }
}

fn receive(source: impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| recv(&source, &mut *bytes, RecvFlags::DONTWAIT))?.0)
}

fn transmit(sink: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(retry_on_intr(|| send(&sink, bytes, flags))?)
}

/// Sends bytes that more bytes follow at once, so that the kernel sends them together (MSG_MORE).
pub fn send_more(sink: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL | SendFlags::MORE;
    Ok(retry_on_intr(|| send(&sink, bytes, flags))?)
}

/// A pipe or a buffer.
#[derive(Debug)]
pub enum TransferBuffer {
    /// Bytes stay in the kernel.
    Splice(Pipe),
    /// Bytes pass through user space.
    Copy(Buffer),
}

impl TransferBuffer {
    /// Returns the number of bytes that were read from the source and not yet written to the sink.
    #[must_use]
    pub fn buffered_len(&self) -> usize {
        match self {
            Self::Splice(pipe) => pipe.buffered_len(),
            Self::Copy(buffer) => buffer.buffered_len(),
        }
    }

    /// Reads from `source`, up to `len_max` bytes. `Ok(0)` is the end of the stream; `WouldBlock`
    /// means that the socket has no data.
    ///
    /// # Panics
    /// If the buffer is not empty.
    pub fn fill(&mut self, source: impl AsFd, len_max: usize) -> io::Result<usize> {
        match self {
            Self::Splice(pipe) => pipe.fill(source, len_max),
            Self::Copy(buffer) => buffer.fill(len_max, |bytes| receive(source, bytes)),
        }
    }

    /// Writes to `sink` as much as it accepts. `WouldBlock` means that its send buffer is full.
    pub fn drain(&mut self, sink: impl AsFd) -> io::Result<usize> {
        match self {
            Self::Splice(pipe) => pipe.drain(sink),
            Self::Copy(buffer) => buffer.drain(|bytes| transmit(sink, bytes)),
        }
    }

    /// Like [`TransferBuffer::fill`], from a source other than a plain socket, such as TLS.
    ///
    /// # Panics
    /// If the buffer is not empty, or if this is a pipe, whose bytes never pass through user space.
    pub fn fill_with(
        &mut self,
        len_max: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.buffer().fill(len_max, read)
    }

    /// Like [`TransferBuffer::drain`], to a sink other than a plain socket, such as TLS.
    ///
    /// # Panics
    /// If this is a pipe.
    pub fn drain_with(
        &mut self,
        write: impl FnOnce(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.buffer().drain(write)
    }

    /// Returns the bytes that are buffered.
    ///
    /// # Panics
    /// If this is a pipe.
    #[must_use]
    pub fn buffered(&self) -> &[u8] {
        match self {
            Self::Copy(buffer) => &buffer.bytes[buffer.start..buffer.end],
            Self::Splice(_) => panic!("bytes in a pipe are out of reach"),
        }
    }

    fn buffer(&mut self) -> &mut Buffer {
        match self {
            Self::Copy(buffer) => buffer,
            Self::Splice(_) => panic!("bytes in a pipe are out of reach"),
        }
    }
}
