// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP sockets with the options that a relay needs. SO_RCVBUF and SO_SNDBUF are set only on request: they
//! switch the kernel's autotuning off.

use super::option::{MemoryInfo, get_bytes, get_option, set_option};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};
use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

/// Options of a new socket; the default sets none. Accepted sockets inherit the options of their listener
/// (tcp(7); net/core/sock.c, `sk_clone_lock`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Congestion control by name.
    pub congestion_control: Option<String>,
    /// IP_TRANSPARENT: binds to, and accepts for, addresses that are not this host's.
    pub transparent: bool,
    /// SO_MARK, for rules and routes of this host; needs CAP_NET_ADMIN.
    pub mark: Option<u32>,
    /// SO_MAX_PACING_RATE in bytes a second: TCP spaces its segments to it.
    pub pacing_rate: Option<u64>,
    /// TCP_NOTSENT_LOWAT in bytes: writable only while less than this waits unsent.
    pub notsent_lowat: Option<u32>,
    /// SO_KEEPALIVE: idle time before the first probe; four more follow, at a quarter of it.
    pub keepalive: Option<Duration>,
    /// TCP_USER_TIMEOUT: longest time that sent data may stay unacknowledged (RFC 5482).
    pub user_timeout: Option<Duration>,
    /// TCP_MAXSEG in bytes, for sent segments and for the advertised MSS.
    pub mss: Option<u32>,
    /// DSCP (RFC 2474), 0 to 63.
    pub dscp: Option<u8>,
    /// TCP_SAVE_SYN: accepted connections keep their SYN's headers until [`syn_dscp`] reads them; under 200 bytes.
    pub save_syn: bool,
    /// SO_SNDBUF in bytes. Ends autotuning of the send buffer.
    pub send_buffer: Option<usize>,
    /// SO_RCVBUF in bytes. Ends autotuning of the receive buffer.
    pub receive_buffer: Option<usize>,
    /// A socket that listens on `[::]` takes IPv4 connections, too; their addresses are IPv4-mapped. Otherwise `[::]:P`
    /// and `0.0.0.0:P` can both be bound. The sysctl net.ipv6.bindv6only has no influence.
    pub dual_stack: bool,
    /// SO_LINGER 0: a close sends RST and drops unsent data, also the close that the kernel does for a killed
    /// process. [`fin_on_close`] reverts it.
    pub reset_on_close: bool,
}

impl Options {
    fn socket(&self, family: SocketAddr) -> io::Result<Socket> {
        let domain = Domain::for_address(family);
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(domain, kind, Some(Protocol::TCP))?;
        self.apply(&socket, family)?;
        Ok(socket)
    }

    fn apply(&self, socket: &Socket, family: SocketAddr) -> io::Result<()> {
        socket.set_tcp_nodelay(true)?;
        // An urgent byte is a byte of the stream (RFC 6093 §4): without this, recv(2) drops it.
        socket.set_out_of_band_inline(true)?;
        if let Some(name) = &self.congestion_control {
            socket.set_tcp_congestion(name.as_bytes())?;
        }
        if self.transparent {
            let set = set_transparent(socket, family);
            let right = "CAP_NET_ADMIN or CAP_NET_RAW";
            set.map_err(|error| name_right(error, "IP_TRANSPARENT", right))?;
        }
        self.apply_optional(socket, family)?;
        self.set_buffer_sizes(socket)?;
        if self.reset_on_close {
            reset_on_close(socket)?;
        }
        Ok(())
    }

