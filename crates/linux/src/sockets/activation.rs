// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets that a service manager has opened and passes on (sd_listen_fds(3)).

use socket2::{SockRef, Type};
use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::{FromRawFd as _, OwnedFd},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// A socket that the service manager passed.
#[derive(Debug)]
pub struct PassedSocket {
    /// Value of `FileDescriptorName=`; by default the name of the socket unit.
    pub name: String,
    descriptor: OwnedFd,
}

impl PassedSocket {
    /// Returns the address on which it listens; `None` if it is not a listening TCP socket.
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

/// Takes the sockets that were passed to this process, once. A second call returns none, as does a
/// process that `LISTEN_PID` does not name. Call it before code that could close descriptors that it
/// did not open.
///
/// # Errors
/// Malformed variables, or descriptors that are not open.
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
