// SPDX-License-Identifier: MIT OR Apache-2.0
//! Socket options that neither socket2 nor rustix has (setsockopt(2)).

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd},
};

/// A socket option whose every bit pattern, all zeroes included, is a value.
///
/// # Safety
/// The type must have no padding, no pointers and no invalid bit patterns.
pub(super) unsafe trait PlainOption: Copy {}

// SAFETY: integers without padding, every bit pattern is a value.
unsafe impl PlainOption for i32 {}
// SAFETY: as above.
unsafe impl PlainOption for u32 {}
// SAFETY: as above.
unsafe impl PlainOption for u64 {}

/// Sets an option (setsockopt(2)).
pub(super) fn set_option<T: PlainOption>(
    socket: &impl AsRawFd,
    level: i32,
    name: i32,
    value: T,
) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: the pointer and the length describe `value`, which lives through the call.
    let outcome = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads an option as a plain struct (getsockopt(2)). Bytes that the kernel does not fill stay zero.
pub(super) fn get_option<T: PlainOption>(
    socket: impl AsFd,
    level: i32,
    name: i32,
) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes, the size of `value`.
    let outcome =
        unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut len) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed, then partly written; `PlainOption` allows every bit pattern.
    Ok(unsafe { value.assume_init() })
}

/// Reads an option into `bytes` (getsockopt(2)). Returns the option's length in bytes.
pub(super) fn get_bytes(
    socket: impl AsFd,
    level: i32,
    name: i32,
    bytes: &mut [u8],
) -> io::Result<usize> {
    let mut len = bytes.len() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes, the size of `bytes`.
    let outcome =
        unsafe { libc::getsockopt(fd, level, name, bytes.as_mut_ptr().cast(), &raw mut len) };
    match outcome {
        0 => Ok(len as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Value of SO_MEMINFO, `SK_MEMINFO_*` (include/uapi/linux/sock_diag.h).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MemoryInfo {
    rmem_alloc: u32,
    rcvbuf: u32,
    wmem_alloc: u32,
    sndbuf: u32,
    /// Memory reserved ahead. The kernel reads it without the socket's lock: it is briefly negative while
    /// memory is being charged (`sk_get_meminfo`, net/core/sock.c).
    fwd_alloc: i32,
    wmem_queued: u32,
    optmem: u32,
    backlog: u32,
    pub(super) drops: u32,
}

impl MemoryInfo {
    pub(super) fn of(socket: &impl AsFd) -> io::Result<Self> {
        get_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO)
    }

    pub(super) fn total_bytes(&self) -> u64 {
        let used = [self.rmem_alloc, self.wmem_queued, self.backlog].map(u64::from);
        let used: u64 = used.iter().sum();
        used.saturating_add_signed(self.fwd_alloc.into())
    }
}

// SAFETY: integers only, no padding.
unsafe impl PlainOption for MemoryInfo {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_forward_allocation_does_not_wrap() {
        let charging = MemoryInfo {
            rmem_alloc: 9000,
            fwd_alloc: -4096,
            backlog: 100,
            ..MemoryInfo::default()
        };
        assert_eq!(charging.total_bytes(), 5004);
        let nothing_yet = MemoryInfo {
            fwd_alloc: -1,
            ..MemoryInfo::default()
        };
        assert_eq!(nothing_yet.total_bytes(), 0);
        let full = MemoryInfo {
            rmem_alloc: u32::MAX,
            wmem_queued: u32::MAX,
            ..MemoryInfo::default()
        };
        assert_eq!(full.total_bytes(), 2 * u64::from(u32::MAX));
    }
}
