// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP_INFO of every connection in a network namespace, through `NETLINK_SOCK_DIAG`
//! (Linux `include/uapi/linux/{inet_diag,tcp}.h`).

use crate::network::netns::Netns;
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload, Nla as _,
};
use netlink_packet_sock_diag::{
    SockDiagMessage,
    constants::{AF_INET, AF_INET6, IPPROTO_TCP},
    inet::{
        ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
        nlas::{Nla, TcpInfo},
    },
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};
use serde::Serialize;
use std::io;

/// Room for one datagram of a dump; the kernel fills at most 32 KiB at a time
/// (`net/netlink/af_netlink.c`, `netlink_dump`).
const DATAGRAM: usize = 32 * 1024;

/// Kernel state of one connection. Times are in microseconds, rates in bits a second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Connection {
    /// Local address.
    pub local: std::net::SocketAddr,
    /// Remote address.
    pub remote: std::net::SocketAddr,
    /// Congestion control of this host.
    pub congestion: String,
    /// Smoothed round-trip time.
    pub rtt_us: u32,
    /// Least recent round-trip time.
    pub min_rtt_us: u32,
    /// Congestion window, bytes.
    pub cwnd_bytes: u64,
    /// Slow-start threshold, bytes; absent until the first congestion event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssthresh_bytes: Option<u64>,
    /// Receive window that the peer advertises, bytes.
    pub send_window_bytes: u32,
    /// Receive buffer space that auto-tuning has reached, bytes.
    pub receive_space_bytes: u32,
    /// Segments retransmitted since the connection began.
    pub retransmits: u32,
    /// Payload bytes that the peer has acknowledged.
    pub bytes_acked: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Rate at which the peer acknowledged the latest data.
    pub delivery_rate_bps: u64,
    /// Pacing rate.
    pub pacing_rate_bps: u64,
    /// Time that the peer's receive window limited sending.
    pub window_limited_us: u64,
    /// Time that the send buffer limited sending.
    pub buffer_limited_us: u64,
    /// Details of the sender; not written into records.
    #[serde(skip)]
    pub sender: Sender,
}

impl Connection {
    /// Creates a connection of which only the addresses are known: all values are 0.
    #[must_use]
    pub fn between(local: std::net::SocketAddr, remote: std::net::SocketAddr) -> Self {
        Self {
            local,
            remote,
            congestion: String::new(),
            rtt_us: 0,
            min_rtt_us: 0,
            cwnd_bytes: 0,
            ssthresh_bytes: None,
            send_window_bytes: 0,
            receive_space_bytes: 0,
            retransmits: 0,
            bytes_acked: 0,
            bytes_received: 0,
            delivery_rate_bps: 0,
            pacing_rate_bps: 0,
            window_limited_us: 0,
            buffer_limited_us: 0,
            sender: Sender::default(),
        }
    }
}

/// The sending half of a connection, in the kernel's own units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sender {
    /// Identifier of the socket, unique until reboot (`SO_COOKIE`).
    pub cookie: u64,
    /// Identifier of the socket's cgroup, its directory's inode number (Linux 5.8; 0 before).
    pub cgroup: u64,
    /// Segment size, bytes.
    pub mss_bytes: u32,
    /// Congestion window, segments.
    pub cwnd_segments: u32,
    /// Slow-start threshold, segments.
    pub ssthresh_segments: u32,
    /// Whether the window is being reduced, to the threshold (CWR, Recovery or Loss of
    /// `enum tcp_ca_state`).
    pub reducing: bool,
    /// Segments delivered, selectively acknowledged ones included; wraps around (Linux 4.18).
    pub delivered_segments: u32,
    /// Time with data in flight or waiting to be sent.
    pub busy_us: u64,
}

/// A netlink socket that lists the TCP sockets of one namespace.
pub struct SockDiag {
    socket: Socket,
    datagram: Vec<u8>,
}

