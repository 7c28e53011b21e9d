// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP sockets with the options that a relay needs. SO_RCVBUF and SO_SNDBUF are never touched: they
//! would switch the kernel's autotuning off.

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::{
    io,
    mem::MaybeUninit,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

/// How a socket is made; the default is a plain one.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Congestion control by name; accepted sockets inherit their listener's.
    pub congestion_control: Option<String>,
    /// IP_TRANSPARENT: bind to, and accept for, addresses that are not this host's.
    pub transparent: bool,
}

impl Options {
    fn socket(&self, family: SocketAddr) -> io::Result<Socket> {
        let domain = Domain::for_address(family);
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(domain, kind, Some(Protocol::TCP))?;
        socket.set_tcp_nodelay(true)?;
        if let Some(name) = &self.congestion_control {
            socket.set_tcp_congestion(name.as_bytes())?;
        }
        if self.transparent {
            set_transparent(&socket, family)?;
        }
        Ok(socket)
    }
}

/// Sockets that listen on one port, for `count` threads that accept each on its own (SO_REUSEPORT).
/// Port 0 takes a free port, the same for all. Fails if another process listens there, although
/// SO_REUSEPORT would let it share the port.
pub fn listen(
    address: SocketAddr,
    count: usize,
    options: &Options,
) -> io::Result<Vec<TcpListener>> {
    let probe = bound(address, options, false)?;
    let address = local_address(&probe)?;
    drop(probe);
    (0..count)
        .map(|_| {
            let socket = bound(address, options, true)?;
            socket.listen(BACKLOG)?;
            Ok(socket.into())
        })
        .collect()
}

/// The kernel lowers it to net.core.somaxconn.
const BACKLOG: i32 = 4096;

fn bound(address: SocketAddr, options: &Options, share: bool) -> io::Result<Socket> {
    let socket = options.socket(address)?;
    if address.is_ipv6() {
        // One family a listener, so that [::]:P and 0.0.0.0:P stand beside each other.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(share)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    let unnamed = || io::Error::other("the socket has no IP address");
    socket.local_addr()?.as_socket().ok_or_else(unnamed)
}

/// A non-blocking socket that can be connected to `destination`, leaving from `source` if given.
/// A source that is not this host's needs [`Options::transparent`]. If the source port is taken,
/// any other is used: the address matters more.
pub fn outgoing(
    destination: SocketAddr,
    source: Option<SocketAddr>,
    options: &Options,
) -> io::Result<TcpStream> {
    let socket = options.socket(destination)?;
    if let Some(source) = source {
        socket.set_reuse_address(true)?;
        bind_source(&socket, source)?;
    }
    Ok(socket.into())
}

fn bind_source(socket: &Socket, source: SocketAddr) -> io::Result<()> {
    match socket.bind(&SockAddr::from(source)) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            socket.bind(&SockAddr::from(SocketAddr::new(source.ip(), 0)))
        }
        outcome => outcome,
    }
}

/// Makes the coming close send RST instead of FIN, and drop what is unsent (SO_LINGER 0).
pub fn reset_on_close(socket: &impl AsFd) -> io::Result<()> {
    socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO))
}

/// Sends FIN and leaves the other direction open (shutdown(2), `SHUT_WR`).
pub fn finish_sending(socket: &impl AsFd) -> io::Result<()> {
    socket2::SockRef::from(socket).shutdown(std::net::Shutdown::Write)
}

/// The error that is pending on a socket, which this call takes off it (SO_ERROR).
pub fn pending_error(socket: &impl AsFd) -> io::Result<Option<io::Error>> {
    socket2::SockRef::from(socket).take_error()
}

/// The congestion controls that this network namespace has loaded.
pub fn congestion_controls() -> io::Result<Vec<String>> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Whether `ip` is one of this host's own addresses: only those can be bound to.
pub fn is_local_address(ip: IpAddr) -> io::Result<bool> {
    let socket = Socket::new(
        Domain::for_address(SocketAddr::new(ip, 0)),
        Type::STREAM.cloexec(),
        Some(Protocol::TCP),
    )?;
    match socket.bind(&SocketAddr::new(ip, 0).into()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(false),
        Err(error) => Err(error),
    }
}

fn set_transparent(socket: &Socket, family: SocketAddr) -> io::Result<()> {
    match family {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true),
        SocketAddr::V6(_) => set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT, 1),
    }
}

/// setsockopt(2) for an int.
pub(crate) fn set_option(
    socket: &impl AsRawFd,
    level: i32,
    name: i32,
    value: i32,
) -> io::Result<()> {
    let value: libc::c_int = value;
    let len = size_of_val(&value) as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: the pointer and the length describe `value`, which lives through the call.
    let outcome = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A socket option whose every bit pattern, all zeroes included, is a value.
///
/// # Safety
/// The type must have no padding, no pointers and no invalid bit patterns.
pub(crate) unsafe trait PlainOption: Copy {}

/// getsockopt(2) for a plain struct; what the kernel does not fill stays zero.
pub(crate) fn get_option<T: PlainOption>(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_listeners_share_the_port_that_the_kernel_chose() {
        let any = "127.0.0.1:0".parse().unwrap();
        let listeners = listen(any, 3, &Options::default()).unwrap();
        let port = |l: &TcpListener| l.local_addr().unwrap().port();
        assert!(
            listeners
                .iter()
                .all(|l| port(l) == port(&listeners[0]) && port(l) != 0)
        );
    }

    #[test]
    fn a_port_in_use_is_refused() {
        let first = listen("127.0.0.1:0".parse().unwrap(), 1, &Options::default()).unwrap();
        let taken = first[0].local_addr().unwrap();
        let error = listen(taken, 1, &Options::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn knows_its_own_addresses() {
        assert!(is_local_address([127, 0, 0, 1].into()).unwrap());
        assert!(!is_local_address([192, 0, 2, 1].into()).unwrap());
    }

    #[test]
    fn an_unknown_congestion_control_is_an_error() {
        let options = Options {
            congestion_control: Some("no-such".into()),
            ..Options::default()
        };
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let error = listen(any, 1, &options).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
