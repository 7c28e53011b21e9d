// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of nfnetlink (include/uapi/linux/netfilter/nfnetlink.h): a netlink header, the family,
//! and attributes in network byte order.

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use std::{
    io,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

pub(super) const REQUEST: u16 = 1;
pub(super) const ACK: u16 = 4;
pub(super) const CREATE: u16 = 0x400;
pub(super) const APPEND: u16 = 0x800;
pub(super) const DUMP: u16 = 0x300;
/// Flag of an answer: the listed objects changed during the dump.
const INTERRUPTED: u16 = 0x10;

/// `NLMSG_ERROR`; error 0 is an acknowledgement.
const ERROR: u16 = 2;
/// `NLMSG_DONE`: the end of a list. An error number follows, as with an error.
const DONE: u16 = 3;
const HEADER_LEN: usize = 16;
/// Length of `struct nfgenmsg`, after the header.
const FAMILY_LEN: usize = 4;
const NESTED: u16 = 0x8000;
/// Room for one datagram: acknowledgements repeat the message that they answer.
const DATAGRAM: usize = 64 * 1024;

/// A message under construction.
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Begins a message. The subsystem defines `resource`: a queue's number, or a subsystem's.
    pub(super) fn new(kind: u16, flags: u16, family: u8, resource: u16) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((REQUEST | flags).to_ne_bytes());
        // `exchange` sets the sequence number.
        bytes.extend([0; 8]);
        bytes.extend([family, 0]);
        bytes.extend(resource.to_be_bytes());
        Self(bytes)
    }

    pub(super) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        self.0.extend((4 + value.len() as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn text(self, kind: u16, value: &str) -> Self {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Adds an attribute that contains those that `inner` adds.
    pub(super) fn nested(mut self, kind: u16, inner: impl FnOnce(Self) -> Self) -> Self {
        let start = self.0.len();
        self.0.extend([0; 2]);
        self.0.extend((kind | NESTED).to_ne_bytes());
        let mut whole = inner(self);
        let len = (whole.0.len() - start) as u16;
        whole.0[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        whole
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }
}

/// Opens a socket to the kernel's netfilter.
pub(super) fn open() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Sends messages of which at least the last requests an acknowledgement.
pub(super) fn request(socket: &Socket, messages: &[u8]) -> io::Result<()> {
    exchange(socket, messages, |_| ())
}

/// Like [`request`], and passes the kernel's other answers to `take`. All answers are queued when send(2) returns, and all
/// are read. A batch that fails has an error for each of its messages; the first one is returned. Answers to an earlier
/// request that was aborted have another sequence number.
pub(super) fn exchange(
    socket: &Socket,
    messages: &[u8],
    mut take: impl FnMut(&Received),
) -> io::Result<()> {
    static SEQUENCE: AtomicU32 = AtomicU32::new(1);
    let sequence = SEQUENCE.fetch_add(1, Relaxed);
    socket.send(&numbered(messages, sequence), 0)?;
    let mut datagram = vec![0; DATAGRAM];
    let mut outcome = Err(io::Error::other("the kernel does not answer"));
    let mut is_known = false;
    while let Some(len) = receive(socket, &mut datagram)? {
        for message in split(&datagram[..len]).filter(|m| m.sequence == sequence) {
            match message.kind {
                ERROR | DONE if is_known && outcome.is_err() => {}
                ERROR | DONE => (outcome, is_known) = (result(&message), true),
                _ => take(&message),
            }
        }
    }
    outcome
}

/// Receives the next queued datagram, if any.
pub(super) fn receive(socket: &Socket, datagram: &mut [u8]) -> io::Result<Option<usize>> {
    match socket.recv(&mut &mut datagram[..], libc::MSG_DONTWAIT) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => receive(socket, datagram),
        outcome => outcome.map(Some),
    }
}

fn numbered(messages: &[u8], sequence: u32) -> Vec<u8> {
    let mut all = messages.to_vec();
    let mut at = 0;
    while let Some(len) = all.get(at..).and_then(<[u8]>::first_chunk) {
        let len = u32::from_ne_bytes(*len) as usize;
        all[at + 8..at + 12].copy_from_slice(&sequence.to_ne_bytes());
        at += len.next_multiple_of(4);
    }
    all
}

fn result(message: &Received) -> io::Result<()> {
    let errno = message.body.first_chunk();
    match errno.map_or(0, |code| i32::from_ne_bytes(*code)) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(-errno)),
    }
}