impl SockDiag {
    /// Opens the socket inside `netns`.
    pub fn open(netns: &Netns) -> io::Result<Self> {
        netns.run(Self::here)
    }

    /// Opens the socket in the calling thread's namespace, which needs no rights.
    pub fn here() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            socket,
            datagram: vec![0; DATAGRAM],
        })
    }

    /// Returns every connection that is open or closing, with its TCP_INFO.
    pub fn connections(&mut self) -> io::Result<Vec<Connection>> {
        self.list(
            StateFlags::ESTABLISHED
                | StateFlags::FIN_WAIT1
                | StateFlags::FIN_WAIT2
                | StateFlags::CLOSE_WAIT
                | StateFlags::LAST_ACK
                | StateFlags::CLOSING,
        )
    }

    /// Whether a socket listens on `port`.
    pub fn listens_on(&mut self, port: u16) -> io::Result<bool> {
        let listeners = self.list(StateFlags::LISTEN)?;
        Ok(listeners
            .iter()
            .any(|listener| listener.local.port() == port))
    }

    /// Returns the number of incoming connections whose handshakes have not ended, without those of SYN cookies.
    pub fn handshakes(&mut self) -> io::Result<usize> {
        let mut count = 0;
        self.dump_both_families(StateFlags::SYN_RECV, |_| count += 1)?;
        Ok(count)
    }

    fn list(&mut self, states: StateFlags) -> io::Result<Vec<Connection>> {
        let mut found = Vec::new();
        self.dump_both_families(states, |answer| found.extend(Connection::read(answer)))?;
        Ok(found)
    }

    /// Dumps sockets of both families: an IPv6 socket carries IPv4 connections, too.
    fn dump_both_families(
        &mut self,
        states: StateFlags,
        mut take: impl FnMut(&InetResponse),
    ) -> io::Result<()> {
        self.dump_family(AF_INET, SocketId::new_v4(), states.clone(), &mut take)?;
        self.dump_family(AF_INET6, SocketId::new_v6(), states, &mut take)
    }

    fn dump_family(
        &mut self,
        family: u8,
        any: SocketId,
        states: StateFlags,
        take: &mut impl FnMut(&InetResponse),
    ) -> io::Result<()> {
        self.socket.send(&request(family, any, states), 0)?;
        loop {
            let size = self.socket.recv(&mut &mut self.datagram[..], 0)?;
            if !read_answers(&self.datagram[..size], take)? {
                return Ok(());
            }
        }
    }
}

fn request(family: u8, any: SocketId, states: StateFlags) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let query = InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::INFO | ExtensionFlags::CONG,
        states,
        socket_id: any,
    };
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(query).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Passes the answers of one datagram to `take`. Returns false at the end of the dump.
fn read_answers(mut datagram: &[u8], take: &mut impl FnMut(&InetResponse)) -> io::Result<bool> {
    while !datagram.is_empty() {
        let message = NetlinkMessage::<SockDiagMessage>::deserialize(datagram)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        match message.payload {
            NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(answer)) => {
                take(&answer);
            }
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::Done(_) => return Ok(false),
            _ => {}
        }
        let step = (message.header.length as usize).next_multiple_of(4);
        datagram = datagram.get(step.max(4)..).unwrap_or_default();
    }
    Ok(true)
}

impl Connection {
    fn read(answer: &InetResponse) -> Option<Self> {
        let id = &answer.header.socket_id;
        let info = answer.nlas.iter().find_map(|nla| match nla {
            Nla::TcpInfo(info) => Some(info),
            _ => None,
        })?;
        let congestion = answer.nlas.iter().find_map(|nla| match nla {
            Nla::Congestion(name) => Some(name.clone()),
            _ => None,
        });
        Some(Self {
            local: (id.source_address.to_canonical(), id.source_port).into(),
            remote: (id.destination_address.to_canonical(), id.destination_port).into(),
            congestion: congestion.unwrap_or_default(),
            sender: Sender {
                cookie: u64::from_ne_bytes(id.cookie),
                cgroup: cgroup(&answer.nlas),
                ..Sender::of(info)
            },
            ..Self::of(info)
        })
    }

