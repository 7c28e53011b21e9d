// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP and ICMP sockets with kernel timestamps: the time at which the device took a packet, and the time at
//! which a packet came in. They exclude scheduling delays of both hosts.
//!
//! A device with support (`skb_tx_timestamp`, such as tun and veth) timestamps a packet that it sends, and
//! the timestamp returns through the socket's error queue. A received packet is timestamped before any
//! queue of the receiving host (`netif_receive_skb`). Both are CLOCK_REALTIME of this machine.
//! Source: `Documentation/networking/timestamping.rst`.

use super::{
    control::{Control, int},
    option::{MemoryInfo, get_option, set_option},
};
use longhaul_units::Time;
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

/// Receive buffer in bytes: about 5,000 small packets, a quarter of a second at 20,000 a second. The kernel lowers it to `net.core.rmem_max` for users without CAP_NET_ADMIN.
const BUFFER: usize = 4 << 20;

/// The sending end.
#[derive(Debug)]
pub struct Sender(Socket);

/// The receiving end.
#[derive(Debug)]
pub struct Receiver(Socket);

/// Transmit timestamp of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    /// Number of the message; the first of a socket is 0.
    pub message: u32,
    /// Since the epoch of CLOCK_REALTIME.
    pub at: Time,
}

/// A received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Its length in bytes, at most that of the buffer.
    pub len: usize,
    /// Since the epoch of CLOCK_REALTIME; `None` if the kernel did not timestamp it.
    pub at: Option<Time>,
}

impl Sender {
    /// Opens a sender to `destination` in the calling thread's network namespace. With `segment`, a longer
    /// message is sent as one super-packet of datagrams of that length (`UDP_SEGMENT`). Datagrams are not
    /// fragmented: those too long for the path are refused.
    pub fn open(destination: SocketAddr, segment: Option<u16>) -> io::Result<Self> {
        let socket = open_socket(destination, DEPARTURES)?;
        forbid_fragments(&socket, destination)?;
        if let Some(segment) = segment {
            set_option(
                &socket,
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                i32::from(segment),
            )?;
        }
        socket.connect(&destination.into())?;
        Ok(Self(socket))
    }

    /// Sends one message, waiting for room in the send buffer.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        self.0.send(message).map(drop)
    }

    /// Returns the next transmit timestamp, if any.
    pub fn departure(&self) -> io::Result<Option<Departure>> {
        next_departure(&self.0)
    }
}

impl Receiver {
    /// Opens a receiver at `address` in the calling thread's network namespace; port 0 chooses a free one.
    /// Returns when received packets are timestamped: usually at once, after a second at most.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = open_socket(address, libc::SOF_TIMESTAMPING_RX_SOFTWARE)?;
        // Without the privilege, the machine's limit applies.
        if set_option(
            &socket,
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            BUFFER as i32,
        )
        .is_err()
        {
            socket.set_recv_buffer_size(BUFFER)?;
        }
        socket.bind(&address.into())?;
        wait_for_stamping()?;
        Ok(Self(socket))
    }

    /// Returns the local address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        let unnamed = || io::Error::other("the socket has no IP address");
        self.0.local_addr()?.as_socket().ok_or_else(unnamed)
    }

    /// Waits for the next datagram, at most `timeout`, which is more than 0. A longer datagram is truncated.
    pub fn receive(&self, buffer: &mut [u8], timeout: Duration) -> io::Result<Option<Arrival>> {
        self.0.set_read_timeout(Some(timeout))?;
        let mut control = Control::new();
        match control.receive(&self.0, buffer, 0) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
            Ok(len) => Ok(Some(Arrival {
                len,
                at: control.stamp(),
            })),
        }
    }

    /// Returns the datagrams that this socket dropped: its buffer was full, or their checksum was wrong.
    pub fn dropped(&self) -> io::Result<u32> {
        MemoryInfo::of(&self.0).map(|memory| memory.drops)
    }
}