    /// Sets the options that have a value.
    fn apply_optional(&self, socket: &Socket, family: SocketAddr) -> io::Result<()> {
        if let Some(mark) = self.mark {
            let set = socket.set_mark(mark);
            set.map_err(|error| name_right(error, "SO_MARK", "CAP_NET_ADMIN"))?;
        }
        if let Some(rate) = self.pacing_rate {
            set_option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate)?;
        }
        if let Some(bytes) = self.notsent_lowat {
            socket.set_tcp_notsent_lowat(bytes)?;
        }
        if let Some(idle) = self.keepalive {
            socket.set_tcp_keepalive(&keepalive_config(idle))?;
        }
        if let Some(limit) = self.user_timeout {
            socket.set_tcp_user_timeout(Some(limit))?;
        }
        if let Some(mss) = self.mss {
            socket.set_tcp_mss(mss)?;
        }
        if self.save_syn {
            set_option(socket, libc::IPPROTO_TCP, TCP_SAVE_SYN, 1i32)?;
        }
        match self.dscp {
            Some(dscp) => set_traffic_class(socket, family, dscp),
            None => Ok(()),
        }
    }

    /// Sets buffer sizes, before connect(2) and listen(2): the window scale follows from the receive buffer.
    fn set_buffer_sizes(&self, socket: &Socket) -> io::Result<()> {
        if let Some(bytes) = self.send_buffer {
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        Ok(())
    }
}

/// A socket option that the caller may not set. It is the inner error of an [`io::Error`] of the kind
/// [`io::ErrorKind::PermissionDenied`], because bind(2) and other options give errors of this kind too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{option} needs {right}")]
pub struct MissingRight {
    /// Name of the option.
    pub option: &'static str,
    /// Capabilities, one of which the caller needs.
    pub right: &'static str,
}