    fn of(info: &TcpInfo) -> Self {
        let unknown = (std::net::Ipv4Addr::UNSPECIFIED, 0).into();
        let mss = u64::from(info.snd_mss);
        // TCP_INFINITE_SSTHRESH of Linux `include/net/tcp.h`.
        let threshold = (info.snd_ssthresh < 0x7fff_ffff).then_some(info.snd_ssthresh);
        Self {
            local: unknown,
            remote: unknown,
            congestion: String::new(),
            rtt_us: info.rtt,
            min_rtt_us: info.min_rtt,
            cwnd_bytes: u64::from(info.snd_cwnd) * mss,
            ssthresh_bytes: threshold.map(|segments| u64::from(segments) * mss),
            send_window_bytes: info.snd_wnd,
            receive_space_bytes: info.rcv_space,
            retransmits: info.total_retrans,
            bytes_acked: info.bytes_acked,
            bytes_received: info.bytes_received,
            delivery_rate_bps: info.delivery_rate.saturating_mul(8),
            pacing_rate_bps: info.pacing_rate.saturating_mul(8),
            window_limited_us: info.rwnd_limited,
            buffer_limited_us: info.sndbuf_limited,
            sender: Sender::default(),
        }
    }
}

/// `TCP_CA_CWR` of Linux `include/uapi/linux/tcp.h`: below it the window is not being reduced.
const CA_CWR: u8 = 2;

impl Sender {
    fn of(info: &TcpInfo) -> Self {
        Self {
            mss_bytes: info.snd_mss,
            cwnd_segments: info.snd_cwnd,
            ssthresh_segments: info.snd_ssthresh,
            reducing: info.ca_state >= CA_CWR,
            delivered_segments: info.delivered,
            busy_us: info.busy_time,
            ..Self::default()
        }
    }
}

/// Returns `INET_DIAG_CGROUP_ID`, which every answer has; 0 before Linux 5.8.
fn cgroup(attributes: &[Nla]) -> u64 {
    const CGROUP_ID: u16 = 21;
    let of = |nla: &Nla| match nla {
        Nla::Other(other) if other.kind() == CGROUP_ID => {
            let mut value = [0; 8];
            (other.value_len() == value.len()).then(|| other.emit_value(&mut value))?;
            Some(u64::from_ne_bytes(value))
        }
        _ => None,
    };
    attributes.iter().find_map(of).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    #[test]
    fn sees_both_ends_of_a_loopback_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();

        let mut diag = SockDiag::open(&Netns::current().unwrap()).unwrap();
        let all = diag.connections().unwrap();
        let end = |local| {
            all.iter()
                .find(|c| c.local == local)
                .expect("connection listed")
        };
        assert_eq!(
            end(client.local_addr().unwrap()).remote,
            server.local_addr().unwrap()
        );
        assert_eq!(
            end(server.local_addr().unwrap()).remote,
            client.local_addr().unwrap()
        );
        let receiver = all
            .iter()
            .find(|c| c.remote == client.local_addr().unwrap())
            .unwrap();
        assert_eq!(receiver.bytes_received, 1000);
        assert!(!receiver.congestion.is_empty());
    }

    #[test]
    fn reports_ipv4_addresses_of_ipv6_sockets() {
        let Ok(listener) = TcpListener::bind("[::]:0") else {
            return; // IPv6 is off here.
        };
        let port = listener.local_addr().unwrap().port();
        let mut diag = SockDiag::open(&Netns::current().unwrap()).unwrap();
        assert!(diag.listens_on(port).unwrap());

        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _server = listener.accept().unwrap();
        let all = diag.connections().unwrap();
        let served = all
            .iter()
            .find(|c| c.remote == client.local_addr().unwrap());
        assert_eq!(served.expect("listed").local, client.peer_addr().unwrap());
    }
}
