// SPDX-License-Identifier: MIT OR Apache-2.0
//! The body of a handshake packet (draft-gg-udt-03 §4.2, type 0): 48 bytes.

use crate::packet::number::Seq;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Description of an endpoint, sent before a connection is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// Protocol version: 4.
    pub version: u32,
    /// Mode of the connection: 1 for a byte stream, 2 for messages. Both endpoints must send the same.
    pub mode: u32,
    /// Initial sequence number. A listener uses that of the connecting endpoint as its own.
    pub first: Seq,
    /// Maximum packet length in bytes, with the headers of IP and UDP (28, with IPv6 too).
    pub mss: u32,
    /// Maximum number of packets in flight.
    pub flow_window_max: u32,
    /// Step of the handshake.
    pub step: Step,
    /// Connection ID of the sender.
    pub socket: u32,
    /// Cookie that a listener sends and expects back (§5.1).
    pub cookie: u32,
    /// Address of the receiver, as the sender sees it.
    pub peer: IpAddr,
}

/// Step of a handshake: the request type field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// 1: request for a cookie, or the cookie.
    Request,
    /// 0: rendezvous, in which both endpoints connect to each other.
    Rendezvous,
    /// −1: request with the cookie, and the response to it. The connection is open after the response.
    Response,
    /// −2: last handshake of a rendezvous.
    Agreement,
    /// 1000 or above: refusal with this code.
    Refusal(u32),
}

/// Length of the body in bytes.
pub const LEN: usize = 48;

impl Handshake {
    /// Protocol version.
    pub const VERSION: u32 = 4;
    /// Refusal code for an offer that is not acceptable (UDT4's code).
    pub const REFUSED: u32 = 1002;

    /// Parses a body. Returns `None` if it is too short or its step is unknown. Bytes after it are ignored.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        let body = body.first_chunk::<LEN>()?;
        let word = |n: usize| {
            u32::from_be_bytes([
                body[4 * n],
                body[4 * n + 1],
                body[4 * n + 2],
                body[4 * n + 3],
            ])
        };
        Some(Self {
            version: word(0),
            mode: word(1),
            first: Seq::new(word(2)),
            mss: word(3),
            flow_window_max: word(4),
            step: Step::from_word(word(5))?,
            socket: word(6),
            cookie: word(7),
            peer: address([word(8), word(9), word(10), word(11)]),
        })
    }

    /// Appends the body.
    pub fn write(&self, to: &mut Vec<u8>) {
        let words = [
            self.version,
            self.mode,
            self.first.get(),
            self.mss,
            self.flow_window_max,
            self.step.to_word(),
            self.socket,
            self.cookie,
        ];
        to.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        to.extend(
            address_words(self.peer)
                .iter()
                .flat_map(|word| word.to_be_bytes()),
        );
    }
}

impl Step {
    fn from_word(word: u32) -> Option<Self> {
        match word as i32 {
            1 => Some(Self::Request),
            0 => Some(Self::Rendezvous),
            -1 => Some(Self::Response),
            -2 => Some(Self::Agreement),
            1_000.. => Some(Self::Refusal(word)),
            _ => None,
        }
    }

    fn to_word(self) -> u32 {
        match self {
            Self::Request => 1,
            Self::Rendezvous => 0,
            Self::Response => -1i32 as u32,
            Self::Agreement => -2i32 as u32,
            Self::Refusal(code) => code,
        }
    }
}

/// Encodes an address as UDT4 does. UDT4 copies the address as it is in memory and then swaps each word like any
/// other. On the wire its bytes are therefore reversed where libudt runs on a little-endian machine, and so are ours.
/// (No implementation uses the field.)
fn address_words(address: IpAddr) -> [u32; 4] {
    let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    match address {
        IpAddr::V4(address) => [word(&address.octets()), 0, 0, 0],
        IpAddr::V6(address) => {
            let octets = address.octets();
            [0, 4, 8, 12].map(|at| word(&octets[at..]))
        }
    }
}

/// Decodes an address. An address whose last three words are 0 is taken as IPv4, because no other field tells.
fn address(words: [u32; 4]) -> IpAddr {
    match words {
        [first, 0, 0, 0] => Ipv4Addr::from(first.to_le_bytes()).into(),
        _ => {
            let mut octets = [0; 16];
            for (bytes, word) in octets.as_chunks_mut().0.iter_mut().zip(words) {
                *bytes = word.to_le_bytes();
            }
            Ipv6Addr::from(octets).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake(step: Step, peer: &str) -> Handshake {
        Handshake {
            version: 4,
            mode: 1,
            first: Seq::new(77),
            mss: 1500,
            flow_window_max: 25_600,
            step,
            socket: 5,
            cookie: 0xdead_beef,
            peer: peer.parse().unwrap(),
        }
    }

    #[test]
    fn handshake_reads_back_as_written() {
        let steps = [
            Step::Request,
            Step::Rendezvous,
            Step::Response,
            Step::Agreement,
            Step::Refusal(1002),
        ];
        for step in steps {
            for peer in ["127.0.0.1", "2001:db8::7"] {
                let mut bytes = Vec::new();
                handshake(step, peer).write(&mut bytes);
                assert_eq!(bytes.len(), LEN);
                assert_eq!(Handshake::read(&bytes), Some(handshake(step, peer)));
                assert_eq!(Handshake::read(&bytes[..LEN - 1]), None);
            }
        }
    }

    #[test]
    fn address_bytes_are_reversed() {
        let mut bytes = Vec::new();
        handshake(Step::Request, "127.0.0.1").write(&mut bytes);
        assert_eq!(bytes[32..36], [1, 0, 0, 127]);
    }
}
