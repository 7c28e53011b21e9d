// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pipe as a kernel-side buffer between two sockets: bytes move by reference, never through
//! user space (splice(2)).

use rustix::{
    io::{Errno, retry_on_intr, write},
    net::{RecvFlags, recv},
    pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice},
};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

/// The default capacity of a new pipe (`PIPE_DEF_BUFFERS` pages, linux/pipe_fs_i.h).
const CAPACITY_DEFAULT: usize = 16 * PAGE;
/// Least size of a pipe's slot, in bytes: a slot is a page, and no page is smaller.
const PAGE: usize = 4096;

/// A non-blocking pipe that knows how many bytes it holds.
///
/// The pipe is filled only when empty. EAGAIN from splice(2) can mean "the socket is empty" or "no
/// slot is free in the pipe": each skb fragment takes a slot whatever its size. With an empty pipe
/// only the first is possible.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
    buffered_len: usize,
}

impl Pipe {
    /// Creates a pipe of `requested` bytes, rounded up to a power of two of pages. The kernel grants less
    /// above pipe-max-size, or with pipe-user-pages-soft used up. Kernel memory: 40 bytes a page of
    /// capacity, plus the pages while they hold data.
    pub fn with_capacity(requested: usize) -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let capacity = enlarge(&write, requested)?;
        Ok(Self {
            read,
            write,
            capacity,
            buffered_len: 0,
        })
    }

    /// Returns the capacity that the kernel granted, in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of bytes in the pipe.
    #[must_use]
    pub fn buffered_len(&self) -> usize {
        self.buffered_len
    }

    /// Reads from the socket `source`, up to the pipe's capacity. `Ok(0)` is the end of the
    /// stream; `WouldBlock` means that the socket has no data.
    ///
    /// # Panics
    /// If the pipe is not empty.
    pub fn fill(&mut self, source: impl AsFd, len_max: usize) -> io::Result<usize> {
        assert_eq!(self.buffered_len, 0, "EAGAIN would be ambiguous");
        let len_max = self.capacity.min(len_max);
        self.buffered_len = match move_bytes(&source, &self.write, len_max) {
            Err(error) if is_empty(&error) => self.retry_fill(source, len_max)?,
            outcome => outcome?,
        };
        Ok(self.buffered_len)
    }

    /// Checks with recv(2) whether a socket that seems empty is: splice(2) never passes the urgent mark of
    /// a TCP stream (net/ipv4/tcp.c, `tcp_read_sock`).
    fn retry_fill(&self, source: impl AsFd, len_max: usize) -> io::Result<usize> {
        let peek = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        retry_on_intr(|| recv(&source, &mut [0; 1], peek))?;
        match move_bytes(&source, &self.write, len_max) {
            Err(error) if is_empty(&error) => self.copy_in(source, len_max),
            outcome => outcome,
        }
    }

    fn copy_in(&self, source: impl AsFd, len_max: usize) -> io::Result<usize> {
        let mut bytes = [0; PAGE];
        let len_max = len_max.min(PAGE);
        let (received, _) =
            retry_on_intr(|| recv(&source, &mut bytes[..len_max], RecvFlags::DONTWAIT))?;
        // A page always fits into an empty pipe, whole.
        retry_on_intr(|| write(&self.write, &bytes[..received]))?;
        Ok(received)
    }

    /// Writes to `sink` as much as it accepts. `WouldBlock` means that its send buffer is full.
    pub fn drain(&mut self, sink: impl AsFd) -> io::Result<usize> {
        let moved = move_bytes(&self.read, sink, self.buffered_len)?;
        self.buffered_len -= moved;
        Ok(moved)
    }
}

/// Halves the requested size until the kernel grants it; the pipe's default size is always granted.
fn enlarge(pipe: &OwnedFd, requested: usize) -> io::Result<usize> {
    let mut size = requested;
    while size > CAPACITY_DEFAULT {
        match fcntl_setpipe_size(pipe, size) {
            Ok(_) => break,
            Err(Errno::PERM | Errno::NOMEM) => size /= 2,
            Err(error) => return Err(error.into()),
        }
    }
    if size < CAPACITY_DEFAULT {
        // A size below the default is for tests and small machines, and always granted.
        fcntl_setpipe_size(pipe, size)?;
    }
    Ok(fcntl_getpipe_size(pipe)?)
}

fn is_empty(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Moves bytes with splice(2), without SPLICE_F_MORE, which would hold back the last segment of a burst.
/// Inside one call the kernel corks by itself (fs/splice.c, splice_to_socket).
fn move_bytes(from: impl AsFd, to: impl AsFd, len: usize) -> io::Result<usize> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    Ok(retry_on_intr(|| {
        splice(&from, None, &to, None, len, flags)
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
    };

    fn pair() -> (UnixStream, UnixStream) {
        let (a, b) = UnixStream::pair().unwrap();
        a.set_nonblocking(true).unwrap();
        b.set_nonblocking(true).unwrap();
        (a, b)
    }

    #[test]
    fn moves_bytes_and_counts_them() {
        let (mut client, near) = pair();
        let (far, mut server) = pair();
        let mut pipe = Pipe::with_capacity(1 << 20).unwrap();
        client.write_all(b"ten bytes!").unwrap();
        assert_eq!(pipe.fill(&near, usize::MAX).unwrap(), 10);
        assert_eq!(pipe.buffered_len(), 10);
        assert_eq!(pipe.drain(&far).unwrap(), 10);
        assert_eq!(pipe.buffered_len(), 0);
        let mut got = [0; 10];
        server.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"ten bytes!");
    }

    #[test]
    fn empty_socket_and_end_of_stream_differ() {
        let (client, near) = pair();
        let mut pipe = Pipe::with_capacity(1 << 16).unwrap();
        let empty = pipe.fill(&near, usize::MAX).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        drop(client);
        assert_eq!(pipe.fill(&near, usize::MAX).unwrap(), 0);
    }

    #[test]
    fn bytes_stay_in_the_pipe_when_the_sink_is_full() {
        let (mut client, near) = pair();
        let (far, _server) = pair();
        let mut pipe = Pipe::with_capacity(1 << 16).unwrap();
        while (&far).write(&[0; 4096]).is_ok() {}
        client.write_all(b"held").unwrap();
        pipe.fill(&near, usize::MAX).unwrap();
        let full = pipe.drain(&far).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(pipe.buffered_len(), 4);
    }
}
