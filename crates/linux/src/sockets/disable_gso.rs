// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP sockets without segmentation offload, so that pacing spaces each packet and not super-packets of
//! up to 64 KiB.
//!
//! Linux paces super-packets, of as many segments as a millisecond of the pacing rate contains
//! (`tcp_tso_autosize`, net/ipv4/tcp_output.c). Their limits are the device's: a socket has no option
//! for them, and BPF can't write them. But a socket with a key for TCP-MD5 (RFC 2385) sends without
//! segmentation offload permanently, to all peers (`sk_gso_disable` in `tcp_md5sig_info_add`,
//! net/ipv4/tcp_ipv4.c), and the connections that it accepts inherit that. So the socket gets a key for
//! an address that no host has: no packet is ever signed. Needs CONFIG_TCP_MD5SIG, which distributions
//! have.
//!
//! The kernel computes the limit when it looks up a route (`sk_setup_caps`, net/core/sock.c), so a
//! connected socket must look up its route again.

use super::{
    option::{PlainOption, get_option, set_option},
    process_sockets,
};
use rustix::{
    fs::readlink,
    net::{AddressFamily, sockopt},
    process::Pid,
};
use std::{
    collections::HashSet,
    io,
    net::{Ipv4Addr, Ipv6Addr, TcpListener},
    os::fd::{AsFd, AsRawFd},
    process,
};

/// An address of no host: reserved by RFC 1112.
const UNUSED_IPV4: Ipv4Addr = Ipv4Addr::new(240, 0, 0, 1);
/// An address of no host: discarded by RFC 6666.
const UNUSED_IPV6: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1);

/// `struct tcp_md5sig` (include/uapi/linux/tcp.h).
#[repr(C)]
#[derive(Clone, Copy)]
struct Md5Signature {
    address: [u8; 128],
    flags: u8,
    prefix_length: u8,
    key_length: u16,
    interface: i32,
    key: [u8; 80],
}

// SAFETY: integers without padding: 128 + 1 + 1 + 2 + 4 + 80.
unsafe impl PlainOption for Md5Signature {}

/// Disables segmentation offload of a TCP socket of either family until it is closed.
pub fn disable(socket: &impl AsFd) -> io::Result<()> {
    let family = sockopt::socket_domain(socket)?;
    let mut signature = Md5Signature {
        address: [0; 128],
        flags: 0,
        prefix_length: 0,
        key_length: 1,
        interface: 0,
        key: [1; 80],
    };
    write_address(&mut signature.address, family);
    let fd = socket.as_fd().as_raw_fd();
    set_option(&fd, libc::IPPROTO_TCP, libc::TCP_MD5SIG, signature)?;
    refresh_route(socket)
}

/// Checks whether this process may disable it on sockets of other processes, with a socket of its own.
pub fn check_permission() -> io::Result<()> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let name = readlink(format!("/proc/self/fd/{}", socket.as_raw_fd()), Vec::new())?;
    let mut copies = process_sockets::tcp(process::id(), |other| other == name.as_bytes());
    let copy = copies.next().ok_or_else(|| {
        io::Error::other("cannot open sockets of other processes: pidfd_getfd(2) is refused")
    })?;
    disable(&copy)
}

/// Makes the kernel drop the socket's cached route, by binding it to the device that it is bound to, or
/// to none (`sock_bindtoindex_locked`, net/core/sock.c). Linux 5.1.
fn refresh_route(socket: &impl AsFd) -> io::Result<()> {
    /// include/uapi/asm-generic/socket.h
    const SO_BINDTOIFINDEX: i32 = 62;
    let device: i32 = get_option(socket, libc::SOL_SOCKET, SO_BINDTOIFINDEX)?;
    let fd = socket.as_fd().as_raw_fd();
    set_option(&fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX, device)
}

/// Writes a `struct sockaddr_in` or `sockaddr_in6`: the family in the machine's byte order, then the port
/// and (after IPv6's flow label) the address.
fn write_address(address: &mut [u8; 128], family: AddressFamily) {
    address[..2].copy_from_slice(&family.as_raw().to_ne_bytes());
    match family {
        AddressFamily::INET6 => address[8..24].copy_from_slice(&UNUSED_IPV6.octets()),
        _ => address[4..8].copy_from_slice(&UNUSED_IPV4.octets()),
    }
}

/// Finds sockets of other processes and disables segmentation offload on each once.
#[derive(Debug, Default)]
pub struct GsoDisabler {
    /// Names of the sockets that were found before.
    seen: HashSet<Vec<u8>>,
}

/// Most sockets that are remembered, at 64 B each; beyond that all are processed again.
const SEEN_MAX: usize = 65536;

impl GsoDisabler {
    /// Applies [`disable`] to new TCP sockets of these processes. Returns their number.
    /// Needs CAP_SYS_PTRACE. Processes that end meanwhile are skipped.
    pub fn enforce(&mut self, processes: &[Pid]) -> usize {
        if self.seen.len() > SEEN_MAX {
            self.seen.clear();
        }
        processes.iter().map(|pid| self.in_process(*pid)).sum()
    }

    fn in_process(&mut self, pid: Pid) -> usize {
        let is_new = |name: &[u8]| self.seen.insert(name.to_vec());
        let sockets = process_sockets::tcp(pid.as_raw_pid().unsigned_abs(), is_new);
        sockets.filter(|socket| disable(socket).is_ok()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::fd::OwnedFd, process::Command};

    #[test]
    fn sockets_of_both_families_accept_the_key() {
        assert_eq!(size_of::<Md5Signature>(), 216);
        for any in ["127.0.0.1:0", "[::1]:0"] {
            disable(&TcpListener::bind(any).unwrap()).unwrap();
        }
    }

    #[test]
    fn processes_each_socket_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sleeps = Command::new("sleep");
        let mut child = sleeps
            .arg("60")
            .stdin(OwnedFd::from(listener))
            .spawn()
            .unwrap();
        let mut finder = GsoDisabler::default();
        let enforced = [(); 2].map(|()| finder.enforce(&[Pid::from_child(&child)]));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(enforced, [1, 0]);
    }
}
