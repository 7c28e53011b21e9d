// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of a socket with their control messages (recvmsg(2), cmsg(3)).

use socket2::SockAddr;
use std::{io, net::SocketAddr, os::fd::AsRawFd, ptr};

/// Bytes for a `scm_timestamping` and a `sock_extended_err` with an IPv6 address.
const CONTROL: usize = 256;

/// Control messages of one received message (`cmsg(3)`).
pub(super) struct Control {
    bytes: [u8; CONTROL],
    len: usize,
}

impl Control {
    pub(super) fn new() -> Self {
        Self {
            bytes: [0; CONTROL],
            len: 0,
        }
    }

    /// Calls recvmsg(2). Returns the datagram's length, as far as it fits.
    pub(super) fn receive(
        &mut self,
        socket: &impl AsRawFd,
        buffer: &mut [u8],
        flags: i32,
    ) -> io::Result<usize> {
        // SAFETY: nothing is written where a name would go, since there is no room for one.
        unsafe {
            self.message(socket, buffer, flags, ptr::null_mut())
                .map(|(len, _)| len)
        }
    }

    /// Like [`Self::receive`], and returns the address in the message: the sender's, or the destination's in the error
    /// queue.
    pub(super) fn receive_from(
        &mut self,
        socket: &impl AsRawFd,
        buffer: &mut [u8],
        flags: i32,
    ) -> io::Result<(usize, Option<SocketAddr>)> {
        let mut len = 0;
        // SAFETY: the storage is as large as any address, and `message` says how much of it the
        // kernel filled, which `try_init` takes as the address's length.
        let ((), from) = unsafe {
            SockAddr::try_init(|storage, named| {
                let (got, name) = self.message(socket, buffer, flags, storage.cast())?;
                (len, *named) = (got, name);
                Ok(())
            })?
        };
        Ok((len, from.as_socket()))
    }

    /// Calls recvmsg(2). Returns the lengths of the datagram and of its sender's address.
    ///
    /// # Safety
    /// `name` is null, or has room for a `sockaddr_storage`.
    unsafe fn message(
        &mut self,
        socket: &impl AsRawFd,
        buffer: &mut [u8],
        flags: i32,
        name: *mut libc::c_void,
    ) -> io::Result<(usize, libc::socklen_t)> {
        let mut iovec = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        // SAFETY: all zeros are a valid msghdr, also where it has padding.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = name;
        if !name.is_null() {
            message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        }
        message.msg_iov = &raw mut iovec;
        message.msg_iovlen = 1;
        message.msg_control = self.bytes.as_mut_ptr().cast();
        message.msg_controllen = CONTROL as _;
        // SAFETY: the message points to one iovec over `buffer`, to `bytes` and to the caller's
        // `name`, with their lengths; all live through the call.
        let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
        self.len = CONTROL.min(message.msg_controllen as usize);
        Ok((len, message.msg_namelen))
    }

    /// Returns level, type and data of each control message.
    pub(super) fn messages(&self) -> impl Iterator<Item = (i32, i32, &[u8])> {
        let mut rest = &self.bytes[..self.len];
        std::iter::from_fn(move || {
            let head = rest.get(..HEADER_LEN)?;
            let len = usize::from_ne_bytes(head[..8].try_into().ok()?);
            let (level, kind) = (int(head, 8)?, int(head, 12)?);
            let data = rest.get(HEADER_LEN..len)?;
            rest = rest.get(len.next_multiple_of(8)..).unwrap_or_default();
            Some((level, kind, data))
        })
    }
}

/// `struct cmsghdr` on a 64-bit machine.
const HEADER_LEN: usize = 16;

/// Reads an integer of a control message.
pub(super) fn int(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
