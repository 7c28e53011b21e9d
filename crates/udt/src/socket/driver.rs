// SPDX-License-Identifier: MIT OR Apache-2.0
//! Driver thread of a socket, which receives and sends for all its connections. It waits with ppoll(2), whose timeout
//! has microseconds; tokio's has milliseconds.

use super::{
    batching,
    gso_batch::GsoBatch,
    rx_timestamp::RxTimestamps,
    state::{Shared, State},
};
use crate::packet::{HEADER_LEN, Packet, handshake};
use longhaul_linux::icmp_error;
use longhaul_units::Time;
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover},
};
use std::{
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    thread,
    time::SystemTime,
};

/// Length of each receive buffer, in bytes.
const BUFFER_LEN: usize = 65_536;

/// Size of the kernel's socket buffers in bytes, 1 Gbit/s for 64 ms, as far as `net.core.rmem_max` and `wmem_max`
/// allow.
const SOCKET_BUFFER_LEN: usize = 8 << 20;

/// Bytes of a datagram that an ICMP error must quote: a handshake.
const QUOTED_LEN: usize = HEADER_LEN + handshake::LEN;

/// Maximum number of ICMP errors that delay a packet.
const SEND_TRIES_MAX: u32 = 4;

/// Maximum time to wait for a full socket before the next try.
const WRITABLE_TIMEOUT: Time = Time::from_millis(10);

struct Driver {
    socket: UdpSocket,
    udp: UdpSocketState,
    shared: Arc<Shared>,
    buffers: Vec<u8>,
    batch: GsoBatch,
    rx_timestamps: RxTimestamps,
    /// IDs of the connections that received or sent packets.
    active_ids: Vec<u32>,
}

/// Starts the thread. It ends when the socket and all its streams are dropped and no connection has data to send.
pub(super) fn start(socket: UdpSocket, shared: &Arc<Shared>) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let udp = UdpSocketState::new(UdpSockRef::from(&socket))?;
    allow_fragmentation(&socket, true);
    // Without it, connections whose peer is gone end after the timeout.
    let _unsupported = icmp_error::enable(&socket);
    // Smaller buffers only make it slower.
    let _smaller = udp.set_recv_buffer_size(UdpSockRef::from(&socket), SOCKET_BUFFER_LEN);
    let _smaller = udp.set_send_buffer_size(UdpSockRef::from(&socket), SOCKET_BUFFER_LEN);
    let mut driver = Driver {
        socket,
        batch: GsoBatch::new(udp.max_gso_segments()),
        udp,
        shared: shared.clone(),
        rx_timestamps: RxTimestamps::default(),
        buffers: vec![0; BATCH_SIZE * BUFFER_LEN],
        active_ids: Vec::new(),
    };
    let thread = thread::Builder::new().name("udt".to_owned());
    thread.spawn(move || {
        if let Err(error) = driver.run() {
            driver.shared.lock().fail_all(error.kind());
        }
    })?;
    Ok(())
}

impl Driver {
    fn run(&mut self) -> io::Result<()> {
        let mut last_pass = self.shared.now();
        while Arc::strong_count(&self.shared) > 1 || !self.shared.lock().is_idle() {
            let received = self.receive()?;
            let (sent, deadline) = self.send()?;
            let now = self.shared.now();
            let elapsed = now.since(std::mem::replace(&mut last_pass, now));
            match batching::receive_delay(received, elapsed) {
                Some(delay) => thread::sleep(delay.into()),
                None => {
                    let send_delay = batching::send_delay(sent, elapsed);
                    self.wait(deadline.map(|deadline| deadline.since(now).max(send_delay)))?;
                }
            }
        }
        Ok(())
    }

