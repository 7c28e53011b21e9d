// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets that a service manager has opened and passes on (sd_listen_fds(3)).

use socket2::{SockRef, Type};
use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::{FromRawFd as _, OwnedFd},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// A descriptor that was passed.
#[derive(Debug)]
pub struct PassedSocket {
    /// From `FileDescriptorName=`; the name of the socket unit if that says nothing.
    pub name: String,
    descriptor: OwnedFd,
}

impl PassedSocket {
    /// Where it listens; `None` if it is not a TCP socket that listens.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        let socket = SockRef::from(&self.descriptor);
        let listens = socket.r#type().is_ok_and(|kind| kind == Type::STREAM)
            && socket.is_listener().unwrap_or(false);
        let address = socket.local_addr().ok()?.as_socket();
        address.filter(|_| listens)
    }
}

impl From<PassedSocket> for TcpListener {
    fn from(passed: PassedSocket) -> Self {
        passed.descriptor.into()
    }
}

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes what was passed to this process, once: a second call finds nothing, and neither does a
/// process that `LISTEN_PID` does not name. Call it before anything else that could close
/// descriptors it did not open.
///
/// # Errors
/// The variables are malformed, or name descriptors that are not open.
pub fn take() -> io::Result<Vec<PassedSocket>> {
    if TAKEN.swap(true, Relaxed) {
        return Ok(Vec::new());
    }
    let passed = sd_notify::listen_fds_with_names()?.map(|(number, name)| {
        // SAFETY: the descriptor is open (its flags were just set), and the service manager made it
        // for this process (LISTEN_PID) before anything here could open one of that number. It is
        // taken once.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        PassedSocket { name, descriptor }
    });
    Ok(passed.collect())
}
