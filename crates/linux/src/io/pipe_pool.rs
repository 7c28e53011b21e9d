// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pool of transfer buffers for the connections of one thread. A buffer is leased while bytes move and
//! returned afterwards, so that an idle connection holds none.

use super::{
    splice::Pipe,
    transfer_buffer::{Buffer, TransferBuffer},
};
use std::{
    ops::{Deref, DerefMut},
    sync::{Mutex, PoisonError},
};

/// Method by which bytes move from one connection to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// splice(2) through pipes; copying where the system has no pipe left.
    Splice,
    /// recv(2) and send(2).
    Copy,
}

/// Sizes of the pool's buffers, and limits on their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolConfig {
    /// Requested capacity of a pipe in bytes. The kernel may grant less.
    pub pipe_bytes: usize,
    /// Capacity of a copy buffer in bytes.
    pub buffer_bytes: usize,
    /// Most pipes that exist at once, idle ones included; beyond that, copy buffers are used instead.
    pub pipes_max: usize,
    /// Most buffers kept for reuse. An idle pool's memory is at most this times the capacity of a copy
    /// buffer; a 1 MiB pipe takes 10 KiB and two descriptors.
    pub idle_max: usize,
}

/// Reason why pipes are smaller than requested or missing, for one log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shortfall {
    /// Pipes have this capacity, in bytes, instead of the requested one.
    SmallPipes(usize),
    /// No pipe could be created, for this reason: bytes are copied.
    NoPipe(String),
}

/// A bounded store of empty transfer buffers. Its lock is for soundness only: each thread has a pool of
/// its own.
#[derive(Debug)]
pub struct Pool {
    config: PoolConfig,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<TransferBuffer>,
    pipes: usize,
    shortfall: Option<Shortfall>,
}

impl Pool {
    /// Creates an empty pool.
    #[must_use]
    pub fn new(config: PoolConfig) -> Self {
        Self {
            config,
            state: Mutex::default(),
        }
    }

    /// Leases an empty buffer, which returns to the pool when it is dropped.
    #[must_use]
    pub fn lease(&self, mode: Mode) -> Lease<'_> {
        let idle = self.state().take(mode);
        let buffer = Some(idle.unwrap_or_else(|| self.create(mode)));
        Lease {
            home: Some((self, mode)),
            buffer,
        }
    }

    /// Returns the first shortfall since the last call, if any.
    pub fn take_shortfall(&self) -> Option<Shortfall> {
        self.state().shortfall.take()
    }

    fn create(&self, mode: Mode) -> TransferBuffer {
        if mode == Mode::Copy || self.state().pipes >= self.config.pipes_max {
            return self.buffer();
        }
        match Pipe::with_capacity(self.config.pipe_bytes) {
            Ok(pipe) => self.count_pipe(pipe),
            Err(error) => {
                self.record_shortfall(Shortfall::NoPipe(error.to_string()));
                self.buffer()
            }
        }
    }

    fn buffer(&self) -> TransferBuffer {
        TransferBuffer::Copy(Buffer::with_capacity(self.config.buffer_bytes))
    }

    fn count_pipe(&self, pipe: Pipe) -> TransferBuffer {
        if pipe.capacity() < self.config.pipe_bytes {
            self.record_shortfall(Shortfall::SmallPipes(pipe.capacity()));
        }
        self.state().pipes += 1;
        TransferBuffer::Splice(pipe)
    }

    fn record_shortfall(&self, shortfall: Shortfall) {
        self.state().shortfall.get_or_insert(shortfall);
    }

    /// Keeps only an empty buffer for reuse, or one connection's bytes would reach another. A copy
    /// buffer used in place of a pipe is dropped too: the next lease tries to create a pipe again.
    fn return_buffer(&self, buffer: TransferBuffer, mode: Mode) {
        let is_pipe = kind(&buffer) == Mode::Splice;
        let is_substitute = kind(&buffer) != mode;
        let mut state = self.state();
        if buffer.buffered_len() == 0 && !is_substitute && state.idle.len() < self.config.idle_max {
            state.idle.push(buffer);
        } else if is_pipe {
            state.pipes -= 1;
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, mode: Mode) -> Option<TransferBuffer> {
        let index = self.idle.iter().rposition(|idle| kind(idle) == mode)?;
        Some(self.idle.swap_remove(index))
    }
}