impl MissingRight {
    /// Returns the missing right if it is the cause of `error`.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// Replaces the error of a caller who may not set an option by [`MissingRight`].
fn name_right(error: io::Error, option: &'static str, right: &'static str) -> io::Error {
    match error.kind() {
        kind @ io::ErrorKind::PermissionDenied => {
            io::Error::new(kind, MissingRight { option, right })
        }
        _ => error,
    }
}

// include/uapi/linux/tcp.h
const TCP_SAVE_SYN: i32 = 27;
const TCP_SAVED_SYN: i32 = 28;

/// Longest saved SYN, in bytes: an IP and a TCP header with their options, and IPv6 extensions.
const SYN_LEN_MAX: usize = 512;

fn set_traffic_class(socket: &Socket, family: SocketAddr, dscp: u8) -> io::Result<()> {
    let class = u32::from(dscp) << 2;
    match family {
        SocketAddr::V4(_) => socket.set_tos_v4(class),
        SocketAddr::V6(_) => {
            // For IPv4 connections of this socket, if it has any.
            socket.set_tos_v4(class)?;
            socket.set_tclass_v6(class)
        }
    }
}

/// Sets the DSCP (RFC 2474), 0 to 63, of later packets of a connected socket. TCP keeps control of the ECN bits.
pub fn set_dscp(socket: &impl AsFd, dscp: u8) -> io::Result<()> {
    let socket = socket2::SockRef::from(socket);
    set_traffic_class(&socket, local_address(&socket)?, dscp)
}

/// Returns the DSCP of an accepted connection's SYN, where its listener has [`Options::save_syn`]. `None` if the kernel
/// did not save the SYN (SYN cookies), and at the second call.
pub fn syn_dscp(socket: &impl AsFd) -> Option<u8> {
    let mut syn = [0; SYN_LEN_MAX];
    let len = get_bytes(socket.as_fd(), libc::IPPROTO_TCP, TCP_SAVED_SYN, &mut syn).ok()?;
    dscp(&syn[..len])
}

/// Returns the DSCP of a packet that begins with its IP header (RFC 2474 §3).
#[must_use]
pub fn dscp(packet: &[u8]) -> Option<u8> {
    let (first, second) = (*packet.first()?, *packet.get(1)?);
    match first >> 4 {
        4 => Some(second >> 2),
        6 => Some(((first & 0xf) << 2) | (second >> 6)),
        _ => None,
    }
}

/// Keep-alive probes before the connection is closed.
const KEEPALIVE_PROBES: u32 = 4;

fn keepalive_config(idle: Duration) -> TcpKeepalive {
    let interval = (idle / KEEPALIVE_PROBES).max(Duration::from_secs(1));
    TcpKeepalive::new()
        .with_time(idle)
        .with_interval(interval)
        .with_retries(KEEPALIVE_PROBES)
}

/// Opens `count` sockets that listen on one port, one for each thread (SO_REUSEPORT). Port 0 chooses a
/// free port, the same for all. Fails if another process listens on the port, although SO_REUSEPORT
/// would allow sharing it.
pub fn listen(
    address: SocketAddr,
    count: usize,
    options: &Options,
) -> io::Result<Vec<TcpListener>> {
    let probe = bind_new(address, options, false)?;
    let address = local_address(&probe)?;
    drop(probe);
    listen_shared(address, count, options)
}

/// Like [`listen`], on a port on which this process listens already: new connections are spread over all
/// sockets until the old ones are closed.
pub fn listen_shared(
    address: SocketAddr,
    count: usize,
    options: &Options,
) -> io::Result<Vec<TcpListener>> {
    (0..count)
        .map(|_| {
            let socket = bind_new(address, options, true)?;
            socket.listen(BACKLOG)?;
            Ok(socket.into())
        })
        .collect()
}

/// Applies `options` to listening sockets that another program opened, and returns `count` handles of
/// them, evenly distributed. Connections accepted later have the options.
///
/// # Panics
/// If `sockets` is empty.
pub fn adopt(
    sockets: &[TcpListener],
    count: usize,
    options: &Options,
) -> io::Result<Vec<TcpListener>> {
    for socket in sockets {
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        options.apply(&socket.try_clone()?.into(), address)?;
    }
    let handles = sockets.iter().cycle().take(count.max(sockets.len()));
    handles.map(TcpListener::try_clone).collect()
}

/// Backlog of a listener. The kernel limits it to net.core.somaxconn.
const BACKLOG: i32 = 4096;

fn bind_new(address: SocketAddr, options: &Options, share: bool) -> io::Result<Socket> {
    let socket = options.socket(address)?;
    if address.is_ipv6() {
        socket.set_only_v6(!options.dual_stack)?;
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

/// Creates a non-blocking socket for a connection to `destination`, bound to `source` if given. A source
/// that is not this host's needs [`Options::transparent`]. If the source port is in use, any other is
/// used: the address matters more.
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

/// Makes the next close send RST instead of FIN, and drop unsent data (SO_LINGER 0).
pub fn reset_on_close(socket: &impl AsFd) -> io::Result<()> {
    socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO))
}

/// Makes the next close send FIN after unsent data, which is the default.
pub fn fin_on_close(socket: &impl AsFd) -> io::Result<()> {
    socket2::SockRef::from(socket).set_linger(None)
}

/// Resets the connection now, even if others have the socket open (connect(2) to AF_UNSPEC). Its TCP_INFO
/// counters are lost.
pub fn reset(socket: &impl AsFd) -> io::Result<()> {
    Ok(rustix::net::connect_unspec(socket)?)
}

/// Sends FIN and leaves the other direction open (shutdown(2), `SHUT_WR`).
pub fn shutdown_write(socket: &impl AsFd) -> io::Result<()> {
    socket2::SockRef::from(socket).shutdown(std::net::Shutdown::Write)
}

/// Sets TCP_NOTSENT_LOWAT: the socket takes bytes only while fewer than this are unsent.
pub fn set_notsent_lowat(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    socket2::SockRef::from(socket).set_tcp_notsent_lowat(bytes)
}

/// Makes room for a receive window of `bytes`, or of half of the third value of `net.ipv4.tcp_rmem` if that is less. The
/// kernel goes on tuning, unlike after SO_RCVBUF: it enlarges the buffer for SO_RCVLOWAT (`tcp_set_rcvlowat`,
/// net/ipv4/tcp.c, Linux 4.18), which is then set back.
pub fn widen_receive_window(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    for low_water_mark in [bytes, 1] {
        set_option(
            &socket.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            low_water_mark,
        )?;
    }
    Ok(())
}

/// Returns the size of the send buffer in bytes, as the kernel counts it: with its bookkeeping.
pub fn send_buffer(socket: &impl AsFd) -> io::Result<u64> {
    let bytes: i32 = get_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF)?;
    Ok(bytes.unsigned_abs().into())
}

