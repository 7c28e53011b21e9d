// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of nfnetlink (include/uapi/linux/netfilter/nfnetlink.h): a netlink header, the family,
//! and attributes in network byte order.

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use std::io;

pub(super) const REQUEST: u16 = 1;
pub(super) const ACK: u16 = 4;
pub(super) const CREATE: u16 = 0x400;
pub(super) const APPEND: u16 = 0x800;

/// `NLMSG_ERROR`; error 0 is an acknowledgement.
const ERROR: u16 = 2;
const HEADER_LEN: usize = 16;
/// `struct nfgenmsg` behind it.
const FAMILY_LEN: usize = 4;
const NESTED: u16 = 0x8000;
/// Room for one datagram: acknowledgements repeat the message that they answer.
const DATAGRAM: usize = 64 * 1024;

/// One message, being written.
pub(super) struct Message(Vec<u8>);

impl Message {
    /// `resource` is what the subsystem wants it to be: a queue's number, another subsystem's.
    pub(super) fn new(kind: u16, flags: u16, sequence: u32, family: u8, resource: u16) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((REQUEST | flags).to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
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

    /// An attribute that holds those that `inner` adds.
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

/// A connection to the kernel's netfilter.
pub(super) fn open() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Sends messages that ask for one acknowledgement, for the last of them, and waits for it or for
/// the first error.
pub(super) fn ask(socket: &Socket, messages: &[u8]) -> io::Result<()> {
    socket.send(messages, 0)?;
    let mut datagram = vec![0; DATAGRAM];
    loop {
        let len = socket.recv(&mut &mut datagram[..], 0)?;
        for (kind, body) in split(&datagram[..len]) {
            if kind == ERROR {
                return outcome(body);
            }
        }
    }
}

fn outcome(body: &[u8]) -> io::Result<()> {
    let errno = body
        .first_chunk()
        .map_or(0, |code| i32::from_ne_bytes(*code));
    match errno {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(-errno)),
    }
}

/// The messages in a datagram: each one's kind, and what is behind its netlink header.
pub(super) fn split(mut datagram: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(*datagram.first_chunk()?) as usize;
        let message = datagram.get(..len).filter(|m| m.len() >= HEADER_LEN)?;
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        let kind = u16::from_ne_bytes([message[4], message[5]]);
        Some((kind, &message[HEADER_LEN..]))
    })
}

/// The attributes of a message's body: each one's kind and value.
pub(super) fn attributes(body: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = body.get(FAMILY_LEN..).unwrap_or_default();
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let attribute = rest.get(..len).filter(|a| a.len() >= 4)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        let kind = u16::from_ne_bytes([attribute[2], attribute[3]]) & 0x3fff;
        Some((kind, &attribute[4..]))
    })
}

/// A batch of nf_tables messages is one transaction (`nfnetlink_rcv_batch`).
pub(super) fn batch(messages: impl IntoIterator<Item = Message>) -> Vec<u8> {
    const BEGIN: u16 = 0x10;
    const END: u16 = 0x11;
    let mut bytes = Message::new(BEGIN, 0, 0, 0, TABLES).finish();
    for message in messages {
        bytes.extend(message.finish());
    }
    bytes.extend(Message::new(END, 0, 0, 0, TABLES).finish());
    bytes
}

/// `NFNL_SUBSYS_NFTABLES`.
pub(super) const TABLES: u16 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let message = Message::new(7, 0, 1, 2, 0x1234)
            .text(1, "abc")
            .bytes(2, &[9; 5])
            .nested(3, |m| m.bytes(1, &[1]));
        let bytes = message.finish();
        let all: Vec<_> = split(&bytes).collect();
        let [(7, body)] = all[..] else {
            panic!("{all:?}")
        };
        let all: Vec<_> = attributes(body).collect();
        assert_eq!(all[0], (1, &b"abc\0"[..]));
        assert_eq!(all[1], (2, &[9u8; 5][..]));
        assert_eq!(all[2].0, 3);
        assert_eq!(
            all[2].1,
            [&5u16.to_ne_bytes()[..], &1u16.to_ne_bytes(), &[1, 0, 0, 0]].concat()
        );
    }

    #[test]
    fn cut_messages_end_the_list() {
        let bytes = Message::new(7, 0, 1, 2, 0).text(1, "abc").finish();
        for len in 0..bytes.len() {
            assert_eq!(split(&bytes[..len]).count(), 0, "{len}");
        }
        assert_eq!(attributes(&[0, 0, 0, 0, 3, 0, 0, 0]).count(), 0);
    }
}