/// A socket that sends and receives with timestamps: UDP, or ICMP echo by the kernel's ping socket.
/// Packets are not fragmented, and a cached path MTU is ignored (`IP_PMTUDISC_PROBE`): a packet longer
/// than the interface's MTU is refused with EMSGSIZE, all others are sent unchanged.
#[derive(Debug)]
pub struct TimestampSocket(Socket);

impl TimestampSocket {
    /// Opens a UDP socket connected to `destination`.
    pub fn udp(destination: SocketAddr) -> io::Result<Self> {
        let all = libc::SOF_TIMESTAMPING_RX_SOFTWARE | DEPARTURES;
        let exchange = Self::prepared(open_socket(destination, all)?, destination)?;
        exchange.0.connect(&destination.into())?;
        wait_for_stamping()?;
        Ok(exchange)
    }

    /// Opens a UDP socket at `address` that answers any host.
    pub fn responder(address: SocketAddr) -> io::Result<Self> {
        let socket = open_socket(address, libc::SOF_TIMESTAMPING_RX_SOFTWARE)?;
        let exchange = Self::prepared(socket, address)?;
        exchange.0.bind(&address.into())?;
        wait_for_stamping()?;
        Ok(exchange)
    }

    /// Opens an ICMP echo socket to `destination`. Messages begin with the ICMP header, whose identifier and
    /// checksum the kernel fills in. Refused with EACCES where `net.ipv4.ping_group_range` excludes
    /// the caller's group.
    pub fn icmp(destination: IpAddr) -> io::Result<Self> {
        let destination = SocketAddr::new(destination, 0);
        let protocol = match destination {
            SocketAddr::V4(_) => Protocol::ICMPV4,
            SocketAddr::V6(_) => Protocol::ICMPV6,
        };
        let domain = Domain::for_address(destination);
        let socket = Socket::new(domain, Type::DGRAM.cloexec(), Some(protocol))?;
        enable_timestamps(&socket, libc::SOF_TIMESTAMPING_RX_SOFTWARE | DEPARTURES)?;
        let exchange = Self::prepared(socket, destination)?;
        exchange.0.connect(&destination.into())?;
        wait_for_stamping()?;
        Ok(exchange)
    }

    fn prepared(socket: Socket, family: SocketAddr) -> io::Result<Self> {
        discover_mtu(
            &socket,
            family,
            [libc::IP_PMTUDISC_PROBE, libc::IPV6_PMTUDISC_PROBE],
        )?;
        socket.set_recv_buffer_size(BUFFER)?;
        Ok(Self(socket))
    }

    /// Returns the local address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        let unnamed = || io::Error::other("the socket has no IP address");
        self.0.local_addr()?.as_socket().ok_or_else(unnamed)
    }

    /// Sends to its destination.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        self.0.send(message).map(drop)
    }

    /// Sends to `there`; `WouldBlock` if the send buffer is full.
    pub fn send_to(&self, message: &[u8], there: SocketAddr) -> io::Result<()> {
        let sent = self
            .0
            .send_to_with_flags(message, &there.into(), libc::MSG_DONTWAIT);
        sent.map(drop)
    }

    /// Waits for the next message, at most `timeout`, which is more than 0. Returns its sender, too.
    pub fn receive(
        &self,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> io::Result<Option<(Arrival, Option<SocketAddr>)>> {
        self.0.set_read_timeout(Some(timeout))?;
        let mut control = Control::new();
        match control.receive_from(&self.0, buffer, 0) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
            Ok((len, from)) => {
                let at = control.stamp();
                Ok(Some((Arrival { len, at }, from)))
            }
        }
    }

    /// Returns the next transmit timestamp, if any.
    pub fn departure(&self) -> io::Result<Option<Departure>> {
        next_departure(&self.0)
    }

    /// Returns the MTU of the interface to its destination, or of the route if that is less.
    pub fn mtu(&self) -> io::Result<u32> {
        let (level, name) = match self.address()? {
            SocketAddr::V4(_) => (libc::SOL_IP, libc::IP_MTU),
            SocketAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_MTU),
        };
        get_option::<i32>(&self.0, level, name).map(|mtu| mtu as u32)
    }
}