/// A received message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Received<'a> {
    pub(super) kind: u16,
    flags: u16,
    /// Sequence number of the request that it answers.
    sequence: u32,
    /// Bytes after its netlink header.
    pub(super) body: &'a [u8],
}

impl Received<'_> {
    /// Whether the dump that it is part of may be inconsistent.
    pub(super) fn is_interrupted(&self) -> bool {
        self.flags & INTERRUPTED != 0
    }
}

/// Returns the messages in a datagram.
pub(super) fn split(mut datagram: &[u8]) -> impl Iterator<Item = Received<'_>> {
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(*datagram.first_chunk()?) as usize;
        let message = datagram.get(..len).filter(|m| m.len() >= HEADER_LEN)?;
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Received {
            kind: u16::from_ne_bytes([message[4], message[5]]),
            flags: u16::from_ne_bytes([message[6], message[7]]),
            sequence: u32::from_ne_bytes(*message[8..].first_chunk()?),
            body: &message[HEADER_LEN..],
        })
    })
}

/// Returns the kind and the value of each attribute of a message's body.
pub(super) fn attributes(body: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    attributes_after(FAMILY_LEN, body)
}

/// Like [`attributes`], after a header of `header` bytes.
pub(super) fn attributes_after(header: usize, body: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = body.get(header..).unwrap_or_default();
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let attribute = rest.get(..len).filter(|a| a.len() >= 4)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        let kind = u16::from_ne_bytes([attribute[2], attribute[3]]) & 0x3fff;
        Some((kind, &attribute[4..]))
    })
}

/// Wraps nf_tables messages in a batch, which is one transaction (`nfnetlink_rcv_batch`).
pub(super) fn batch(messages: impl IntoIterator<Item = Message>) -> Vec<u8> {
    const BEGIN: u16 = 0x10;
    const END: u16 = 0x11;
    let mut bytes = Message::new(BEGIN, 0, 0, TABLES).finish();
    for message in messages {
        bytes.extend(message.finish());
    }
    bytes.extend(Message::new(END, 0, 0, TABLES).finish());
    bytes
}

/// `NFNL_SUBSYS_NFTABLES`.
pub(super) const TABLES: u16 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_written_messages() {
        let message = Message::new(7, 0, 2, 0x1234)
            .text(1, "abc")
            .bytes(2, &[9; 5])
            .nested(3, |m| m.bytes(1, &[1]));
        let bytes = numbered(&batch([message]), 9);
        let all: Vec<_> = split(&bytes).collect();
        assert_eq!(all.iter().map(|m| m.sequence).collect::<Vec<_>>(), [9; 3]);
        assert_eq!(all[1].kind, 7);
        let all: Vec<_> = attributes(all[1].body).collect();
        assert_eq!(all[0], (1, &b"abc\0"[..]));
        assert_eq!(all[1], (2, &[9u8; 5][..]));
        assert_eq!(all[2].0, 3);
        assert_eq!(
            all[2].1,
            [&5u16.to_ne_bytes()[..], &1u16.to_ne_bytes(), &[1, 0, 0, 0]].concat()
        );
    }

    #[test]
    fn truncated_messages_end_the_list() {
        let bytes = Message::new(7, 0, 2, 0).text(1, "abc").finish();
        for len in 0..bytes.len() {
            assert_eq!(split(&bytes[..len]).count(), 0, "{len}");
        }
        assert_eq!(attributes(&[0, 0, 0, 0, 3, 0, 0, 0]).count(), 0);
    }
}