    /// Waits until a packet arrives, a notification comes or `timeout` expires.
    fn wait(&self, timeout: Option<Time>) -> io::Result<()> {
        let mut ready = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::new(&self.shared.wakeup, PollFlags::IN),
        ];
        let at_most = timeout.map(timespec);
        match poll(&mut ready, at_most.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !ready[1].revents().is_empty() {
            self.shared.wakeup.clear();
        }
        if ready[0].revents().contains(PollFlags::ERR) {
            self.take_icmp_errors();
        }
        Ok(())
    }

    /// Waits until the socket accepts more packets, but at most [`WRITABLE_TIMEOUT`].
    fn wait_writable(&self) -> io::Result<()> {
        let mut ready = [PollFd::new(&self.socket, PollFlags::OUT)];
        match poll(&mut ready, Some(&timespec(WRITABLE_TIMEOUT))) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives all available packets. Returns their bytes.
    fn receive(&mut self) -> io::Result<usize> {
        let mut received = 0;
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        loop {
            let mut slices = self.buffers.chunks_mut(BUFFER_LEN).map(IoSliceMut::new);
            let empty = || IoSliceMut::new(&mut []);
            let mut slices: [_; BATCH_SIZE] =
                std::array::from_fn(|_| slices.next().unwrap_or_else(empty));
            let socket = UdpSockRef::from(&self.socket);
            match self.udp.recv(socket, &mut slices, &mut metas) {
                Ok(count) => received += self.handle_batch(&metas[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(received),
                Err(error) if is_icmp_error(&error) => self.take_icmp_errors(),
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes all ICMP errors from the socket's queue, and handles the port unreachable ones.
    fn take_icmp_errors(&self) {
        let mut quoted = [0; QUOTED_LEN];
        while let Ok(Some(error)) = icmp_error::take(&self.socket, &mut quoted) {
            if error.is_port_unreachable {
                let mut state = self.shared.lock();
                let (datagram, now) = (&quoted[..error.len], self.shared.now());
                state
                    .endpoint
                    .handle_port_unreachable(datagram, error.to, now);
                state.dispatch_events();
            }
        }
    }

    fn handle_batch(&mut self, metas: &[RecvMeta]) -> usize {
        let (now, wall) = (self.shared.now(), SystemTime::now());
        let mut state = self.shared.lock();
        for (meta, buffer) in metas.iter().zip(self.buffers.chunks(BUFFER_LEN)) {
            let received_at = self.rx_timestamps.receive_time(meta.timestamp, now, wall);
            for datagram in buffer[..meta.len].chunks(meta.stride.max(1)) {
                state.endpoint.handle(datagram, meta.addr, received_at);
                let id = Packet::read(datagram).map(|packet| packet.destination);
                if id.is_some() && id != self.active_ids.last().copied() {
                    self.active_ids.extend(id);
                }
            }
        }
        state.dispatch_events();
        self.active_ids
            .drain(..)
            .for_each(|id| state.wake_ready(id));
        metas.iter().map(|meta| meta.len).sum()
    }

    /// Sends all due packets. Returns their bytes and the next deadline.
    fn send(&mut self) -> io::Result<(usize, Option<Time>)> {
        let mut sent = 0;
        loop {
            let deadline = self.fill_batch();
            let Some((_, bytes, _)) = self.batch.datagrams() else {
                return Ok((sent, deadline));
            };
            sent += bytes.len();
            self.send_batch()?;
        }
    }

    /// Collects due packets for one system call. Returns the next deadline.
    fn fill_batch(&mut self) -> Option<Time> {
        let now = self.shared.now();
        self.rx_timestamps.advance_to(now);
        let mut state = self.shared.lock();
        let State { endpoint, .. } = &mut *state;
        while !self.batch.is_closed() && self.batch.add(|bytes| endpoint.transmit(now, bytes)) {
            let id = endpoint.last_sent();
            if self.active_ids.last() != Some(&id) {
                self.active_ids.push(id);
            }
        }
        state.dispatch_events();
        self.active_ids
            .drain(..)
            .for_each(|id| state.wake_ready(id));
        state.endpoint.deadline()
    }

    /// Sends the batch. If the kernel or the network card does not accept it as one (UDP_SEGMENT), sends its packets
    /// one by one, as all packets from then on.
    fn send_batch(&mut self) -> io::Result<()> {
        let Some((to, bytes, packet_len)) = self.batch.datagrams() else {
            return Ok(());
        };
        // Only probes test the length that the path carries. A data packet that became too long is fragmented.
        if self.batch.is_probe() {
            allow_fragmentation(&self.socket, false);
        }
        let is_batch = bytes.len() > packet_len;
        if self.send_to(to, bytes, packet_len)? == SendOutcome::TooLong && is_batch {
            for packet in bytes.chunks(packet_len) {
                self.send_to(to, packet, packet_len)?;
            }
            self.batch.disable_gso();
        }
        if self.batch.is_probe() {
            allow_fragmentation(&self.socket, true);
        }
        self.batch.clear_sent();
        Ok(())
    }

    fn send_to(&self, to: SocketAddr, bytes: &[u8], packet_len: usize) -> io::Result<SendOutcome> {
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents: bytes,
            segment_size: Some(packet_len),
            src_ip: None,
        };
        let mut tries = 0;
        loop {
            let socket = UdpSockRef::from(&self.socket);
            match self.udp.try_send(socket, &transmit) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_writable()?,
                // An ICMP error for an earlier packet makes a call fail, which then sends nothing.
                Err(error) if is_icmp_error(&error) && tries < SEND_TRIES_MAX => {
                    tries += 1;
                    self.take_icmp_errors();
                }
                Err(error) if is_size_error(&error) => return Ok(SendOutcome::TooLong),
                // An unsendable packet, for example without a route, counts as lost on the path.
                _ => return Ok(SendOutcome::Sent),
            }
        }
    }
}

/// Result of a send.
#[derive(PartialEq, Eq)]
enum SendOutcome {
    Sent,
    /// The packets are too long, or too many for one system call.
    TooLong,
}

/// Whether an error may be the one for an ICMP message (net/ipv4/icmp.c, `icmp_err_convert`; net/ipv6/icmp.c,
/// `tab_unreach` and `icmpv6_err_convert`).
fn is_icmp_error(error: &io::Error) -> bool {
    let errors = [
        Errno::CONNREFUSED,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
        Errno::HOSTDOWN,
        Errno::NONET,
        Errno::NOPROTOOPT,
        Errno::OPNOTSUPP,
        Errno::MSGSIZE,
        Errno::PROTO,
        Errno::ACCESS,
    ];
    errors
        .iter()
        .any(|one| error.raw_os_error() == Some(one.raw_os_error()))
}

/// Whether an error is one that the kernel and network cards return for batches that they do not accept
/// (net/ipv4/udp.c, `udp_send_skb`), and for packets that are too long.
fn is_size_error(error: &io::Error) -> bool {
    let refusals = [Errno::IO, Errno::INVAL, Errno::MSGSIZE];
    refusals
        .iter()
        .any(|one| error.raw_os_error() == Some(one.raw_os_error()))
}

/// Allows or forbids routers to fragment IPv4 packets. While it is allowed, the kernel ignores path MTU messages,
/// which a third party may have forged (ip(7), `IP_PMTUDISC_OMIT`). Routers do not fragment IPv6, and quinn-udp
/// forbids the kernel to.
fn allow_fragmentation(socket: &UdpSocket, allow: bool) {
    let mode = if allow {
        Ipv4PathMtuDiscovery::OMIT
    } else {
        Ipv4PathMtuDiscovery::PROBE
    };
    // A socket for IPv6 only has no such option, and needs none.
    let _none = set_ip_mtu_discover(socket, mode);
}

fn timespec(time: Time) -> Timespec {
    Timespec {
        tv_sec: (time.as_nanos() / 1_000_000_000) as i64,
        tv_nsec: (time.as_nanos() % 1_000_000_000) as i64,
    }
}