/// Flags for transmit timestamps: each has the message's number, and the packet itself is not returned.
const DEPARTURES: u32 = libc::SOF_TIMESTAMPING_TX_SOFTWARE
    | libc::SOF_TIMESTAMPING_OPT_ID
    | libc::SOF_TIMESTAMPING_OPT_TSONLY;

fn next_departure(socket: &Socket) -> io::Result<Option<Departure>> {
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    let mut control = Control::new();
    match control.receive(socket, &mut [], flags) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
        Ok(_) => Ok(control.departure()),
    }
}

fn open_socket(family: SocketAddr, what: u32) -> io::Result<Socket> {
    let domain = Domain::for_address(family);
    let socket = Socket::new(domain, Type::DGRAM.cloexec(), Some(Protocol::UDP))?;
    enable_timestamps(&socket, what)?;
    Ok(socket)
}

fn enable_timestamps(socket: &Socket, what: u32) -> io::Result<()> {
    let flags = what | libc::SOF_TIMESTAMPING_SOFTWARE;
    set_option(
        socket,
        libc::SOL_SOCKET,
        libc::SO_TIMESTAMPING,
        flags as i32,
    )
}

/// Waits until received packets are timestamped. The first socket that requests timestamps enables them,
/// but from a work queue (`net_enable_timestamp` of `net/core/dev.c`), so earlier packets have none.
/// Packets are sent over the loopback until one has a timestamp; where the loopback is down, for a second.
fn wait_for_stamping() -> io::Result<()> {
    let socket = open_socket(UNSPECIFIED, libc::SOF_TIMESTAMPING_RX_SOFTWARE)?;
    socket.bind(&UNSPECIFIED.into())?;
    let probe = Receiver(socket);
    let own_address = SocketAddr::from((Ipv4Addr::LOCALHOST, probe.address()?.port()));
    for _ in 0..POLL_ATTEMPTS {
        // Without a loopback this fails, and no packet arrives.
        drop(probe.0.send_to(&[0], &own_address.into()));
        if let Some(Arrival { at: Some(_), .. }) = probe.receive(&mut [0], POLL_INTERVAL)? {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

const UNSPECIFIED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Interval and number of checks for timestamps.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const POLL_ATTEMPTS: u32 = 50;

fn forbid_fragments(socket: &Socket, family: SocketAddr) -> io::Result<()> {
    discover_mtu(
        socket,
        family,
        [libc::IP_PMTUDISC_DO, libc::IPV6_PMTUDISC_DO],
    )
}

/// Sets the mode of path MTU discovery, `how` for IPv4 and IPv6.
fn discover_mtu(socket: &Socket, family: SocketAddr, how: [i32; 2]) -> io::Result<()> {
    let (level, name, value) = match family {
        SocketAddr::V4(_) => (libc::SOL_IP, libc::IP_MTU_DISCOVER, how[0]),
        SocketAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, how[1]),
    };
    set_option(socket, level, name, value)
}

impl Control {
    /// Returns the software timestamp, the first of three (`struct scm_timestamping`).
    fn stamp(&self) -> Option<Time> {
        let is_stamp = |(level, kind, _): &(i32, i32, &[u8])| {
            (*level, *kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING)
        };
        let (_, _, data) = self.messages().find(is_stamp)?;
        let number = |at: usize| Some(u64::from_ne_bytes(data.get(at..at + 8)?.try_into().ok()?));
        let (seconds, nanos) = (number(0)?, number(8)?);
        (seconds > 0).then(|| Time::from_nanos(seconds * 1_000_000_000 + nanos))
    }

    /// Returns the timestamp with the number of its message (`struct sock_extended_err`: ee_origin at byte 4,
    /// ee_data at 12).
    fn departure(&self) -> Option<Departure> {
        const LEVELS: [(i32, i32); 2] = [
            (libc::SOL_IP, libc::IP_RECVERR),
            (libc::SOL_IPV6, libc::IPV6_RECVERR),
        ];
        let of_stamp = |(level, kind, data): &(i32, i32, &[u8])| {
            LEVELS.contains(&(*level, *kind))
                && data.get(4) == Some(&libc::SO_EE_ORIGIN_TIMESTAMPING)
        };
        let (_, _, data) = self.messages().find(of_stamp)?;
        Some(Departure {
            message: int(data, 12)? as u32,
            at: self.stamp()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(segment: Option<u16>) -> (Sender, Receiver) {
        let receiver = Receiver::open("127.0.0.1:0".parse().unwrap()).unwrap();
        let sender = Sender::open(receiver.address().unwrap(), segment).unwrap();
        (sender, receiver)
    }

    /// The loopback timestamps a packet, then delivers it, between this test's two clock readings.
    #[test]
    fn kernel_timestamps_are_in_order() {
        let (sender, receiver) = pair(None);
        let patience = Duration::from_secs(10);
        let mut buffer = [0; 200];
        for message in 0..3 {
            let before = crate::clock::wall();
            sender.send(&[7; 100]).unwrap();
            let arrival = receiver.receive(&mut buffer, patience).unwrap().unwrap();
            let departure = sender.departure().unwrap().unwrap();
            assert_eq!((arrival.len, departure.message), (100, message));
            assert!(before <= departure.at && departure.at <= crate::clock::wall());
            assert!(arrival.at.unwrap() >= departure.at);
        }
        assert_eq!(sender.departure().unwrap(), None);
        assert_eq!(receiver.dropped().unwrap(), 0);
    }

    #[test]
    fn super_packets_are_segmented_and_timestamped_once() {
        let (sender, receiver) = pair(Some(100));
        sender.send(&[7; 250]).unwrap();
        let mut buffer = [0; 200];
        let mut len = || {
            let arrival = receiver.receive(&mut buffer, Duration::from_secs(10));
            arrival.unwrap().unwrap().len
        };
        assert_eq!([len(), len(), len()], [100, 100, 50]);
        assert_eq!(sender.departure().unwrap().unwrap().message, 0);
        assert_eq!(sender.departure().unwrap(), None);
    }

    #[test]
    fn refuses_datagrams_too_long_for_the_path() {
        let (sender, _receiver) = pair(None);
        let error = sender.send(&vec![7; 70_000]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    }

    #[test]
    fn timestamp_socket_reports_sender_and_both_times() {
        let responder = TimestampSocket::responder("127.0.0.1:0".parse().unwrap()).unwrap();
        let asker = TimestampSocket::udp(responder.address().unwrap()).unwrap();
        let (patience, mut buffer) = (Duration::from_secs(10), [0; 200]);
        asker.send(&[1; 100]).unwrap();
        let (asked, from) = responder.receive(&mut buffer, patience).unwrap().unwrap();
        assert_eq!((asked.len, from), (100, Some(asker.address().unwrap())));
        responder.send_to(&[2; 60], from.unwrap()).unwrap();
        let (answer, _) = asker.receive(&mut buffer, patience).unwrap().unwrap();
        let departure = asker.departure().unwrap().unwrap();
        assert_eq!((answer.len, departure.message), (60, 0));
        assert!(departure.at <= asked.at.unwrap() && asked.at <= answer.at);
        assert!(asker.mtu().unwrap() >= 1280);
    }

    #[test]
    fn counts_datagrams_dropped_by_a_full_buffer() {
        let (sender, receiver) = pair(None);
        receiver.0.set_recv_buffer_size(4096).unwrap();
        (0..50).for_each(|_| sender.send(&[7; 1000]).unwrap());
        let mut buffer = [0; 1000];
        let mut kept = 0;
        while receiver
            .receive(&mut buffer, Duration::from_millis(50))
            .unwrap()
            .is_some()
        {
            kept += 1;
        }
        assert_eq!(kept + receiver.dropped().unwrap(), 50);
        assert!(kept < 50);
    }
}