fn kind(buffer: &TransferBuffer) -> Mode {
    match buffer {
        TransferBuffer::Splice(_) => Mode::Splice,
        TransferBuffer::Copy(_) => Mode::Copy,
    }
}

/// A leased buffer.
#[derive(Debug)]
pub struct Lease<'a> {
    /// Pool to which the buffer returns, and the mode that was asked for.
    home: Option<(&'a Pool, Mode)>,
    buffer: Option<TransferBuffer>,
}

impl Lease<'static> {
    /// Wraps a buffer that belongs to no pool.
    #[must_use]
    pub fn unpooled(buffer: TransferBuffer) -> Self {
        Self {
            home: None,
            buffer: Some(buffer),
        }
    }
}

impl Deref for Lease<'_> {
    type Target = TransferBuffer;
    fn deref(&self) -> &TransferBuffer {
        self.buffer.as_ref().expect("present until drop")
    }
}

impl DerefMut for Lease<'_> {
    fn deref_mut(&mut self) -> &mut TransferBuffer {
        self.buffer.as_mut().expect("present until drop")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let (Some((pool, mode)), Some(buffer)) = (self.home, self.buffer.take()) {
            pool.return_buffer(buffer, mode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write, os::unix::net::UnixStream};

    fn pool(idle_max: usize) -> Pool {
        Pool::new(PoolConfig {
            pipe_bytes: 1 << 16,
            buffer_bytes: 1 << 12,
            pipes_max: 2,
            idle_max,
        })
    }

    #[test]
    fn idle_buffers_are_limited_to_idle_max() {
        let pool = pool(1);
        let leases = (pool.lease(Mode::Splice), pool.lease(Mode::Splice));
        drop(leases);
        assert_eq!(pool.state().idle.len(), 1);
    }

    #[test]
    fn never_reuses_a_buffer_that_is_not_empty() {
        for mode in [Mode::Splice, Mode::Copy] {
            let pool = pool(8);
            let (mut client, near) = UnixStream::pair().unwrap();
            client.write_all(b"secret").unwrap();
            let mut lease = pool.lease(mode);
            assert_eq!(lease.fill(&near, usize::MAX).unwrap(), 6);
            drop(lease);
            assert_eq!(pool.state().idle.len(), 0, "{mode:?}");
        }
    }

    #[test]
    fn uses_copy_buffers_beyond_the_limit_of_pipes() {
        let pool = pool(0);
        let leases = [(); 3].map(|()| pool.lease(Mode::Splice));
        let pipe = |lease: &Lease<'_>| matches!(**lease, TransferBuffer::Splice(_));
        assert_eq!(leases.each_ref().map(pipe), [true, true, false]);
        drop(leases);
        assert!(pipe(&pool.lease(Mode::Splice)), "dropped pipes still count");
    }

    #[test]
    fn reuses_pipes_and_copy_buffers() {
        let pool = pool(8);
        drop((pool.lease(Mode::Splice), pool.lease(Mode::Copy)));
        for mode in [Mode::Copy, Mode::Splice, Mode::Copy] {
            assert_eq!(kind(&pool.lease(mode)), mode);
        }
        assert_eq!(pool.state().idle.len(), 2, "both are reused");
    }

    #[test]
    fn reuses_an_empty_buffer() {
        let pool = pool(8);
        drop(pool.lease(Mode::Copy));
        let _lease = pool.lease(Mode::Copy);
        assert_eq!(pool.state().idle.len(), 0);
    }
}
