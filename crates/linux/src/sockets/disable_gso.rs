// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP sockets that send segment by segment, so that pacing spaces each packet and not trains of up
//! to 64 KiB.
//!
//! Linux paces what it hands down at once, and joins as many segments to one such piece as a
//! millisecond of the pacing rate holds (`tcp_tso_autosize`, net/ipv4/tcp_output.c). The limits of
//! that are the device's; a socket has no option for them, and BPF can't write them. But a socket
//! with a key for TCP-MD5 (RFC 2385) sends without segmentation offload for good, to whomever it
//! speaks (`sk_gso_disable` in `tcp_md5sig_info_add`, net/ipv4/tcp_ipv4.c), and what it accepts
//! inherits that. So it gets a key for an address that nobody has: no packet is ever signed.
//! Needs CONFIG_TCP_MD5SIG, which distributions have.
//!
//! The limit is worked out when a route is found (`sk_setup_caps`, net/core/sock.c), so a socket
//! that is connected has to look for its route again.

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

/// Never anyone's: reserved by RFC 1112.
const UNUSED_IPV4: Ipv4Addr = Ipv4Addr::new(240, 0, 0, 1);
/// Never anyone's: discarded by RFC 6666.
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

/// Makes a TCP socket of either family send segment by segment, from now until it is closed.
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

/// Whether this process may reach into others' sockets and make them so: tried on a socket of its own.
pub fn check_permission() -> io::Result<()> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let name = readlink(format!("/proc/self/fd/{}", socket.as_raw_fd()), Vec::new())?;
    let mut copies = process_sockets::tcp(process::id(), |other| other == name.as_bytes());
    let copy = copies.next().ok_or_else(|| {
        io::Error::other("sockets of other processes can't be had: pidfd_getfd(2) is refused")
    })?;
    disable(&copy)
}

/// Binds the socket to the device that it is bound to, or to none: nothing changes, but the kernel
/// drops the route that it had found (`sock_bindtoindex_locked`, net/core/sock.c). Linux 5.1.
fn refresh_route(socket: &impl AsFd) -> io::Result<()> {
    /// include/uapi/asm-generic/socket.h
    const SO_BINDTOIFINDEX: i32 = 62;
    let device: i32 = get_option(socket, libc::SOL_SOCKET, SO_BINDTOIFINDEX)?;
    let fd = socket.as_fd().as_raw_fd();
    set_option(&fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX, device)
}

/// `struct sockaddr_in` or `sockaddr_in6`: the family in the machine's byte order, then the port and
/// (behind IPv6's flow label) the address.
fn write_address(address: &mut [u8; 128], family: AddressFamily) {
    address[..2].copy_from_slice(&family.as_raw().to_ne_bytes());
    match family {
        AddressFamily::INET6 => address[8..24].copy_from_slice(&UNUSED_IPV6.octets()),
        _ => address[4..8].copy_from_slice(&UNUSED_IPV4.octets()),
    }
}

/// Finds sockets of other processes, each once.
#[derive(Debug, Default)]
pub struct GsoDisabler {
    /// Names of those that have been looked at.
    seen: HashSet<Vec<u8>>,
}

/// Sockets that are remembered; beyond that all are looked at again. 64 B each.
const SEEN_MAX: usize = 65536;

impl GsoDisabler {
    /// Applies [`enforce`] to TCP sockets of these processes that are new to it; how many those were.
    /// Needs CAP_SYS_PTRACE. Processes that end meanwhile are passed over.
    pub fn enforce(&mut self, processes: &[Pid]) -> usize {
        if self.seen.len() > SEEN_MAX {
            self.seen.clear();
        }
        processes.iter().map(|pid| self.in_process(*pid)).sum()
    }

    fn in_process(&mut self, pid: Pid) -> usize {
        let fresh = |name: &[u8]| self.seen.insert(name.to_vec());
        let sockets = process_sockets::tcp(pid.as_raw_pid().unsigned_abs(), fresh);
        sockets.filter(|socket| disable(socket).is_ok()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::fd::OwnedFd, process::Command};

    #[test]
    fn both_families_take_the_key_and_each_socket_once() {
        assert_eq!(size_of::<Md5Signature>(), 216);
        for any in ["127.0.0.1:0", "[::1]:0"] {
            disable(&TcpListener::bind(any).unwrap()).unwrap();
        }
    }

    #[test]
    fn sockets_of_a_process_are_found_once() {
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
