// SPDX-License-Identifier: MIT OR Apache-2.0
//! ICMP errors for datagrams of a UDP socket that is not connected (IP_RECVERR, ip(7); IPV6_RECVERR, ipv6(7)).
//!
//! The kernel checks that an error quotes the port and address of the socket, and no more. So a caller compares what
//! it quotes of the datagram with what it sent.

use super::{control::Control, option::set_option};
use std::{
    io,
    net::{SocketAddr, UdpSocket},
};

/// ICMP error for a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpError {
    /// Destination of the datagram.
    pub to: SocketAddr,
    /// Number of bytes that the error quotes of the datagram, at most those of the buffer.
    pub len: usize,
    /// Whether no socket is bound to the port there (RFC 792, type 3, code 3; RFC 4443, type 1, code 4).
    pub is_port_unreachable: bool,
}

/// Queues the errors for datagrams of a socket from now on. Each also makes the next send or receive call fail, unless
/// [`take`] removed it before.
///
/// # Errors
///
/// Errors of setsockopt(2).
pub fn enable(socket: &UdpSocket) -> io::Result<()> {
    let is_ipv6 = socket.local_addr()?.is_ipv6();
    if is_ipv6 {
        set_option(socket, libc::SOL_IPV6, libc::IPV6_RECVERR, 1_i32)?;
    }
    // A socket for IPv6 may also send to IPv4 addresses.
    set_option(socket, libc::SOL_IP, libc::IP_RECVERR, 1_i32)
}

/// Removes the next error from the queue, and fills `quoted` with the beginning of the datagram. `None` if there is no
/// error.
///
/// # Errors
///
/// Errors of recvmsg(2), except EAGAIN.
pub fn take(socket: &UdpSocket, quoted: &mut [u8]) -> io::Result<Option<IcmpError>> {
    let mut control = Control::new();
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    match control.receive_from(socket, quoted, flags) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
        Ok((_, None)) => Ok(None),
        Ok((len, Some(to))) => Ok(Some(IcmpError {
            to,
            len,
            is_port_unreachable: is_port_unreachable(&control),
        })),
    }
}

/// Whether the error is a port unreachable (`struct sock_extended_err`: ee_origin, ee_type and ee_code from byte 4 on).
fn is_port_unreachable(control: &Control) -> bool {
    const ICMP: [u8; 3] = [libc::SO_EE_ORIGIN_ICMP, 3, 3];
    const ICMP6: [u8; 3] = [libc::SO_EE_ORIGIN_ICMP6, 1, 4];
    let is_error = |level, kind| {
        let kinds = [
            (libc::SOL_IP, libc::IP_RECVERR),
            (libc::SOL_IPV6, libc::IPV6_RECVERR),
        ];
        kinds.contains(&(level, kind))
    };
    control.messages().any(|(level, kind, data)| {
        let origin = data.get(4..7);
        is_error(level, kind) && (origin == Some(&ICMP[..]) || origin == Some(&ICMP6[..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Returns the error for a datagram from a socket bound to `from`, to a port without a socket.
    fn error_from(from: &str, to: &str) -> (SocketAddr, IcmpError, Vec<u8>) {
        let socket = UdpSocket::bind(from).unwrap();
        enable(&socket).unwrap();
        let to = UdpSocket::bind(to).unwrap().local_addr().unwrap();
        let mut quoted = [0; 100];
        assert_eq!(take(&socket, &mut quoted).unwrap(), None);
        socket.send_to(b"a datagram", to).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let refused = socket.recv(&mut [0; 10]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let error = take(&socket, &mut quoted).unwrap().unwrap();
        assert_eq!(take(&socket, &mut quoted).unwrap(), None);
        (to, error, quoted[..error.len].to_vec())
    }

    #[test]
    fn an_error_names_destination_and_datagram() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (to, error, quoted) = error_from(address, address);
            assert!(error.is_port_unreachable);
            assert_eq!((error.to, &quoted[..]), (to, &b"a datagram"[..]));
        }
    }

    #[test]
    fn a_socket_for_both_versions_gets_errors_of_ipv4() {
        let socket = UdpSocket::bind("[::]:0").unwrap();
        enable(&socket).unwrap();
        let closed = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let mapped = SocketAddr::new([0, 0, 0, 0, 0, 0xffff, 0x7f00, 1].into(), closed.port());
        socket.send_to(b"a datagram", mapped).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        socket.recv(&mut [0; 10]).unwrap_err();
        let error = take(&socket, &mut [0; 100]).unwrap().unwrap();
        assert!(error.is_port_unreachable);
        assert_eq!(error.to.ip().to_canonical(), closed.ip());
    }
}