/// Sets the size of the send buffer in bytes, as the kernel counts it, beyond every limit (SO_SNDBUFFORCE). The kernel
/// no longer tunes it. Needs CAP_NET_ADMIN.
pub fn force_send_buffer(socket: &impl AsFd, bytes: u64) -> io::Result<()> {
    // The kernel doubles the value (socket(7)).
    let half = i32::try_from(bytes / 2).unwrap_or(i32::MAX / 2);
    set_option(
        &socket.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_SNDBUFFORCE,
        half,
    )
}

/// Whether a write would succeed now (poll(2)). If not, an event-driven caller gets an event when it
/// would: the kernel records the interest (net/ipv4/tcp.c, `tcp_poll`). A broken connection is an
/// error, which stays pending on the socket.
pub fn is_writable(socket: &impl AsFd) -> io::Result<bool> {
    let found = poll_now(socket, PollFlags::OUT)?;
    if found.intersects(PollFlags::ERR | PollFlags::HUP) {
        Err(io::ErrorKind::ConnectionReset.into())
    } else {
        Ok(found.contains(PollFlags::OUT))
    }
}

/// Whether the peer has closed the connection, or it broke (poll(2), `POLLRDHUP`). Detects it for a caller that neither
/// reads nor writes.
pub fn peer_has_hung_up(socket: &impl AsFd) -> io::Result<bool> {
    let found = poll_now(socket, PollFlags::RDHUP)?;
    Ok(found.intersects(PollFlags::RDHUP | PollFlags::ERR | PollFlags::HUP))
}

/// Returns which of `flags` are set now, and the flags that poll(2) always reports.
fn poll_now(socket: &impl AsFd, flags: PollFlags) -> io::Result<PollFlags> {
    let mut polled = [PollFd::new(socket, flags)];
    let no_wait = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&no_wait))?;
    Ok(polled[0].revents())
}

/// Returns and clears the error that is pending on a socket (SO_ERROR).
pub fn pending_error(socket: &impl AsFd) -> io::Result<Option<io::Error>> {
    socket2::SockRef::from(socket).take_error()
}

/// Returns a socket's largest pacing rate, in bytes a second (SO_MAX_PACING_RATE); `u64::MAX` is no limit.
pub fn pacing_rate(socket: &impl AsFd) -> io::Result<u64> {
    get_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE)
}

/// Sets a socket's largest pacing rate, in bytes a second (SO_MAX_PACING_RATE). Any value but `u64::MAX` enables TCP's own
/// pacing by window and round trip (net/core/sock.c; net/ipv4/tcp_input.c, `tcp_update_pacing_rate`).
pub fn set_pacing_rate(socket: &impl AsRawFd, bytes_per_s: u64) -> io::Result<()> {
    set_option(
        socket,
        libc::SOL_SOCKET,
        libc::SO_MAX_PACING_RATE,
        bytes_per_s,
    )
}

/// Returns the kernel memory of a socket's data, in bytes: received and not read, queued and not
/// acknowledged, and reserved ahead (SO_MEMINFO, include/uapi/linux/sock_diag.h).
pub fn memory(socket: &impl AsFd) -> io::Result<u64> {
    MemoryInfo::of(socket).map(|info| info.total_bytes())
}

/// Returns the congestion controls that the kernel has loaded.
pub fn congestion_controls() -> io::Result<Vec<String>> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Whether `ip` is one of this host's own addresses. Only those can be bound to.
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
        SocketAddr::V6(_) => set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT, 1i32),
    }
}

/// Sets an option whose value is a 32-bit number, such as a congestion control's parameter of a single
/// socket (`longhaul cc show` names level and option).
pub fn set_u32_option(socket: &impl AsRawFd, level: i32, name: i32, value: u32) -> io::Result<()> {
    set_option(socket, level, name, value)
}

