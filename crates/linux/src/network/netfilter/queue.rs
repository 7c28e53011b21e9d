// SPDX-License-Identifier: MIT OR Apache-2.0
//! NFQUEUE: packets that the kernel queues until this process sets a verdict
//! (include/uapi/linux/netfilter/nfnetlink_queue.h).

use super::message::{self, ACK, Message, attributes, split};
use netlink_sys::Socket;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use std::{
    io,
    os::fd::{AsRawFd, RawFd},
};
use tokio::io::unix::AsyncFd;

/// `NFNL_SUBSYS_QUEUE` and its messages.
const PACKET: u16 = 3 << 8;
const VERDICT: u16 = 3 << 8 | 1;
const CONFIG: u16 = 3 << 8 | 2;

/// Bytes of each packet that are copied: the headers.
const COPIED: u32 = 160;
const DATAGRAM_LEN_MAX: usize = 16 * 1024;
/// Receive buffer of the socket, in bytes, for a burst of about 4,000 packets.
const BUFFER: usize = 2 * 1024 * 1024;

/// A packet that waits for a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedPacket {
    /// Identifier for [`Queue::set_verdict`].
    pub id: u32,
    /// Index of the interface that received the packet; 1 is `lo`, 0 is unknown.
    pub device: u32,
    /// First bytes of the packet, from the IP header on.
    pub packet: Vec<u8>,
}

/// Verdict on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Drops the packet, without an answer.
    Drop,
    /// Lets the packet continue after the chain that queued it, with its mark unchanged.
    Accept,
    /// Lets the packet continue after the chain that queued it, with this mark.
    Mark(u32),
}

/// A queue that only this process reads.
#[derive(Debug)]
pub struct Queue {
    socket: Socket,
    number: u16,
}

impl Queue {
    /// Binds the queue `number`, of at most `packets_max` packets. With `fails_open`, further packets bypass
    /// the queue; otherwise they are dropped. Reads don't block. Fails with `EPERM` or `EBUSY` if another process has the
    /// queue.
    pub fn bind(number: u16, packets_max: u32, fails_open: bool) -> io::Result<Self> {
        const COMMAND: u16 = 1;
        const PARAMETERS: u16 = 2;
        const LENGTH_MAX: u16 = 3;
        const FLAGS_MASK: u16 = 4;
        const FLAGS: u16 = 5;
        const FAIL_OPEN: u32 = 1;
        const BIND: [u8; 4] = [1, 0, 0, 0];
        const COPY_PACKET: u8 = 2;
        let queue = Self {
            socket: message::open()?,
            number,
        };
        queue.configure(COMMAND, &BIND)?;
        queue.configure(
            PARAMETERS,
            &[&COPIED.to_be_bytes()[..], &[COPY_PACKET]].concat(),
        )?;
        queue.configure(LENGTH_MAX, &packets_max.to_be_bytes())?;
        let fail_open = (FAIL_OPEN * u32::from(fails_open)).to_be_bytes();
        queue.request(
            Message::new(CONFIG, ACK, 0, number)
                .bytes(FLAGS, &fail_open)
                .bytes(FLAGS_MASK, &FAIL_OPEN.to_be_bytes()),
        )?;
        set_socket_recv_buffer_size_force(&queue.socket, BUFFER)?;
        queue.socket.set_non_blocking(true)?;
        Ok(queue)
    }

    fn configure(&self, attribute: u16, value: &[u8]) -> io::Result<()> {
        self.request(Message::new(CONFIG, ACK, 0, self.number).bytes(attribute, value))
    }

    fn request(&self, message: Message) -> io::Result<()> {
        message::request(&self.socket, &message.finish())
    }

    /// Returns the queue's number, for rules.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Receives queued packets; `WouldBlock` if there are none.
    pub fn receive(&self) -> io::Result<Vec<QueuedPacket>> {
        let mut datagram = [0; DATAGRAM_LEN_MAX];
        let len = self.socket.recv(&mut &mut datagram[..], 0)?;
        let packets = split(&datagram[..len]).filter(|message| message.kind == PACKET);
        Ok(packets
            .filter_map(|packet| parse_packet(packet.body))
            .collect())
    }

    /// Sets the verdict on a packet. `NotFound` if it is no longer queued.
    pub fn set_verdict(&self, id: u32, verdict: Verdict) -> io::Result<()> {
        const HEADER: u16 = 2;
        const MARK: u16 = 3;
        let (code, mark) = match verdict {
            Verdict::Drop => (0u32, None),
            Verdict::Accept => (1, None),
            Verdict::Mark(mark) => (1, Some(mark)),
        };
        let header = [code.to_be_bytes(), id.to_be_bytes()].concat();
        let mut message = Message::new(VERDICT, 0, 0, self.number).bytes(HEADER, &header);
        if let Some(mark) = mark {
            message = message.bytes(MARK, &mark.to_be_bytes());
        }
        self.socket.send(&message.finish(), 0).map(drop)
    }
}

/// A queue in an event loop.
#[derive(Debug)]
pub struct AsyncQueue(AsyncFd<Queue>);

impl AsyncQueue {
    /// Puts `queue` into the event loop of the calling thread.
    pub fn new(queue: Queue) -> io::Result<Self> {
        // SAFETY: the queue owns its socket, returns the same descriptor as long as it lives, and
        // does not close it before it is dropped.
        Ok(Self(unsafe { AsyncFd::register(queue) }?))
    }

    /// Waits until packets may be queued; then call [`Queue::receive`] until none is left.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        Ok(())
    }

    /// Returns the queue itself.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        self.0.get_ref()
    }
}

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn parse_packet(body: &[u8]) -> Option<QueuedPacket> {
    const HEADER: u16 = 1;
    const DEVICE: u16 = 5;
    const PAYLOAD: u16 = 10;
    let find = |wanted| attributes(body).find(|(kind, _)| *kind == wanted);
    let (_, header) = find(HEADER)?;
    let (_, packet) = find(PAYLOAD)?;
    let device = find(DEVICE).and_then(|(_, index)| index.first_chunk().copied());
    Some(QueuedPacket {
        id: u32::from_be_bytes(*header.first_chunk()?),
        device: device.map_or(0, u32::from_be_bytes),
        packet: packet.to_vec(),
    })
}