/// Returns the parts after `prefix` of the names of abstract UNIX sockets in this network namespace. Names that are not
/// UTF-8 are left out.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn abstract_names(prefix: &str) -> io::Result<Vec<String>> {
    let sockets = std::fs::read("/proc/thread-self/net/unix")?;
    let name = |line: &[u8]| {
        // proc(5): the path is the eighth field, and an abstract one begins with `@`.
        let path = line.splitn(8, |byte| *byte == b' ').nth(7)?;
        let path = str::from_utf8(path.trim_ascii()).ok()?;
        Some(path.strip_prefix('@')?.strip_prefix(prefix)?.to_owned())
    };
    Ok(sockets
        .split(|byte| *byte == b'\n')
        .filter_map(name)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt as _;

    #[test]
    fn all_listeners_share_the_chosen_port() {
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
    fn refuses_a_port_in_use() {
        let first = listen("127.0.0.1:0".parse().unwrap(), 1, &Options::default()).unwrap();
        let taken = first[0].local_addr().unwrap();
        let error = listen(taken, 1, &Options::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    /// The relay's downstream connections run with the options that `accept` inherits.
    #[test]
    fn accepted_sockets_inherit_options() {
        let options = Options {
            pacing_rate: Some(1_000_000),
            notsent_lowat: Some(16384),
            keepalive: Some(Duration::from_secs(40)),
            user_timeout: Some(Duration::from_secs(30)),
            mss: Some(1000),
            dscp: Some(8),
            ..Options::default()
        };
        let any = "127.0.0.1:0".parse().unwrap();
        let listener = listen(any, 1, &options).unwrap().remove(0);
        listener.set_nonblocking(false).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let socket = socket2::SockRef::from(&accepted);
        let pacing: u64 =
            get_option(&accepted, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE).unwrap();
        assert_eq!(pacing, 1_000_000);
        assert_eq!(socket.tcp_notsent_lowat().unwrap(), 16384);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_interval().unwrap().as_secs(), 10);
        assert_eq!(socket.tcp_user_timeout().unwrap().unwrap().as_secs(), 30);
        assert!(socket.tcp_mss().unwrap() <= 1000);
        assert_eq!(socket.tos_v4().unwrap(), 32);
    }

    #[test]
    fn memory_includes_unread_data() {
        use std::io::Write;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let before = memory(&accepted).unwrap();
        client.write_all(&[0; 20_000]).unwrap();
        let mut seen = [0; 20_000];
        accepted.peek(&mut seen).unwrap();
        assert!(memory(&accepted).unwrap() >= before + 20_000);
    }

    #[test]
    fn a_socket_with_too_much_unsent_is_not_writable() {
        use std::io::Write;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nonblocking(true).unwrap();
        set_notsent_lowat(&client, 1 << 16).unwrap();
        assert!(is_writable(&client).unwrap());
        while client.write(&[0; 4096]).is_ok() {}
        assert!(!is_writable(&client).unwrap());
        client.set_nonblocking(false).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        reset_on_close(&accepted).unwrap();
        drop(accepted);
        assert!(is_writable(&client).is_err());
    }

    #[test]
    fn detects_hang_up_without_reading() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for reset in [false, true] {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            shutdown_write(&client).unwrap();
            assert!(
                !peer_has_hung_up(&client).unwrap(),
                "only this end has shut down"
            );
            if reset {
                reset_on_close(&accepted).unwrap();
            }
            drop(accepted);
            assert!(peer_has_hung_up(&client).unwrap());
        }
    }

    #[test]
    fn distinguishes_local_addresses() {
        assert!(is_local_address([127, 0, 0, 1].into()).unwrap());
        assert!(!is_local_address([192, 0, 2, 1].into()).unwrap());
    }

    #[test]
    fn refuses_an_unknown_congestion_control() {
        let options = Options {
            congestion_control: Some("no-such".into()),
            ..Options::default()
        };
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let error = listen(any, 1, &options).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn abstract_names_skips_names_that_are_not_utf8() {
        let bind = |name: &[u8]| {
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
            std::os::unix::net::UnixDatagram::bind_addr(&address).unwrap()
        };
        let prefix = format!("longhaul-test-{}-", std::process::id());
        let _ours = bind(format!("{prefix}a").as_bytes());
        let _within = bind(format!("x{prefix}b").as_bytes());
        let _no_text = bind(&[prefix.as_bytes(), b"\xff"].concat());
        assert_eq!(abstract_names(&prefix).unwrap(), ["a"]);
    }
}
